"""Time grows as the input does, and memory does not: ratios of processor time, so that no machine is too slow.

Four times the input may take up to eight times as long; something quadratic takes sixteen.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from time import process_time
from types import FrameType, ModuleType
from typing import Any

import pytest
from differential import DECODERS, ITERATORS, LAYERS, MODES
from wire import message_header, message_wire, packet_header

from phpmq.errors import ProtocolError

MIB = 2**20
FACTOR, BOUND = 4, 8


def seconds(function: Callable[[bytes], Any], data: bytes) -> float:
    start = process_time()
    function(data)
    return process_time() - start


def assert_linear(function: Callable[[bytes], Any], make: Callable[[int], bytes], size: int) -> None:
    """``function`` on ``make(size)`` against four times as much, each at its best of up to ten times."""
    data, more = make(size), make(FACTOR * size)
    small = large = float("inf")
    for _ in range(10):
        # a coarse clock may say 0
        small, large = min(small, seconds(function, data) or small), min(large, seconds(function, more))
        if large < BOUND * small:
            return
    raise AssertionError(f"{FACTOR} times the input took {large / small:.1f} times as long")


def streamer(codec: ModuleType, layer: str, chunk: int, **options: Any) -> Callable[[bytes], int]:
    """Counts the items of a decoder that is fed in chunks."""

    def read(data: bytes) -> int:
        decoder = getattr(codec, DECODERS[layer])(**options)
        count = 0
        for start in range(0, len(data), chunk):
            decoder.feed(data[start : start + chunk])
            count += sum(1 for _ in decoder)
        decoder.close()
        return count + sum(1 for _ in decoder)

    return read


def iterator(codec: ModuleType, layer: str, **options: Any) -> Callable[[bytes], int]:
    return lambda data: sum(1 for _ in getattr(codec, ITERATORS[layer])(data, **options))


def sizes(ordinary: int, long: int) -> pytest.MarkDecorator:
    """Runs a test with ``ordinary`` bytes or frames, and by hand with ``long``."""
    return pytest.mark.parametrize(
        "size", [pytest.param(ordinary, id="ordinary"), pytest.param(long, id="long", marks=pytest.mark.long)]
    )


layers = pytest.mark.parametrize("layer", LAYERS)


@layers
@sizes(2 * MIB, 8 * MIB)
def test_one_content_in_small_chunks(codec: ModuleType, layer: str, size: int) -> None:
    def message(size: int) -> bytes:
        return message_wire("Send", {"queue": "Foo", "content": bytes(size)})

    assert_linear(streamer(codec, layer, 64), message, size)


@layers
@sizes(25_000, 100_000)
def test_many_small_frames(codec: ModuleType, layer: str, size: int) -> None:
    frame = message_wire("Acknowledge", {"queue": "Foo", "message_id": "1"})
    for read in (streamer(codec, layer, 10**9), iterator(codec, layer)):
        assert_linear(read, frame.__mul__, size)


#: Bytes of which every few begin something like a frame, by layer; some wait long for what they declare.
STARTS = {
    "frames": {
        "markers": b"H",
        "headers": message_header(1, 1),
        # Each is a frame of 99 packets, nested in the one before, and one byte too large at its last.
        "chains": message_header(1, 99) + packet_header(1, 8),
        "cut": message_header(1, 1) + packet_header(1, 60 * MIB),
        "far": message_header(1, 2) + packet_header(1, 64_000),
    },
    "messages": {
        "markers": b"H",
        "headers": message_header(3, 4),
        "chains": b"".join(message_header(3, 4) + packet_header(type, 8) for type in (1, 2, 3, 5)),
        "cut": message_header(1, 2) + packet_header(1, 60 * MIB),
        "far": message_header(1, 2) + packet_header(1, 64_000),
        # Frames of an unknown type, each 99 packets and one byte too large, with a good message inside.
        "nested": message_header(999, 99)
        + packet_header(1, 80)
        + message_wire("Acknowledge", {"queue": "", "message_id": ""}),
    },
}
LIMITS = {"chains": 8 + 99 * 40 - 1, "nested": 8 + 99 * 112 - 1}


@pytest.mark.parametrize(("layer", "name"), [(layer, name) for layer in LAYERS for name in STARTS[layer]])
@sizes(MIB // 8, MIB)
def test_recovery(codec: ModuleType, layer: str, name: str, size: int) -> None:
    unit = STARTS[layer][name]
    options = {"on_fault": "skip", "max_frame_size": LIMITS.get(name, 64 * MIB)}
    for read in (streamer(codec, layer, 64 * 1024, **options), iterator(codec, layer, **options)):
        assert_linear(read, lambda size: unit * (size // len(unit)), size)


def calls(function: Callable[[bytes], Any], data: bytes) -> int:
    """How many functions of Python are called, and generators resumed."""
    count = 0

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(watch)
    try:
        function(data)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("name", "each"), [("messages", 5), ("frames", 4), ("scan", 2)])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_whole_frames_take_few_calls(codec: ModuleType, name: str, each: int, count: int) -> None:
    """A frame of four packets within the limit is not taken apart in steps: that is for the ones that are not whole."""
    frame = message_wire("Dispatch", {"queue": "Foo", "content": b"Hello", "message_id": "d7", "ttl": 60})
    limit = {"max_frame_size": len(frame)}
    read = (lambda data: codec.scan(data, **limit)) if name == "scan" else iterator(codec, name, **limit)
    read(frame)  # what is worked out once
    assert calls(read, frame * count) - calls(read, b"") <= 4 + each * count


def growth(function: Callable[[], Any]) -> int:
    """The most memory that a call holds at a time, in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@layers
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [60 * MIB, 10**12, 2**62])
def test_a_declared_length_allocates_nothing(codec: ModuleType, layer: str, mode: str, length: int) -> None:
    data = message_header(1, 2) + packet_header(2, length) + b"start"

    def read() -> None:
        decoder = getattr(codec, DECODERS[layer])(max_frame_size=None, on_fault=mode)
        decoder.feed(data)
        assert list(decoder) == []
        assert decoder.buffered == len(data)
        codec.scan(data, max_frame_size=None)
        with pytest.raises(ProtocolError):
            list(getattr(codec, ITERATORS[layer])(data, max_frame_size=None))

    assert growth(read) < 64 * 1024


@pytest.mark.parametrize(("text", "count"), [("{:010}", 20_000), ("{:010000}", 200)], ids=["many names", "long names"])
def test_names_are_not_kept_without_end(codec: ModuleType, text: str, count: int) -> None:
    def use() -> None:
        for number in range(count):
            message = codec.Dispatch(text.format(number), b"", str(number), number)
            assert codec.decode(codec.encode(message)) == message

    assert growth(use) < MIB


@layers
@pytest.mark.parametrize("unit", [b"x", b"H", b"H0100101", message_header(1, 1) + packet_header(1, 500)])
def test_endless_junk_is_held_flat(codec: ModuleType, layer: str, unit: bytes) -> None:
    chunk = unit * (8 * 1024 // len(unit))

    def read() -> None:
        decoder = getattr(codec, DECODERS[layer])(max_frame_size=400, on_fault="skip")
        for _ in range(24):
            decoder.feed(chunk)
            assert list(decoder) == []
        assert decoder.buffered == 24 * len(chunk)

    assert growth(read) < 16 * len(chunk)


@layers
def test_nothing_is_held_after_a_fault(codec: ModuleType, layer: str) -> None:
    decoder = getattr(codec, DECODERS[layer])()

    def read() -> None:
        for _ in range(100):
            with pytest.raises(ProtocolError):
                decoder.feed(bytes(16 * 1024))

    decoder.feed(bytes(MIB))
    with pytest.raises(ProtocolError):
        next(decoder)
    assert growth(read) < 64 * 1024


# What is held at a time, of contents that are large


def megabytes(size: int) -> bytes:
    return message_wire("Send", {"queue": "Foo", "content": bytes(size * MIB)})


@layers
def test_an_iterator_holds_two_items_and_nothing_of_its_input(codec: ModuleType, layer: str) -> None:
    data = megabytes(1) * 64
    read = iterator(codec, layer)
    assert growth(lambda: read(data)) < 2 * MIB + 256 * 1024  # one is made while the caller still has the one before
    assert growth(lambda: list(getattr(codec, ITERATORS[layer])(data))) < len(data) + 256 * 1024
    assert growth(lambda: codec.scan(data)) < 256 * 1024


@layers
def test_a_decoder_holds_half_as_much_again_as_it_needs(codec: ModuleType, layer: str) -> None:
    data = megabytes(32)
    read = streamer(codec, layer, 64 * 1024)
    assert growth(lambda: read(data)) < len(data) + 1.5 * len(data) + MIB  # the item, and the bytes that it is made of


@layers
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_small_content_keeps_nothing_of_what_came_with_it(codec: ModuleType, layer: str, goes_on: bool) -> None:
    small = message_wire("Send", {"queue": "Foo", "content": b"Hello"})
    data = small + megabytes(60)
    kept = []
    tracemalloc.start()
    try:
        decoder = getattr(codec, DECODERS[layer])()
        decoder.feed(data)
        kept.append(memoryview(bytes(next(decoder)) if layer == "messages" else next(decoder).packets[1].content))
        assert len(list(decoder)) == 1
        if goes_on:
            decoder.feed(small)
            assert len(list(decoder)) == 1
        else:
            del decoder
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()


@layers
def test_a_bytearray_can_grow_as_soon_as_it_was_read(codec: ModuleType, layer: str) -> None:
    """Neither decoders, nor items, nor exceptions with the frames where they were raised hold a view on it."""
    iterate, make = getattr(codec, ITERATORS[layer]), getattr(codec, DECODERS[layer])
    frame = message_wire("Acknowledge", {"queue": "Foo", "message_id": "1"})
    data = bytearray(frame + b"x" * 100)
    message = codec.Acknowledge("Foo", "1")
    closed, failed = make(), make()
    closed.close()
    failed.feed(data)
    kept: list[Any] = [closed, failed, memoryview(bytes(message))]
    for call in (
        lambda: kept.extend(failed),
        lambda: failed.feed(data),
        lambda: closed.feed(data),
        lambda: kept.append(codec.scan(data)),
        lambda: kept.extend(iterate(data)),
        lambda: kept.extend(iterate(data, on_fault="skip")),
        lambda: iterate(data, max_frame_size=1),
        lambda: codec.decode(data),
        lambda: codec.decode(data, max_frame_size=1),
        lambda: codec.detect_packet_header_size(data),
        lambda: codec._find_frame(data, 1),
        lambda: codec.encode_into(message, data, len(data)),
        lambda: codec.encode_frame(1, [(1, data), (100, data)]),
        lambda: kept.append(codec.Send("q", data)),
        lambda: codec.Send("q", data, -1),
    ):
        try:
            call()
        except ValueError as error:
            kept.append(error)
        data.append(0)
    assert sum(isinstance(entry, ValueError) for entry in kept) >= 8

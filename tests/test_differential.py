"""Both codecs do the same with the same bytes, and each keeps the laws that tie its ways of reading together.

Comparisons take ``both_codecs``; laws that a codec can break alone take ``codec``. The ordinary run draws from
a fixed seed; ``-m long`` draws anew, and twenty times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from types import ModuleType
from typing import Any

import pytest
from batches import at_once, decoded
from differential import (
    LAYERS,
    MODES,
    Outcome,
    iterated,
    operated,
    plain,
    streamed,
    ways,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import LAWS
from mutations import Case, Told
from strategies import calls, cases, frames, messages, sizes
from wire import field_names, message_parts, message_wire, packet_header, parts

from phpmq.protocol import CATALOGUE, PACKET_HEADER_SIZES, Form, PacketType
from phpmq.records import COLUMNS

Codecs = tuple[ModuleType, ModuleType]


def fixed(examples: int) -> settings:
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None)


def drawn(examples: int) -> settings:
    return settings(max_examples=20 * examples, deadline=None)


efforts = pytest.mark.parametrize(
    "effort", [pytest.param(fixed, id="fixed"), pytest.param(drawn, id="drawn", marks=pytest.mark.long)]
)
Effort = Callable[[int], settings]


class Comparison:
    """Both codecs, and how often they were compared."""

    def __init__(self, codecs: Codecs) -> None:
        self.codecs = codecs
        self.cases = 0

    def __call__(self, function: Callable[..., Outcome], *args: Any, **options: Any) -> None:
        """Whatever ``function`` sees is the same with both."""
        reference, compiled = self.codecs
        self.cases += 1
        assert function(compiled, *args, **options) == function(reference, *args, **options)


@pytest.fixture
def agree(both_codecs: Codecs, record_property: Callable[[str, object], None]) -> Iterator[Comparison]:
    comparison = Comparison(both_codecs)
    yield comparison
    record_property("cases", comparison.cases)


@efforts
def test_damaged_streams(agree: Comparison, effort: Effort) -> None:
    @effort(400)
    @given(cases())
    def compare(case: Case) -> None:
        for way in ways(case):
            agree(way)

    compare()


@efforts
def test_calls_in_any_order(agree: Comparison, effort: Effort) -> None:
    @effort(300)
    @given(cases(), st.lists(calls, max_size=30), st.sampled_from(LAYERS), st.sampled_from(MODES))
    def compare(case: Case, steps: list[str], layer: str, mode: str) -> None:
        agree(operated, layer, case.chunks, steps, on_fault=mode, **case.options)

    compare()


def written(codec: ModuleType, told: Told, size: int) -> Outcome:
    """What a codec makes of a message, and on the wire."""
    message = getattr(codec, told.name)(**told.fields)
    buffer = bytearray(1000)
    codec.encode_into(message, buffer, 7, packet_header_size=size)
    many = codec.encode_many([message, message], packet_header_size=size)
    return [plain(message), repr(message), codec.encode(message, packet_header_size=size), many, buffer]


@efforts
def test_encoding(agree: Comparison, effort: Effort) -> None:
    @effort(200)
    @given(messages, sizes)
    def compare(told: Told, size: int) -> None:
        agree(written, told, size)

    compare()


#: The limits of a batch: rows, and bytes.
limits = st.tuples(st.sampled_from([1, 2, 3, 2**31 - 1]), st.sampled_from([1, 100, 300, 1000, 2**31 - 1]))
columns = st.sampled_from([list(COLUMNS), ["offset"], ["fault"]]) | st.lists(
    st.sampled_from(list(COLUMNS)), min_size=1, unique=True
)


@efforts
def test_columns(agree: Comparison, effort: Effort) -> None:
    @effort(400)
    @given(cases(), columns, limits, st.integers(0, 2000) | st.none())
    def compare(case: Case, names: list[str], most: tuple[int, int], stop: int | None) -> None:
        options = {"max_rows": most[0], "max_bytes": most[1], "stop": stop, **case.options}
        for mode in MODES:
            agree(decoded, case.chunks, names, on_fault=mode, **options)
            agree(at_once, case.data, names, on_fault=mode, **options)
        for start in {0, 1, len(case.data) // 2, len(case.data)}:
            agree(found, case.data, start, **case.options)

    compare()


def found(codec: ModuleType, data: bytes, start: int, **options: Any) -> Outcome:
    return [codec._find_frame(data, start, **options)]


FIELDS = {"queue": "Foo", "content": b"\0H0100202\n", "message_id": "d7", "ttl": 3600, "count": 5}


def shape(form: Form, size: int) -> list[bytes]:
    return message_parts(form.message, {name: FIELDS[name] for name in field_names(form)}, size)


def header_positions(pieces: list[bytes]) -> Iterator[int]:
    start = 0
    for index, piece in enumerate(pieces):
        if index == 0 or index % 2:
            yield from range(start, start + len(piece))
        start += len(piece)


def every_header_byte(form: Form, size: int) -> Iterator[list[bytes]]:
    """A message with one byte of its headers set to one of all values, as what comes before, the byte, and the rest."""
    pieces = shape(form, size)
    for_recovery = message_wire("Acknowledge", {"queue": "", "message_id": "0"}, size)
    data = b"".join(pieces) + for_recovery
    for position in header_positions(pieces):
        for value in range(256):
            yield [data[:position], bytes([value]), data[position + 1 :]]


shapes = pytest.mark.parametrize("size", PACKET_HEADER_SIZES)
forms = pytest.mark.parametrize("form", CATALOGUE.values(), ids=lambda form: f"{form.message}{len(form.packets)}")


@shapes
@forms
def test_every_value_of_every_header_byte(agree: Comparison, form: Form, size: int) -> None:
    for chunks in every_header_byte(form, size):
        before, byte, after = chunks
        agree(streamed, "messages", [before + byte, after], packet_header_size=size, on_fault="raise")
        agree(iterated, "messages", b"".join(chunks), packet_header_size=size, on_fault="skip")


@pytest.mark.long
@shapes
@forms
def test_every_value_of_every_header_byte_in_every_way(agree: Comparison, form: Form, size: int) -> None:
    for chunks in every_header_byte(form, size):
        for cut in (chunks, [b"".join(chunks)]):
            for layer in LAYERS:
                for mode in MODES:
                    agree(streamed, layer, cut, packet_header_size=size, on_fault=mode)


#: What stands behind a frame, for recovery to find.
NEXT = message_wire("Acknowledge", {"queue": "", "message_id": "0"})


@forms
def test_every_limit(agree: Comparison, form: Form) -> None:
    data = b"".join(shape(form, 32)) + NEXT
    for limit in range(8, len(data)):
        for layer in LAYERS:
            for mode in MODES:
                agree(streamed, layer, [data], max_frame_size=limit, on_fault=mode)


@shapes
def test_declared_lengths(agree: Comparison, size: int) -> None:
    """Lengths at the edges of all integers that a codec may keep them in, in each packet."""
    lengths = [power + change for power in (2**31, 2**32, 2**64) for change in range(-1, 6)]
    lengths += [2**63 + change for change in range(-200, 2)]
    for form in CATALOGUE.values():
        pieces = shape(form, size)
        for at in range(1, len(pieces), 2):
            for length in (*lengths, 10 ** (size - 3) - 1):
                data = b"".join([*pieces[:at], packet_header(int(pieces[at][1:3]), length, size), b"start"])
                for limit in (None, 2**63 - 2, 2**32, 2**26):
                    agree(iterated, "messages", data, packet_header_size=size, max_frame_size=limit)


INTEGERS = (
    *(b"", b"00", b"01", b"10", b"007", b"+5", b"-5", b"-0", b" 5", b"5 ", b"5\n", b"1_0", b"1e3", b"0x1", b"1.0"),
    *(b"%d" % (2**63 + change) for change in range(-20, 20)),
    *(b"%d" % (power + change) for power in (2**31, 2**32, 2**64, 10**18, 10**19, 10**20) for change in (-1, 0, 1)),
    *(b"0" * 19, b"0" * 20, b"9" * 18, b"9" * 19, b"9" * 20, "\u0663".encode(), "\uff12".encode(), "\xb2".encode()),
    *(bytes([value]) for value in range(256)),
    *(b"1%c" % value for value in range(256)),
    *(b"%c1" % value for value in range(256)),
    *(b"123456%c8901" % value for value in range(256)),
)


@forms
def test_integers(agree: Comparison, form: Form) -> None:
    for packet in {PacketType.COUNT, PacketType.TTL}.intersection(form.packets):
        *before, _, _ = shape(form, 32)
        for content in INTEGERS:
            data = b"".join([*before, packet_header(packet, len(content)), content])
            for mode in MODES:
                agree(streamed, "messages", [data[:-1], data[-1:] + NEXT], on_fault=mode)


@efforts
def test_laws_of_reading(codec: ModuleType, effort: Effort) -> None:
    @effort(300)
    @given(cases())
    def check(case: Case) -> None:
        for law in LAWS:
            law(codec, case)

    check()


@efforts
def test_messages_come_back(codec: ModuleType, effort: Effort) -> None:
    @effort(200)
    @given(messages, sizes, st.data())
    def check(told: Told, size: int, data: st.DataObject) -> None:
        message = getattr(codec, told.name)(**told.fields)
        header, *bodies = message_parts(*told, size)
        assert codec.encode(message, packet_header_size=size) == header + b"".join(bodies)
        packets = data.draw(st.permutations(list(zip(bodies[::2], bodies[1::2], strict=True))))
        reordered = header + b"".join(chain.from_iterable(packets))
        assert codec.decode(reordered, packet_header_size=size) == message

    check()


@efforts
def test_frames_come_back(codec: ModuleType, effort: Effort) -> None:
    @effort(100)
    @given(st.lists(frames, max_size=4), sizes)
    def check(told: list[tuple[int, list[tuple[int, bytes]]]], size: int) -> None:
        wires = [b"".join(parts(*frame, size)) for frame in told]
        assert [codec.encode_frame(*frame, packet_header_size=size) for frame in told] == wires
        came = list(codec.iter_frames(b"".join(wires), packet_header_size=size))
        assert [(frame.type, list(frame.packets)) for frame in came] == told
        assert [frame.size for frame in came] == [len(wire) for wire in wires]

    check()

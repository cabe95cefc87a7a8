"""Everything that a codec makes, made and dropped again and again: `python tests/leaks.py NAME CODEC [TIMES]`.

It prints how many blocks of memory a quarter of that leaves, and by how many bytes the process has grown in all. NAME
`all` is one after another, to be looked at in another way, as by valgrind.
"""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

from backends import MODULES
from wire import message_header, message_wire, packet_header, parts

from phpmq.records import COLUMNS

Round = Callable[[], object]

MESSAGES = (
    message_wire("Send", {"queue": "Foo", "content": b"Hello World" * 20, "ttl": 10**12}),
    message_wire("Consume", {"queue": "Gr\xfc\xdfe", "count": 500}),
    message_wire("Dispatch", {"queue": "Bar", "content": b"", "message_id": "\udcff" * 9, "ttl": 10**12}),
    message_wire("Acknowledge", {"queue": "Foo", "message_id": "d7"}),
    message_wire("Requeue", {"queue": "\udcff", "message_id": "d7" * 16, "ttl": 0}),
    message_wire("Receipt", {"queue": "Foo", "message_id": "d7"}),
    message_wire("DeadLetter", {"queue": "Foo", "message_id": "d7"}),
)
WHOLE = b"".join(MESSAGES)
LARGE = message_wire("Send", {"queue": "Foo", "content": bytes(200_000)})
ODD = b"".join(parts(2, [(1, b"Foo"), (4, b"007")]))
#: Starts of frames that prove a fault, and one that is cut off.
FAULTS = (
    *(
        b"junk" * 20,
        b"HTTP/1.1",
        b"H0200402",
        b"H01004x2",
        b"H0100999",
        b"H0100499",
        b"H0100402\n",
        ODD,
        MESSAGES[3][:-1],
    ),
    *(message_header(4, 2) + packet_header(*header) for header in ((2, 3), (1, 10**12))),
)
DAMAGED = b"".join(WHOLE + fault for fault in FAULTS) + WHOLE


def each_state(codec: ModuleType, name: str) -> Round:
    """A decoder that is dropped in every state that it can have."""
    make = getattr(codec, name)

    def drop() -> None:
        make()
        decoders = [make(on_fault="skip") for _ in range(12)] + [make() for _ in range(3 + len(FAULTS))]
        fed, header, content, large, recovering, deep, framing, half, closed, cut, reset, again, *others = decoders
        fed.feed(WHOLE)
        for decoder, data in (
            (header, WHOLE + WHOLE[:20]),
            (content, WHOLE + WHOLE[:100]),
            (large, LARGE[:70_000]),
            (recovering, WHOLE + b"junk" * 100 + MESSAGES[3][:20]),
            (deep, b"junk" * 20_000),
            (framing, ODD),
            (closed, DAMAGED),
            (cut, DAMAGED[:-1]),
            (reset, b"junk" + WHOLE[:20]),
            (again, b"junk" + WHOLE[:20]),
        ):
            for chunk in (data[: len(data) // 2], data[len(data) // 2 :]):
                decoder.feed(chunk)
                list(decoder)
        deep.feed(b"junk")
        half.feed(DAMAGED)
        list(islice(half, 5))
        for decoder in (closed, cut):
            decoder.close()
            list(decoder)
        reset.reset()
        again.reset()
        again.feed(DAMAGED)
        list(again)
        errors = []
        for decoder, fault in zip(others, FAULTS, strict=False):
            decoder.feed(WHOLE + fault)
            decoder.close()
            for _ in range(2):
                try:
                    list(decoder)
                except ValueError as error:
                    errors.append(error)
            with suppress(ValueError):
                decoder.feed(b"x")

    return drop


def columns(codec: ModuleType) -> Round:
    def drop() -> None:
        for mode in ("raise", "skip"):
            for data in (WHOLE, DAMAGED, WHOLE[:-1], LARGE):
                options = {"on_fault": mode, "max_rows": 7, "max_bytes": 2**20}
                codec._decode_columns(data, list(COLUMNS), **options)
                next(codec._decode_columns(data, list(COLUMNS), **options))
                with suppress(ValueError):
                    list(codec._decode_columns(data, ["queue", "raw"], **options))
                decoder = codec._decode_columns(None, list(COLUMNS), **options)
                decoder.feed(data)
                next(decoder, None)
                decoder = codec._decode_columns(None, ["ttl"], **options)
                decoder.feed(data)
        with suppress(ValueError):
            codec._decode_columns(WHOLE, ["ttl"], start=10**6, max_rows=1, max_bytes=1)

    return drop


def encoded_columns(codec: ModuleType) -> Round:
    def given(data: bytes) -> tuple[int, dict[str, Any]]:
        [(rows, made)] = codec._decode_columns(data, list(COLUMNS), on_fault="skip", max_rows=1000, max_bytes=2**20)
        copies = [[None if part is None else array("b", bytes(part)) for part in buffers] for _, buffers in made]
        return rows, {name: (0, buffers) for name, buffers in zip(COLUMNS, copies, strict=True)}

    good, bad = given(WHOLE), given(DAMAGED)

    def drop() -> None:
        codec._encode_columns(*good)
        codec._encode_columns(*bad)
        with suppress(TypeError):
            codec._encode_columns(1, {"type": (0, [None, b"", 5])})
        codec._find_frame(DAMAGED, len(WHOLE) + 1)

    return drop


def iterators(codec: ModuleType) -> Round:
    """Iterators that are dropped before and behind an item, at a fault, and at their end."""

    def drop() -> None:
        for iterate in (codec.iter_messages, codec.iter_frames):
            for data in (b"", WHOLE, bytearray(WHOLE), DAMAGED):
                for mode in ("raise", "skip"):
                    iterate(data, on_fault=mode)
                    next(iterate(data, on_fault=mode), None)
                    items = iterate(data, on_fault=mode)
                    with suppress(ValueError):
                        list(items)
                    next(items, None)
            with suppress(ValueError):
                iterate(WHOLE, max_frame_size=1)
            with suppress(TypeError):
                iterate("text")

    return drop


def kept_errors(codec: ModuleType) -> Round:
    """Exceptions that are kept, with the frames in which they were raised, and dropped together."""

    def drop() -> None:
        kept = []
        for fault in FAULTS:
            decoder = codec.Decoder()
            decoder.feed(WHOLE + fault)
            decoder.close()
            data = bytearray(WHOLE + fault)
            for call in (
                lambda decoder=decoder: list(decoder),
                lambda decoder=decoder: next(decoder),
                lambda decoder=decoder: decoder.feed(b"x"),
                lambda data=data: list(codec.iter_messages(data)),
                lambda data=data: list(codec.iter_frames(data)),
                lambda data=data: codec.decode(data),
            ):
                try:
                    call()
                except ValueError as error:
                    kept.append(error)
            data += b"grows"
            kept.append(codec.scan(data).error)

    return drop


def messages(codec: ModuleType) -> Round:
    made = [codec.decode(data) for data in MESSAGES]
    fields = [(type(item), [getattr(item, name) for name in item.__match_args__]) for item in made]
    wrong: list[tuple[Any, tuple[Any, ...]]] = [
        *((codec.Send, arguments) for arguments in ((), ("q", "text"), ("q", b"", -1), ("\ud800", b""), (b"q", b""))),
        *((codec.Consume, ("q", number)) for number in (True, 2**63, -(10**30), "1", None)),
        *((codec.Acknowledge, arguments) for arguments in (("q", "\ud800"), ("q",), ("q", None), ("q", "m", 1))),
    ]

    def drop() -> None:
        for make, values in fields:
            message = make(*values)
            repr(message)
            hash(message)
            assert message == message.__replace__()
            with suppress(AttributeError):
                message.queue = "other"
        codec.Send(queue="q", content=memoryview(bytearray(300)))
        for make, arguments in wrong:
            with suppress(TypeError, ValueError):
                make(*arguments)

    return drop


def encoding(codec: ModuleType) -> Round:
    made = [codec.decode(data) for data in MESSAGES]
    packets = [(1, b"Foo"), (77, bytearray(300)), (2, memoryview(b"content"))]
    buffer = bytearray(len(WHOLE))

    def drop() -> None:
        for message in made:
            codec.encode(message)
            codec.encode_into(message, buffer)
            with suppress(ValueError):
                codec.encode_into(message, buffer, len(buffer) - 1)
            with suppress(TypeError):
                codec.encode_into(message, b"read only")
        codec.encode_many(made)
        codec.encode_many(iter(made), packet_header_size=36)
        codec.encode_frame(900, iter(packets))
        for function, arguments in (
            (codec.encode, (None,)),
            (codec.encode_many, ([*made, None],)),
            (codec.encode_many, (None,)),
            (codec.encode_frame, (900, [*packets, (1, "text")])),
            (codec.encode_frame, (900, [*packets, (100, b"")])),
            (codec.encode_frame, (900, [*packets, None])),
            (codec.encode_frame, (1000, packets)),
        ):
            with suppress(TypeError, ValueError):
                function(*arguments)

    return drop


def whole_inputs(codec: ModuleType) -> Round:
    def drop() -> None:
        for data in (*MESSAGES, *FAULTS, DAMAGED, b"", MESSAGES[0] + b"x", "text", memoryview(bytes(9))[::2]):
            for function in (codec.decode, codec.scan, codec.detect_packet_header_size):
                with suppress(TypeError, ValueError):
                    function(data)
        codec.detect_packet_header_size(WHOLE)

    return drop


def pickles(codec: ModuleType) -> Round:
    data = WHOLE + b"junk" + MESSAGES[0]
    items = [*codec.iter_messages(data, on_fault="skip"), *codec.iter_frames(data, on_fault="skip")]
    items += [codec.scan(fault) for fault in (data, WHOLE[:-1])]

    def drop() -> None:
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            pickle.loads(pickle.dumps(items, protocol))
        with suppress(TypeError):
            pickle.dumps(codec.Decoder())

    return drop


#: What is kept on purpose, to see that it is seen.
PLANTED: list[object] = []


def every_tenth(make: Callable[[], object]) -> Round:
    numbers = count()
    return lambda: PLANTED.append(make()) if next(numbers) % 10 == 0 else make()


SCRIPTS: Mapping[str, Callable[[ModuleType], Round]] = {
    **{name: lambda codec, name=name: each_state(codec, name) for name in ("Decoder", "FrameDecoder", "_Scanner")},  # type: ignore[misc]
    "columns": columns,
    "encoded-columns": encoded_columns,
    "iterators": iterators,
    "kept-errors": kept_errors,
    "messages": messages,
    "encoding": encoding,
    "whole-inputs": whole_inputs,
    "pickles": pickles,
}
PLANTS: Mapping[str, Callable[[ModuleType], Round]] = {
    "planted-small": lambda codec: every_tenth(object),
    "planted-message": lambda codec: every_tenth(lambda: codec.decode(MESSAGES[3])),
    "planted-large": lambda codec: every_tenth(lambda: b"x" * 200_000),
}


def resident() -> int:
    """The bytes of memory that the process has; its most so far where the system does not tell."""
    if (status := Path("/proc/self/statm")).exists():
        return int(status.read_text().split()[1]) * 4096
    try:
        import resource  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


#: So often it is looked at what rounds leave: what leaks grows each time, and what is kept for the next only sometimes.
LOOKS = 4


def growth(once: Round, times: int) -> tuple[int, int]:
    """How many blocks there are more after a quarter of so many rounds at the least, and how many bytes after all."""
    for _ in range(times // LOOKS):
        once()
    size = resident()
    blocks = [blocks_after(once, times // LOOKS) for _ in range(LOOKS)]
    return min(blocks), resident() - size


def blocks_after(once: Round, times: int) -> int:
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        once()
    gc.collect()
    return sys.getallocatedblocks() - before


def main(name: str, codec_name: str, times: str = "1000") -> None:
    codec = importlib.import_module(MODULES[codec_name])
    for script in SCRIPTS if name == "all" else [name]:
        blocks, size = growth({**SCRIPTS, **PLANTS}[script](codec), int(times))
        print(script, blocks, size, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

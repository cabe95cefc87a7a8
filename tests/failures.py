"""A codec that runs out of memory: `python tests/failures.py CODEC [STEP [NAME...]]` fails the allocations of calls.

One in STEP of them fails, each in a run of its own; for each operation it prints how many calls there were and how many
allocations failed. The idea: nothing but the call in hand runs while one allocation is set to fail, and what is made
before and behind it is as ever. So the whole has to give what it gives where nothing fails, if the call that did not
get its memory is repeated.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import importlib
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isgenerator
from itertools import count, repeat
from types import ModuleType
from typing import Any, NamedTuple

from backends import MODULES
from differential import DECODERS, ITERATORS, LAYERS, MODES, plain
from wire import message_header, message_wire, packet_header, parts

from phpmq.errors import ProtocolError
from phpmq.records import COLUMNS

#: Fails allocations; of CPython's own tests, and not everywhere.
MEMORY = "_testcapi"

Call = Callable[[], Any]


class Means(NamedTuple):
    """What it takes to have a call fail: what takes all free objects that the codec keeps for the next, what is
    raised where there is no memory, and which allocations fail: one of so many."""

    hoard: Call
    refusals: tuple[type[Exception], ...]
    step: int


class Tally:
    """How many calls were looked at, and how many of their allocations failed."""

    def __init__(self) -> None:
        self.calls = self.failures = 0


def outcome_of(call: Call) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def without_memory(call: Call, number: int, means: Means) -> tuple[Any, bool]:
    """What a call gives if its allocation of this number fails, and whether there was one."""
    gc.collect()  # also frees all objects that the interpreter keeps for the next
    kept = means.hoard()
    memory = importlib.import_module(MEMORY)
    memory.set_nomemory(number, number + 1)
    try:
        outcome = call()
    except Exception as error:
        outcome = error
    try:
        for _ in repeat(None, number + 1):
            bytes(1000)
    except MemoryError:
        reached = False  # it was still to come
    else:
        reached = True
    memory.remove_mem_hooks()
    del kept
    if isinstance(outcome, Exception):
        # with their frames these would be kept for good, in a cycle with this one
        outcome = MemoryError() if isinstance(outcome, means.refusals) else outcome.with_traceback(None)
    return outcome, reached


# Operations that keep nothing


def check_call(call: Call, tally: Tally, means: Means) -> None:
    """A call that gives the same whenever it is made; where there is no memory it says so."""
    expected = plain(outcome_of(call))
    tally.calls += 1
    for number in count(0, means.step):
        outcome, reached = without_memory(call, number, means)
        if not reached:
            assert plain(outcome) == expected, f"{plain(outcome)} with no failure, not {expected}"
            break
        tally.failures += 1
        assert isinstance(outcome, MemoryError) or plain(outcome) == expected, (
            f"failure {number}: {outcome!r}, not {expected}"
        )
        again = plain(outcome_of(call))
        assert again == expected, f"after failure {number}: {again}, not {expected}"


# Operations on something that goes on


class Subject(NamedTuple):
    """A reader that is called again and again; ``steps_ahead`` says that it reads on before it has an item to give."""

    reader: Any
    chunks: tuple[bytes, ...] = ()
    looks: tuple[str, ...] = ()
    steps_ahead: bool = False


def state(reader: Any) -> tuple[int, int] | None:
    return (reader.offset, reader.buffered) if hasattr(reader, "feed") else None


class Drive:
    """Feeds a reader all chunks and reads it to its end, with one allocation failing in one of all the calls."""

    def __init__(self, subject: Subject, failing: int | None, number: int, means: Means) -> None:
        self.subject, self.failing, self.number, self.means = subject, failing, number, means
        self.calls = 0
        self.reached = self.is_broken_off = False
        self.seen: list[Any] = []

    def run(self) -> None:
        reader = self.subject.reader
        if not hasattr(reader, "feed"):
            self.drain()
            return
        for chunk in self.subject.chunks:
            self.feed(chunk)
            self.drain()
        self.call(reader.close)
        self.drain()
        outcome = self.try_once(reader.reset)
        self.seen.append(plain(outcome_of(reader.reset) if isinstance(outcome, MemoryError) else outcome))
        self.feed(ACKNOWLEDGE)
        self.drain()

    def drain(self) -> None:
        reader = self.subject.reader
        while True:
            outcome = self.call(reader.__next__)
            self.seen.append((readable(outcome), state(reader)))
            for name in self.subject.looks:
                self.seen.append(plain(self.call(partial(getattr, reader, name))))
            if isinstance(outcome, Exception):
                return

    def feed(self, chunk: bytes) -> None:
        reader = self.subject.reader
        before = reader.offset, reader.buffered
        outcome = self.try_once(partial(reader.feed, chunk))
        if isinstance(outcome, MemoryError):
            if state(reader) == before:
                outcome = outcome_of(partial(reader.feed, chunk))
            else:
                assert state(reader) == (before[0], before[1] + len(chunk)), f"{state(reader)} after {before}"
                outcome = None
        self.seen.append((plain(outcome), state(reader)))

    def call(self, call: Call) -> Any:
        before = state(self.subject.reader)
        outcome = self.try_once(call)
        if isinstance(outcome, MemoryError):
            after = state(self.subject.reader)
            outcome = outcome_of(call)
            assert self.is_in_place(before, after, outcome), f"at {after} after {before}, then {outcome!r}"
        return outcome

    def is_in_place(self, before: tuple[int, int] | None, after: tuple[int, int] | None, outcome: Any) -> bool:
        """Whether a call that had no memory has lost nothing; ``outcome`` is that of the same call again."""
        if before is None or after is None:
            return True
        if after[0] != before[0] and not self.subject.steps_ahead:
            return False
        # with the fault in mind it keeps no bytes
        is_told = self.subject.steps_ahead or isinstance(outcome, ProtocolError)
        return sum(before) == sum(after) or (after[1] == 0 and is_told)

    def has_ended_early(self, expected: list[Any]) -> bool:
        """Whether an iterator was at its end after a failure: every generator is, and others where they have a fault
        to raise, as it is the interpreter that gets no memory to raise it."""
        if hasattr(self.subject.reader, "feed") or not self.is_broken_off:
            return False
        are_right = self.seen[:-1] == expected[: len(self.seen) - 1]
        return are_right and (isgenerator(self.subject.reader) or len(self.seen) == len(expected))

    def try_once(self, call: Call) -> Any:
        self.calls += 1
        if self.calls - 1 != self.failing:
            return outcome_of(call)
        outcome, self.reached = without_memory(call, self.number, self.means)
        self.is_broken_off = self.reached and isinstance(outcome, MemoryError | StopIteration)
        return outcome


def readable(item: Any) -> Any:
    """An item as a plain value; of a batch its bytes."""
    if type(item) is tuple and isinstance(item[1], list):
        return item[0], [
            (nulls, [None if part is None else bytes(part) for part in buffers]) for nulls, buffers in item[1]
        ]
    return plain(item)


def check_reader(make: Callable[[], Subject], tally: Tally, means: Means) -> None:
    """A reader that gives the same, in the same order and once each, whichever allocation fails."""
    plainly = Drive(make(), None, 0, means)
    plainly.run()
    tally.calls += plainly.calls
    for failing in range(plainly.calls):
        for number in count(0, means.step):
            drive = Drive(make(), failing, number, means)
            drive.run()
            if not drive.reached:
                assert drive.seen == plainly.seen, f"call {failing}, no failure: {drive.seen}, not {plainly.seen}"
                break
            tally.failures += 1
            assert drive.seen == plainly.seen or drive.has_ended_early(plainly.seen), (
                f"call {failing}, failure {number}: {differing(drive.seen, plainly.seen)}"
            )


def check_readers(makes: list[Callable[[], Subject]], tally: Tally, means: Means) -> None:
    for make in makes:
        check_reader(make, tally, means)


def differing(seen: list[Any], expected: list[Any]) -> str:
    for place, (one, other) in enumerate(zip(seen, expected, strict=False)):
        if one != other:
            return f"at {place} {one}, not {other}"
    return f"{len(seen)} entries, not {len(expected)}: {seen[len(expected) :]}, {expected[len(seen) :]}"


# What there is to call

QUEUE, ID = "Gr\xfc\xdfe", "d7\udcff"
FIELDS: dict[str, tuple[Any, ...]] = {
    "Send": (QUEUE, bytearray(b"content"), 10**12),
    "Consume": ("Foo", 1234),
    "Dispatch": (QUEUE, memoryview(b"content"), ID, 2**63 - 1),
    "Acknowledge": ("Foo", "d7e7f687"),
    "Requeue": ("Foo", ID, 3600),
    "DeadLetter": (QUEUE, "d7e7f687"),
    "Receipt": ("Foo", "d7e7f687"),
}
GOOD = [
    message_wire("Send", {"queue": "Foo", "content": b"Hello World", "ttl": 3600}),
    message_wire("Send", {"queue": "Bar", "content": bytes(2000)}),
    message_wire("Consume", {"queue": QUEUE, "count": 500}),
    message_wire("Dispatch", {"queue": "Bar", "content": b"", "message_id": "m" * 32, "ttl": 10**12}),
    message_wire("Dispatch", {"queue": "Bar", "content": b"x" * 100, "message_id": ID}),
    message_wire("Acknowledge", {"queue": "\udcff", "message_id": "7"}),
    message_wire("Requeue", {"queue": "Bar", "message_id": ID, "ttl": 0}),
    message_wire("Receipt", {"queue": "Bar", "message_id": "7"}),
    message_wire("DeadLetter", {"queue": "Bar", "message_id": "7"}),
]
ACKNOWLEDGE = message_wire("Acknowledge", {"queue": "Foo", "message_id": "7"})
#: By what is wrong with it, the start of a frame that proves each fault: for header by header, and for byte by byte.
FAULTS: dict[str, bytes] = {
    "not a message": b"junk" * 100,
    "HTTP": b"HTTP/1.1 400",
    "digits of a message": b"H01004x2",
    "version": b"H0200402",
    "type": b"".join(parts(300, [(1, b"Foo")])),
    "count": b"H0100499",
    "not a packet": b"H0100402\r\nP",
    "unexpected packet": message_header(4, 2) + packet_header(2, 300),
    "unexpected, cut": b"H0100402P09",
    "duplicate packet": ACKNOWLEDGE[:43] + packet_header(1, 300),
    "duplicate, cut": ACKNOWLEDGE[:43] + b"P01",
    "too large": message_header(4, 2) + packet_header(1, 10**12),
    "digits of a packet": ACKNOWLEDGE[:38] + b"x",
    "no integer": ACKNOWLEDGE[:43].replace(b"H01004", b"H01002") + packet_header(4, 0),
    "long integer": ACKNOWLEDGE[:43].replace(b"H01004", b"H01002") + packet_header(4, 20) + b"0",
    "integer": b"".join(parts(2, [(1, b"Foo"), (4, b"007")])),
    "truncated": ACKNOWLEDGE[:-1],
    "other header size": message_wire("Acknowledge", {"queue": "Foo", "message_id": "7"}, 36),
}
#: Good messages, and between them whatever is wrong.
MIX = b"".join([*GOOD, *(fault + ACKNOWLEDGE for fault in FAULTS.values()), *GOOD, ACKNOWLEDGE[:-1]])


def chunks_of(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[start : start + size] for start in range(0, len(data), size))


def operations(codec: ModuleType, step: int) -> Iterator[tuple[str, Callable[[Tally], None]]]:
    """Everything that can be done with a codec, by name."""
    is_reference = codec.__name__.endswith("py")
    means = Means(
        lambda: [codec.Receipt("", "") for _ in range(64)],
        # The interpreter itself loses track where it has no memory for a traceback.
        (MemoryError, SystemError) if is_reference else (MemoryError,),
        step,
    )
    for name, call in calls(codec):
        yield name, partial(check_call, call, means=means)
    yield "encode_into", partial(check_encode_into, codec, means=means)
    for name, makes in readers(codec, is_reference):
        yield name, partial(check_readers, makes, means=means)


def calls(codec: ModuleType) -> Iterator[tuple[str, Call]]:
    messages = [getattr(codec, name)(*fields) for name, fields in FIELDS.items()]
    whole = b"".join(GOOD)
    for name, fields in FIELDS.items():
        message = getattr(codec, name)(*fields)
        yield name, partial(getattr(codec, name), *fields)
        yield f"repr of {name}", partial(repr, message)
        yield f"hash of {name}", partial(hash, message)
        yield f"== of {name}", partial(message.__eq__, getattr(codec, name)(*fields))
        yield f"pickle of {name}", message.__reduce__
        yield f"copy of {name}", partial(copy.copy, message)
        yield f"replace of {name}", partial(message.__replace__, queue="other")
        yield f"bytes of {name}", partial(bytes, message)
        yield f"encode {name}", partial(codec.encode, message, packet_header_size=35)
        yield f"decode {name}", partial(codec.decode, codec.encode(message))
    for name, good, wrong in (
        ("queue", {"queue": "q", "count": 1}, b"q"),
        ("queue that is no text", {"queue": "q", "count": 1}, "\ud800"),
        ("count", {"queue": "q", "count": 1}, -1),
        ("large count", {"queue": "q", "count": 1}, 10**30),
        ("count of another type", {"queue": "q", "count": 1}, "1"),
    ):
        field = "queue" if "queue" in name else "count"
        yield f"wrong {name}", partial(codec.Consume, **{**good, field: wrong})
    yield "wrong content", partial(codec.Send, "q", "text")
    yield "encode nothing", partial(codec.encode, None)
    yield "wrong header size", partial(codec.encode, messages[0], packet_header_size=34)
    yield "encode_many", partial(codec.encode_many, messages)
    yield "encode_many of an iterator", lambda: codec.encode_many(iter(messages))
    yield "encode_many of something else", partial(codec.encode_many, [*messages, None])
    packets = [(1, b"Foo"), (77, bytearray(b"?")), (2, memoryview(b"content"))]
    yield "encode_frame", partial(codec.encode_frame, 900, packets)
    yield "encode_frame of an iterator", lambda: codec.encode_frame(900, iter(packets), packet_header_size=36)
    yield "encode_frame of something else", partial(codec.encode_frame, 900, [*packets, (1, "text")])
    yield "encode_frame of no pair", partial(codec.encode_frame, 900, [*packets, None])
    for name, fault in FAULTS.items():
        yield f"decode, {name}", partial(codec.decode, fault)
        yield f"scan, {name}", partial(codec.scan, ACKNOWLEDGE + fault)
    yield "decode nothing", partial(codec.decode, b"")
    yield "decode, trailing data", partial(codec.decode, ACKNOWLEDGE + b"\n")
    yield "decode of another type", partial(codec.decode, "text")
    yield "wrong options", partial(codec.scan, b"", max_frame_size=1)
    yield "scan", partial(codec.scan, bytearray(whole))
    yield "detect_packet_header_size", partial(codec.detect_packet_header_size, whole)
    yield "detect_packet_header_size of junk", partial(codec.detect_packet_header_size, b"junk")
    yield "detect_packet_header_size of little", partial(codec.detect_packet_header_size, b"H0100000")
    yield "_find_frame", partial(codec._find_frame, MIX, len(whole) + 1)
    yield "_encode_columns", partial(codec._encode_columns, *columns_of(codec, whole))
    yield "_encode_columns of no message", partial(codec._encode_columns, *columns_of(codec, whole + b"x"))


def columns_of(codec: ModuleType, data: bytes) -> tuple[int, dict[str, Any]]:
    """The arguments of ``_encode_columns`` for all rows of an input."""
    [(rows, columns)] = codec._decode_columns(data, list(COLUMNS), on_fault="skip", max_rows=1000, max_bytes=2**20)
    copies = [[None if part is None else array("b", bytes(part)) for part in buffers] for _, buffers in columns]
    return rows, {name: (0, buffers) for name, buffers in zip(COLUMNS, copies, strict=True)}


def check_encode_into(codec: ModuleType, tally: Tally, means: Means) -> None:
    """Either the frame is written, or nothing is."""
    for name, fields in FIELDS.items():
        message = getattr(codec, name)(*fields)
        frame = codec.encode(message)
        for offset in (3, 10**4):
            tally.calls += 1
            for number in count(0, means.step):
                buffer = bytearray(len(frame) + 10)
                outcome, reached = without_memory(partial(codec.encode_into, message, buffer, offset), number, means)
                tally.failures += reached
                fits = offset == 3
                if type(outcome) is int:
                    assert outcome == len(frame)
                    assert fits
                else:
                    assert isinstance(outcome, MemoryError) or (type(outcome) is ValueError and not fits), repr(outcome)
                # the reference can lack memory behind it
                is_written = type(outcome) is int or any(buffer)
                assert buffer == (bytes(3) + frame + bytes(7) if is_written else bytes(len(buffer))), (
                    f"failure {number}: {buffer} was written of {message}"
                )
                if not reached:
                    break


def readers(codec: ModuleType, is_reference: bool) -> Iterator[tuple[str, list[Callable[[], Subject]]]]:
    """Whatever gives one item after another, by name, over all inputs."""
    endings = [ACKNOWLEDGE + fault for fault in FAULTS.values()]
    looks = ("offset", "buffered")
    for mode in MODES:
        inputs = [MIX] if mode == "skip" else [b"".join(GOOD), *endings]
        # the reference takes ten times as many allocations, and as long for each
        sizes = (500,) if is_reference else (41, 5000) if mode == "skip" else (30, 5000)
        for layer in LAYERS:
            iterate, decoder = getattr(codec, ITERATORS[layer]), getattr(codec, DECODERS[layer])
            yield f"{ITERATORS[layer]}, {mode}", [partial(iterated, iterate, data, mode) for data in inputs]
            for size in sizes:
                yield (
                    f"{DECODERS[layer]}, {mode}, chunks of {size} bytes",
                    [partial(fed, decoder, chunks_of(data, size), looks, on_fault=mode) for data in inputs],
                )
        yield (
            f"_Scanner, {mode}",
            [
                partial(fed, codec._Scanner, chunks_of(data, 500), (*looks, "counts"), True, on_fault=mode)
                for data in inputs
            ],
        )
        for limit in (1000,) if is_reference else (5, 1000):
            options = {"on_fault": mode, "max_rows": limit, "max_bytes": 2**20}
            yield (
                f"_ColumnDecoder, {mode}, {limit} rows",
                [partial(fed_columns, codec, chunks_of(data, 2000), **options) for data in inputs],
            )
    large = message_wire("Send", {"queue": "Foo", "content": bytes(200_000)}) * 2
    long_damage = (b"x" * 50_000 + b"H0100402" + packet_header(1, 90_000) + bytes(100_000)) * 2 + ACKNOWLEDGE
    yield (
        "Decoder, growing",
        [
            partial(fed, codec.Decoder, chunks_of(data, 30_000), (), on_fault=mode)
            for mode, data in (("raise", large), ("skip", long_damage))
        ],
    )


def iterated(iterate: Any, data: bytes, mode: str) -> Subject:
    return Subject(iterate(data, on_fault=mode))


def fed(
    decoder: Any, chunks: tuple[bytes, ...], looks: tuple[str, ...], steps_ahead: bool = False, **options: Any
) -> Subject:
    return Subject(decoder(**options), chunks, looks, steps_ahead)


def fed_columns(codec: ModuleType, chunks: tuple[bytes, ...], **options: Any) -> Subject:
    return Subject(codec._decode_columns(None, list(COLUMNS), **options), chunks, ("offset",), True)


def main(name: str, step: str = "1", *chosen: str) -> None:
    faulthandler.enable()
    gc.disable()
    codec = importlib.import_module(MODULES[name])
    gc.freeze()
    failed = []
    for title, check in operations(codec, int(step)):
        if chosen and title not in chosen:
            continue
        print(f"{title}: ", end="", flush=True)
        tally = Tally()
        try:
            check(tally)
        except AssertionError as error:
            failed.append(title)
            print(f"WRONG, {str(error)[:600]}", flush=True)
            continue
        print(f"{tally.calls} calls, {tally.failures} failures", flush=True)
    raise SystemExit(f"wrong: {failed}" if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])

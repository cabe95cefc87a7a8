"""The rows that a capture has to be read to, made from what ``phpmq.iter_messages`` gives, and readers of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wire import message_wire, parts

import phpmq
from phpmq.protocol import DEFAULT_MAX_FRAME_SIZE, MESSAGE_HEADER_SIZE

Row = dict[str, Any]

#: The columns in their order, and whether a value of one has a length.
COLUMNS: Mapping[str, bool] = {
    "offset": False,
    "size": False,
    "type": True,
    "queue": True,
    "content": True,
    "message_id": True,
    "ttl": False,
    "count": False,
    "fault": True,
    "fault_offset": False,
    "raw": True,
}
NAMES = tuple(COLUMNS)
WORDS = {
    "Send": "send",
    "Consume": "consume",
    "Dispatch": "dispatch",
    "Acknowledge": "acknowledge",
    "Requeue": "requeue",
    "DeadLetter": "dead_letter",
    "Receipt": "receipt",
}
LARGEST_FRAME = 2**31 - 1

#: Every form of a message: its class and its fields.
FORMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("Send", {"queue": "Foo", "content": b"Hello World", "ttl": 3600}),
    ("Send", {"queue": "Bar", "content": b"\x00\xff\r\n"}),
    ("Consume", {"queue": "Foo", "count": 5}),
    ("Dispatch", {"queue": "Foo", "content": b"Hi", "message_id": "37a16c42", "ttl": 0}),
    ("Dispatch", {"queue": "Gr\xfc\xdfe", "content": b"older", "message_id": "e72611f8"}),
    ("Acknowledge", {"queue": "Foo", "message_id": "37a16c42"}),
    ("Requeue", {"queue": "Foo", "message_id": "37a16c42", "ttl": 2**63 - 1}),
    ("Receipt", {"queue": "Foo", "message_id": "\U0001f600"}),
    ("DeadLetter", {"queue": "Foo", "message_id": "\0"}),
)
WIRES = tuple(message_wire(name, fields) for name, fields in FORMS)
FOO = message_wire("Consume", {"queue": "Foo", "count": 5})
HELLO = message_wire("Send", {"queue": "Foo", "content": b"Hello World", "ttl": 3600})
#: A whole frame with a count that is no integer, one whose first length is no number, and one of an unknown type.
ODD = FOO[:-1] + b"x"
BROKEN = FOO[:38] + b"x" + FOO[39:]
UNKNOWN = b"".join(parts(42, [(1, b"Foo"), (77, b"?")]))
#: A text that is not UTF-8: in the queue, in the id behind a queue that is fine, in both with the id first.
BAD_QUEUE = b"".join(parts(1, [(1, b"caf\xe9"), (2, b"content"), (5, b"60")]))
BAD_ID = b"".join(parts(3, [(2, b"\xff"), (1, b"Foo"), (3, b"\x80"), (5, b"1")]))
BAD_BOTH = b"".join(parts(4, [(3, b"id\xff"), (1, b"\xc3")]))
#: Everything that a capture can hold, with a last frame that is cut off.
MIXED = b"".join(
    [*WIRES, BAD_QUEUE, ODD, BROKEN, FOO, b"junk", BAD_ID, UNKNOWN, HELLO, BAD_BOTH, *WIRES[:3], HELLO[:50]]
)


class Told(NamedTuple):
    """A ``ProtocolError`` without the bytes shown and the hint, which depend on the bytes at hand."""

    name: str
    fault: str
    offset: int
    missing: int | None


class Reading(NamedTuple):
    """What reading gave: rows, the error that ended it if one did, where it ended, and the rows of each batch."""

    rows: list[Row]
    error: Told | None
    offset: int
    lengths: list[int]


def told(error: phpmq.ProtocolError) -> Told:
    return Told(type(error).__name__, error.fault.name, error.offset, getattr(error, "missing", None))


def row(**values: Any) -> Row:
    """A row with these values, null in all other columns."""
    assert values.keys() <= COLUMNS.keys()
    return dict.fromkeys(NAMES) | values


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def first_bad_text(wire: bytes, packet_header_size: int = 32) -> int:
    """Where the first queue name or message id in a frame begins that is not UTF-8."""
    place = MESSAGE_HEADER_SIZE
    (frame,) = phpmq.iter_frames(wire, packet_header_size=packet_header_size, max_frame_size=None)
    for packet in frame.packets:
        place += packet_header_size
        if packet.type in (1, 3) and not is_utf8(packet.content):
            return place
        place += len(packet.content)
    raise AssertionError("all texts are UTF-8")


def message_row(message: Any, wire: bytes, offset: int, packet_header_size: int) -> Row:
    fields = {name: getattr(message, name) for name in message.__match_args__}
    bad = [
        name
        for name in ("queue", "message_id")
        if name in fields and not is_utf8(fields[name].encode("utf-8", "surrogateescape"))
    ]
    if bad:
        place = offset + first_bad_text(wire, packet_header_size)
        fields |= dict.fromkeys(bad) | {"fault": "NOT_UTF8", "fault_offset": place, "raw": wire}
    return row(offset=offset, size=len(wire), type=WORDS[type(message).__name__], **fields)


def damage_row(damage: phpmq.Damage) -> Row:
    return row(
        offset=damage.start,
        size=damage.stop - damage.start,
        fault=damage.fault.name,
        fault_offset=damage.offset,
        raw=damage.data,
    )


def expected(
    data: bytes,
    *,
    on_fault: str = "raise",
    packet_header_size: int = 32,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
) -> Reading:
    """The rows, the error, and the end of the last row; no batches."""
    limit = min(LARGEST_FRAME, LARGEST_FRAME if max_frame_size is None else max_frame_size)
    options: dict[str, Any] = {"packet_header_size": packet_header_size, "max_frame_size": limit, "on_fault": on_fault}
    rows: list[Row] = []
    place = 0
    try:
        for item in phpmq.iter_messages(data, **options):
            if isinstance(item, phpmq.Damage):
                rows.append(damage_row(item))
            else:  # whatever the order of its packets, a frame has this size
                size = len(phpmq.encode(item, packet_header_size=packet_header_size))
                rows.append(message_row(item, data[place : place + size], place, packet_header_size))
            place += rows[-1]["size"]
    except phpmq.ProtocolError as error:
        return Reading(rows, told(error), place, [])
    return Reading(rows, None, place, [])


def drained(reader: Any) -> Reading:
    """Everything that a reader still has; each batch is verified on the way."""
    rows: list[Row] = []
    lengths: list[int] = []
    error = None
    try:
        for batch in reader:
            batch.validate(full=True)
            assert batch.schema.equals(reader.schema, check_metadata=True)
            assert batch.num_rows > 0
            lengths.append(batch.num_rows)
            rows += batch.to_pylist()
            assert [column.null_count for column in batch.columns] == [
                sum(values[name] is None for values in rows[-batch.num_rows :]) for name in batch.schema.names
            ]
            if rows[-1].keys() >= {"offset", "size"}:
                assert reader.offset == rows[-1]["offset"] + rows[-1]["size"]
    except phpmq.ProtocolError as fault:
        error = told(fault)
    return Reading(rows, error, reader.offset, lengths)


def read(source: Any, **options: Any) -> Reading:
    from phpmq.arrow import read_batches  # noqa: PLC0415 (tests of captures do not need Arrow)

    with read_batches(source, **options) as reader:
        return drained(reader)


def same(reading: Reading, right: Reading) -> None:
    """Rows, error and end are the same, however the rows came in batches."""
    assert reading.rows == right.rows
    assert reading[1:3] == right[1:3]


def row_size(values: Row, columns: Iterable[str] = NAMES) -> int:
    """What a row counts towards the limit of a batch."""
    lengths = [len(_encoded(values[name])) + 4 if COLUMNS[name] else 8 for name in columns]
    return sum(lengths)


def _encoded(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def packed(sizes: Sequence[int], max_rows: int, max_bytes: int) -> list[int]:
    """How many rows of these sizes each batch holds: it ends before the row that would be too much."""
    lengths = [0]
    total = 0
    for size in sizes:
        if lengths[-1] and (lengths[-1] == max_rows or total + size > max_bytes):
            lengths.append(0)
            total = 0
        lengths[-1] += 1
        total += size
    return lengths if lengths != [0] else []

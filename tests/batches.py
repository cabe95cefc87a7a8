"""What batches of columns say, read from their buffers as Arrow's format defines them, and what they should say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

from phpmq.protocol import CATALOGUE, PacketType
from phpmq.records import COLUMNS, NOT_UTF8, WORDS, Damage, Frame

#: A row without its nulls.
Row = dict[str, Any]

#: Limits that no test reaches.
WIDE = {"max_rows": 2**31 - 1, "max_bytes": 2**31 - 1}


def values_of(kind: str, rows: int, nulls: int, buffers: Sequence[Any]) -> list[Any]:
    """The values of a column, None where they are null."""
    bits, *others = buffers
    valid = [bits is None or bool(memoryview(bits)[at // 8] >> at % 8 & 1) for at in range(rows)]
    assert valid.count(False) == nulls
    assert (bits is None) is (nulls == 0)
    values: list[Any]
    if kind == "int64":
        values = list(memoryview(others[0]).cast("B").cast("q")[:rows])
    else:
        ends = memoryview(others[0]).cast("B").cast("i")[: rows + 1]
        assert ends[0] == 0
        values = [bytes(memoryview(others[1])[start:end]) for start, end in pairwise(ends)]
    assert all(ok or not value for ok, value in zip(valid, values, strict=True)), "a null has no bytes"
    return [value if ok else None for ok, value in zip(valid, values, strict=True)]


def rows_of(batch: tuple[int, list[tuple[int, list[Any]]]], columns: Sequence[str]) -> list[Row]:
    """The rows of a batch."""
    count, given = batch
    values = {name: values_of(COLUMNS[name], count, *column) for name, column in zip(columns, given, strict=True)}
    rows = [{name: column[at] for name, column in values.items() if column[at] is not None} for at in range(count)]
    assert len(rows) == count > 0
    return rows


def size_of(row: Row, columns: Sequence[str]) -> int:
    """The bytes of a row as the limit of a batch counts them."""
    return sum(8 if COLUMNS[name] == "int64" else 4 + len(row.get(name, b"")) for name in columns)


def expected_rows(codec: ModuleType, data: bytes, **options: Any) -> list[Row]:
    """The rows of an input, from what its frames and damages are."""
    size = options["packet_header_size"]
    rows, end = [], 0
    options["max_frame_size"] = min(options["max_frame_size"] or 2**31 - 1, 2**31 - 1)  # no column holds more
    decoder = codec.Decoder(on_fault="skip", **options)
    decoder.feed(data)
    decoder.close()
    for item in decoder:
        if isinstance(item, Damage):
            rows.append(damage_row(item))
        else:
            [frame] = codec.iter_frames(data[end : decoder.offset], packet_header_size=size, max_frame_size=None)
            rows.append(message_row(frame, data, end, size))
        end = decoder.offset
    return rows


def damage_row(damage: Damage) -> Row:
    return {
        "offset": damage.start,
        "size": damage.stop - damage.start,
        "fault": damage.fault.name.encode(),
        "fault_offset": damage.offset,
        "raw": damage.data,
    }


def message_row(frame: Frame, data: bytes, offset: int, packet_header_size: int) -> Row:
    form = CATALOGUE[frame.type, len(frame.packets)]  # type: ignore[index]
    row: Row = {"offset": offset, "size": frame.size, "type": WORDS[form.message].encode()}
    at, lost = offset + 8, []
    for packet in frame.packets:
        at += packet_header_size
        name = PacketType(packet.type).name.lower()
        row[name] = int(packet.content) if name in ("ttl", "count") else packet.content
        if name in ("queue", "message_id") and packet.content.decode("utf-8", "replace").encode() != packet.content:
            lost.append(at)
            del row[name]
        at += len(packet.content)
    if lost:
        raw = data[offset : offset + frame.size]
        row |= {"fault": NOT_UTF8.encode(), "fault_offset": min(lost), "raw": raw}
    return row


def in_batches(rows: Iterable[Row], columns: Sequence[str], max_rows: int, max_bytes: int) -> Iterator[list[Row]]:
    """Rows, with these columns only, in batches that keep the limits."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        shown = {name: row[name] for name in columns if name in row}
        more = size_of(shown, columns)
        if batch and (len(batch) == max_rows or size + more > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(shown)
        size += more
    if batch:
        yield batch


def decoded(codec: ModuleType, chunks: Iterable[bytes], columns: Sequence[str], **options: Any) -> list[Any]:
    """The batches of chunks that are fed, with the offset that goes with each, and the error that ends them."""
    decoder = codec._decode_columns(None, columns, **options)
    seen: list[Any] = []
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            for batch in decoder:
                seen.append((rows_of(batch, columns), decoder.offset))
            seen.append(decoder.offset)
        decoder.close()
        for batch in decoder:
            seen.append((rows_of(batch, columns), decoder.offset))
    except ValueError as error:
        seen.append((type(error).__name__, *error.args))
        assert attempt_again(decoder) == seen[-1]
    return [*seen, decoder.offset]


def attempt_again(decoder: Any) -> tuple[Any, ...]:
    """What a decoder that has failed raises again."""
    try:
        next(decoder)
    except ValueError as error:
        return (type(error).__name__, *error.args)
    raise AssertionError("it went on")


def at_once(codec: ModuleType, data: bytes, columns: Sequence[str], **options: Any) -> list[Any]:
    """The batches of a whole input, and the error that ends them."""
    decoder = codec._decode_columns(data, columns, **options)
    seen: list[Any] = []
    try:
        for batch in decoder:
            seen.append((rows_of(batch, columns), decoder.offset))
    except ValueError as error:
        seen.append((type(error).__name__, *error.args))
    return [*seen, decoder.offset]

"""Columns: captures as Arrow tables, and tables as frames again.

The codec fills the buffers of Arrow; here they become arrays, without a copy and without an object for each row.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

try:
    import pyarrow as pa
except ImportError:
    raise ImportError('phpmq.arrow takes pyarrow: pip install "phpmq[arrow]"') from None

from phpmq._backend import Message, codec
from phpmq.capture import Batch, Capture, CompressedDataError, Range, decode
from phpmq.errors import ProtocolError
from phpmq.protocol import DEFAULT_MAX_FRAME_SIZE, DEFAULT_PACKET_HEADER_SIZE
from phpmq.records import COLUMNS, NOT_UTF8, WORDS

if TYPE_CHECKING:
    from typing_extensions import Self

    from phpmq.capture import Source

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_BATCH_ROWS",
    "SCHEMA",
    "BatchReader",
    "encode_batch",
    "read_batches",
    "read_table",
]

_TYPES: Final = {name: getattr(pa, kind)() for name, kind in COLUMNS.items()}

#: All columns: where a frame starts and how many bytes it has, the fields of its message, and what is wrong.
SCHEMA: Final = pa.schema(_TYPES)

DEFAULT_BATCH_ROWS: Final = 16_384
DEFAULT_BATCH_BYTES: Final = 32 * 1024 * 1024
#: What the int32 offsets of Arrow can hold: in bytes the largest batch, and the largest frame.
_MOST: Final = 2**31 - 1

#: How many bytes a thread reads before the next range.
_RANGE_SIZE = 16 * 1024 * 1024

_LARGEST: Final = {
    "threads": 1024,
    "start": sys.maxsize,
    "stop": sys.maxsize,
    "max_batch_rows": _MOST,
    "max_batch_bytes": _MOST,
}

#: The columns that a frame is written from.
_ENCODED: Final = ("type", "queue", "content", "message_id", "ttl", "count", "fault", "raw")
_FIELDS: Final = {WORDS[message.__name__]: message.__match_args__ for message in get_args(Message)}


def _nothing() -> Generator[tuple[int, pa.RecordBatch], None, None]:
    yield from ()


class BatchReader:
    """An iterator of record batches, which anything takes that knows Arrow's C streams.

    Attributes:
        schema: of all batches.
        offset: where the last row given ends, in bytes; before the first one, where reading begins.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Generator[tuple[int, pa.RecordBatch], None, None],
        start: int,
        opened: Capture | None,
    ) -> None:
        self.schema = schema
        self.offset = start
        self._batches = batches
        self._opened = opened

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.offset, batch = next(self._batches)
        return batch

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End reading, and close the file if it was opened by its name, as reaching its end does."""
        self._batches.close()
        # On some Pythons a generator that was never begun keeps what it was given, and so the file, even when closed.
        self._batches = _nothing()
        if self._opened:
            self._opened.close()


def read_batches(  # noqa: PLR0913
    source: Source | Capture,
    *,
    columns: Sequence[str] | None = None,
    start: int = 0,
    stop: int | None = None,
    packet_header_size: int | Literal["auto"] = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    on_fault: Literal["raise", "skip"] = "raise",
    max_batch_rows: int = DEFAULT_BATCH_ROWS,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    threads: int = 1,
) -> BatchReader:
    """Read the messages of a capture as record batches.

    Args:
        source: whatever `phpmq.capture.Capture` takes, or one. What is given open is not closed.
        columns: names of `SCHEMA`; the batches have these, in this order. None for all.
        start: where to begin, in bytes; a frame has to start there.
        stop: reading ends at the first boundary (where a frame or a damage starts or ends) at or behind this byte.
        packet_header_size: 32, 35 or 36 bytes, or "auto" for the one that fits.
        max_frame_size: the largest frame to accept, in bytes; None for 2**31-1, which is all that a column can hold.
        on_fault: "raise", or "skip" to get a row for each damaged range.
        max_batch_rows: no batch has more rows.
        max_batch_bytes: no batch has more bytes, up to 2**31-1, unless it is of one row: 8 for each number, and 4 and
            its length for each text.
        threads: with more than one, a buffer or a file given by its name, unless it is compressed, is cut into ranges
            of 16 MiB that are read side by side and held until it is their turn. The rows are the same.

    Returns:
        An iterator of batches, which can be read once; of a stream, rows are held until a batch is full. A row is a
        message: where its frame starts (``offset``) and how many bytes it has (``size``), its type (one of
        ``phpmq.records.WORDS``) and its fields, null where it has no such field. If a queue name or an id is not UTF-8,
        it is null, and ``fault`` is ``"NOT_UTF8"``, ``fault_offset`` where that text begins, and ``raw`` the whole
        frame. Or it is a damage: ``offset``, ``size``, the name of its ``Fault`` in ``fault``, ``fault_offset``, and
        its first 64 KiB in ``raw``, all else null.

    Raises:
        ProtocolError: while iterating, after the rows before the fault, as `phpmq.iter_messages` raises it.
        CompressedDataError: while iterating, a compressed file is damaged.
        TypeError, ValueError: an argument is wrong; while iterating, ``start`` is behind the end of a stream.
        OSError, ImportError: as `Capture` raises them.
    """
    names = _column_names(columns)
    _check("threads", threads, 1)
    _check("start", start, 0)
    if stop is not None:
        _check("stop", stop, 0)
    capture = source if isinstance(source, Capture) else Capture(source)
    opened = None if capture is source else capture
    try:
        framing: dict[str, Any] = {
            "packet_header_size": _detected(capture) if packet_header_size == "auto" else packet_header_size,
            "max_frame_size": max_frame_size,
        }
        options = framing | {
            "on_fault": on_fault,
            "max_rows": _check("max_batch_rows", max_batch_rows, 1),
            "max_bytes": _check("max_batch_bytes", max_batch_bytes, 1),
        }
        codec._decode_columns(b"", names, **options)  # what is wrong with the options is raised here
        if capture.size is not None and start > capture.size:
            raise ValueError(f"start is {start}, behind the end at {capture.size}")
        if threads == 1 or capture.size is None:
            batches = decode(capture, names, start=start, stop=stop, **options)
        else:
            cuts = [cut.start for cut in capture.ranges(_RANGE_SIZE, **framing)]
            starts = [start, *(cut for cut in cuts if start < cut and (stop is None or cut < stop))]
            ranges = [Range(*ends) for ends in zip(starts, [*starts[1:], stop], strict=True)]
            batches = _side_by_side(ranges, threads, partial(_read, capture, names, options))
    except BaseException:
        if opened:
            opened.close()
        raise
    return BatchReader(schema_of(names), _until_closed(record_batches(names, batches), capture, opened), start, opened)


def read_table(source: Source | Capture, **options: Any) -> pa.Table:
    """Read the messages of a capture as one table. It takes what `read_batches` takes, and raises what that raises."""
    with read_batches(source, **options) as reader:
        return pa.Table.from_batches(reader, reader.schema)


def _detected(capture: Capture) -> int:
    try:
        return capture.detect_packet_header_size()
    except ValueError as error:
        raise ValueError(f"{capture.name}: {error}") from None


def _check(name: str, value: int, lowest: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if not lowest <= value <= _LARGEST[name]:
        raise ValueError(f"{name} must be from {lowest} to {_LARGEST[name]}, not {value}")
    return value


def _column_names(columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(COLUMNS)
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"columns must be a sequence of names, not {type(columns).__name__}")
    names = list(columns)
    for number, name in enumerate(names):
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
        if name in names[:number]:
            raise ValueError(f"the column {name!r} occurs twice")
    return names


def record_batches(names: Sequence[str], batches: Iterable[Batch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Make record batches of what `phpmq.capture.decode` gives, each behind the offset where its last row ends."""
    schema = schema_of(names)
    fields = pa.struct(schema)
    for end, rows, columns in batches:
        arrays = [
            pa.Array.from_buffers(kind, rows, [_buffer(buffer) for buffer in buffers], nulls)
            for kind, (nulls, buffers) in zip(schema.types, columns, strict=True)
        ]
        # by way of a struct, which has its length also where it has no fields
        struct = pa.StructArray.from_buffers(fields, rows, [None], 0, children=arrays)
        yield end, pa.RecordBatch.from_struct_array(struct)
        del columns, arrays, struct  # whose memory the next batch can have


def schema_of(names: Sequence[str]) -> pa.Schema:
    """The schema of some columns."""
    return pa.schema([SCHEMA.field(name) for name in names])


def _until_closed(
    batches: Iterator[tuple[int, pa.RecordBatch]], capture: Capture, opened: Capture | None
) -> Generator[tuple[int, pa.RecordBatch], None, None]:
    """The batches of a capture, which is closed behind them if it was opened here. An error says where it is from."""
    try:
        yield from batches
    except (ProtocolError, CompressedDataError) as error:
        if sys.version_info >= (3, 11) and not capture.name.startswith("<"):
            error.add_note(f"in {capture.name}")
        raise
    finally:
        if opened:
            opened.close()


def _buffer(data: Any) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)


class _Read(NamedTuple):
    """What reading a range gave: batches, the boundary where it ended, and the error that ended it, if one did."""

    batches: list[Batch]
    end: int
    error: Exception | None


def _read(capture: Capture, names: list[str], options: dict[str, Any], start: int, stop: int | None) -> _Read:
    batches: list[Batch] = []
    error = None
    try:
        batches.extend(decode(capture, names, start=start, stop=stop, **options))
    except Exception as raised:
        error = raised
    return _Read(batches, batches[-1][0] if batches else start, error)


def _side_by_side(ranges: list[Range], threads: int, read: Callable[[int, int | None], _Read]) -> Iterator[Batch]:
    """Read ranges in threads, and give what they hold in its order; each range verifies where the next one begins."""
    waiting, ahead = deque(ranges), deque[tuple[Range, Future[_Read]]]()
    pool = ThreadPoolExecutor(threads)
    try:
        place = ranges[0].start
        while waiting or ahead:
            while waiting and len(ahead) <= threads:
                ahead.append((waiting[0], pool.submit(read, *waiting.popleft())))
            part, future = ahead.popleft()
            if part.stop is not None and part.stop <= place:
                continue  # what began before it reaches over all of it
            if part.start == place:
                batches, place, error = future.result()
            else:  # the guess was wrong
                batches, place, error = read(place, part.stop)
            while batches:
                yield batches.pop(0)
            if error:
                raise error
    finally:
        pool.shutdown(cancel_futures=True)


def encode_batch(batch: Any, *, packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE) -> bytes:
    """Write the messages of a record batch as frames, their packets in canonical order.

    Args:
        batch: a record batch, or what has the method ``__arrow_c_array__``, with the columns ``type`` and ``queue`` and
            those that its messages need. Columns that are not in `SCHEMA` are ignored, and so is where a frame was. A
            row whose ``fault`` is ``"NOT_UTF8"`` is written as it is in ``raw``.
        packet_header_size: 32, 35 or 36 bytes.

    Raises:
        ValueError: a row is a damage, or no message; the text has its number, from 0.
        TypeError, ValueError: the batch is none, or its columns cannot be what `SCHEMA` says.
    """
    if not hasattr(batch, "__arrow_c_array__"):
        raise TypeError(f"batch must be a record batch, not {type(batch).__name__}; a table has several")
    batch = pa.record_batch(batch)
    for name in ("type", "queue"):
        if name not in batch.schema.names:
            raise ValueError(f"there is no column {name!r}")
    for name in _ENCODED:
        if batch.schema.names.count(name) > 1:
            raise ValueError(f"there are several columns {name!r}")
    arrays = {name: _cast(name, batch.column(name)) for name in _ENCODED if name in batch.schema.names}
    columns = {name: (array.offset, array.buffers()) for name, array in arrays.items()}
    frames = codec._encode_columns(len(batch), columns, packet_header_size=packet_header_size)
    if isinstance(frames, int):
        values = {name: array[frames].as_py() for name, array in arrays.items()}
        raise ValueError(f"row {frames}: {_objection(values, packet_header_size)}")
    return frames


def _cast(name: str, array: pa.Array) -> pa.Array:
    try:
        array = array.cast(_TYPES[name])
        array.validate(full=True)
    except pa.ArrowNotImplementedError:
        raise TypeError(f"the column {name!r} must be {_TYPES[name]}, not {array.type}") from None
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column {name!r}: {error}") from None
    return array


def _objection(values: dict[str, Any], packet_header_size: int) -> str:
    """Why a row is no message."""
    word, fault = values["type"], values.get("fault")
    if fault == NOT_UTF8:
        return f"raw is not one whole message with packet_header_size={packet_header_size}"
    if fault is not None:
        return f"a damage ({fault}), which holds no message"
    fields = _FIELDS.get(word)
    if fields is None:
        return f"type must be one of {', '.join(_FIELDS)}, not {word!r}"
    for name in _ENCODED[1:6]:
        value = values.get(name)
        if value is not None and name not in fields:
            return f"a message of type {word} has no {name}"
        if value is None and name in fields and (name != "ttl" or word == "requeue"):
            return f"a message of type {word} needs the field {name}"
    return "ttl and count must not be negative"

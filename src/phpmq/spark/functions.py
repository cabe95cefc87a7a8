"""Functions for columns of Spark: cells that hold frames as structs, and structs as frames again.

The cells of a batch lie one behind the other in memory, so they are decoded at once, like a capture.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BinaryType, DataType, StructType

from phpmq._backend import codec
from phpmq.arrow import SCHEMA, encode_batch, record_batches
from phpmq.errors import ProtocolError
from phpmq.spark import reader
from phpmq.spark.options import DROPMALFORMED, FAILFAST, FUNCTION, parse_options
from phpmq.spark.shipping import imported_there

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["from_phpmq", "from_phpmq_stream", "to_phpmq"]

#: The fields of a message in a cell of its own, where `offset` and `size` say nothing.
_FIELDS: Final = [field for field in SCHEMA if field.name not in ("offset", "size")]
_MESSAGE: Final = StructType([reader.SCHEMA[field.name] for field in _FIELDS])
_ROW: Final = StructType([reader.SCHEMA[name] for name in SCHEMA.names])

_ROWS: Final = pa.list_(pa.field("element", pa.struct(SCHEMA)))  # as Spark has it
_NO_ROWS: Final = pa.array([], pa.struct(SCHEMA))
#: What the offsets of Arrow can hold: more rows and bytes than there are in a batch.
_MOST: Final = 2**31 - 1


def from_phpmq(data: Column | str, options: Mapping[str, str] | None = None) -> Column:
    """Decode a binary column with one frame in each cell.

    Args:
        data: the column, or its name.
        options: ``mode``: FAILFAST (default), or PERMISSIVE, where a cell that is not one whole frame gives NULL.
            ``packetHeaderSize``: 32 (default), 35 or 36. ``maxFrameSize``: the largest frame to accept.

    Returns:
        Structs with the columns of ``phpmq.arrow.SCHEMA`` but ``offset`` and ``size``. ``fault_offset`` counts from the
        start of the cell. NULL gives NULL.

    Raises:
        ValueError: an option is unknown, or its value is wrong; while the query runs, a cell is not one whole frame.
    """
    parsed = _reading_options(options, "from_phpmq")
    if parsed["mode"] == DROPMALFORMED:
        raise ValueError("from_phpmq cannot leave out rows: the option mode must be FAILFAST or PERMISSIVE")
    return _udf("from_phpmq", "_decode_frames", _MESSAGE, parsed)(data)


def from_phpmq_stream(data: Column | str, options: Mapping[str, str] | None = None) -> Column:
    """Decode a binary column with any number of frames in each cell.

    Args:
        data: the column, or its name.
        options: as `from_phpmq` takes them. In the mode PERMISSIVE damage is a struct of its own, as it is a row of the
            data source; DROPMALFORMED leaves these out.

    Returns:
        Arrays of structs with the columns of ``phpmq.arrow.SCHEMA``. ``offset`` and ``fault_offset`` count from the
        start of the cell. A cell without bytes gives an empty array, and NULL gives NULL.

    Raises:
        ValueError: an option is unknown, or its value is wrong; while the query runs, a cell is damaged.
    """
    parsed = _reading_options(options, "from_phpmq_stream")
    return _udf("from_phpmq_stream", "_decode_streams", ArrayType(_ROW), parsed)(data)


def to_phpmq(data: Column | str, options: Mapping[str, str] | None = None) -> Column:
    """Encode a column of structs, one frame for each.

    Args:
        data: the column, or its name. The structs have ``type``, ``queue`` and the fields that their messages need.
            Fields that are not in ``phpmq.arrow.SCHEMA`` are ignored, and so are ``offset`` and ``size``.
        options: ``packetHeaderSize``: 32 (default), 35 or 36.

    Returns:
        Binary cells. NULL gives NULL.

    Raises:
        ValueError: an option is unknown, or its value is wrong; while the query runs, a struct is no message.
    """
    parsed = _sized_options(options or {}, ["packetHeaderSize"], "to_phpmq")
    return _udf("to_phpmq", "_encode_structs", BinaryType(), parsed)(data)


def _reading_options(given: Mapping[str, str] | None, use: str) -> dict[str, Any]:
    return _sized_options({"mode": FAILFAST, **(given or {})}, FUNCTION, use)


def _sized_options(given: Mapping[str, str], known: tuple[str, ...] | list[str], use: str) -> dict[str, Any]:
    options = parse_options({name: str(value) for name, value in given.items()}, known, use)
    if options["packetHeaderSize"] == "auto":
        raise ValueError(f"{use} cannot find out the packetHeaderSize: it must be 32, 35 or 36")
    return options


def _udf(name: str, function: str, kind: DataType, options: dict[str, Any]) -> Callable[[Column | str], Column]:
    there = imported_there(__name__, function)

    def call(array: pa.Array) -> pa.Array:  # by its annotations Spark tells what sort of function it is
        return there(options, array)

    call.__name__ = name  # which Spark calls the column
    # The third argument, which the stubs of PySpark want, brings a warning.
    return arrow_udf(call, kind)  # type: ignore[call-overload, no-any-return]


def _decode_frames(options: dict[str, Any], cells: pa.Array) -> pa.StructArray:
    """`from_phpmq` for an array of cells."""
    present = _binary(cells, "from_phpmq").drop_null()
    lists, are_good = _decode(present, options, one_each=True)
    if options["mode"] == FAILFAST and are_good.false_count:
        try:
            codec.decode(present[are_good.index(False).as_py()].as_py(), **_framing(options))
        except ProtocolError as error:
            raise ValueError(f"from_phpmq: {error}; in the mode PERMISSIVE such a cell gives NULL") from None
    messages = pa.StructArray.from_arrays([lists.values.field(field.name) for field in _FIELDS], fields=_FIELDS)
    return _spread(_spread(messages, are_good), cells.is_valid())


def _decode_streams(options: dict[str, Any], cells: pa.Array) -> pa.ListArray:
    """`from_phpmq_stream` for an array of cells."""
    present = _binary(cells, "from_phpmq_stream").drop_null()
    lists, are_good = _decode(present, options, one_each=False)
    if are_good.false_count:
        are_bad = pc.invert(are_good)
        damaged = present.filter(are_bad).to_pylist()
        if options["mode"] == FAILFAST:
            error = codec.scan(damaged[0], **_framing(options)).error
            raise ValueError(f"from_phpmq_stream: {error}; in the mode PERMISSIVE damage is a struct of its own")
        # Where damage ends, and often what it is, depends on the bytes behind it: each of these cells is read alone.
        parts = [_rows(cell, options) for cell in damaged]
        if options["mode"] == DROPMALFORMED:
            parts = [rows.filter(rows.field("type").is_valid()) for rows in parts]
        ends = pa.array(accumulate(map(len, parts), initial=0), pa.int32())
        others = pa.ListArray.from_arrays(ends, pa.concat_arrays(parts), type=_ROWS)
        lists = pc.coalesce(_spread(lists, are_good), _spread(others, are_bad))
    return _spread(lists, cells.is_valid())


def _encode_structs(options: dict[str, Any], structs: pa.Array) -> pa.BinaryArray:
    """`to_phpmq` for an array of structs."""
    if pa.types.is_null(structs.type):
        return structs.cast(pa.binary())
    if not pa.types.is_struct(structs.type):
        raise TypeError(f"to_phpmq takes structs, not {structs.type}")
    batch = pa.RecordBatch.from_struct_array(structs.drop_null())
    try:
        frames = encode_batch(batch, packet_header_size=options["packetHeaderSize"])
    except (TypeError, ValueError) as error:
        # The number of a row in its batch tells nobody which one it is.
        text = re.sub("^row ([0-9]+)", lambda number: _shown(batch, int(number[1])), str(error))
        raise type(error)(f"to_phpmq: {text}") from None
    offsets = _rows(frames, options | {"maxFrameSize": None}).field("offset")
    ends = pa.concat_arrays([offsets, pa.array([len(frames)])]).cast(pa.int32())
    cells = pa.Array.from_buffers(pa.binary(), len(batch), [None, ends.buffers()[1], pa.py_buffer(frames)])
    return _spread(cells, structs.is_valid())


def _shown(batch: pa.RecordBatch, number: int) -> str:
    """A row, in one line."""
    names = [field.name for field in _FIELDS if batch.schema.names.count(field.name) == 1]
    short = reprlib.Repr()
    short.maxdict = len(names)
    return short.repr({name: batch.column(name)[number].as_py() for name in names})


def _binary(cells: pa.Array, use: str) -> pa.BinaryArray:
    if cells.type not in (pa.binary(), pa.large_binary(), pa.null()):
        raise TypeError(f"{use} takes a binary column, not {cells.type}")
    return cells.cast(pa.binary())


def _framing(options: dict[str, Any]) -> dict[str, Any]:
    return {"packet_header_size": options["packetHeaderSize"], "max_frame_size": options["maxFrameSize"]}


def _rows(data: Any, options: dict[str, Any]) -> pa.StructArray:
    """All that is in these bytes, as rows of a capture, with damage."""
    names = SCHEMA.names
    decoder = codec._decode_columns(data, names, on_fault="skip", max_rows=_MOST, max_bytes=_MOST, **_framing(options))
    batches = record_batches(names, ((0, *batch) for batch in decoder))
    return pa.concat_arrays([_NO_ROWS, *(batch.to_struct_array() for _, batch in batches)])


def _decode(cells: pa.BinaryArray, options: dict[str, Any], *, one_each: bool) -> tuple[pa.ListArray, pa.BooleanArray]:
    """Decode the cells that hold whole frames only.

    All are read as one capture. A cell is good if it begins and ends where rows do, all of them messages, whatever
    stands before it. Of the others each is scanned alone: it is damaged, or good and taken for the content of a frame
    that is cut off before it. Then the good ones are read again, without what is between them. So no cell is decoded
    more than three times, with what a caller does to the damaged ones.

    Args:
        cells: none of them NULL.
        options: those of the function.
        one_each: whether a cell has to have one frame, or any number.

    Returns:
        The messages of each good cell, and for each cell whether it is good.
    """
    data, places = _joined(cells)
    rows = _rows(data, options)
    at = pc.index_in(places, value_set=pa.concat_arrays([rows.field("offset"), places[-1:]]))
    counts = pc.subtract(at[1:], at[:-1])  # null where no row begins or ends
    are_messages = pa.concat_arrays([pa.array([0]), rows.field("type").is_valid().cast(pa.int64())])
    before = pc.cumulative_sum(are_messages).take(at)
    are_good = pc.equal(pc.subtract(before[1:], before[:-1]), counts)
    if one_each:
        are_good = pc.and_(are_good, pc.equal(counts, 1))
    are_good = are_good.fill_null(False)
    if are_good.false_count:
        others = pc.invert(are_good)
        scans = [codec.scan(cell, **_framing(options)) for cell in cells.filter(others).to_pylist()]
        judged = [scan.error is None and (scan.frames == 1 or not one_each) for scan in scans]
        are_good = pc.replace_with_mask(are_good, others, pa.array(judged))
        return _decode(cells.filter(are_good), options, one_each=one_each)[0], are_good
    lists = pa.ListArray.from_arrays(at, rows)
    starts = places.take(pc.list_parent_indices(lists))
    columns = {name: rows.field(name) for name in SCHEMA.names}
    for name in ("offset", "fault_offset"):
        columns[name] = pc.subtract(columns[name], starts)
    messages = pa.StructArray.from_arrays(list(columns.values()), fields=list(SCHEMA))
    return pa.ListArray.from_arrays(at, messages, type=_ROWS), are_good


def _joined(cells: pa.BinaryArray) -> tuple[pa.Buffer, pa.Int64Array]:
    """The bytes of all cells, and where each begins in them, and the last one ends."""
    if not len(cells):  # Arrow lets it have no buffers then
        return pa.py_buffer(b""), pa.array([0])
    _, ends, data = cells.buffers()
    places = pa.Array.from_buffers(pa.int32(), len(cells) + 1, [None, ends], offset=cells.offset).cast(pa.int64())
    first, last = places[0].as_py(), places[-1].as_py()
    return (data or pa.py_buffer(b"")).slice(first, last - first), pc.subtract(places, first)


def _spread(values: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """Put the values, in their order, where the mask is true, and null elsewhere."""
    if not mask.false_count:
        return values
    numbers = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, numbers, None))

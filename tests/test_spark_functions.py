"""Functions for columns of Spark.

What they do with Arrow arrays is compared with reading each cell alone by ``phpmq.iter_messages``, without Spark. A few
tests see that Spark takes what they make for what it is.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from columns import (
    BAD_BOTH,
    BAD_ID,
    BAD_QUEUE,
    BROKEN,
    FOO,
    FORMS,
    HELLO,
    NAMES,
    ODD,
    UNKNOWN,
    WIRES,
    Row,
    expected,
    row,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType
from pyspark.testing import assertSchemaEqual
from wire import message_header, message_wire, packet_header, parts

import phpmq
from phpmq.spark import functions
from phpmq.spark.functions import from_phpmq, from_phpmq_stream, to_phpmq

both_codecs = pytest.mark.usefixtures("backend")

Cells = Sequence[bytes | None]

MESSAGE = StructType(
    [
        StructField("type", StringType()),
        StructField("queue", StringType()),
        StructField("content", BinaryType()),
        StructField("message_id", StringType()),
        StructField("ttl", LongType()),
        StructField("count", LongType()),
        StructField("fault", StringType()),
        StructField("fault_offset", LongType()),
        StructField("raw", BinaryType()),
    ]
)
KEY = StructField("key", IntegerType())
ROW = StructType([StructField("offset", LongType()), StructField("size", LongType()), *MESSAGE.fields])
#: What is one good frame, and what is not.
GOOD = (*WIRES, BAD_QUEUE, BAD_ID, BAD_BOTH)
BAD = (b"", b"x", ODD, BROKEN, UNKNOWN, HELLO[:50], HELLO[50:], FOO + b"x", FOO + HELLO, b"junk" + FOO, HELLO + FOO[:9])


@pytest.fixture
def backend(codec: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are made by this codec; what they are compared with is not."""
    monkeypatch.setattr("phpmq.spark.functions.codec", codec)
    monkeypatch.setattr("phpmq.arrow.codec", codec)


def options(mode: str = "FAILFAST", size: int = 32, limit: int = 2**26) -> dict[str, Any]:
    return {"mode": mode, "packetHeaderSize": size, "maxFrameSize": limit}


def laid_out(cells: Cells, before: Cells = (), behind: Cells = ()) -> pa.Array:
    """An array of these cells: a slice of one that has more, with bytes under each null."""
    every = [*before, *cells, *behind]
    texts = [HELLO[:60] if cell is None else cell for cell in every]
    bits = sum(1 << at for at, cell in enumerate(every) if cell is not None).to_bytes(len(every) // 8 + 1, "little")
    ends = pa.array(accumulate(map(len, texts), initial=0), pa.int32())
    buffers = [pa.py_buffer(bits), ends.buffers()[1], pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.binary(), len(every), buffers).slice(len(before), len(cells))


def decoded(function: Any, cells: Any, arguments: dict[str, Any]) -> list[Any]:
    """What a function makes of cells, after its array was verified."""
    array = function(arguments, cells if isinstance(cells, pa.Array) else laid_out(cells))
    array.validate(full=True)
    assert len(array) == len(cells)
    return list(array.to_pylist())


def framing(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"packet_header_size": arguments["packetHeaderSize"], "max_frame_size": arguments["maxFrameSize"]}


def frame_of(cell: bytes | None, arguments: dict[str, Any]) -> Row | None:
    """The fields of the one frame of a cell; None if there is no such frame."""
    if cell is None:
        return None
    reading = expected(cell, **framing(arguments))
    if reading.error or len(reading.rows) != 1:
        return None
    return {name: value for name, value in reading.rows[0].items() if name not in ("offset", "size")}


def rows_of(cell: bytes | None, arguments: dict[str, Any]) -> list[Row] | None:
    """All rows of a cell, damages too unless the mode leaves them out."""
    if cell is None:
        return None
    rows = expected(cell, on_fault="skip", **framing(arguments)).rows
    return [values for values in rows if arguments["mode"] != "DROPMALFORMED" or values["type"]]


def frame_error(cell: bytes, arguments: dict[str, Any]) -> str | None:
    """Why a cell is not one whole frame."""
    try:
        phpmq.decode(cell, **framing(arguments))
    except phpmq.ProtocolError as error:
        return str(error)
    return None


def stream_error(cell: bytes, arguments: dict[str, Any]) -> str | None:
    """Why a cell is not whole frames."""
    try:
        list(phpmq.iter_messages(cell, **framing(arguments)))
    except phpmq.ProtocolError as error:
        return str(error)
    return None


def head(length: int, size: int = 32) -> bytes:
    """The start of a frame, up to its content, which is as long as this and ends it."""
    return message_header(1, 2) + packet_header(1, 0, size) + packet_header(2, length, size)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, list[bytes | None], dict[str, Any]]:
    """Cells with whole frames, cut ones whose rests stand behind them, heads that reach over what follows, and junk."""
    size = draw(st.sampled_from([32, 32, 35, 36]))
    wires = [message_wire(*form, size) for form in FORMS]
    odd = [
        parts(42, [(1, b"Foo")], size),
        parts(2, [(1, b"Foo"), (4, b"x")], size),
        parts(4, [(3, b"\xff"), (1, b"")], size),
    ]
    frames = st.sampled_from([*wires, *map(b"".join, odd)])
    groups = st.one_of(
        frames.map(lambda frame: [frame]),
        frames.map(lambda frame: [frame]),
        st.tuples(frames, st.integers(0, 200)).map(lambda cut: [cut[0][: cut[1]], cut[0][cut[1] :]]),
        st.lists(frames, max_size=3).map(lambda several: [b"".join(several)]),
        st.tuples(frames, st.sampled_from([b"x", b"H", b"H0100102", bytes(9)])).map(lambda both: [b"".join(both)]),
        st.sampled_from([None, b"", b"x", b"H0100102P01", b"HTTP/1.1 200"]).map(lambda cell: [cell]),
        st.tuples(st.integers(1, 3), st.integers(-1, 1)).map(lambda reach: [reach]),
    )
    cells: list[bytes | None] = []
    for cell in reversed([cell for group in draw(st.lists(groups, max_size=9)) for cell in group]):
        if isinstance(cell, tuple):  # a head whose content is the next cells, or nearly
            count, more = cell
            cells.insert(0, head(max(0, sum(map(len, filter(None, cells[:count]))) + more), size))
        else:
            cells.insert(0, cell)
    around = st.lists(frames | st.none(), max_size=2)
    array = laid_out(cells, draw(around), draw(around))
    return array, cells, options(size=size, limit=draw(st.sampled_from([2**26, 2**26, 130])))


# --- arrays: decoding ---


@both_codecs
@settings(derandomize=True, deadline=None, database=None)
@given(columns())
def test_a_cell_gives_the_frame_that_it_is(drawn: tuple[pa.Array, list[bytes | None], dict[str, Any]]) -> None:
    array, cells, arguments = drawn
    arguments["mode"] = "PERMISSIVE"
    right = [frame_of(cell, arguments) for cell in cells]
    assert decoded(functions._decode_frames, array, arguments) == right


@both_codecs
@settings(derandomize=True, deadline=None, database=None)
@given(columns(), st.sampled_from(["PERMISSIVE", "DROPMALFORMED"]))
def test_a_cell_gives_the_rows_of_a_capture(
    drawn: tuple[pa.Array, list[bytes | None], dict[str, Any]], mode: str
) -> None:
    array, cells, arguments = drawn
    arguments["mode"] = mode
    right = [rows_of(cell, arguments) for cell in cells]
    assert decoded(functions._decode_streams, array, arguments) == right


@both_codecs
@settings(derandomize=True, deadline=None, database=None)
@given(columns())
def test_failfast_raises_what_is_wrong_with_the_first_bad_cell(
    drawn: tuple[pa.Array, list[bytes | None], dict[str, Any]],
) -> None:
    array, cells, arguments = drawn
    for name, function, error_of, right_of in (
        ("from_phpmq", functions._decode_frames, frame_error, frame_of),
        ("from_phpmq_stream", functions._decode_streams, stream_error, rows_of),
    ):
        error = next(filter(None, (error_of(cell, arguments) for cell in cells if cell is not None)), None)
        if error is None:
            assert decoded(function, array, arguments) == [right_of(cell, arguments) for cell in cells]
            continue
        with pytest.raises(ValueError, match=f"^{re.escape(f'{name}: {error}')}; in the mode PERMISSIVE "):
            function(arguments, array)


@both_codecs
def test_every_form_of_a_message_and_everything_that_is_none() -> None:
    cells = [*GOOD, *BAD, None]
    values = decoded(functions._decode_frames, cells, options("PERMISSIVE"))
    assert [value is not None for value in values] == [True] * len(GOOD) + [False] * (len(BAD) + 1)
    assert [value["type"] for value in values[: len(FORMS)]] == [frame_of(wire, options())["type"] for wire in WIRES]  # type: ignore[index]
    assert values[1] == dict.fromkeys(MESSAGE.names) | {"type": "send", "queue": "Bar", "content": b"\x00\xff\r\n"}


def test_offsets_count_from_the_start_of_the_cell() -> None:
    cells = [FOO, HELLO, BAD_ID, FOO + b"junk" + BAD_ID]
    frames = decoded(functions._decode_frames, cells[:3], options())
    assert [frame["fault_offset"] for frame in frames] == [None, None, BAD_ID.index(b"\x80")]
    streams = decoded(functions._decode_streams, cells, options("PERMISSIVE"))
    assert [[(values["offset"], values["fault_offset"]) for values in rows] for rows in streams] == [
        [(0, None)],
        [(0, None)],
        [(0, BAD_ID.index(b"\x80"))],
        [(0, None), (76, 76), (80, 80 + BAD_ID.index(b"\x80"))],
    ]


@both_codecs
def test_damage_in_a_stream_is_a_struct_or_left_out() -> None:
    cells = [FOO + b"junk" + HELLO, b"x", b"", None, FOO]
    rows = decoded(functions._decode_streams, cells, options("PERMISSIVE"))
    junk = row(offset=76, size=4, fault="NOT_A_MESSAGE", fault_offset=76, raw=b"junk")
    first = row(offset=0, size=76, type="consume", queue="Foo", count=5)
    last = row(offset=80, size=122, type="send", queue="Foo", content=b"Hello World", ttl=3600)
    assert rows[0] == [first, junk, last]
    assert rows[1] == [row(offset=0, size=1, fault="NOT_A_MESSAGE", fault_offset=0, raw=b"x")]
    assert rows[2:] == [[], None, [first]]
    assert decoded(functions._decode_streams, cells, options("DROPMALFORMED")) == [[first, last], [], [], None, [first]]


@both_codecs
def test_a_cell_that_is_cut_off_does_not_borrow_from_the_next_one() -> None:
    cells = [HELLO[:50], HELLO[50:], head(len(FOO)), FOO, HELLO]
    assert decoded(functions._decode_frames, cells, options("PERMISSIVE")) == [
        None,
        None,
        None,
        frame_of(FOO, options()),
        frame_of(HELLO, options()),
    ]
    faults = [
        [values["fault"] for values in rows]
        for rows in decoded(functions._decode_streams, cells, options("PERMISSIVE"))
    ]
    assert faults == [["TRUNCATED"], ["NOT_A_MESSAGE"], ["TRUNCATED"], [None], [None]]


@both_codecs
def test_a_compressed_cell_is_no_frame() -> None:
    cells = [gzip.compress(FOO), FOO]
    assert decoded(functions._decode_frames, cells, options("PERMISSIVE")) == [None, frame_of(FOO, options())]


@pytest.mark.parametrize("function", ["_decode_frames", "_decode_streams"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([], pa.binary()),
        pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")]),
        pa.nulls(2, pa.binary()),
        pa.nulls(3),
    ],
    ids=["none", "empty buffers", "all null", "of no type"],
)
def test_no_cells_and_null_cells(function: str, cells: pa.Array) -> None:
    assert decoded(getattr(functions, function), cells, options()) == [None] * len(cells)


def test_large_binary_cells() -> None:
    cells = pa.array([FOO, None, HELLO], pa.large_binary())
    assert decoded(functions._decode_frames, cells, options()) == [
        frame_of(FOO, options()),
        None,
        frame_of(HELLO, options()),
    ]


def test_cells_that_are_not_binary_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^from_phpmq takes a binary column, not string$"):
        functions._decode_frames(options(), pa.array(["H01"]))
    with pytest.raises(TypeError, match=r"^from_phpmq_stream takes a binary column, not int64$"):
        functions._decode_streams(options(), pa.array([1]))


@pytest.mark.parametrize(
    ("function", "kind"), [("_decode_frames", MESSAGE), ("_decode_streams", ArrayType(ROW))], ids=["frames", "streams"]
)
@pytest.mark.parametrize("cells", [[FOO], [FOO, b"x"], [None], []], ids=["good", "bad", "null", "none"])
def test_arrays_are_of_the_types_that_spark_expects(function: str, kind: Any, cells: Cells) -> None:
    array = getattr(functions, function)(options("PERMISSIVE"), laid_out(cells))
    assert array.type.equals(to_arrow_type(kind), check_metadata=True)


class Counting:
    """A codec that counts its calls and the bytes that they are given."""

    def __init__(self, codec: Any) -> None:
        self.codec = codec
        self.calls = self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        def call(data: Any, *args: Any, **options: Any) -> Any:
            self.calls += 1
            self.bytes += len(data)
            return getattr(self.codec, name)(data, *args, **options)

        return call


@pytest.mark.parametrize("function", ["_decode_frames", "_decode_streams"])
@pytest.mark.parametrize(
    ("cell", "bad"),
    [
        (lambda at: HELLO, False),
        (lambda at: HELLO[:-1], True),
        (lambda at: BROKEN, True),
        (lambda at: HELLO[at % 2 * 50 :][: 50 + at % 2 * 72], True),
        (lambda at: HELLO if at % 2 else head(len(HELLO)), True),
        (lambda at: head(124 * (300 - at)) if at % 10 == 0 else HELLO, True),
        (lambda at: head(72 * (299 - at)), True),
    ],
    ids=["good", "cut", "broken", "halves", "takes the next", "takes many", "takes all"],
)
def test_cells_are_decoded_at_most_three_times(
    codec: ModuleType, monkeypatch: pytest.MonkeyPatch, function: str, cell: Any, bad: bool
) -> None:
    count = Counting(codec)
    monkeypatch.setattr("phpmq.spark.functions.codec", count)
    array = laid_out([cell(at) for at in range(300)], [HELLO], [FOO])
    total = sum(map(len, array.to_pylist()))
    getattr(functions, function)(options("PERMISSIVE"), array)
    if bad:
        assert total < count.bytes <= 3 * total
        assert count.calls <= 2 + 2 * len(array)
    else:
        assert (count.bytes, count.calls) == (total, 1)


# --- arrays: encoding ---


@both_codecs
@settings(derandomize=True, deadline=None, database=None)
@given(st.lists(st.sampled_from(GOOD) | st.none(), max_size=9), st.integers(0, 2), st.integers(0, 9))
def test_good_cells_come_back_as_they_were(cells: list[bytes | None], first: int, count: int) -> None:
    array = laid_out(cells)
    structs = functions._decode_frames(options(), array).slice(first, count)
    encoded = functions._encode_structs({"packetHeaderSize": 32}, structs)
    encoded.validate(full=True)
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == cells[first : first + count]


@pytest.mark.parametrize("size", [32, 35, 36])
def test_structs_are_written_with_each_packet_header_size(size: int) -> None:
    structs = functions._decode_frames(options(), laid_out(WIRES))
    cells = functions._encode_structs({"packetHeaderSize": size}, structs).to_pylist()
    assert cells == [message_wire(*form, size) for form in FORMS]


def test_fields_that_are_unknown_or_of_a_capture_are_ignored() -> None:
    [rows] = functions._decode_streams(options(), laid_out([FOO])).to_pylist()
    structs = pa.array([None, rows[0] | {"offset": 7, "when": 1.5, "path": "x"}])
    assert functions._encode_structs({"packetHeaderSize": 32}, structs).to_pylist() == [None, FOO]


def test_a_frame_larger_than_what_is_read_by_default_is_written() -> None:
    content = FOO + bytes(2**26)
    structs = pa.array([{"type": "send", "queue": "Foo", "content": content}])
    [cell] = functions._encode_structs({"packetHeaderSize": 32}, structs).to_pylist()
    assert cell == message_wire("Send", {"queue": "Foo", "content": content})


@pytest.mark.parametrize("structs", [pa.array([], pa.struct({"type": pa.string(), "queue": pa.string()})), pa.nulls(2)])
def test_no_structs_and_structs_of_no_type(structs: pa.Array) -> None:
    cells = functions._encode_structs({"packetHeaderSize": 32}, structs)
    assert cells.type == pa.binary()
    assert cells.to_pylist() == [None] * len(structs)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"type": "send", "queue": "Foo"},
            "{'count': None, 'queue': 'Foo', 'type': 'send'}: a message of type send needs the field content",
        ),
        (
            {"type": "consume", "queue": "Foo", "count": -1, "more": 1},
            "{'count': -1, 'queue': 'Foo', 'type': 'consume'}: ttl and count must not be negative",
        ),
        (
            {"type": "sent", "queue": "Foo"},
            "{'count': None, 'queue': 'Foo', 'type': 'sent'}: type must be one of send, consume, dispatch,"
            " acknowledge, requeue, dead_letter, receipt, not 'sent'",
        ),
        (
            {"type": None, "queue": None, "fault": "BAD_DIGITS"},
            "{'count': None, 'fault': 'BAD_DIGITS', 'queue': None, 'type': None}: a damage (BAD_DIGITS), which holds"
            " no message",
        ),
    ],
)
def test_a_struct_that_is_no_message_is_shown_with_the_reason(values: Row, text: str) -> None:
    good = {"type": "consume", "queue": "Foo", "count": 1}
    with pytest.raises(ValueError, match=f"^to_phpmq: {re.escape(text)}$"):
        functions._encode_structs({"packetHeaderSize": 32}, pa.array([None, good, None, good, values, good]))


def test_structs_without_a_needed_field_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^to_phpmq: there is no column 'queue'$"):
        functions._encode_structs({"packetHeaderSize": 32}, pa.array([{"type": "consume", "count": 1}]))


def test_a_struct_is_shown_short() -> None:
    values = {"type": "ack", "queue": "Foo", "content": bytes(10**6), "message_id": "1" * 1000, "ttl": 10**18}
    with pytest.raises(ValueError, match="type must be one of") as raised:
        functions._encode_structs({"packetHeaderSize": 32}, pa.array([values]))
    text = str(raised.value)
    assert len(text) < 400
    assert all(f"'{name}': " in text for name in values)


def test_what_is_no_struct_and_fields_of_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^to_phpmq takes structs, not string$"):
        functions._encode_structs({"packetHeaderSize": 32}, pa.array(["send"]))
    values = {"type": "consume", "queue": "Foo", "count": [1]}
    with pytest.raises(TypeError, match=r"^to_phpmq: the column 'count' must be int64, not list<item: int64>$"):
        functions._encode_structs({"packetHeaderSize": 32}, pa.array([values]))


# --- arguments ---


@pytest.mark.parametrize(
    ("function", "given_options", "text"),
    [
        (
            from_phpmq,
            {"mode": "dropMalformed"},
            "from_phpmq cannot leave out rows: the option mode must be FAILFAST or PERMISSIVE",
        ),
        (
            from_phpmq,
            {"packetHeaderSize": "auto"},
            "from_phpmq cannot find out the packetHeaderSize: it must be 32, 35 or 36",
        ),
        (
            from_phpmq_stream,
            {"PACKETHEADERSIZE": "auto"},
            "from_phpmq_stream cannot find out the packetHeaderSize: it must be 32, 35 or 36",
        ),
        (
            to_phpmq,
            {"packetHeaderSize": "auto"},
            "to_phpmq cannot find out the packetHeaderSize: it must be 32, 35 or 36",
        ),
        (
            from_phpmq,
            {"splitting": "none"},
            "from_phpmq has no option 'splitting'; the options are mode, packetHeaderSize, maxFrameSize",
        ),
        (to_phpmq, {"mode": "FAILFAST"}, "to_phpmq has no option 'mode'; the options are packetHeaderSize"),
        (
            from_phpmq_stream,
            {"maxFrameSize": 0},
            f"the option maxFrameSize must be a size in bytes from 1 to {2**31 - 1}, like 65536 or 64m, not '0'",
        ),
    ],
)
def test_options_are_refused_at_the_call(function: Any, given_options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        function("value", given_options)


def test_an_executor_without_phpmq_says_so() -> None:
    udf: Any = functions._udf("from_phpmq", "_decode_frames", MESSAGE, options())
    sent = cloudpickle.dumps(udf.func)  # type: ignore[no-untyped-call]
    program = (
        "import pickle, sys\n"
        "sys.modules['phpmq'] = None\n"
        "import pyspark.cloudpickle\n"
        "pickle.load(sys.stdin.buffer)(None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=False, timeout=60)
    assert b"ImportError: the Python of this executor cannot import phpmq.spark.functions" in done.stderr
    assert done.returncode == 1


# --- Spark ---


@pytest.fixture
def frames(spark: SparkSession) -> Iterator[DataFrame]:
    """A column as Kafka gives it, in several batches."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4")
    cells: Cells = [*GOOD, None, *BAD]
    schema = StructType([KEY, StructField("value", BinaryType())])
    yield spark.createDataFrame(list(enumerate(cells)), schema).repartition(2)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_spark_gets_structs_and_null_for_what_is_no_frame(frames: DataFrame) -> None:
    result = frames.select("key", from_phpmq("value", {"MODE": "permissive"}).alias("message"))
    assertSchemaEqual(result.schema, StructType([KEY, StructField("message", MESSAGE)]))
    seen: dict[int, Any] = dict(result.collect())
    for key, cell in enumerate([*GOOD, None, *BAD]):
        right = frame_of(cell, options())
        assert (None if seen[key] is None else seen[key].asDict()) == right
    assert result.where("message IS NULL").count() == len(BAD) + 1
    assert result.where("message.type IS NULL").count() == len(BAD) + 1


def test_the_column_is_named_after_the_function(frames: DataFrame) -> None:
    result = frames.select(from_phpmq("value"), from_phpmq_stream(frames.value), to_phpmq(sf.lit(None)))
    assert result.columns == ["from_phpmq(value)", "from_phpmq_stream(value)", "to_phpmq(NULL)"]


def test_sql_of_what_the_cells_hold(spark: SparkSession, frames: DataFrame) -> None:
    table = frames.select("key", from_phpmq("value", {"mode": "PERMISSIVE"}).alias("m"))
    rows = spark.sql(
        "SELECT m.type, sum(m.ttl) FROM {table} WHERE m.queue = 'Foo' AND m.fault IS NULL GROUP BY 1 ORDER BY 1",
        table=table,
    )
    assert [tuple(values) for values in rows.collect()] == [
        ("acknowledge", None),
        ("consume", None),
        ("dead_letter", None),
        ("dispatch", 0),
        ("receipt", None),
        ("requeue", 2**63 - 1),
        ("send", 3600),
    ]


def test_spark_gets_arrays_of_rows(frames: DataFrame) -> None:
    result = frames.select("key", from_phpmq_stream("value", {"mode": "PERMISSIVE"}).alias("rows"))
    assertSchemaEqual(result.schema, StructType([KEY, StructField("rows", ArrayType(ROW))]))
    seen = {key: rows and [values.asDict() for values in rows] for key, rows in result.collect()}
    assert seen == {key: rows_of(cell, options("PERMISSIVE")) for key, cell in enumerate([*GOOD, None, *BAD])}
    dropped = frames.select(sf.explode(from_phpmq_stream("value", {"mode": "DROPMALFORMED"})).alias("m")).select("m.*")
    assert dropped.columns == list(NAMES)
    assert dropped.where("type IS NULL").count() == 0
    assert dropped.count() == sum(len(rows_of(cell, options("DROPMALFORMED")) or []) for cell in [*GOOD, *BAD])


def test_frames_come_back_from_spark_as_they_were(frames: DataFrame) -> None:
    good = frames.where(sf.col("key") <= len(GOOD))
    result = good.select("key", "value", to_phpmq(from_phpmq("value")).alias("again")).collect()
    assert sorted(key for key, _, _ in result) == list(range(len(GOOD) + 1))
    assert all(again == value for _, value, again in result)


def test_structs_of_spark_become_frames(spark: SparkSession) -> None:
    queue = sf.concat(sf.lit("queue "), sf.col("id"))
    struct = sf.struct(
        sf.lit("send").alias("type"),
        queue.alias("queue"),
        sf.col("id").cast("string").alias("content"),
        sf.lit(60).alias("ttl"),
        sf.current_timestamp().alias("when"),
    )
    sent = sf.when(sf.col("id") != 2, struct)
    result = spark.range(4).select("id", to_phpmq(sent, {"packetHeaderSize": "35"}).alias("frame"))
    assert result.schema["frame"].dataType == BinaryType()
    right = {
        number: message_wire("Send", {"queue": f"queue {number}", "content": b"%d" % number, "ttl": 60}, 35)
        for number in range(4)
    }
    assert dict(result.collect()) == right | {2: None}


def test_failfast_ends_the_query_with_the_fault(frames: DataFrame) -> None:
    broken = frames.where(sf.col("key") == len(GOOD) + 1 + BAD.index(BROKEN))
    reason = r"BAD_DIGITS at offset 38: expected a digit 0-9 in a header field, found b'x'"
    with pytest.raises(PythonException, match=f"from_phpmq: {reason}"):
        broken.select(from_phpmq("value")).collect()
    with pytest.raises(PythonException, match=f"from_phpmq_stream: {reason}"):
        broken.select(from_phpmq_stream("value")).collect()
    with pytest.raises(PythonException, match=r"to_phpmq: \{.*\}: a message of type send needs the field content"):
        broken.select(to_phpmq(sf.expr("named_struct('type', 'send', 'queue', 'Foo')"))).collect()
    with pytest.raises(PythonException, match=r"from_phpmq takes a binary column, not string"):
        broken.select(from_phpmq(sf.lit("H01"))).collect()


def test_large_types_of_arrow(spark: SparkSession, frames: DataFrame) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        good = frames.where(sf.col("key") < len(GOOD))
        result = good.select("key", "value", to_phpmq(from_phpmq("value")), from_phpmq_stream("value")).collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert len(result) == len(GOOD)
    for key, value, again, rows in result:
        assert again == value == GOOD[key]
        assert [values.asDict() for values in rows] == rows_of(value, options())

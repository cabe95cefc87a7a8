"""Options, and what is refused before anything is read; most of it without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from phpmq.spark.options import FUNCTION, OPTIONS, READ, STREAM, WRITE, parse_options
from phpmq.spark.reader import SCHEMA
from phpmq.spark.source import PhpmqDataSource

DEFAULTS = {
    "mode": "PERMISSIVE",
    "packetHeaderSize": 32,
    "maxFrameSize": 64 * 2**20,
    "maxPartitionBytes": 128 * 2**20,
    "maxBatchBytes": 32 * 2**20,
    "filters": [],
    "recursiveFileLookup": False,
    "pathGlobFilter": None,
    "ignoreMissingFiles": False,
}
FLAGS = ("recursiveFileLookup", "ignoreMissingFiles", "filesAreComplete", "rememberMissingFiles")

#: Right values of every option, and what they mean.
RIGHT: tuple[tuple[str, str, Any], ...] = (
    *(("mode", text, text.upper()) for text in ("PERMISSIVE", "permissive", "DropMalformed", "failFast")),
    *(("packetHeaderSize", text, int(text)) for text in ("32", "35", "36")),
    *(("packetHeaderSize", text, "auto") for text in ("auto", "AUTO")),
    ("maxFrameSize", "1", 1),
    ("maxFrameSize", "2147483647", 2**31 - 1),
    ("maxFrameSize", "1g", 2**30),
    ("maxPartitionBytes", "1", 1),
    ("maxPartitionBytes", "007", 7),
    ("maxPartitionBytes", "100b", 100),
    ("maxPartitionBytes", "64k", 65536),
    ("maxPartitionBytes", "64KB", 65536),
    ("maxPartitionBytes", "128m", 128 * 2**20),
    ("maxPartitionBytes", " 128 MB ", 128 * 2**20),
    ("maxPartitionBytes", "1000G", 1000 * 2**30),
    ("maxBatchBytes", "1", 1),
    ("maxBatchBytes", "2047m", 2047 * 2**20),
    *(("splitting", text, text.lower()) for text in ("guessed", "exact", "none", "EXACT")),
    *((name, text, True) for name in FLAGS for text in ("true", "TRUE")),
    *((name, "False", False) for name in FLAGS),
    ("filters", "[]", []),
    ("filters", '[["queue", "=", "Foo"]]', [("queue", ["Foo"])]),
    ("filters", '[["type", "in", ["send", ""]], ["path", "=", "x"]]', [("type", ["send", ""]), ("path", ["x"])]),
    ("pathGlobFilter", "*.phpmq", "*.phpmq"),
    ("maxBytesPerTrigger", "64m", 64 * 2**20),
    ("maxFilesPerTrigger", "5", 5),
    *(("compression", text, text.lower()) for text in ("none", "gzip", "bzip2", "zstd", "GZIP")),
)

SIZES = ("", "0", "-1", "1.5", "64x", "m", "1 m b", "1e3", "0x10", "none", "unlimited", "1_000", "٣", "1mm", "64mib")
#: Wrong values, and what the error says the value must be.
WRONG: tuple[tuple[str, str, str], ...] = (
    *(
        ("mode", text, "one of PERMISSIVE, DROPMALFORMED, FAILFAST")
        for text in ("", "strict", "PERMISSIVE ", "raise", "FAIL FAST")
    ),
    *(("packetHeaderSize", text, "one of auto, 32, 35, 36") for text in ("", "33", "32.0", " 32", "-32", "automatic")),
    *(("maxPartitionBytes", text, "a size in bytes from 1 to 9223372036854775807") for text in SIZES),
    ("maxPartitionBytes", "9223372036854775808", "a size in bytes from 1 to 9223372036854775807"),
    *(
        (name, text, "a size in bytes from 1 to 2147483647, like 65536 or 64m")
        for name in ("maxFrameSize", "maxBatchBytes")
        for text in (*SIZES, "2147483648", "2g")
    ),
    *(("splitting", text, "one of guessed, exact, none") for text in ("", "auto", "true", "guess")),
    *((name, text, "one of true, false") for name in FLAGS for text in ("", "yes", "1", "0", "t", "None")),
    *(
        ("filters", text, "a list in JSON like")
        for text in (
            "",
            "true",
            "null",
            "{}",
            '["queue", "=", "Foo"]',
            '[["queue", "=", 1]]',
            '[["queue", "=", null]]',
            '[["queue", "in", "Foo"]]',
            '[["queue", "in", [null]]]',
            '[["queue", "!=", "Foo"]]',
            '[["queue", ["="], "Foo"]]',
            '[["ttl", "=", "1"]]',
            '[["queue", "="]]',
        )
    ),
    *(("maxBytesPerTrigger", text, "a size in bytes from 1 to") for text in SIZES),
    *(
        ("maxFilesPerTrigger", text, "a number of files from 1 to")
        for text in ("", "0", "-1", "5k", "1.0", "2147483648")
    ),
    *(("compression", text, "one of none, gzip, bzip2, zstd") for text in ("", "gz", "snappy", "lz4", "uncompressed")),
)
IN_READ = [(name, text, must) for name, text, must in WRONG if name in READ]


# --- values ---


def test_defaults() -> None:
    values = parse_options({}, READ, "reading")
    assert {name: values[name] for name in DEFAULTS} == DEFAULTS
    assert values.keys() == {*DEFAULTS, "splitting"}
    assert parse_options({}, WRITE, "writing") == {"packetHeaderSize": 32, "compression": "none"}


@pytest.mark.parametrize(("name", "text", "value"), RIGHT)
def test_right_values(name: str, text: str, value: object) -> None:
    for key in (name, name.lower(), name.upper(), name.swapcase()):
        values = parse_options({key: text}, OPTIONS, "reading")
        assert values.pop(name) == value
        assert values == {other: default for other, (default, _) in OPTIONS.items() if other != name}


def test_every_option_is_tried() -> None:
    assert {name for name, *_ in RIGHT} == set(OPTIONS) == {*READ, *STREAM, *WRITE, *FUNCTION}
    assert {name for name, *_ in WRONG} == set(OPTIONS) - {"pathGlobFilter"}


@pytest.mark.parametrize(("name", "text", "must"), WRONG)
def test_wrong_values(name: str, text: str, must: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        parse_options({name.upper(): text}, OPTIONS, "reading")
    assert str(raised.value).startswith(f"the option {name} must be {must}")
    assert str(raised.value).endswith(f", not {text!r}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("known", [READ, STREAM, WRITE, FUNCTION])
def test_unknown_options(known: tuple[str, ...]) -> None:
    for name in ("modus", "header", "", "on_fault", "maxFrameSizes", *(set(OPTIONS) - set(known))):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            parse_options({name: "1"}, known, "this")
        assert str(raised.value) == f"this has no option {name!r}; the options are {', '.join(known)}"


def test_paths_are_no_options() -> None:
    assert parse_options({"path": "x", "PATHS": '["y"]'}, READ, "reading") == parse_options({}, READ, "reading")


# --- the data source ---


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "a.phpmq").touch()
    return str(tmp_path / "a.phpmq")


@pytest.mark.parametrize(("name", "text", "must"), IN_READ)
def test_wrong_values_are_refused_when_it_is_loaded(path: str, name: str, text: str, must: str) -> None:
    """By the data source, which Spark makes at load(), or by its schema, which it asks for then."""
    with pytest.raises(ValueError, match=f"the option {name} must be {must}"):
        PhpmqDataSource({"path": path, name.lower(): text}).schema()


@pytest.mark.parametrize("name", ["modus", "multiLine", "encoding", "columnNameOfCorruptRecord", "modifiedAfter"])
def test_unknown_options_of_the_source(path: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"has no option '{name}'; the options are .*packetHeaderSize"):
        PhpmqDataSource({"path": path, name: "1"}).schema()
    with pytest.raises(ValueError, match=f"has no option '{name}'; the options are .*packetHeaderSize"):
        PhpmqDataSource({"path": path, name: "1"}).writer(SCHEMA, False)


@pytest.mark.parametrize("name", sorted(set(WRITE + STREAM) - set(READ)))
def test_options_that_are_not_for_reading_once(path: str, name: str) -> None:
    text = "gzip" if name == "compression" else "5"
    with pytest.raises(ValueError, match=f"^reading phpmq has no option '{name}'; the options are {', '.join(READ)}$"):
        PhpmqDataSource({"path": path, name: text}).reader(SCHEMA)


@pytest.mark.parametrize("name", sorted(set(READ + STREAM) - set(WRITE)))
def test_options_that_are_not_for_writing(path: str, name: str) -> None:
    text = next(text for other, text, _ in RIGHT if other == name)
    with pytest.raises(ValueError, match=f"^writing phpmq has no option '{name}'; the options are {', '.join(WRITE)}$"):
        PhpmqDataSource({"path": path, name: text}).writer(SCHEMA, False)


@pytest.mark.parametrize("options", [{}, {"paths": "[]"}, {"path": ""}], ids=str)
def test_no_path(options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="path"):
        PhpmqDataSource(dict(options)).schema()
    with pytest.raises(ValueError, match="path"):
        PhpmqDataSource(options).reader(SCHEMA).partitions()


# --- a schema of one's own ---


STRING, BINARY, LONG = StringType(), BinaryType(), LongType()


def of(*fields: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (of(("queues", STRING)), "there is no column 'queues'; the columns are path, offset, size, type, queue, "),
        (of(("queue", STRING), ("_corrupt_record", STRING)), "there is no column '_corrupt_record'"),
        (of(("Queue", STRING)), "there is no column 'Queue'"),
        (of(("", STRING)), "there is no column ''"),
        (of(("queue", BINARY)), "the column 'queue' is string, not binary"),
        (of(("content", STRING)), "the column 'content' is binary, not string"),
        (of(("path", BINARY)), "the column 'path' is string, not binary"),
        (of(("size", IntegerType())), "the column 'size' is bigint, not int"),
        (of(("type", STRING), ("ttl", DoubleType())), "the column 'ttl' is bigint, not double"),
        (of(("count", of(("a", LONG)))), "the column 'count' is bigint, not struct<a:bigint>"),
        (of(("raw", ArrayType(LONG))), "the column 'raw' is binary, not array<bigint>"),
        *(
            (of((name, SCHEMA[name].dataType, False)), f"the column '{name}' can be NULL")
            for name in ("type", "queue", "content", "message_id", "ttl", "count", "fault", "fault_offset", "raw")
        ),
        (StructType(), "the schema has no columns"),
    ],
    ids=str,
)
def test_schemas_that_cannot_be(path: str, schema: StructType, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        PhpmqDataSource({"path": path}).reader(schema)


# --- Spark ---


def test_spark_refuses_at_load(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("phpmq")
    with pytest.raises(AnalysisException, match=r"the option mode must be one of PERMISSIVE, .*, not 'strict'"):
        reader.load(path, mode="strict")
    with pytest.raises(AnalysisException, match="has no option 'multiline'; the options are mode, packetHeaderSize, "):
        spark.read.format("phpmq").option("multiLine", "true").load(path)
    with pytest.raises(AnalysisException, match="there is no path"):
        spark.read.format("phpmq").load()


def test_spark_takes_values_that_are_no_texts(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("phpmq").options(maxPartitionBytes=65536, RECURSIVEFILELOOKUP=False, PACKETHEADERSIZE=32)
    assert reader.load(path).count() == 0


def test_spark_refuses_later_with_a_schema(spark: SparkSession, path: str) -> None:
    """There it asks the source for nothing at load()."""
    frame = spark.read.format("phpmq").schema("queue string").option("mode", "strict").load(path)
    with pytest.raises(AnalysisException, match=r"the option mode must be one of PERMISSIVE, .*, not 'strict'"):
        frame.count()


def test_spark_refuses_options_of_writing(spark: SparkSession, path: str) -> None:
    with pytest.raises(AnalysisException, match="reading phpmq has no option 'compression'"):
        spark.read.format("phpmq").option("compression", "gzip").load(path).count()


def test_spark_refuses_options_of_reading(spark: SparkSession, path: str, tmp_path: Path) -> None:
    frame = spark.read.format("phpmq").load(path)
    with pytest.raises(AnalysisException, match="writing phpmq has no option 'splitting'"):
        frame.write.format("phpmq").mode("append").option("splitting", "none").save(str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        ("queue string, other string", "there is no column 'other'"),
        ("size int", "the column 'size' is bigint, not int"),
        ("queue string not null", "the column 'queue' can be NULL"),
    ],
)
def test_spark_refuses_schemas(spark: SparkSession, path: str, ddl: str, error: str) -> None:
    with pytest.raises(AnalysisException, match=error):
        spark.read.format("phpmq").schema(ddl).load(path).count()

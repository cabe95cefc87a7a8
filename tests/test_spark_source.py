"""Reading once through Spark: the rows, what Spark asks of a source, and the manners of its own ones."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from columns import BAD_BOTH, BAD_ID, BAD_QUEUE, FOO, HELLO, MIXED, WIRES, expected
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from wire import message_wire

from phpmq.generate import write_capture
from phpmq.spark import register
from phpmq.spark.reader import SCHEMA, Share
from phpmq.spark.source import PhpmqDataSource

FRAMES = b"".join(WIRES)


def fill(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def load(spark: SparkSession, path: object, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("phpmq").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def rows_of(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in frame.collect()
    )


def right_rows(path: object, data: bytes, mode: str = "PERMISSIVE") -> Counter[tuple[object, ...]]:
    rows = expected(data, on_fault="skip").rows
    return Counter((str(path), *values.values()) for values in rows if mode == "PERMISSIVE" or values["type"])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a capture can hold."""
    return fill(tmp_path_factory.mktemp("mixed") / "a b%20[1].phpmq", MIXED)


# --- the rows ---


def test_everything_that_a_capture_can_hold(spark: SparkSession, mixed: Path) -> None:
    frame = load(spark, mixed)
    assertSchemaEqual(frame.schema, SCHEMA)
    assert rows_of(frame) == right_rows(mixed, MIXED)
    assert frame.count() == sum(right_rows(mixed, MIXED).values())
    assert rows_of(load(spark, mixed, mode="dropMalformed")) == right_rows(mixed, MIXED, "DROPMALFORMED")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_many_shares_of_a_damaged_capture(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    file = io.BytesIO()
    touches = write_capture(file, 2_000_000, damages=20)
    path = fill(tmp_path / "a.phpmq", file.getvalue())
    right = right_rows(path, file.getvalue(), mode)
    assert len(touches) == 20
    for splitting in ("guessed", "exact", "none"):
        frame = load(spark, path, mode=mode, splitting=splitting, maxPartitionBytes="600k")
        assert rows_of(frame) == right
        # the cost of opening the file counts, too
        assert frame.rdd.getNumPartitions() in ((1,) if splitting == "none" else (4, 5, 6))


@pytest.mark.parametrize(
    "schema",
    [
        "queue string",
        "size bigint, path string, offset bigint",
        "raw binary, fault_offset bigint, fault string, count bigint, ttl bigint, message_id string",
        "path string not null, size bigint not null, content binary, offset bigint not null",
    ],
)
def test_a_schema_of_ones_own(spark: SparkSession, mixed: Path, schema: str) -> None:
    frame = load(spark, mixed, schema=schema)
    names = [field.split()[0] for field in schema.split(", ")]
    assert frame.columns == names
    assert rows_of(frame) == rows_of(load(spark, mixed).select(*names))
    assert frame.count() == load(spark, mixed).count()


def test_sql(spark: SparkSession, mixed: Path) -> None:
    path = str(mixed).replace("'", "''")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING phpmq OPTIONS (path '{path}', MODE 'dropmalformed')")
    try:
        right = Counter((values["type"], 1) for values in expected(MIXED, on_fault="skip").rows if values["type"])
        found = {row[0]: row[1] for row in spark.sql("SELECT type, count(*) FROM messages GROUP BY type").collect()}
        assert found == {word: count for (word, _), count in right.items()}
    finally:
        spark.catalog.dropTempView("messages")


def test_read_of_a_schema_from_an_option(spark: SparkSession, mixed: Path) -> None:
    assert spark.read.format("PHPMQ").option("path", str(mixed)).load().count() == load(spark, mixed).count()


# --- what fails ---


def failure(frame: DataFrame) -> str:
    with pytest.raises(PythonException) as raised:
        frame.collect()
    return str(raised.value)


def test_failfast(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "a b.phpmq", FOO * 3 + b"junk" + FOO)
    assert f"ValueError: {path}: NOT_A_MESSAGE at offset {3 * len(FOO)}: " in failure(
        load(spark, path, mode="FAILFAST")
    )
    packed = fill(tmp_path / "b.gz", gzip.compress(FOO * 3)[:-4])
    assert f"ValueError: {packed}: damaged gzip data: it ends too early" in failure(
        load(spark, packed, mode="failfast")
    )
    assert load(spark, fill(tmp_path / "c", FOO + BAD_QUEUE), mode="FAILFAST").count() == 2


def test_a_wrong_guess(spark: SparkSession, tmp_path: Path) -> None:
    data = b"".join(message_wire("Send", {"queue": "q", "content": FOO * 50, "ttl": 1}) for _ in range(600))
    path = fill(tmp_path / "a.phpmq", data)
    options = {"maxPartitionBytes": "600k", "schema": "path string, offset bigint"}
    told = failure(load(spark, path, **options))
    assert f"ValueError: {path}: " in told
    assert 'option("splitting", "exact")' in told
    frame = load(spark, path, splitting="exact", **options)
    assert rows_of(frame) == Counter((str(path), place) for place in range(0, len(data), len(data) // 600))


def test_a_file_that_vanishes(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "a", FOO)
    kept = fill(tmp_path / "b", HELLO)
    frames = {ignore: load(spark, tmp_path, ignoreMissingFiles=ignore) for ignore in ("true", "false")}
    for frame in frames.values():
        assert frame.rdd.getNumPartitions() == 1  # it is planned by now
    (tmp_path / "a").unlink()
    assert f"FileNotFoundError: {tmp_path}/a has vanished since it was listed" in failure(frames["false"])
    assert rows_of(frames["true"]) == right_rows(kept, HELLO)


# --- registration ---


def test_spark_finds_the_source_by_itself(spark: SparkSession, mixed: Path) -> None:
    session = spark.newSession()
    assert session.read.format("phpmq").load(str(mixed)).count() == load(spark, mixed).count()


def test_registration_by_hand(spark: SparkSession, mixed: Path) -> None:
    session = spark.newSession()
    register(session)
    assert session.read.format("phpmq").load(str(mixed)).count() == load(spark, mixed).count()


# --- filters ---

#: Queues and ids that filters tell apart; a text that is not UTF-8 is NULL, and so is all of a damage.
FILTERED = b"".join(
    [
        *WIRES,
        *(
            message_wire("Send", {"queue": queue, "content": b"x", "ttl": 1})
            for queue in ("a", "aa", "ab", "b", "A", "%", "")
        ),
        *(message_wire("Receipt", {"queue": "a", "message_id": id}) for id in ("1", "10", "2", "a_b", "")),
        BAD_QUEUE,
        BAD_ID,
        BAD_BOTH,
        b"junk",
        FOO,
        HELLO[:40],
    ]
)

#: Filters, and what they mean in Spark's words.
FILTERS: tuple[tuple[list[list[Any]], str], ...] = (
    ([], "true"),
    ([["queue", "=", "a"]], "queue = 'a'"),
    ([["queue", "=", ""]], "queue = ''"),
    ([["queue", "=", "nothing"]], "queue = 'nothing'"),
    ([["message_id", "in", ["1", "a_b", ""]]], "message_id IN ('1', 'a_b', '')"),
    ([["type", "in", []]], "false"),
    ([["type", "in", ["send", "receipt"]], ["queue", "=", "a"]], "type IN ('send', 'receipt') AND queue = 'a'"),
    ([["queue", "in", ["a", "b"]], ["queue", "in", ["b", "Foo"]]], "queue = 'b'"),
    ([["path", "=", "{0}/b.phpmq"]], "path = '{0}/b.phpmq'"),
    ([["path", "in", ["{0}/a.phpmq", "x"]], ["queue", "=", "Foo"]], "path = '{0}/a.phpmq' AND queue = 'Foo'"),
    ([["path", "=", "{0}/nothing"]], "false"),
)


class Filtering(NamedTuple):
    """Where the files are, and a frame that Spark filters, kept in memory."""

    path: str
    right: DataFrame


@pytest.fixture(scope="module")
def filtering(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filtering]:
    root = tmp_path_factory.mktemp("filters")
    fill(root / "a.phpmq", FILTERED)
    fill(root / "b.phpmq", FRAMES)
    right = load(spark, root).cache()
    assert right.count() > 30
    yield Filtering(str(root), right)
    right.unpersist()


def test_filters_give_the_rows_that_spark_would(spark: SparkSession, filtering: Filtering) -> None:
    """All in one query; one query for each would take a minute."""
    path, right = filtering
    texts = [(json.dumps(filters).replace("{0}", path), condition.format(path)) for filters, condition in FILTERS]

    def union(frames: list[DataFrame]) -> DataFrame:
        columns = ("path", "offset", "type", "queue", "fault")
        named = [
            frame.select(f.lit(text).alias("filters"), *columns) for frame, (text, _) in zip(frames, texts, strict=True)
        ]
        return reduce(DataFrame.unionAll, named)

    found = union([load(spark, path, filters=text) for text, _ in texts])
    assertDataFrameEqual(found, union([right.where(condition) for _, condition in texts]))


def test_a_filtered_frame_is_used_several_times(spark: SparkSession, filtering: Filtering) -> None:
    frame = load(spark, filtering.path, filters='[["queue", "in", ["a", "Foo"]]]')
    counts = [frame.where(f"queue = '{queue}'").count() for queue in ("a", "Foo", "b")]
    assert [*counts[:2], 0] == counts
    assert frame.count() == sum(counts) == filtering.right.where("queue IN ('a', 'Foo')").count()
    assert frame.unionAll(frame.where("queue = 'a'")).count() == 2 * counts[0] + counts[1]


@pytest.mark.parametrize("schema", ["offset bigint, type string", "path string", "queue string"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_filters_with_a_schema(tmp_path: Path, schema: str, mode: str) -> None:
    path = fill(tmp_path / "a.phpmq", FILTERED)
    names = [part.split()[0] for part in schema.split(", ")]
    right = [{"path": str(path)} | values for values in expected(FILTERED, on_fault="skip").rows]
    options = {"path": str(path), "mode": mode, "filters": '[["message_id", "in", ["1", "10", "\\ud83d\\ude00"]]]'}
    reader = PhpmqDataSource(options).reader(StructType([SCHEMA[name] for name in names]))
    rows = [values for share in reader.partitions() for batch in reader.read(share) for values in batch.to_pylist()]
    wanted = [values for values in right if values["message_id"] in ("1", "10", "\U0001f600")]
    assert len(wanted) == 3
    assert rows == [{name: values[name] for name in names} for values in wanted]


def test_what_a_filter_on_the_path_excludes_is_not_opened(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.phpmq", FRAMES)
    fill(tmp_path / "b.phpmq", FRAMES)
    options = {"path": str(tmp_path), "filters": json.dumps([["path", "=", str(path)]])}
    [share] = PhpmqDataSource(options).reader(SCHEMA).partitions()
    assert isinstance(share, Share)
    assert [piece.extent.path for piece in share.pieces] == [str(path)]
    options["filters"] = '[["path", "=", "nothing"]]'
    assert PhpmqDataSource(options).reader(SCHEMA).partitions() == []


# --- manners of spark.read.json ---


class Twins:
    """The same files as JSON and as captures, each with two rows that tell its number."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def fill(self, *names: str) -> None:
        for number, name in enumerate(names):
            text = "".join(json.dumps({"queue": f"{number}.{part}"}) + "\n" for part in range(2))
            fill(self.root / "json" / name, text.encode())
            wires = [message_wire("Consume", {"queue": f"{number}.{part}", "count": 1}) for part in range(2)]
            fill(self.root / "phpmq" / name, b"".join(wires))

    def load(self, form: str, paths: Sequence[str], **options: str) -> DataFrame:
        paths = [f"{self.root}/{form}/{path}" for path in paths]
        reader = self.spark.read.format(form).schema("queue string").options(**options)
        return reader.load(paths[0] if len(paths) == 1 else [*paths])

    def rows(self, *paths: str, **options: str) -> list[str]:
        """The rows, which are the same ones."""
        right, found = (
            sorted(str(row.queue) for row in self.load(form, paths, **options).collect()) for form in ("json", "phpmq")
        )
        assert found == right
        return right

    def files(self, *paths: str, **options: str) -> list[str]:
        """The files, which are the same ones, without a query."""
        listed = self.load("json", paths, **options).inputFiles()
        right = sorted(unquote(path).removeprefix(f"file://{self.root}/json/") for path in listed)
        given = {"paths": json.dumps([f"{self.root}/phpmq/{path}" for path in paths])}
        shares: Any = PhpmqDataSource({**given, **options}).reader(SCHEMA).partitions()
        pieces = [piece for share in shares for piece in share.pieces]
        assert sorted({piece.extent.path.removeprefix(f"{self.root}/phpmq/") for piece in pieces}) == right
        return right


@pytest.fixture
def twins(spark: SparkSession, tmp_path: Path) -> Twins:
    return Twins(spark, tmp_path)


def test_paths_as_json_has_them(twins: Twins) -> None:
    twins.fill("a", "b", "c1", "c2", "c10", "sub/d", "sub/deep/e", "_h", ".h", "sub/_h", "[x]", "y z", "p%20q", "ü")
    assert twins.files("") == ["[x]", "a", "b", "c1", "c10", "c2", "p%20q", "y z", "ü"]
    assert len(twins.files("", recursiveFileLookup="true")) == 11
    assert twins.files("b") == ["b"]
    assert twins.files("a", "b", "sub") == ["a", "b", "sub/d"]
    assert twins.files("c*") == ["c1", "c10", "c2"]
    assert twins.files("c{1,10}", "[ab]") == ["a", "b", "c1", "c10"]
    assert twins.files("{a,[ab],c?}") == ["a", "b", "c1", "c2"]
    assert twins.files("[^a-c]") == ["ü"]
    assert twins.files("[!a-c]") == ["ü"]
    assert twins.files("{a,sub/d}") == ["a", "sub/d"]
    assert twins.files("s*") == ["sub/d"]
    assert twins.files("s*/*") == ["sub/d", "sub/deep/e"]
    assert twins.files("", pathGlobFilter="c*") == ["c1", "c10", "c2"]
    assert twins.files("", pathGlobFilter="{a,[^a-z]}") == ["a", "ü"]
    assert twins.files("y z", "p%20q", "ü") == ["p%20q", "y z", "ü"]
    assert twins.rows("s*", "b") == ["1.0", "1.1", "5.0", "5.1"]


@pytest.mark.parametrize(
    ("paths", "count"),
    [(["a", "a"], 4), (["", "a"], 6), (["{a,b}", "a"], 6), (["{a,?}"], 4), (["{a{,x},?}"], 4)],
    ids=str,
)
def test_a_file_that_is_meant_twice_as_json_has_it(twins: Twins, paths: list[str], count: int) -> None:
    twins.fill("a", "b")
    assert len(twins.rows(*paths)) == count


def test_links_as_json_has_them(twins: Twins) -> None:
    twins.fill("real/a", "real/b", "dir/c")
    for form in ("json", "phpmq"):
        root = twins.root / form
        (root / "dir/link").symlink_to(root / "real/a")
        (root / "dir/link_to_directory").symlink_to(root / "real")
        (root / "dir/nowhere").symlink_to(root / "nothing")
        (root / "whole").symlink_to(root / "real")
    assert twins.files("whole") == ["whole/a", "whole/b"]
    assert twins.files("dir") == ["dir/c", "dir/link"]
    assert len(twins.files("dir", recursiveFileLookup="true")) == 4


def test_partitioned_directories_as_json_has_them(twins: Twins) -> None:
    twins.fill("day=1/a", "day=2/b", "day=2/_c")
    assert twins.files("") == ["day=1/a", "day=2/b"]
    assert twins.files("day=*") == ["day=1/a", "day=2/b"]
    assert twins.files("", recursiveFileLookup="true") == ["day=1/a", "day=2/b"]


def test_nothing_as_json_has_it(twins: Twins) -> None:
    for form in ("json", "phpmq"):
        fill(twins.root / form / "empty", b"")
        (twins.root / form / "directory").mkdir()
    assert twins.rows("empty", "directory", "") == []


def test_compressed_files_as_json_has_them(twins: Twins) -> None:
    twins.fill("a")
    for form in ("json", "phpmq"):
        fill(twins.root / form / "b.gz", gzip.compress((twins.root / form / "a").read_bytes()))
    assert twins.rows("") == ["0.0", "0.0", "0.1", "0.1"]


@pytest.mark.parametrize("paths", [["nothing"], ["a", "nothing"], ["no*"], ["{x,y}"], ["a/*"]], ids=str)
def test_missing_paths_as_json_has_them(twins: Twins, paths: list[str]) -> None:
    """Told by load()."""
    twins.fill("a")
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        twins.load("json", paths)
    with pytest.raises(FileNotFoundError, match=f"^path does not exist: {twins.root}/"):
        PhpmqDataSource({"paths": json.dumps([f"{twins.root}/{path}" for path in paths])}).schema()


def test_a_missing_path_is_told_by_load(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=f"path does not exist: {tmp_path}/nothing"):
        load(spark, tmp_path / "nothing")
    frame = load(spark, tmp_path / "nothing", schema="queue string")  # Spark does not ask for a schema then
    with pytest.raises(AnalysisException, match=f"path does not exist: {tmp_path}/nothing"):
        frame.count()

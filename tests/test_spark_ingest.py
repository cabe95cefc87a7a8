"""Captures into tables: what the tables hold, each frame once, whatever happened before."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columns import MIXED, expected
from filelock import FileLock
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import phpmq
from phpmq.generate import write_capture
from phpmq.spark import ingest, open_warehouse
from phpmq.spark.directory import Directory
from phpmq.spark.ingest import Batch, _alone, _publish, _SharesSource, _writing, unread
from phpmq.spark.options import READ, parse_options
from phpmq.spark.ranges import Extent, Piece

FRAME = phpmq.encode(phpmq.Dispatch("Foo", b"Hello", "1", ttl=None))
SIZE = len(FRAME)
DAMAGE = ["path", "offset", "size", "fault", "fault_offset", "raw"]


def capture(size: int, *, seed: int = 7, damages: int = 0) -> bytes:
    file = io.BytesIO()
    write_capture(file, size, seed=seed, damages=damages)
    return file.getvalue()


def truth(path: Path, data: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each table has of a capture that is complete."""
    rows = [{"path": str(path), **row} for row in expected(data, on_fault="skip").rows]
    messages = [
        {**row, "content_size": None if row["content"] is None else len(row["content"])}
        for row in rows
        if row["type"] is not None
    ]
    return messages, [{name: row[name] for name in DAMAGE} for row in rows if row["type"] is None]


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of a table, by a reader that is none of ours, in order."""
    rows = pq.read_table(table).drop_columns("batch").to_pylist()
    return sorted(rows, key=lambda row: (row["path"], row["offset"]))


def both(warehouse: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return rows_of(warehouse / "messages"), rows_of(warehouse / "damage")


def files_in(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def grown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, bytes, list[Batch]]:
    """A warehouse in a place with odd characters, after three runs while captures have grown and appeared."""
    root = tmp_path_factory.mktemp("ingest") / "odd [a]{b}*? %41"
    source, warehouse, batches = root / "captures", root / "warehouse", list[Batch]()
    source.mkdir(parents=True)
    data = capture(600_000, damages=5)
    (source / "part-2").write_bytes(data[:150_000])
    options = {"maxPartitionBytes": "100k", "maxBytesPerTrigger": "200k"}
    ingest(spark, str(source), str(warehouse), options=options, on_batch=batches.append)
    (source / "part-2").write_bytes(data)
    (source / "part-10.gz").write_bytes(gzip.compress(MIXED))
    ingest(spark, [str(source)], str(warehouse), options=options, on_batch=batches.append)
    ingest(spark, str(source), str(warehouse), options={"filesAreComplete": "true"}, on_batch=batches.append)
    return source, warehouse, data, batches


def test_the_tables_hold_every_frame_and_every_damage_once(grown: tuple[Path, Path, bytes, list[Batch]]) -> None:
    source, warehouse, data, batches = grown
    parts = [truth(source / "part-10.gz", MIXED), truth(source / "part-2", data)]
    right = tuple(
        sorted((row for part in parts for row in part[table]), key=lambda row: (row["path"], row["offset"]))
        for table in range(2)
    )
    assert both(warehouse) == right
    assert sum(batch.messages for batch in batches) == len(right[0])
    assert sum(batch.damage for batch in batches) == len(right[1])
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert len(batches) >= 4
    assert sum(batch.size for batch in batches) == len(data) + (source / "part-10.gz").stat().st_size
    assert sorted(path.name for path in warehouse.iterdir()) == ["_checkpoint", "_lock", "damage", "messages"]


def test_the_tables_are_what_spark_and_duckdb_read(
    spark: SparkSession, grown: tuple[Path, Path, bytes, list[Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, warehouse, _, _ = grown
    tables = open_warehouse(spark, str(warehouse))
    for name, frame in tables._asdict().items():
        found = rows_of(warehouse / name)
        assert sorted(frame.toArrow().to_pylist(), key=lambda row: (row["path"], row["offset"])) == found
        monkeypatch.chdir(warehouse)  # its path would be a pattern to DuckDB
        query = f"SELECT count(*), count(DISTINCT (path, \"offset\")) FROM '{name}/**/*.parquet'"
        count, places = duckdb.connect().execute(query).fetchall()[0]
        assert count == places == len(found)
    assert tables.damage.columns == DAMAGE
    assert tables.messages.columns == [
        *DAMAGE[:3],
        "type",
        "queue",
        "content",
        "message_id",
        "ttl",
        "count",
        *DAMAGE[3:],
        "content_size",
    ]


def test_again_with_nothing_new(spark: SparkSession, tmp_path: Path) -> None:
    source, warehouse, batches = tmp_path / "a.phpmq", tmp_path / "warehouse", list[Batch]()
    source.write_bytes(2 * FRAME + FRAME[:5])
    ingest(spark, str(source), str(warehouse), on_batch=batches.append)
    before = files_in(warehouse)
    os.utime(source, ns=(0, source.stat().st_mtime_ns))
    for _ in range(2):
        ingest(spark, str(source), str(warehouse), on_batch=batches.append)
    assert source.stat().st_atime == 0  # nobody has read it
    assert files_in(warehouse) == before
    assert batches == [Batch(0, 2 * SIZE, 2, 0)]
    assert unread(str(source), str(warehouse)) == {str(source): 5}


def test_sources_may_change_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    for name in "ab":
        (tmp_path / name).write_bytes(FRAME)
    for names in ("a", "b", "ab", "a"):
        ingest(spark, [str(tmp_path / name) for name in names], str(warehouse))
    assert [Path(row["path"]).name for row in rows_of(warehouse / "messages")] == ["a", "b"]


def test_sources_of_this_directory(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(FRAME)
    monkeypatch.chdir(tmp_path)
    ingest(spark, "a", "warehouse")
    assert [row["path"] for row in rows_of(tmp_path / "warehouse" / "messages")] == [str(tmp_path / "a")]


def test_a_warehouse_without_messages(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    tables = ingest(spark, str(tmp_path / "captures"), str(tmp_path / "warehouse"))
    assert (tables.messages.count(), tables.damage.count()) == (0, 0)
    assert unread(str(tmp_path / "captures"), str(tmp_path / "warehouse")) == {}
    assert unread(__file__, str(tmp_path / "warehouse")) == {__file__: Path(__file__).stat().st_size}
    (tmp_path / "captures" / "a").write_bytes(b"junk")
    tables = ingest(
        spark, str(tmp_path / "captures"), str(tmp_path / "warehouse"), options={"filesAreComplete": "true"}
    )
    assert (tables.messages.count(), tables.damage.count()) == (0, 1)
    assert pq.read_table(tmp_path / "warehouse" / "messages").num_rows == 0


def test_what_a_run_that_was_cut_off_has_left(spark: SparkSession, tmp_path: Path) -> None:
    source, warehouse = tmp_path / "a", tmp_path / "warehouse"
    source.write_bytes(FRAME)

    def fail(batch: Batch) -> None:
        raise RuntimeError(f"no more after {batch.messages}")

    with pytest.raises(PySparkException, match="no more after 1"):
        ingest(spark, str(source), str(warehouse), on_batch=fail)
    assert len(rows_of(warehouse / "messages")) == 1  # its batch is there, but is not known to be
    (warehouse / "_staging" / "dead").mkdir(parents=True)
    (warehouse / "messages" / "batch=0" / "part-of-the-same-batch.parquet").write_bytes(
        next((warehouse / "messages" / "batch=0").iterdir()).read_bytes()
    )
    ingest(spark, str(tmp_path / "warehouse" / "_checkpoint" / "metadata"), str(warehouse))  # another source
    assert [row["offset"] for row in rows_of(warehouse / "messages")] == [0]
    assert not (warehouse / "_staging").exists()


def test_what_a_task_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def partitionId(self) -> int:  # noqa: N802
            return 3

    monkeypatch.setattr(TaskContext, "get", Context)
    monkeypatch.setattr(sys.modules["phpmq.spark.ingest"], "_GROUP_SIZE", 20_000)
    data = capture(200_000, damages=3)
    whole, part, empty, junk = (tmp_path / name for name in ("whole", "part", "empty", "junk"))
    whole.write_bytes(data)
    part.write_bytes(2 * FRAME)
    empty.write_bytes(b"")
    junk.write_bytes(b"junk")
    options = parse_options({"maxBatchBytes": "5k"}, READ, "reading")
    shares = [
        [
            Piece(Extent(str(whole), 0, len(data), True), None, None),
            Piece(Extent(str(part), SIZE, 2 * SIZE, False), None, None),
        ],
        [Piece(Extent(str(empty), 0, 0, True), None, None)],
        [Piece(Extent(str(junk), 0, 4, True), None, None)],
    ]
    write = _writing(str(tmp_path), options).func  # type: ignore[attr-defined]
    first, second, third = write(pa.array([pickle.dumps(share) for share in shares])).to_pylist()
    messages, damage = truth(whole, data)
    messages += [{**row, "offset": SIZE} for row in truth(part, FRAME)[0]]
    assert first["size"] == len(data) + SIZE
    assert (first["rows"], first["ranges"]) == (len(messages), len(damage))
    assert second == {"messages": None, "damage": None, "size": 0, "rows": 0, "ranges": 0}
    assert (third["messages"], third["size"], third["rows"], third["ranges"]) == (None, 4, 0, 1)
    assert re.fullmatch("messages-part-00003-[0-9a-f]{32}.parquet", first["messages"])
    file = pq.ParquetFile(tmp_path / first["messages"])
    assert file.metadata.num_row_groups > 3
    assert file.read().to_pylist() == messages
    assert pq.read_table(tmp_path / first["damage"]).to_pylist() == damage


def test_the_stream_gives_what_there_is_to_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(2 * FRAME)
    source = _SharesSource({"path": str(tmp_path), "maxPartitionBytes": str(SIZE)})
    assert source.schema().simpleString() == "struct<share:binary>"
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    shares = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert len(shares) == 2
    found = [row["share"] for share in shares for batch in reader.read(share) for row in batch.to_pylist()]
    assert [pickle.loads(share)[0].extent.start for share in found] == [0, SIZE]
    assert list(reader.read(InputPartition(None))) == []  # which is what Spark makes of no shares


def test_frames_with_larger_headers(spark: SparkSession, tmp_path: Path) -> None:
    frames = phpmq.encode(phpmq.Send("Foo", b"Hello"), packet_header_size=36)
    (tmp_path / "a").write_bytes(3 * frames)
    tables = ingest(spark, str(tmp_path / "a"), str(tmp_path / "warehouse"), options={"packetHeaderSize": "36"})
    assert tables.messages.count() == 3


def test_spark_and_tasks_find_a_warehouse_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    directory = Directory("memory://warehouse of mine/")
    assert directory.url("messages") == "memory://warehouse of mine/messages"
    directory.system.makedirs(directory.at("messages"), exist_ok=True)
    with pytest.raises(Py4JJavaError, match='No FileSystem for scheme "memory"'):  # which is not of Hadoop
        open_warehouse(spark, directory.path)
    (tmp_path / "a").write_bytes(FRAME)
    ingest(spark, str(tmp_path / "a"), f"file://{tmp_path}/warehouse")
    assert len(rows_of(tmp_path / "warehouse" / "messages")) == 1


def test_two_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FRAME)
    warehouse, capture = tmp_path / "warehouse", str(tmp_path / "a")
    ingest(spark, capture, str(warehouse))
    (tmp_path / "a").write_bytes(2 * FRAME)
    staging = warehouse / "_staging" / "of another one"
    with FileLock(warehouse / "_lock"):
        staging.mkdir(parents=True)
        with pytest.raises(RuntimeError, match=f"^another ingest works on {warehouse}$"):
            ingest(spark, capture, str(warehouse))
        assert staging.exists()
    assert len(rows_of(warehouse / "messages")) == 1
    ingest(spark, capture, str(warehouse))
    assert len(rows_of(warehouse / "messages")) == 2
    assert not staging.exists()


def test_elsewhere_nobody_is_kept_off() -> None:
    with _alone(Directory("memory://warehouse")), _alone(Directory("memory://warehouse")):
        pass


def test_a_batch_that_was_not_written_takes_no_place(tmp_path: Path) -> None:
    old = tmp_path / "messages" / "batch=0" / "old"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"1")
    with pytest.raises(FileNotFoundError):
        _publish(Directory(str(tmp_path)), "run", "messages", 0, ["messages-part"])
    assert old.exists()


def test_a_warehouse_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory("memory://warehouse")
    for name, content in {"run/a-1": b"1", "run/a-2": b"2", "a/batch=3/old": b"0"}.items():
        directory.system.pipe_file(directory.at(name), content)
    _publish(directory, "run", "a", 3, ["a-1", "a-2"])
    assert {
        entry.name: directory.system.cat_file(directory.at(f"a/batch=3/{entry.name}"))
        for entry in directory.entries("a/batch=3")
    } == {"1": b"1", "2": b"2"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "FAILFAST"}, "ingest has no option 'mode'"),
        ({"filters": "[]"}, "ingest has no option 'filters'"),
        ({"rememberMissingFiles": "false"}, "ingest has no option"),
        ({"maxFrameSize": "many"}, "the option maxFrameSize must be"),
        ({"packetHeaderSize": "auto"}, "needs to be told packetHeaderSize"),
    ],
)
def test_wrong_options(spark: SparkSession, tmp_path: Path, options: dict[str, str], error: str) -> None:
    (tmp_path / "a").write_bytes(FRAME)
    with pytest.raises(ValueError, match=error):
        ingest(spark, str(tmp_path / "a"), str(tmp_path / "warehouse"), options=options)
    assert not (tmp_path / "warehouse").exists()


def test_a_source_that_does_not_exist(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"path does not exist: .*nowhere"):
        ingest(spark, str(tmp_path / "nowhere"), str(tmp_path / "warehouse"))
    with pytest.raises(FileNotFoundError, match="path does not exist"):
        unread(str(tmp_path / "nowhere"), str(tmp_path / "warehouse"))
    assert not (tmp_path / "warehouse").exists()


def test_a_directory_that_is_no_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} is no warehouse"):
        open_warehouse(spark, str(tmp_path))


def test_a_capture_that_was_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(2 * FRAME)
    ingest(spark, str(tmp_path / "a"), str(tmp_path / "warehouse"))
    (tmp_path / "a").write_bytes(FRAME)
    with pytest.raises(PySparkException, match="a was truncated or replaced"):
        ingest(spark, str(tmp_path / "a"), str(tmp_path / "warehouse"))
    assert len(rows_of(tmp_path / "warehouse" / "messages")) == 2

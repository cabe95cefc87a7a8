"""Reading streams: what a reader says to read next, without Spark, and whole queries."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from columns import MIXED, Row, expected
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

import phpmq
from phpmq.capture import Capture
from phpmq.generate import write_capture
from phpmq.spark.reader import SCHEMA
from phpmq.spark.source import PhpmqDataSource
from phpmq.spark.stream import PhpmqStreamReader, _last_boundary, unread

FRAME = phpmq.encode(phpmq.Send("Foo", b"Hello World", 3600))
SIZE = len(FRAME)


def capture(size: int, *, seed: int = 7, damages: int = 0) -> bytes:
    file = io.BytesIO()
    write_capture(file, size, seed=seed, damages=damages)
    return file.getvalue()


def reader_of(path: Path, **options: str) -> PhpmqStreamReader:
    return PhpmqDataSource({"path": str(path), **options}).streamReader(SCHEMA)


def rows_between(reader: PhpmqStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    return [row for share in reader.partitions(start, end) for batch in reader.read(share) for row in batch.to_pylist()]


class Query:
    """What Spark does with a reader; each offset goes through JSON, as it does in a checkpoint."""

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self.options = options
        self.offset: dict[str, Any] = {}
        self.start()

    def start(self) -> None:
        """As a new process does, with nothing but the offset."""
        self.reader = reader_of(self.path, **self.options)
        self.offset = self.offset or self._kept(self.reader.initialOffset())

    @staticmethod
    def _kept(offset: dict[str, Any]) -> dict[str, Any]:
        kept = json.loads(json.dumps(offset))
        assert json.dumps(kept) == json.dumps(offset)
        return dict(kept)

    def batch(self) -> list[Row]:
        end = self._kept(self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit()))
        rows = [] if end == self.offset else rows_between(self.reader, self.offset, end)
        assert bool(rows) == (end != self.offset)
        self.offset = end
        return rows

    def batches(self) -> Iterator[list[Row]]:
        while rows := self.batch():
            yield rows

    def rows(self) -> list[Row]:
        return [row for rows in self.batches() for row in rows]


def without_path(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "path"} for row in rows]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerTrigger": "1"},
        {"maxBytesPerTrigger": "20000"},
        {"maxPartitionBytes": "5000"},
        {"maxPartitionBytes": "5000", "splitting": "guessed"},
        {"splitting": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("damages", [0, 5])
def test_a_growing_file_gives_every_row_once_and_in_order(
    tmp_path: Path, options: dict[str, str], damages: int
) -> None:
    data = capture(200_000, damages=damages)
    right = expected(data, on_fault="skip").rows
    query, random, written = Query(tmp_path, **options), Random(1), 0
    rows: list[Row] = []
    while written < len(data):
        with open(tmp_path / "a.phpmq", "ab") as file:
            written += file.write(data[written : written + random.randrange(1, 20_000)])
        if random.random() < 0.2:
            query.start()
        rows += query.rows() if random.random() < 0.5 else query.batch()
    rows += query.rows()
    # the last frame may be cut off, and what is behind it may still come
    whole = [row for row in right if row["fault"] != "TRUNCATED"]
    assert without_path(rows) == whole
    assert {row["path"] for row in rows} == {str(tmp_path / "a.phpmq")}


def test_everything_that_a_capture_can_hold_byte_by_byte(tmp_path: Path) -> None:
    query, rows = Query(tmp_path), list[Row]()
    data = MIXED[: expected(MIXED, on_fault="skip").rows[-1]["offset"]]
    for place in range(len(data)):
        with open(tmp_path / "a", "ab") as file:
            file.write(data[place : place + 1])
        if place % 3 == 0:
            rows += query.rows()
    rows += query.rows()
    assert without_path(rows) == expected(data, on_fault="skip").rows


def test_a_frame_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(FRAME + FRAME[:-1])
    query = Query(tmp_path)
    assert [row["offset"] for row in query.rows()] == [0]
    assert query.rows() == []
    path.write_bytes(2 * FRAME)
    assert [row["offset"] for row in query.rows()] == [SIZE]


def test_a_batch_is_the_same_when_it_is_read_again_later(tmp_path: Path) -> None:
    data = capture(100_000, damages=3)
    path = tmp_path / "a"
    path.write_bytes(data[:60_000])
    reader = reader_of(tmp_path, maxPartitionBytes="5000", splitting="guessed")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = rows_between(reader, start, end)
    path.write_bytes(data)
    (tmp_path / "b").write_bytes(data)
    assert rows_between(reader_of(tmp_path, maxPartitionBytes="7777"), start, end) == rows


@pytest.mark.parametrize("limit", [1, SIZE - 1, SIZE, SIZE + 1, 5 * SIZE, 7 * SIZE - 1])
def test_max_bytes_per_trigger(tmp_path: Path, limit: int) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(10 * FRAME)
    sizes = [sum(row["size"] for row in rows) for rows in Query(tmp_path, maxBytesPerTrigger=str(limit)).batches()]
    assert sum(sizes) == 30 * SIZE
    assert max(sizes) <= max(limit, SIZE)  # one frame is the least
    assert len(sizes) == -(-30 // max(limit // SIZE, 1))


def test_a_large_frame_is_taken_whole(tmp_path: Path) -> None:
    frame = phpmq.encode(phpmq.Send("Foo", bytes(3_000_000)))
    (tmp_path / "a").write_bytes(FRAME + frame + FRAME)
    sizes = [[row["size"] for row in rows] for rows in Query(tmp_path, maxBytesPerTrigger="1000").batches()]
    assert sizes == [[SIZE], [len(frame)], [SIZE]]


def test_max_files_per_trigger_takes_the_oldest_first(tmp_path: Path) -> None:
    for number in range(7):
        path = tmp_path / f"part-{number}"
        path.write_bytes(FRAME)
        os.utime(path, (1000 - number, 1000 - number))
    batches = list(Query(tmp_path, maxFilesPerTrigger="3").batches())
    names = [[Path(row["path"]).name for row in rows] for rows in batches]
    assert names == [["part-6", "part-5", "part-4"], ["part-3", "part-2", "part-1"], ["part-0"]]


def test_both_limits(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(3 * FRAME)
    query = Query(tmp_path, maxFilesPerTrigger="2", maxBytesPerTrigger=str(4 * SIZE))
    assert [len(rows) for rows in query.batches()] == [4, 4, 4]
    query = Query(tmp_path, maxFilesPerTrigger="1", maxBytesPerTrigger=str(4 * SIZE))
    assert [len(rows) for rows in query.batches()] == [3, 3, 3, 3]


def test_limits(tmp_path: Path) -> None:
    assert isinstance(reader_of(tmp_path).getDefaultReadLimit(), ReadAllAvailable)
    assert reader_of(tmp_path, maxBytesPerTrigger="2k").getDefaultReadLimit() == ReadMaxBytes(2048)
    assert reader_of(tmp_path, maxFilesPerTrigger="5").getDefaultReadLimit() == ReadMaxFiles(5)


def test_all_that_is_available_knows_no_limits(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(10 * FRAME)
    reader = reader_of(tmp_path, maxBytesPerTrigger="1")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert len(rows_between(reader, reader.initialOffset(), end)) == 10


def test_available_now_ends_with_what_was_there_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(2 * FRAME + FRAME[:5])
    query = Query(tmp_path, maxBytesPerTrigger="1")
    query.reader.prepareForTriggerAvailableNow()
    path.write_bytes(9 * FRAME)
    (tmp_path / "b").write_bytes(FRAME)
    assert len(query.rows()) == 2
    query.start()
    assert len(query.rows()) == 8


def test_available_now_ends_where_nothing_was_at_the_start(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.reader.prepareForTriggerAvailableNow()
    (tmp_path / "a").write_bytes(FRAME)
    assert query.rows() == []
    query.start()
    assert len(query.rows()) == 1


@pytest.mark.parametrize("finished", [False, True])
def test_a_truncated_file_is_an_error(tmp_path: Path, finished: bool) -> None:
    path = tmp_path / "a"
    path.write_bytes(2 * FRAME + (b"" if finished else FRAME[:5]))
    query = Query(tmp_path)
    assert len(query.rows()) == 2
    path.write_bytes(FRAME)
    with pytest.raises(
        ValueError, match=rf"{path} was truncated or replaced: {2 * SIZE} bytes were read, .* has {SIZE} now"
    ):
        query.batch()


@pytest.mark.parametrize("size", [2 * SIZE, 5 * SIZE], ids=["same size", "larger"])
def test_a_replaced_file_is_an_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(2 * FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 2
    path.write_bytes(FRAME.replace(b"Foo", b"Bar") * (size // SIZE))
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))  # file systems have coarse clocks
    with pytest.raises(ValueError, match=f"{path} was replaced"):
        query.batch()


def test_a_touched_file_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(2 * FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 2
    os.utime(path, (2**33, 2**33))
    assert query.rows() == []


def test_a_late_file_with_an_old_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 1
    path = tmp_path / "old"
    path.write_bytes(2 * FRAME)
    os.utime(path, (1, 1))
    assert len(query.rows()) == 2


def test_a_finished_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 1
    (tmp_path / "b").write_bytes(FRAME)
    assert len(query.rows()) == 1
    path.write_bytes(3 * FRAME)
    assert [row["offset"] for row in query.rows()] == [SIZE, 2 * SIZE]


def test_a_deleted_file_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(2 * FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 2
    path.unlink()
    assert query.rows() == []
    (tmp_path / "b").write_bytes(FRAME)
    assert len(query.rows()) == 1
    path.write_bytes(FRAME)
    assert len(query.rows()) == 1


def test_many_finished_files_make_a_small_offset(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"a-capture-with-a-long-name-{number}.phpmq").write_bytes(FRAME)
    (tmp_path / "open").write_bytes(FRAME + FRAME[:50])
    query = Query(tmp_path)
    assert len(query.rows()) == 1001
    assert query.offset["unfinished"].keys() == {str(tmp_path / "open")}
    assert len(query.offset["taken"]) == 1001
    (tmp_path / "one more").write_bytes(FRAME)
    assert len(query.rows()) == 1
    assert len(json.dumps(query.offset)) < 1002 * 28 + 400


def test_complete_files_are_read_to_their_ends(tmp_path: Path) -> None:
    data = capture(100_000, damages=4)[:-1]
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"junk")
    waiting = Query(tmp_path)
    rows = waiting.rows()
    right = expected(data, on_fault="skip").rows
    assert without_path(rows) == right[:-1]
    # Those that have waited are taken, too, by who says so later.
    waiting.options["filesAreComplete"] = "true"
    waiting.start()
    rest = waiting.rows()
    assert {row["path"]: row["fault"] for row in rest} == {
        str(tmp_path / "a"): "TRUNCATED",
        str(tmp_path / "b"): "NOT_A_MESSAGE",
    }
    limited = Query(tmp_path, filesAreComplete="true", maxBytesPerTrigger="10000", maxPartitionBytes="3000")
    found = [row for row in limited.rows() if row["path"] == str(tmp_path / "a")]
    assert without_path(found) == right


@pytest.mark.parametrize("told", [{"filesAreComplete": "true"}, {}])
def test_a_batch_of_complete_files_is_the_same_when_they_have_grown(tmp_path: Path, told: dict[str, str]) -> None:
    """Also for who does not say any more that they are complete."""
    (tmp_path / "a").write_bytes(FRAME + FRAME[:5])
    reader = reader_of(tmp_path, filesAreComplete="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    right = rows_between(reader, start, end)
    assert [row["fault"] for row in right] == [None, "TRUNCATED"]
    with (tmp_path / "a").open("ab") as file:
        file.write(FRAME[5:])
    assert rows_between(reader_of(tmp_path, **told), start, end) == right


@pytest.mark.parametrize("rest", [phpmq.encode(phpmq.Send("Foo", bytes(5000)))[:-1], bytes(5000)])
@pytest.mark.parametrize("limit", [1, 3 * SIZE, 3000, 6000])
def test_the_end_of_a_complete_file_that_is_larger_than_a_batch(tmp_path: Path, rest: bytes, limit: int) -> None:
    (tmp_path / "a").write_bytes(3 * FRAME + rest)
    query = Query(tmp_path, filesAreComplete="true", maxBytesPerTrigger=str(limit))
    assert without_path(query.rows()) == expected(3 * FRAME + rest, on_fault="skip").rows


@pytest.mark.parametrize("limit", [SIZE, 1000, 8000])
def test_a_batch_does_not_end_a_complete_file(tmp_path: Path, limit: int) -> None:
    """What is wrong with a frame, the whole file tells, and not the part that a batch takes."""
    send = phpmq.encode(phpmq.Send("Foo", b"12345", 60))
    longer = send.replace(b"5".zfill(20), b"5000".zfill(20), 1)
    assert longer != send
    data = 3 * FRAME + longer + 20 * FRAME + phpmq.encode(phpmq.Send("Foo", bytes(20_000))) + FRAME
    (tmp_path / "a").write_bytes(data)
    query = Query(tmp_path, filesAreComplete="true", maxBytesPerTrigger=str(limit))
    assert without_path(query.rows()) == expected(data, on_fault="skip").rows


def test_what_is_left_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(2 * FRAME + FRAME[:5])
    (tmp_path / "b").write_bytes(FRAME[:5])
    (tmp_path / "c").write_bytes(FRAME)
    query = Query(tmp_path)
    assert len(query.rows()) == 3
    query.start()
    with monkeypatch.context() as patch:
        patch.setattr("phpmq.spark.stream.Capture", None)
        patch.setattr("phpmq.spark.stream.read_head", None)
        assert query.rows() == []
    with (tmp_path / "b").open("ab") as file:
        file.write(FRAME[5:])
    assert len(query.rows()) == 1
    # What has the same size may be another file all the same.
    (tmp_path / "a").write_bytes(bytes(2 * SIZE + 5))
    os.utime(tmp_path / "a", (2**32, 2**32))
    with pytest.raises(ValueError, match="a was replaced"):
        query.batch()


@pytest.mark.parametrize("size", [SIZE, 2 * SIZE, 2 * SIZE + 5])
def test_missing_files_are_remembered(tmp_path: Path, size: int) -> None:
    data = 3 * FRAME
    (tmp_path / "a").write_bytes(data[:size])
    (tmp_path / "b").write_bytes(FRAME)
    query = Query(tmp_path, rememberMissingFiles="true")
    assert len(query.rows()) == 1 + size // SIZE
    (tmp_path / "a").rename(tmp_path.parent / "elsewhere")
    (tmp_path / "c").write_bytes(FRAME)
    assert len(query.rows()) == 1
    (tmp_path.parent / "elsewhere").rename(tmp_path / "a")
    assert query.rows() == []
    (tmp_path / "a").write_bytes(data)
    assert [row["offset"] for row in query.rows()] == [
        place for place in (SIZE, 2 * SIZE) if place >= size // SIZE * SIZE
    ]


def test_a_batch_is_the_same_whatever_is_listed_later(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(2 * FRAME)
    reader = reader_of(tmp_path / "one")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    right = rows_between(reader, start, end)
    assert len(right) == 2
    assert rows_between(reader_of(tmp_path / "two"), start, end) == right


def test_what_is_unread(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(2 * FRAME + FRAME[:5])
    (tmp_path / "b").write_bytes(FRAME)
    query = Query(tmp_path)
    query.rows()
    (tmp_path / "c").write_bytes(FRAME)
    assert unread(query.offset, query.reader._files()) == {str(tmp_path / "a"): 5, str(tmp_path / "c"): SIZE}


def test_sizes_beyond_what_a_float_can_count() -> None:
    from phpmq.spark.files import File  # noqa: PLC0415
    from phpmq.spark.stream import Mark, _key, _marks, _offset  # noqa: PLC0415

    files = [File("a", 2**60 + 1, 0), File("b", 2**61, 0)]
    marks = {_key("a"): Mark(2**60 + 1, 2**32 - 1), _key("b"): Mark(2**59 + 1, 0)}
    assert _marks(json.loads(json.dumps(_offset(0, files, marks, {}, remember=False)))) == marks


@pytest.mark.parametrize("ignored", [False, True])
def test_a_file_that_vanishes_before_it_is_read(tmp_path: Path, ignored: bool) -> None:
    (tmp_path / "a").write_bytes(FRAME)
    (tmp_path / "b").write_bytes(FRAME)
    options = {"ignoreMissingFiles": str(ignored)}
    reader = reader_of(tmp_path, **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (tmp_path / "a").unlink()
    for again in (reader, reader_of(tmp_path, **options)):
        if ignored:
            assert [Path(row["path"]).name for row in rows_between(again, start, end)] == ["b"]
        else:
            with pytest.raises(FileNotFoundError, match="vanished"):
                rows_between(again, start, end)


def test_a_compressed_file_is_taken_whole_and_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(3 * FRAME))
    query = Query(tmp_path)
    assert len(query.rows()) == 3
    assert query.rows() == []
    with path.open("ab") as file:
        file.write(gzip.compress(FRAME))
    with pytest.raises(ValueError, match=f"{path} is compressed and has grown"):
        query.batch()


@pytest.mark.parametrize("packet_header_size", [35, 36])
def test_packet_header_size(tmp_path: Path, packet_header_size: int) -> None:
    frames = phpmq.encode(phpmq.Send("Foo", b"Hello"), packet_header_size=packet_header_size) * 3
    (tmp_path / "a").write_bytes(frames)
    rows = Query(tmp_path, packetHeaderSize=str(packet_header_size)).rows()
    assert [(row["offset"], row["fault"]) for row in rows] == [(at * len(frames) // 3, None) for at in range(3)]


def test_a_growing_file_cannot_tell_its_packet_header_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a stream needs to be told packetHeaderSize"):
        reader_of(tmp_path, packetHeaderSize="auto")


@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_vanishes_while_it_is_looked_at(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "a"
    path.write_bytes(FRAME)
    (tmp_path / "b").write_bytes(FRAME)
    query = Query(tmp_path)
    if known:
        assert len(query.rows()) == 2
        path.write_bytes(3 * FRAME)
    query.reader.prepareForTriggerAvailableNow()
    path.unlink()
    assert [Path(row["path"]).name for row in query.rows()] == ([] if known else ["b"])


@pytest.mark.parametrize("tail", [1, 500, 5000])
def test_guessing_looks_at_the_end_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    """Where that has no frame, all of it is looked at."""
    monkeypatch.setattr("phpmq.spark.stream._TAIL_SIZE", tail)
    data, random, written = capture(200_000, damages=5), Random(2), 0
    query, rows = Query(tmp_path, splitting="guessed", maxPartitionBytes="9000"), list[Row]()
    while written < len(data):
        with open(tmp_path / "a", "ab") as file:
            written += file.write(data[written : written + random.randrange(1, 20_000)])
        rows += query.rows()
    right = expected(data, on_fault="skip").rows
    assert without_path(rows) == [row for row in right if row["fault"] != "TRUNCATED"]


def test_a_file_that_is_cut_while_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(FRAME + FRAME[:5])
    with Capture(path) as opened:
        assert _last_boundary(opened, 0, 1000, {"packet_header_size": 32, "max_frame_size": None}) == SIZE


def test_the_checkpoint_of_another_version(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    with pytest.raises(ValueError, match="another version of phpmq"):
        reader.latestOffset({"version": 2, "files": {}}, ReadAllAvailable())


def drained(spark: SparkSession, source: Path, work: Path, **options: str) -> None:
    """Run a query until it has taken all that there is."""
    stream = spark.readStream.format("phpmq").options(**options).load(str(source))
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "rows"))
    )
    assert query.awaitTermination(120)
    assert query.exception() is None


def test_available_now_and_restarts_give_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    data = capture(300_000, damages=4)
    source = tmp_path / "captures"
    source.mkdir()
    (source / "a").write_bytes(data[:100_000])
    (source / "b").write_bytes(capture(50_000))
    drained(spark, source, tmp_path, maxBytesPerTrigger="40000")
    drained(spark, source, tmp_path)
    (source / "a").write_bytes(data)
    (source / "c").write_bytes(capture(50_000))
    drained(spark, source, tmp_path, maxFilesPerTrigger="1")
    rows = spark.read.parquet(str(tmp_path / "rows"))
    for name, right in {"a": data, "b": capture(50_000), "c": capture(50_000)}.items():
        found = rows.filter(rows.path == str(source / name)).drop("path").orderBy("offset").toArrow().to_pylist()
        assert found == [row for row in expected(right, on_fault="skip").rows if row["fault"] != "TRUNCATED"]


def test_a_query_follows_a_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "captures" / "a"
    path.parent.mkdir()
    path.write_bytes(2 * FRAME)
    stream = spark.readStream.format("phpmq").load(str(path.parent)).select("offset")
    query = stream.writeStream.format("memory").queryName("followed").outputMode("append").start()
    try:
        query.processAllAvailable()
        with path.open("ab") as file:
            file.write(2 * FRAME + FRAME[:9])
        query.processAllAvailable()
        assert [row.offset for row in spark.table("followed").collect()] == [0, SIZE, 2 * SIZE, 3 * SIZE]
        path.write_bytes(FRAME)
        # The query looks all the time, so it may have the size from before and the bytes from after.
        with pytest.raises(Exception, match=r"was (truncated or )?replaced"):
            query.processAllAvailable()
    finally:
        query.stop()

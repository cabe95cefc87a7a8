"""Writing: every row once, whatever dies and when; most of it without Spark, by what Spark does with a writer."""

from __future__ import annotations

import builtins
import bz2
import errno
import gzip
import os
import pickle
import re
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from columns import BAD_BOTH, BAD_ID, BAD_QUEUE, MIXED, WIRES, Row, expected
from fsspec.core import url_to_fs  # type: ignore[import-untyped,import-not-found,unused-ignore]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped,import-not-found,unused-ignore]
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from phpmq.arrow import encode_batch, read_table
from phpmq.spark import register
from phpmq.spark.reader import SCHEMA
from phpmq.spark.source import PhpmqDataSource
from phpmq.spark.writer import PhpmqWriter, Staged

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SERIALIZER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
GOOD = b"".join([*WIRES, BAD_QUEUE, BAD_ID, BAD_BOTH])
COUNTS = StructType(
    [StructField("type", StringType()), StructField("queue", StringType()), StructField("count", LongType())]
)


# --- what Spark does with a writer ---


def shipped(value: Any) -> Any:
    return pickle.loads(SERIALIZER.dumps(value))


def writer_to(path: str | Path, schema: StructType = COUNTS, *, overwrite: bool = False, **options: str) -> PhpmqWriter:
    return PhpmqDataSource({"path": str(path), **options}).writer(schema, overwrite)


@contextmanager
def task(partition: int) -> Iterator[None]:
    context = TaskContext._getOrCreate()
    context._partitionId = partition
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def run_task(writer: PhpmqWriter, partition: int, batches: Iterable[pa.RecordBatch]) -> Staged:
    with task(partition):
        message = shipped(shipped(writer).write(iter(batches)))
    assert isinstance(message, Staged)
    return message


def counts(numbers: Iterable[int]) -> pa.RecordBatch:
    """Messages that can be told apart by their count."""
    numbers = list(numbers)
    return pa.record_batch({"type": ["consume"] * len(numbers), "queue": ["q"] * len(numbers), "count": numbers})


def staged(writer: PhpmqWriter, numbers: Sequence[int], partitions: int = 3) -> list[Staged | None]:
    """The messages of tasks that share numbers out; each is tried twice, and what the first one wrote is not used."""
    messages: list[Staged | None] = []
    for partition in range(partitions):
        batches = [counts([number]) for number in numbers[partition::partitions]]
        run_task(writer, partition, batches)
        messages.append(run_task(writer, partition, batches))
    return messages


def write_counts(path: str | Path, numbers: Sequence[int], *, overwrite: bool = False) -> None:
    writer = writer_to(path, overwrite=overwrite)
    shipped(writer).commit(staged(writer, numbers))


def read_rows(path: str | Path) -> list[Row]:
    reader = PhpmqDataSource({"path": str(path), "mode": "FAILFAST"}).reader(SCHEMA)
    return [row for share in reader.partitions() for batch in shipped(reader).read(share) for row in batch.to_pylist()]


def read_counts(path: str | Path) -> list[int]:
    """The counts in order. A file that is not whole is an error."""
    return sorted(row["count"] for row in read_rows(path))


def names(path: str | Path) -> list[str]:
    """The names of everything in a path, to its depths; those of directories end with a slash."""
    system, root = url_to_fs(str(path))
    found = system.find(root, withdirs=True, detail=True)
    return sorted(
        name.removeprefix(f"{root}/") + "/" * (info["type"] == "directory")
        for name, info in found.items()
        if name != root
    )


def left(path: str) -> list[str]:
    """What jobs have left. In memory directories have no time, and an empty one may stay."""
    is_local = not path.startswith("memory:")
    return [name for name in names(path) if name.startswith("_temporary") and (is_local or not name.endswith("/"))]


@pytest.fixture(params=["local", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A path that does not exist yet."""
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    url = f"memory://{uuid4().hex}/out"
    yield url
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


# --- the rows of all messages ---


def sample(data: bytes = GOOD) -> pa.RecordBatch:
    (batch,) = read_table(data, on_fault="skip").to_batches()
    return batch


@pytest.mark.parametrize("size", ["32", "35", "36"])
@pytest.mark.parametrize("batch_rows", [1, 5, 100])
def test_what_is_written(path: str, size: str, batch_rows: int) -> None:
    batch = sample()
    writer = writer_to(path, SCHEMA, packetHeaderSize=size)
    batches = [batch.slice(start, batch_rows) for start in range(0, len(batch), batch_rows)]
    if size != "32":  # a text that is not UTF-8 is kept with its frame, which has 32
        batches = [part.filter(part["raw"].is_null()) for part in batches]
    writer.commit([run_task(writer, 7, batches)])
    name = f"part-00007-{writer._job}.phpmq"
    assert names(path) == ["_SUCCESS", name]
    system, root = url_to_fs(path)
    assert system.cat_file(f"{root}/_SUCCESS") == b""
    data = system.cat_file(f"{root}/{name}")
    assert data == b"".join(encode_batch(part, packet_header_size=int(size)) for part in batches)
    if size == "32":
        assert data == GOOD


@pytest.mark.parametrize(
    ("compression", "suffix", "decompress"),
    [("gzip", ".gz", gzip.decompress), ("bzip2", ".bz2", bz2.decompress), ("zstd", ".zst", zstd.decompress)],
)
def test_compression(path: str, compression: str, suffix: str, decompress: Callable[[bytes], bytes]) -> None:
    batch = sample()
    for overwrite in (False, True):
        writer = writer_to(path, SCHEMA, overwrite=overwrite, compression=compression)
        writer.commit([run_task(writer, 0, [batch, batch])])
        name = f"part-00000-{writer._job}.phpmq{suffix}"
        assert names(path) == ["_SUCCESS", name]
        system, root = url_to_fs(path)
        assert decompress(system.cat_file(f"{root}/{name}")) == 2 * GOOD
        rows = [{name: value for name, value in row.items() if name != "path"} for row in read_rows(path)]
        assert rows == expected(2 * GOOD, on_fault="skip").rows


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "compression" if sys.version_info >= (3, 14) else "backports"
    monkeypatch.setitem(sys.modules, package, None)
    writer_to(tmp_path, compression="gzip")
    with pytest.raises(ImportError):
        writer_to(tmp_path, compression="zstd")


def test_a_file_system_that_renames(tmp_path: Path) -> None:
    """What is a URL is left to fsspec, which here knows better than to copy."""
    write_counts(f"local://{tmp_path}/out", range(5))
    write_counts(f"local://{tmp_path}/out", range(5, 9))
    assert read_counts(tmp_path / "out") == [*range(9)]


def test_a_directory_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_to(tmp_path / "out")

    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError("no such device")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.makedirs", fail)
    with pytest.raises(FileNotFoundError, match="no such device"):
        run_task(writer, 0, [counts(range(5))])


def test_partitions_without_rows(path: str) -> None:
    writer = writer_to(path)
    none = counts([])
    messages = [run_task(writer, 0, []), run_task(writer, 1, [none, none]), run_task(writer, 2, [none, counts([5])])]
    assert [message.name is None for message in messages] == [True, True, False]
    writer.commit(messages)
    assert names(path) == ["_SUCCESS", f"part-00002-{writer._job}.phpmq"]
    assert read_counts(path) == [5]


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_rows_at_all(path: str, overwrite: bool) -> None:
    write_counts(path, [], overwrite=overwrite)
    assert names(path) == ["_SUCCESS"]
    assert read_counts(path) == []
    write_counts(path, [1, 2])
    write_counts(path, [], overwrite=overwrite)
    assert read_counts(path) == ([] if overwrite else [1, 2])


def test_append_and_overwrite(path: str) -> None:
    write_counts(path, range(10))
    write_counts(path, range(10, 30))
    assert read_counts(path) == [*range(30)]
    assert len(names(path)) == 7
    write_counts(path, range(20, 25), overwrite=True)
    assert read_counts(path) == [*range(20, 25)]
    assert len(names(path)) == 4


def test_the_memory_stays_flat(tmp_path: Path) -> None:
    size, most = 1024 * 1024, 0
    schema = StructType([*COUNTS.fields[:2], StructField("content", BinaryType())])

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(64):
            yield pa.record_batch({"type": ["send"], "queue": ["q"], "content": [bytes(size)]})
            most = max(most, pa.total_allocated_bytes() - before)

    writer = writer_to(tmp_path, schema)
    with task(0):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            message = writer.write(batches())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert message.size > 64 * size
    assert most < 8 * size
    assert peak < 8 * size


# --- what is refused, on the driver ---


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"queue": StringType()}, ValueError, "there is no column 'type'"),
        ({"type": StringType()}, ValueError, "there is no column 'queue'"),
        ({}, ValueError, "there is no column 'type'"),
        (
            {"type": StringType(), "queue": StringType(), "ttl": ArrayType(LongType())},
            TypeError,
            "the column 'ttl' must be int64, not list<element: int64>",
        ),
        ({"type": StringType(), "queue": COUNTS}, TypeError, "the column 'queue' must be string, not struct<"),
        (
            {"type": StringType(), "queue": StringType(), "raw": LongType()},
            TypeError,
            "the column 'raw' must be binary",
        ),
    ],
)
def test_wrong_columns(tmp_path: Path, fields: dict[str, Any], error: type[Exception], text: str) -> None:
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        writer_to(tmp_path, schema)


def test_a_column_that_occurs_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there are several columns 'queue'$"):
        writer_to(tmp_path, StructType([*COUNTS.fields, COUNTS.fields[1]]))


def test_columns_that_are_not_written(path: str) -> None:
    schema = StructType([StructField("path", ArrayType(LongType())), *COUNTS.fields, StructField("other", COUNTS)])
    writer = writer_to(path, schema)
    batch = counts([3]).append_column("path", [[[1]]]).append_column("offset", [[99]])
    writer.commit([run_task(writer, 0, [batch])])
    assert read_counts(path) == [3]


def test_wrong_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^writing needs to be told packetHeaderSize: there is nothing yet"):
        writer_to(tmp_path, packetHeaderSize="auto")
    with pytest.raises(ValueError, match=r"^the option compression must be one of none, gzip, bzip2, zstd, not 'lz4'$"):
        writer_to(tmp_path, compression="lz4")
    with pytest.raises(ValueError, match=r"^writing phpmq has no option 'splitting'"):
        writer_to(tmp_path, splitting="none")


def test_a_path_that_is_a_file(path: str) -> None:
    system, root = url_to_fs(path)
    system.makedirs(root.rpartition("/")[0], exist_ok=True)
    system.pipe_file(root, b"precious")
    for overwrite in (False, True):
        with pytest.raises(NotADirectoryError, match=f"^{re.escape(path)} is a file, and captures are written into a"):
            writer_to(path, overwrite=overwrite)
    assert system.cat_file(root) == b"precious"


# --- rows that are no messages ---


def test_a_row_that_is_no_message(path: str) -> None:
    writer = writer_to(path)
    bad = pa.record_batch({"type": ["consume", "consume"], "queue": ["q", None], "count": [1, 2]})
    batches = [counts(range(10)), counts([]), counts(range(5)), bad]
    text = "^partition 3, row 16: a message of type consume needs the field queue$"
    with pytest.raises(ValueError, match=text), task(3):
        writer.write(iter(batches))
    writer.abort([None])
    assert names(path) == []


def test_a_damage(tmp_path: Path) -> None:
    writer = writer_to(tmp_path, SCHEMA)
    rows = expected(MIXED, on_fault="skip").rows
    (first, *_) = [number for number, row in enumerate(rows) if row["type"] is None]
    text = rf"^partition 0, row {first + 100}: a damage \({rows[first]['fault']}\), which holds no message$"
    with pytest.raises(ValueError, match=text), task(0):
        writer.write(iter([counts(range(100)), sample(MIXED)]))


def test_a_value_that_cannot_be(tmp_path: Path) -> None:
    batch = pa.record_batch({"type": ["consume"], "queue": [b"caf\xe9"], "count": [1]})
    with pytest.raises(ValueError, match=r"^partition 2, the column 'queue': Invalid UTF8"), task(2):
        writer_to(tmp_path).write(iter([batch]))


# --- tasks that are tried again, jobs that fail ---


def test_two_attempts_of_a_partition(path: str) -> None:
    writer = writer_to(path)
    first, second = (run_task(writer, 0, [counts(range(10))]) for _ in range(2))
    assert first.name != second.name
    with pytest.raises(ZeroDivisionError), task(1):
        writer.write(counts([1 // number]) for number in (1, 0))
    writer.commit([second, run_task(writer, 1, [counts(range(10, 20))])])
    assert names(path) == ["_SUCCESS", *(f"part-{number:05}-{writer._job}.phpmq" for number in range(2))]
    assert read_counts(path) == [*range(20)]


def test_an_attempt_that_ends_when_all_is_over(path: str) -> None:
    writer = writer_to(path)
    message = run_task(writer, 0, [counts(range(10))])

    def batches() -> Iterator[pa.RecordBatch]:
        yield counts([1])
        writer.commit([message])
        yield counts([2])

    with suppress(OSError), task(0):
        writer.write(batches())
    run_task(writer, 0, [counts([3])])
    assert read_counts(path) == [*range(10)]
    write_counts(path, [10])
    assert read_counts(path) == [*range(11)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_that_fails(path: str, overwrite: bool) -> None:
    write_counts(path, range(10))
    before = names(path)
    writer = writer_to(path, overwrite=overwrite)
    messages: list[Any] = [*staged(writer, range(10, 20)), None]
    assert names(path) != before
    shipped(writer).abort(messages)
    assert names(path) == before
    writer.abort([None, None])
    assert names(path) == before
    assert read_counts(path) == [*range(10)]


def test_a_job_that_fails_before_anything_is_written(path: str) -> None:
    writer = writer_to(path)
    writer.abort([])
    writer.abort([None])
    system, root = url_to_fs(path)
    assert not system.exists(root)


@pytest.mark.parametrize("change", ["removed", "cut"])
def test_a_file_that_the_driver_does_not_see(path: str, change: str) -> None:
    write_counts(path, [1])
    writer = writer_to(path, overwrite=True)
    messages = staged(writer, range(10))
    system, root = url_to_fs(path)
    assert messages[1]
    name = f"{root}/_temporary/{writer._job}/{messages[1].name}"
    if change == "cut":
        system.pipe_file(name, system.cat_file(name)[:-1])
    else:
        system.rm_file(name)
    with pytest.raises(FileNotFoundError, match=r"^the driver does not see what the task of partition 1 has written"):
        writer.commit(messages)
    writer.abort(messages)
    assert read_counts(path) == [1]
    assert not left(path)


# --- a commit that dies, at each of its steps ---


class Killed(BaseException):
    """What nobody catches: the process is gone."""


class Steps:
    """Counts what a process does to a file system, and calls something before each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
        self.number = 0
        self.before: Callable[[], None] | None = None
        if path.startswith("memory:"):
            for name in ("ls", "open", "makedirs", "cp_file", "_rm", "rmdir", "cat_file"):
                monkeypatch.setattr(MemoryFileSystem, name, self._counted(getattr(MemoryFileSystem, name)))
        else:
            for name in ("scandir", "mkdir", "replace", "remove", "rmdir", "fsync", "open"):
                monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
            monkeypatch.setattr(builtins, "open", self._counted(builtins.open))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            before, self.before = self.before, None
            if before:
                self.number += 1
                before()
                self.before = before
            return function(*args, **keywords)

        return call

    @contextmanager
    def watched(self, before: Callable[[], None]) -> Iterator[None]:
        self.number, self.before = 0, before
        try:
            yield
        finally:
            self.before = None


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, path: str) -> Steps:
    return Steps(monkeypatch, path)


OLD, NEW, NEXT = [*range(10)], [*range(10, 30)], [*range(100, 105)]


def fresh(path: str, number: int) -> str:
    """A path with old rows, a file of another kind of name, and a directory."""
    path = f"{path}-{number}"
    write_counts(path, OLD[:5])
    system, root = url_to_fs(path)
    system.makedirs(f"{root}/sub/dir=1")
    system.pipe_file(f"{root}/old.phpmq", encode_batch(counts(OLD[5:8])))
    system.pipe_file(f"{root}/sub/dir=1/deep.phpmq", encode_batch(counts([1000])))
    system.pipe_file(f"{root}/sub.phpmq", encode_batch(counts(OLD[8:])))
    return path


def has_journal(path: str, writer: PhpmqWriter) -> bool:
    return f"_temporary/{writer._job}/commit.json" in names(path)


def look(path: str, writer: PhpmqWriter, overwrite: bool) -> None:
    """What a reader may see: nothing that is not whole, nothing twice, and the old rows as long as they are."""
    seen = read_counts(path)
    assert max(Counter(seen).values(), default=1) == 1
    assert set(seen) <= {*OLD, *NEW}
    if not overwrite:
        assert set(seen) >= {*OLD}
    elif not has_journal(path, writer):
        assert seen in (OLD, NEW)


def after(is_committed: bool, overwrite: bool) -> list[int]:
    return (NEW if overwrite else OLD + NEW) if is_committed else OLD


def make_old(path: str) -> None:
    system, root = url_to_fs(path)
    for name in names(path):
        if name.startswith("_temporary/"):
            if path.startswith("memory:"):
                if not name.endswith("/"):
                    system.store[f"{root}/{name}"].modified -= timedelta(days=2)
            else:
                os.utime(f"{root}/{name}", (time.time() - 2 * 86400,) * 2)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_is_killed(path: str, steps: Steps, overwrite: bool) -> None:
    ends = set()
    for number in range(1, 1000):
        here = fresh(path, number)
        writer = writer_to(here, overwrite=overwrite)
        messages = staged(writer, NEW)

        def kill(here: str = here, writer: PhpmqWriter = writer, number: int = number) -> None:
            look(here, writer, overwrite)
            if steps.number == number:
                raise Killed

        try:
            with steps.watched(kill):
                shipped(writer).commit(messages)
        except Killed:
            is_committed = has_journal(here, writer) or bool({*NEW} & {*read_counts(here)})
        else:
            break
        ends.add(is_committed)
        write_counts(here, NEXT)
        assert read_counts(here) == after(is_committed, overwrite) + NEXT
        assert not any(name.endswith("commit.json") for name in names(here))
        make_old(here)
        write_counts(here, [200])
        assert read_counts(here) == [*after(is_committed, overwrite), *NEXT, 200]
        assert not left(here)
        if is_committed and overwrite:
            assert not [name for name in names(here) if name.startswith(("old", "sub"))]
    assert number > 15
    assert ends == {False, True}
    assert read_counts(here) == after(True, overwrite)
    assert not left(here)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_with_an_error(path: str, steps: Steps, overwrite: bool) -> None:
    """Spark aborts a job whose commit has failed, and its user reads the error."""
    ends = set()
    for number in range(1, 1000):
        here = fresh(path, number)
        writer = writer_to(here, overwrite=overwrite)
        messages = staged(writer, NEW)

        def fail(number: int = number) -> None:
            if steps.number == number:
                raise OSError(errno.ENOSPC, "no space")

        error: Exception | None = None
        with steps.watched(fail):
            try:
                shipped(writer).commit(messages)
            except (RuntimeError, OSError) as raised:
                error = raised
        if error:
            shipped(writer).abort(messages)
        is_committed = not isinstance(error, OSError)
        if isinstance(error, RuntimeError):
            text = f"writing to {here} was cut off when all rows were there, so do not write them again: "
            assert str(error).startswith(text)
        if not is_committed:
            assert read_counts(here) == OLD
        ends.add(type(error))
        write_counts(here, NEXT)
        assert read_counts(here) == after(is_committed, overwrite) + NEXT
        assert not any(name.endswith("commit.json") for name in names(here))
        if steps.number < number:
            break
    assert number > 15
    assert ends == {type(None), RuntimeError, OSError}


@pytest.mark.parametrize("overwrite", [False, True])
def test_who_finishes_a_commit_is_killed(path: str, steps: Steps, overwrite: bool) -> None:
    for number in range(1, 1000):
        here = fresh(path, number)
        writer = writer_to(here, overwrite=overwrite)
        messages = staged(writer, NEW)

        def kill_early(here: str = here, writer: PhpmqWriter = writer) -> None:
            if has_journal(here, writer):
                raise Killed

        with pytest.raises(Killed), steps.watched(kill_early):
            writer.commit(messages)
        assert read_counts(here) == OLD

        def kill(here: str = here, writer: PhpmqWriter = writer, number: int = number) -> None:
            look(here, writer, overwrite)
            if steps.number == number:
                raise Killed

        with suppress(Killed), steps.watched(kill):
            writer_to(here)
        write_counts(here, NEXT)
        assert read_counts(here) == after(True, overwrite) + NEXT
        if steps.number < number:
            break
    assert number > 10


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_job_at_the_same_time(path: str, steps: Steps, overwrite: bool) -> None:
    """Whenever in the commit of one job another one runs, from its beginning to its end."""
    for number in range(1, 1000):
        here = fresh(path, number)
        writer = writer_to(here, overwrite=overwrite)
        messages = staged(writer, NEW)

        def write(here: str = here, number: int = number) -> None:
            if steps.number == number:
                write_counts(here, NEXT)

        with steps.watched(write):
            writer.commit(messages)
        if steps.number < number:
            break
        seen = read_counts(here)
        if overwrite:  # which may come behind the other one, and take its rows with the old ones
            assert seen in (NEW, NEW + NEXT)
        else:
            assert seen == OLD + NEW + NEXT
        assert not left(here)
    assert number > 15


def test_a_rename_that_fails_as_if_another_process_were_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_to(tmp_path)
    messages = staged(writer, NEW)
    replace = os.replace

    def fail(old: str, new: str) -> None:
        if "part-00001" in new:
            raise FileNotFoundError(new)
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(RuntimeError, match="so do not write them again"):
            writer.commit(messages)
    write_counts(tmp_path, NEXT)
    assert read_counts(tmp_path) == NEW + NEXT


def test_a_file_system_that_remembers_what_it_has_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, Any] = {}
    listed = MemoryFileSystem.ls

    def ls(system: MemoryFileSystem, path: str, detail: bool = True) -> Any:
        key = (system._strip_protocol(path), detail)
        if key not in known:
            known[key] = listed(system, path, detail)
        return known[key]

    monkeypatch.setattr(MemoryFileSystem, "ls", ls)
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda system, path=None: known.clear())
    path = f"memory://{uuid4().hex}"
    write_counts(path, OLD)
    known.clear()
    writer = writer_to(path, overwrite=True)
    first = staged(writer, NEW)
    MemoryFileSystem().ls(f"{path}/_temporary/{writer._job}")
    second = staged(writer, NEXT)
    writer.commit(second)
    known.clear()
    assert first != second
    assert read_counts(path) == NEXT


def test_jobs_side_by_side(path: str) -> None:
    first, second = writer_to(path), writer_to(path)
    ours, theirs = staged(first, OLD), staged(second, NEW)
    first.commit(ours)
    assert read_counts(path) == OLD
    third = writer_to(path)
    second.commit(theirs)
    third.abort([])
    assert read_counts(path) == OLD + NEW
    assert not left(path)


def test_a_directory_that_vanishes_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of another job removes the directory of the jobs, when there is none in it."""
    writer, mkdir, vanished = writer_to(tmp_path), os.mkdir, list[Any]()

    def make(name: Any, *args: Any, **keywords: Any) -> None:
        if str(name).endswith(writer._job) and not vanished:
            vanished.append(name)
            os.rmdir(tmp_path / "_temporary")
        mkdir(name, *args, **keywords)

    monkeypatch.setattr(os, "mkdir", make)
    writer.commit([run_task(writer, 0, [counts([1])])])
    assert vanished
    assert read_counts(tmp_path) == [1]


# --- what dead jobs leave ---


@pytest.mark.parametrize(("hours", "is_removed"), [(23, False), (25, True)])
def test_a_dead_job(tmp_path: Path, hours: int, is_removed: bool) -> None:
    dead, other = writer_to(tmp_path), writer_to(tmp_path)
    staged(dead, OLD)
    staged(other, OLD)
    then = time.time() - 3600 * hours
    for job in (dead, other):
        for place in (tmp_path / "_temporary" / job._job).glob("**/*"):
            os.utime(place, (then, then))
    # a directory does not change while a file in it grows, nor the other way round
    os.utime(tmp_path / "_temporary" / dead._job, (then, then))
    write_counts(tmp_path, [1])
    assert (tmp_path / "_temporary" / dead._job).exists() != is_removed
    assert (tmp_path / "_temporary" / other._job).exists()


def test_what_others_have_in_their_temporary_directories(tmp_path: Path) -> None:
    nested = tmp_path / "_temporary" / "0" / "_temporary"
    nested.mkdir(parents=True)
    (tmp_path / "_temporary" / "file").write_bytes(b"")
    then = time.time() - 7 * 86400
    for place in (nested, nested.parent, tmp_path / "_temporary" / "file"):
        os.utime(place, (then, then))
    write_counts(tmp_path, [1])
    assert nested.exists()
    assert (tmp_path / "_temporary" / "file").exists()


# --- what is overwritten, and what is safe on the disk ---


def test_what_is_overwritten(tmp_path: Path) -> None:
    for name in ("a.txt", "b=1/c=2/x.parquet", "d/_hidden/y", "d/z", "_meta/data", ".crc", "e/f/g/h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"data")
    (tmp_path / "empty").mkdir()
    writer = writer_to(tmp_path, overwrite=True)
    writer.commit([run_task(writer, 0, [counts([1])])])
    hidden = [".crc", "_SUCCESS", "_meta/", "_meta/data", "d/", "d/_hidden/", "d/_hidden/y"]
    assert names(tmp_path) == [*hidden, f"part-00000-{writer._job}.phpmq"]


def test_links_are_overwritten_and_not_what_they_lead_to(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "file").write_bytes(b"precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "directory").symlink_to(target)
    (out / "file").symlink_to(target / "file")
    write_counts(out, [1], overwrite=True)
    assert len(names(out)) == 2
    assert (target / "file").read_bytes() == b"precious"


def test_the_mark_of_success_goes_first_and_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_counts(tmp_path, OLD)
    steps = Steps(monkeypatch, str(tmp_path))
    writer = writer_to(tmp_path, overwrite=True)
    messages = staged(writer, NEW)

    def check() -> None:
        if (tmp_path / "_SUCCESS").exists():
            assert read_counts(tmp_path) in (OLD, NEW)

    with steps.watched(check):
        writer.commit(messages)
    assert steps.number > 15


@pytest.mark.skipif(os.name != "posix", reason="directories cannot be synchronized on this system")
def test_what_is_safe_on_the_disk_and_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_counts(tmp_path, [1])
    events: list[tuple[str, Any]] = []
    fsync, replace, remove = os.fsync, os.replace, os.remove

    def told(function: Callable[..., Any], event: Callable[..., tuple[str, Any]]) -> Callable[..., Any]:
        def call(*args: Any) -> None:
            events.append(event(*args))
            function(*args)

        return call

    def synced(number: int) -> tuple[str, Any]:
        status = os.fstat(number)
        return "sync", (status.st_ino, status.st_size)

    monkeypatch.setattr(os, "fsync", told(fsync, synced))
    monkeypatch.setattr(os, "replace", told(replace, lambda old, new: ("rename", Path(new).name)))
    monkeypatch.setattr(os, "remove", told(remove, lambda name: ("remove", Path(name).name)))
    writer = writer_to(tmp_path, overwrite=True, compression="gzip")
    message = run_task(writer, 0, [counts(range(1000))])
    home = tmp_path / "_temporary" / writer._job
    assert events == [("sync", ((home / str(message.name)).stat().st_ino, message.size))]
    places = [place.stat().st_ino for place in (home, tmp_path / "_temporary", tmp_path)]
    unused = run_task(writer, 0, [counts(range(1000))])
    events.clear()
    writer.commit([message])
    order = [(kind, what[0] if kind == "sync" else re.sub("-.*-.*", "", what)) for kind, what in events]
    journal = order[0][1]
    assert journal not in places
    assert order == [
        ("sync", journal),
        ("rename", "commit.json"),
        *(("sync", place) for place in places),
        ("remove", "_SUCCESS"),
        ("remove", "part"),
        ("rename", "part"),
        ("sync", (tmp_path / "_SUCCESS").stat().st_ino),
        ("sync", places[2]),
        ("remove", "commit.json"),
        ("remove", unused.name),
    ]


# --- paths ---


@pytest.mark.parametrize(
    "name", ["a b", "a%20b", "[x]", "{a,b}", "a*b?", "~", "x.phpmq", "Grüße", "a=1/b", "deep/er/path/"]
)
def test_odd_names(path: str, name: str) -> None:
    for number, overwrite in enumerate((False, False, True)):
        write_counts(f"{path}/{name}", [number], overwrite=overwrite)
    assert read_counts(f"{path}/{name}") == [2]
    write_counts(f"{path}/{name}", [3])
    assert read_counts(f"{path}/{name}") == [2, 3]


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "{}/", "{}//x/.."])
def test_forms_of_a_path(tmp_path: Path, form: str) -> None:
    out = tmp_path / "a b%20[1]::c"  # in a URL, "::" is a chain of file systems
    write_counts(form.format(out), OLD)
    assert read_counts(out) == OLD
    assert len(list(tmp_path.iterdir())) == 1


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = writer_to("out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    writer.commit(staged(writer, OLD))
    assert read_counts(tmp_path / "out") == OLD


# --- with Spark ---


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def frame(session: SparkSession, start: int, stop: int, partitions: int = 3) -> DataFrame:
    return session.range(start, stop, 1, partitions).select(
        F.lit("consume").alias("type"), F.lit("q").alias("queue"), F.col("id").alias("count"), F.lit("x").alias("path")
    )


def save(rows: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    rows.write.format("phpmq").mode(mode).options(**options).save(str(path))


def load(session: SparkSession, path: Path) -> DataFrame:
    return session.read.format("phpmq").option("mode", "FAILFAST").load(str(path))


def loaded(session: SparkSession, path: Path) -> list[int]:
    return sorted(row["count"] for row in load(session, path).select("count").collect())


def test_spark_appends_and_overwrites(session: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "a b%20[1]"
    save(frame(session, 0, 10_000), out)
    save(frame(session, 10_000, 10_010), out, compression="zstd")
    assert len(list(out.glob("part-*.phpmq"))) == 3
    assert len(list(out.glob("part-*.phpmq.zst"))) == 3
    assert loaded(session, out) == [*range(10_010)]
    save(frame(session, 5, 8), out, "overwrite", packetHeaderSize="36")
    assert read_table(str(next(out.glob("part-00000-*"))), packet_header_size=36)["count"].to_pylist() == [5]
    assert sorted(place.name[:10] for place in out.iterdir()) == ["_SUCCESS", *(f"part-0000{n}" for n in range(3))]


def test_spark_overwrites_what_it_reads(session: SparkSession, tmp_path: Path) -> None:
    save(frame(session, 0, 1000), tmp_path)
    twice = load(session, tmp_path).withColumn("count", F.col("count") + 1000).union(load(session, tmp_path))
    save(twice, tmp_path, "overwrite")
    assert loaded(session, tmp_path) == [*range(2000)]
    save(load(session, tmp_path), tmp_path)
    assert loaded(session, tmp_path) == sorted([*range(2000)] * 2)


def test_spark_writes_every_message(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.phpmq").write_bytes(GOOD)
    save(load(session, tmp_path / "in.phpmq").coalesce(1), tmp_path / "out")
    (written,) = (tmp_path / "out").glob("part-*")
    assert written.read_bytes() == GOOD


def test_spark_writes_no_rows(session: SparkSession, tmp_path: Path) -> None:
    nothing = frame(session, 0, 10).where("count > 100")
    for rows in (nothing, nothing.limit(0), session.createDataFrame([], COUNTS)):
        save(rows, tmp_path / "out")
        assert names(tmp_path / "out") == ["_SUCCESS"]
    assert loaded(session, tmp_path / "out") == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_spark_aborts_a_job_with_a_bad_row(session: SparkSession, tmp_path: Path, mode: str) -> None:
    save(frame(session, 0, 10), tmp_path)
    before = names(tmp_path)
    is_bad = F.col("count") == 25_000  # in the third batch of its partition
    bad = frame(session, 0, 60_000, 2).withColumn("type", F.when(is_bad, "sned").otherwise(F.col("type")))
    with pytest.raises(PySparkException, match=r"ValueError: partition 0, row 25000: type must be one of .*'sned'"):
        save(bad, tmp_path, mode)
    assert names(tmp_path) == before
    assert loaded(session, tmp_path) == [*range(10)]


def test_spark_refuses_wrong_columns(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="ValueError: there is no column 'queue'"):
        save(frame(session, 0, 10).drop("queue"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_spark_aborts_a_commit_that_was_cut_off(session: SparkSession, tmp_path: Path) -> None:
    save(frame(session, 0, 10), tmp_path)
    (tmp_path / "_SUCCESS").unlink()
    (tmp_path / "_SUCCESS").mkdir()
    with pytest.raises(PySparkException, match="was cut off when all rows were there, so do not write them again"):
        save(frame(session, 10, 20), tmp_path)
    (tmp_path / "_SUCCESS").rmdir()
    save(frame(session, 20, 30), tmp_path)
    assert loaded(session, tmp_path) == [*range(30)]


DYING = '''
import os
from pyspark import TaskContext
from phpmq.spark.source import PhpmqDataSource
from phpmq.spark.writer import PhpmqWriter


class DyingWriter(PhpmqWriter):
    """The first attempts of two partitions die when they have written everything; one with its process."""

    def write(self, iterator):
        message = super().write(iterator)
        context = TaskContext.get()
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            os._exit(1)
        if context.attemptNumber() < 2 and context.partitionId() == 2:
            raise OSError("gone")
        return message


class DyingDataSource(PhpmqDataSource):
    @classmethod
    def name(cls):
        return "dying"

    def writer(self, schema, overwrite):
        writer = super().writer(schema, overwrite)
        writer.__class__ = DyingWriter
        return writer
'''

RETRY = """
import sys
from pyspark.sql import SparkSession, functions as F
from dying import DyingDataSource
spark = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(DyingDataSource)
rows = spark.range(0, 50_000, 1, 4).select(
    F.lit("consume").alias("type"), F.lit("q").alias("queue"), F.col("id").alias("count"))
rows.write.format("dying").mode(sys.argv[2]).save(sys.argv[1])
"""


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_tasks_that_die_are_tried_again(tmp_path: Path, mode: str) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    out = tmp_path / "out"
    write_counts(out, range(50_000, 50_010))
    subprocess.run(
        [sys.executable, "-c", RETRY, str(out), mode],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
        },
        check=True,
        capture_output=True,
        timeout=500,
    )
    assert read_counts(out) == [*range(50_010 if mode == "append" else 50_000)]
    assert not (out / "_temporary").exists()

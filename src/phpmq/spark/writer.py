"""Writes captures: each task a file of its own, and all of them can be seen once all of them are whole.

Tasks write into a directory of their job, which readers pass over. When all are done, the driver notes in a journal
what is to be done to the path, and does it. If it dies meanwhile, the next write to the path finds the journal and
finishes what it says; to do so twice changes nothing. Where there is no journal, nothing was done to the path.
"""

from __future__ import annotations

import bz2
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from gzip import GzipFile
from itertools import chain
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from phpmq._compressed import zstd_module
from phpmq.arrow import SCHEMA, encode_batch
from phpmq.spark.directory import Directory
from phpmq.spark.shipping import Shipped

_TEMPORARY: Final = "_temporary"
_JOURNAL: Final = "commit.json"
_SUCCESS: Final = "_SUCCESS"

#: A job that has done nothing for so long is dead.
_PATIENCE: Final = timedelta(days=1)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has written: a file in the job's directory, and its size in bytes; None if there were no rows."""

    partition: int
    name: str | None
    size: int


class PhpmqWriter(Shipped, DataSourceArrowWriter):
    """Writes a DataFrame into a directory, as captures.

    Args:
        path: the directory, on this machine or as a URL of fsspec. It need not exist.
        schema: of the DataFrame: ``type``, ``queue`` and what its messages need; other columns are not written.
        overwrite: whether what the directory holds gives way; not what begins with ``_`` or ``.``.
        options: ``packetHeaderSize`` and ``compression``.

    Raises:
        TypeError, ValueError: the schema has not the columns of messages, or packetHeaderSize is "auto".
        OSError: the path is a file, or a write before this one, that was cut off, cannot be finished.
        ImportError: a package is missing for such URLs, or for zstd.
    """

    def __init__(self, path: str, schema: StructType, overwrite: bool, options: dict[str, Any]) -> None:
        if options["packetHeaderSize"] == "auto":
            raise ValueError("writing needs to be told packetHeaderSize: there is nothing yet to find it out from")
        columns = StructType([field for field in schema.fields if field.name in SCHEMA.names])
        encode_batch(pa.RecordBatch.from_pylist([], to_arrow_schema(columns, timezone="UTC")))
        _COMPRESSIONS[options["compression"]][1]()
        self._packet_header_size = options["packetHeaderSize"]
        self._compression = options["compression"]
        self._overwrite = overwrite
        self._job = uuid4().hex
        directory = _Directory(path)
        self._path = directory.path  # absolute, as a task may run anywhere
        directory.recover()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        batches = self._encoded(iterator, partition)
        first = next(batches, None)
        if first is None:
            return Staged(partition, None, 0)
        # A task may be tried several times, even at once.
        name = f"{partition:05}-{uuid4().hex}"
        directory = _Directory(self._path)
        directory.make(self._job)
        size = directory.write(f"{_home(self._job)}/{name}", chain([first], batches), self._compression)
        return Staged(partition, name, size)

    def _encoded(self, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[bytes]:
        rows = 0
        for batch in batches:
            try:
                frames = encode_batch(batch, packet_header_size=self._packet_header_size)
            except ValueError as error:
                text = str(error)
                if match := re.match("row ([0-9]+)", text):  # which counts from the start of the batch
                    text = f"row {rows + int(match[1])}{text[match.end() :]}"
                raise ValueError(f"partition {partition}, {text}") from None
            rows += len(batch)
            if frames:
                yield frames

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        directory = _Directory(self._path)
        sizes = {entry.name: entry.size for entry in directory.entries(_home(self._job))}
        staged: dict[str, int] = {}
        for message in messages:
            assert isinstance(message, Staged)  # None is for tasks that have failed
            if message.name is not None:
                staged[message.name] = message.partition
                if sizes.get(message.name) != message.size:
                    raise FileNotFoundError(
                        f"the driver does not see what the task of partition {message.partition} has written to"
                        f" {self._path}: this path has to be the same directory on all machines"
                    )
        suffix = f"{self._job}.phpmq{_COMPRESSIONS[self._compression][0]}"
        journal = {
            "delete": directory.visible() if self._overwrite else [],
            "rename": {name: f"part-{partition:05}-{suffix}" for name, partition in staged.items()},
        }
        directory.note(self._job, journal)
        try:
            directory.finish(self._job, journal)
        except Exception as error:
            raise RuntimeError(
                f"writing to {self._path} was cut off when all rows were there, so do not write them again:"
                f" the next write to this path puts them in their place ({type(error).__name__}: {error})"
            ) from error

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        directory = _Directory(self._path)
        if not directory.has_journal(self._job):  # else it is too late
            directory.discard(self._job)


class _Directory(Directory):
    """The directory that is written to. Names are relative to it; those of directories end with a slash."""

    def visible(self, parent: str = "") -> list[str]:
        """The files that are not hidden, each directory behind what it holds; and before all the mark of success."""
        names: list[str] = []
        for entry in self.entries(parent):
            name = parent + entry.name
            if entry.name == _SUCCESS and not parent:
                names.insert(0, name)
            elif entry.name.startswith(("_", ".")):
                continue
            elif entry.is_directory:
                names += [*self.visible(f"{name}/"), f"{name}/"]
            else:
                names.append(name)
        return names

    def make(self, job: str) -> None:
        """Make the directory of a job."""
        for is_last in (False, True):
            try:
                self.system.makedirs(self.at(_home(job)), exist_ok=True)
            except FileNotFoundError:  # another job has ended, and removed the directory of the jobs
                if is_last:
                    raise

    def write(self, name: str, chunks: Iterable[bytes], compression: str = "none") -> int:
        """Write a file, and give its size when it is safe on the disk."""
        with self.system.open(self.at(name), "wb") as file:
            with _COMPRESSIONS[compression][1]()(file) as packed:
                for chunk in chunks:
                    packed.write(chunk)
            if self.is_local:
                file.flush()
                os.fsync(file.fileno())
        size: int = self.system.size(self.at(name))
        return size

    def note(self, job: str, journal: dict[str, Any]) -> None:
        """Write the journal of a job: all of it, or none."""
        name = f"{_home(job)}/{_JOURNAL}"
        self.make(job)
        self.write(f"{name}.new", [json.dumps(journal).encode()])
        self.rename(f"{name}.new", name)

    def has_journal(self, job: str) -> bool:
        return any(entry.name == _JOURNAL for entry in self.entries(_home(job)))

    def finish(self, job: str, journal: dict[str, Any]) -> None:
        """Do what a journal says, as far as it is not done. Another process may be doing so, too."""
        self.sync(_home(job), _TEMPORARY, "")
        for name in journal["delete"]:
            if name.endswith("/"):
                with suppress(OSError):  # it has something hidden, or only files have names there
                    self.system.rmdir(self.at(name[:-1]))
            else:
                with suppress(FileNotFoundError):
                    self.system.rm_file(self.at(name))
        staged = {entry.name for entry in self.entries(_home(job))}
        for source, target in journal["rename"].items():
            if source not in staged:  # it was done before
                continue
            try:
                self.rename(f"{_home(job)}/{source}", target)
            except FileNotFoundError:  # another process was faster, unless it is there
                if any(entry.name == source for entry in self.entries(_home(job))):
                    raise
        self.write(_SUCCESS, [])
        self.sync("")
        self.discard(job)

    def discard(self, job: str) -> None:
        """Remove the directory of a job. What cannot be removed is not in the way, and gets old."""
        with suppress(OSError):
            for entry in sorted(self.entries(_home(job)), key=lambda entry: entry.name != _JOURNAL):
                self.system.rm_file(self.at(f"{_home(job)}/{entry.name}"))
            self.system.rmdir(self.at(_home(job)))
        with suppress(OSError):
            self.system.rmdir(self.at(_TEMPORARY))

    def recover(self) -> None:
        """Finish the jobs that were cut off while they came to their end, and remove what dead ones have left."""
        if self.system.isfile(self._root):
            raise NotADirectoryError(f"{self.path} is a file, and captures are written into a directory")
        for job in [entry.name for entry in self.entries(_TEMPORARY) if entry.is_directory]:
            try:
                journal = self.system.cat_file(self.at(f"{_home(job)}/{_JOURNAL}"))
            except FileNotFoundError:
                if self._changed(job) < datetime.now(timezone.utc) - _PATIENCE:
                    self.discard(job)
            else:
                self.finish(job, json.loads(journal))

    def _changed(self, job: str) -> datetime:
        """When a job did something last; now if nobody knows."""
        times = []
        for name in [_home(job), *(f"{_home(job)}/{entry.name}" for entry in self.entries(_home(job)))]:
            with suppress(OSError, NotImplementedError):  # not all have a time
                times.append(self.system.modified(self.at(name)))
        return max(times, default=datetime.now(timezone.utc))


def _home(job: str) -> str:
    """The directory of a job."""
    return f"{_TEMPORARY}/{job}"


def _zstd() -> Callable[[Any], AbstractContextManager[Any]]:
    return partial(zstd_module("to write zstd").ZstdFile, mode="wb")


#: For each compression the end of a file's name, and what gives something that compresses into a file.
_COMPRESSIONS: Final[Mapping[str, tuple[str, Callable[[], Callable[[Any], AbstractContextManager[Any]]]]]] = {
    "none": ("", lambda: nullcontext),
    "gzip": (".gz", lambda: lambda file: GzipFile("", "wb", 6, file, 0)),
    "bzip2": (".bz2", lambda: partial(bz2.BZ2File, mode="wb")),
    "zstd": (".zst", _zstd),
}

"""Captures into tables of Parquet, each frame once, however often this is cut off and started again.

Spark's checkpoint says how far each capture was read. A micro-batch is a number of shares of captures, which tasks
decode and write as Parquet themselves, so that no row passes through the JVM. Then the driver puts the files of the
batch into the directory ``batch=N`` of each table, in the place of what the same batch has left there if it was cut
off, and only then Spark notes that the batch is done. On a local disk nobody sees a part of a batch.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from phpmq import arrow
from phpmq.records import COLUMNS
from phpmq.spark.directory import Directory
from phpmq.spark.files import check_paths, list_files
from phpmq.spark.options import INGEST, READ, parse_options
from phpmq.spark.ranges import Piece, read
from phpmq.spark.reader import SCHEMA, Share, shown
from phpmq.spark.session import register
from phpmq.spark.shipping import imported_there
from phpmq.spark.source import PhpmqDataSource
from phpmq.spark.stream import PhpmqStreamReader
from phpmq.spark.stream import unread as unread_of

MESSAGES, DAMAGE = "messages", "damage"

#: The columns of each table. Contents are what takes the time to read, and their sizes are what is mostly asked for.
_SCHEMAS: Final = {
    MESSAGES: pa.schema([("path", pa.string()), *arrow.SCHEMA, ("content_size", pa.int64())]),
    DAMAGE: pa.schema(
        [
            ("path", pa.string()),
            *(arrow.SCHEMA.field(name) for name in ("offset", "size", "fault", "fault_offset", "raw")),
        ]
    ),
}
#: Columns with few values, which a dictionary makes small.
_REPEATED: Final = ["path", "type", "queue", "fault"]
_CHECKPOINT, _STAGING = "_checkpoint", "_staging"
#: What is written at once, in bytes of Arrow.
_GROUP_SIZE: Final = 64 * 2**20
#: How much a micro-batch takes for each core, in bytes, unless the options say so: what is done again after a kill.
_BATCH_SIZE: Final = 512 * 2**20


class Tables(NamedTuple):
    """The tables of a warehouse, not read yet.

    ``messages`` has the columns of `phpmq.spark.SCHEMA` and ``content_size``, in bytes; ``damage`` has ``path``,
    ``offset``, ``size``, ``fault``, ``fault_offset`` and ``raw``.
    """

    messages: DataFrame
    damage: DataFrame


class Batch(NamedTuple):
    """What a micro-batch brought: bytes of captures, and rows of each table."""

    number: int
    size: int
    messages: int
    damage: int


def ingest(
    spark: SparkSession,
    sources: str | Sequence[str],
    warehouse: str,
    *,
    options: Mapping[str, str] | None = None,
    on_batch: Callable[[Batch], object] = lambda batch: None,
) -> Tables:
    """Take what is new in captures into a warehouse: all of it, and each frame once, whatever happened before.

    Two of these must not work on one warehouse at the same time.

    Args:
        spark: a session; not one of Spark Connect.
        sources: captures, directories, patterns; see docs/spark.md. Different ones may be given each time.
        warehouse: a directory, which need not exist; a path, or a URL that both Hadoop and fsspec know.
        options: those of a stream. ``filesAreComplete`` takes also what is cut off at the ends of captures.
        on_batch: is called after each micro-batch.

    Returns:
        The tables with what came now, and all that was there before.

    Raises:
        ValueError: an option is wrong.
        FileNotFoundError: a source does not exist.
        RuntimeError: another one works on the warehouse. Only on a local disk this is noticed.
        StreamingQueryException: a task has failed, or a capture was replaced; what came before is in the warehouse.
    """
    given = {name: str(value) for name, value in (options or {}).items()}
    parsed = parse_options({}, READ, "ingest") | parse_options(given, INGEST, "ingest")
    if not parsed["maxBytesPerTrigger"]:
        given["maxBytesPerTrigger"] = str(_BATCH_SIZE * spark.sparkContext.defaultParallelism)
    paths = _listed(sources)
    check_paths(paths)
    given |= {"paths": json.dumps(paths), "rememberMissingFiles": "true"}
    _SharesSource(given).streamReader(SCHEMA)  # which is not content with all options
    register(spark)
    spark.dataSource.register(_SharesSource)
    directory = Directory(warehouse)
    run = f"{_STAGING}/{uuid4().hex}"
    write = _writing(directory.url(run), parsed)

    def take(shares: DataFrame, number: int) -> None:
        written = [row[0] for row in shares.select(write("share")).collect()]
        for table in (DAMAGE, MESSAGES):
            _publish(directory, run, table, number, [row[table] for row in written if row[table]])
        on_batch(Batch(number, *(sum(row[name] for row in written) for name in ("size", "rows", "ranges"))))

    stream = spark.readStream.format(_SharesSource.name()).options(**given).load().writeStream.foreachBatch(take)
    with _alone(directory):
        _remove(directory, _STAGING)  # of one that was cut off
        for name in (*_SCHEMAS, run):
            directory.system.makedirs(directory.at(name), exist_ok=True)
        try:
            query = stream.option("checkpointLocation", directory.url(_CHECKPOINT)).trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            finally:
                query.stop()  # if it was interrupted
        finally:
            _remove(directory, _STAGING)
    return open_warehouse(spark, warehouse)


@contextmanager
def _alone(directory: Directory) -> Iterator[None]:
    """Keep others off a warehouse. A process that is killed does so no longer."""
    if not directory.is_local:
        yield
        return
    directory.system.makedirs(directory.at(""), exist_ok=True)
    try:
        with FileLock(directory.at("_lock"), timeout=0):
            yield
    except Timeout:
        raise RuntimeError(f"another ingest works on {directory.path}") from None


def open_warehouse(spark: SparkSession, warehouse: str) -> Tables:
    """The tables of a warehouse, as they are now.

    Raises:
        FileNotFoundError: there is none.
    """
    directory = Directory(warehouse)
    if not directory.system.isdir(directory.at(MESSAGES)):
        raise FileNotFoundError(f"{directory.path} is no warehouse: it has no table {MESSAGES}")
    frames = []
    for table, schema in _SCHEMAS.items():
        path = re.sub(r"([\\\[\]{}*?])", r"\\\1", directory.url(table))  # else a pattern to Spark
        frames.append(spark.read.schema(from_arrow_schema(schema)).parquet(path).select(schema.names))
    return Tables(*frames)


def unread(sources: str | Sequence[str], warehouse: str, *, options: Mapping[str, str] | None = None) -> dict[str, int]:
    """How many bytes of captures are not in a warehouse, for each that has some. It takes no Spark.

    Right behind `ingest` these are frames that are still being written, or were cut off.

    Raises:
        FileNotFoundError: a source does not exist.
    """
    parsed = parse_options(options or {}, INGEST, "ingest")
    files = list_files(
        _listed(sources),
        recursive=parsed["recursiveFileLookup"],
        name_filter=parsed["pathGlobFilter"],
    )
    directory = Directory(warehouse)
    done = [int(entry.name) for entry in directory.entries(f"{_CHECKPOINT}/commits") if entry.name.isdecimal()]
    if not done:
        return {file.path: file.size for file in files if file.size}
    log = directory.system.cat_file(directory.at(f"{_CHECKPOINT}/offsets/{max(done)}"))
    return unread_of(json.loads(log.splitlines()[-1]), files)


def _listed(sources: str | Sequence[str]) -> list[str]:
    """Sources as all processes know them, which need not be in this directory."""
    return [Directory(source).path for source in ([sources] if isinstance(sources, str) else sources)]


class _SharesReader(PhpmqStreamReader):
    """Gives what there is to read, instead of reading it."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Share):
            yield pa.RecordBatch.from_pydict({"share": pa.array([pickle.dumps(partition.pieces)], pa.binary())})


class _SharesSource(PhpmqDataSource):
    """A stream of what there is to read of captures."""

    _stream_reader: ClassVar[type[PhpmqStreamReader]] = _SharesReader

    @classmethod
    def name(cls) -> str:
        return "phpmq_shares"

    def schema(self) -> StructType:
        return StructType([StructField("share", BinaryType())])

    def streamReader(self, schema: StructType) -> PhpmqStreamReader:  # noqa: N802
        return super().streamReader(SCHEMA)


#: What a task tells of a share: its file of each table, NULL where there are no rows, bytes of captures, and rows.
_WRITTEN: Final = pa.struct(
    [(MESSAGES, pa.string()), (DAMAGE, pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("ranges", pa.int64())]
)


def _writing(directory: str, options: dict[str, Any]) -> Callable[[str], Column]:
    there = imported_there(__name__, "_write")

    def written(shares: pa.Array) -> pa.Array:  # by its annotations Spark tells what sort of function it is
        return there(directory, options, shares)

    return arrow_udf(written, from_arrow_type(_WRITTEN))  # type: ignore[call-overload, no-any-return]


def _write(directory: str, options: dict[str, Any], shares: pa.Array) -> pa.StructArray:
    """Decode shares into files of a directory."""
    return pa.array([_write_share(directory, options, pickle.loads(share)) for share in shares.to_pylist()], _WRITTEN)


def _write_share(directory: str, options: dict[str, Any], pieces: Sequence[Piece]) -> dict[str, Any]:
    context = TaskContext.get()
    assert context is not None
    # A task may be tried several times, even at once.
    name = f"part-{context.partitionId():05}-{uuid4().hex}.parquet"
    messages, damage = (_File(directory, f"{table}-{name}", schema) for table, schema in _SCHEMAS.items())
    for path, batch in read(pieces, list(COLUMNS), options):
        paths, sizes = pa.repeat(shown(path), len(batch)), pc.binary_length(batch["content"]).cast(pa.int64())
        rows = pa.RecordBatch.from_arrays([paths, *batch.columns, sizes], schema=_SCHEMAS[MESSAGES])
        del batch  # whose memory the next one can have
        if rows["type"].null_count:
            is_message = rows["type"].is_valid()
            damage.write(rows.filter(pc.invert(is_message)).select(_SCHEMAS[DAMAGE].names))
            rows = rows.filter(is_message)
        messages.write(rows)
    return {
        MESSAGES: messages.close(),
        DAMAGE: damage.close(),
        "size": sum((piece.until or piece.extent.stop) - (piece.after or piece.extent.start) for piece in pieces),
        "rows": messages.rows,
        "ranges": damage.rows,
    }


class _File:
    """A file of Parquet. It is made when there are rows for it, which are held until they are worth a group."""

    def __init__(self, directory: str, name: str, schema: pa.Schema) -> None:
        self._directory, self._name, self._schema = directory, name, schema
        self._writer: parquet.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if len(batch):
            self._held.append(batch)
            self.rows += len(batch)
            if sum(held.nbytes for held in self._held) >= _GROUP_SIZE:
                self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            directory = Directory(self._directory)
            self._writer = parquet.ParquetWriter(
                directory.at(self._name), self._schema, filesystem=directory.system, use_dictionary=_REPEATED
            )
        self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held = []

    def close(self) -> str | None:
        """Write the rest, and give the file's name."""
        if self._held:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        return self._name


def _publish(directory: Directory, run: str, table: str, number: int, names: Sequence[str]) -> None:
    """Put files of a run into the place of a batch of a table."""
    if not names:  # so that the table has a file, and with it its columns
        names = [f"{table}-part-00000.parquet"]
        parquet.write_table(
            _SCHEMAS[table].empty_table(), directory.at(f"{run}/{names[0]}"), filesystem=directory.system
        )
    target = f"{table}/batch={number}"
    # Only on this machine directories can be renamed at once for sure.
    place = f"{run}/{table}" if directory.is_local else target
    if place == target:
        _remove(directory, target)
    directory.system.makedirs(directory.at(place))
    for name in names:
        directory.rename(f"{run}/{name}", f"{place}/{name.partition('-')[2]}")
    if place != target:
        _remove(directory, target)
        directory.rename(place, target)


def _remove(directory: Directory, name: str) -> None:
    with suppress(FileNotFoundError):
        directory.system.rm(directory.at(name), recursive=True)

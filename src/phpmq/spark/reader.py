"""What reading once and reading a stream have in common: the schema, and the tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from phpmq import arrow
from phpmq.records import COLUMNS
from phpmq.spark.files import File, list_files
from phpmq.spark.options import DROPMALFORMED
from phpmq.spark.ranges import Piece, read
from phpmq.spark.shipping import Shipped

#: All columns: the file that a row is from, and those of `phpmq.arrow.SCHEMA`.
SCHEMA: Final = StructType([StructField("path", StringType()), *from_arrow_schema(arrow.SCHEMA).fields])
_NEVER_NULL: Final = ("path", "offset", "size")


@dataclass
class Share(InputPartition):
    """What one task reads."""

    pieces: Sequence[Piece]


class PieceReader(Shipped):
    """Finds files and reads pieces of them.

    Raises:
        ValueError: there is no path, or the schema is not a part of `SCHEMA`.
    """

    def __init__(self, paths: Sequence[str], schema: StructType, options: dict[str, Any]) -> None:
        _check(schema)
        self._paths = paths
        self._options = options
        self._schema = schema

    def _files(self) -> list[File]:
        files = list_files(
            self._paths,
            recursive=self._options["recursiveFileLookup"],
            name_filter=self._options["pathGlobFilter"],
        )
        wanted = [values for name, values in self._options["filters"] if name == "path"]
        return [file for file in files if all(file.path in values for values in wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share) or partition.value is None  # None is what Spark makes of an empty list
        schema = to_arrow_schema(self._schema, timezone="UTC")
        conditions = [(name, values) for name, values in self._options["filters"] if name != "path"]
        filters = [pc.field(name).isin(pa.array(values, pa.string())) for name, values in conditions]
        needed = {*schema.names, *(name for name, _ in conditions)}
        if self._options["mode"] == DROPMALFORMED:
            filters.append(pc.field("type").is_valid())
            needed.add("type")
        columns = [name for name in COLUMNS if name in needed]
        for path, batch in read(getattr(partition, "pieces", ()), columns, self._options):
            rows = batch.filter(reduce(and_, filters)) if filters else batch
            if len(rows):
                values = {"path": pa.repeat(shown(path), len(rows)), **dict(zip(columns, rows.columns, strict=True))}
                yield pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)
                del values
            del batch, rows  # whose memory the next ones can have


def _check(schema: StructType) -> None:
    if not schema.fields:
        raise ValueError(f"the schema has no columns; there are {', '.join(SCHEMA.names)}")
    for field in schema.fields:
        if field.name not in SCHEMA.names:
            raise ValueError(f"there is no column {field.name!r}; the columns are {', '.join(SCHEMA.names)}")
        if field.dataType != (right := SCHEMA[field.name].dataType):
            raise ValueError(
                f"the column {field.name!r} is {right.simpleString()}, not {field.dataType.simpleString()}"
            )
        if not field.nullable and field.name not in _NEVER_NULL:
            raise ValueError(f"the column {field.name!r} can be NULL")


def shown(path: str) -> str:
    """A path as Spark can have it: what is no Unicode is no text of Spark."""
    return path.encode("utf-8", "backslashreplace").decode()


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The paths that a user has given to ``load`` or ``save``."""
    paths = json.loads(options["paths"]) if "paths" in options else [options.get("path")]
    if not paths or not all(paths):
        raise ValueError("there is no path")
    return list(paths)

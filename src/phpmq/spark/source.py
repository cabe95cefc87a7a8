"""The data source ``phpmq`` of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from phpmq.spark.files import check_paths
from phpmq.spark.options import OPTIONS, READ, STREAM, WRITE, parse_options
from phpmq.spark.ranges import Extent, plan
from phpmq.spark.reader import SCHEMA, PieceReader, Share, paths_of
from phpmq.spark.shipping import Shipped
from phpmq.spark.stream import PhpmqStreamReader
from phpmq.spark.writer import PhpmqWriter


class PhpmqDataSource(Shipped, DataSource):
    """Captures as DataFrames: ``spark.read.format("phpmq")``, ``readStream`` and ``write``."""

    _stream_reader: ClassVar = PhpmqStreamReader

    @classmethod
    def name(cls) -> str:
        return "phpmq"

    def schema(self) -> StructType:
        # load() calls this, unless it is told a schema; nothing is earlier to tell a mistake.
        parse_options(self.options, OPTIONS, "the data source phpmq")
        check_paths(paths_of(self.options))
        return SCHEMA

    def reader(self, schema: StructType) -> PhpmqReader:
        options = parse_options(self.options, READ, "reading phpmq")
        options["splitting"] = options["splitting"] or "guessed"
        return PhpmqReader(paths_of(self.options), schema, options)

    def streamReader(self, schema: StructType) -> PhpmqStreamReader:  # noqa: N802
        options = parse_options(self.options, STREAM, "reading a stream of phpmq")
        if options["packetHeaderSize"] == "auto":
            raise ValueError("a stream needs to be told packetHeaderSize: files that grow do not show it")
        # A wrong guess would stay in the checkpoint.
        options["splitting"] = options["splitting"] or "exact"
        return self._stream_reader(paths_of(self.options), schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> PhpmqWriter:
        options = parse_options(self.options, WRITE, "writing phpmq")
        [path] = paths_of(self.options)
        return PhpmqWriter(path, schema, overwrite, options)


class PhpmqReader(PieceReader, DataSourceReader):
    """Reads captures once."""

    def partitions(self) -> Sequence[InputPartition]:
        extents = [Extent(file.path, 0, file.size, True) for file in self._files()]
        return [Share(pieces) for pieces in plan(extents, self._options)]

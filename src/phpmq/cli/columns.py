"""Columns: what `decode` writes as a Parquet or an Arrow file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from phpmq import ProtocolError
from phpmq.arrow import SCHEMA, record_batches
from phpmq.capture import decode_chunks
from phpmq.cli.inputs import Source, fault_at
from phpmq.cli.terminal import escape

#: Where there are several inputs, a row has to say which one it is from.
_SCHEMA: Final = pa.schema([("path", pa.string()), *SCHEMA])

#: A batch becomes a row group of Parquet, which is read as a whole and so should not be small.
_LIMITS: Final = {"max_rows": 1024 * 1024, "max_bytes": 32 * 1024 * 1024}

#: What writes each format.
_WRITERS: Final[dict[str, Callable[[Any, pa.Schema], Any]]] = {"parquet": parquet.ParquetWriter, "arrow": ipc.new_file}


def wanted(batch: pa.RecordBatch, types: Sequence[str], queues: Sequence[str]) -> pa.RecordBatch:
    """The messages of these types and of these queues, of all where there are none; and all damages."""
    damages = pc.is_null(batch["type"])
    keep = pc.invert(damages)
    for column, names in ("type", types), ("queue", queues):
        if names:
            keep = pc.and_(keep, pc.is_in(batch[column], pa.array(names, pa.string())))
    return batch.filter(pc.or_(damages, keep)) if types or queues else batch


class _Sink:
    """An output as a file that pyarrow writes to, and leaves open."""

    closed = False

    def __init__(self, output: Any) -> None:
        self.write = output.write
        self.flush = output.flush


class Columns:
    """A file of record batches, with a column ``path`` before those of `phpmq.arrow.SCHEMA`."""

    def __init__(self, form: str, output: Any) -> None:
        self._writer = _WRITERS[form](pa.PythonFile(_Sink(output), mode="w"), _SCHEMA)

    def write(self, path: str, batch: pa.RecordBatch) -> None:
        """Write the rows of an input."""
        name = path if path.isprintable() else escape(os.fsencode(path))
        self._writer.write_table(pa.table([pa.repeat(name, len(batch)), *batch.columns], _SCHEMA))

    def close(self) -> None:
        """Write what makes the file whole."""
        self._writer.close()


def read_columns(source: Source, start: int, flush: Callable[[], object], **options: Any) -> Iterator[pa.RecordBatch]:
    """The batches of an input that is open at the byte ``start``.

    Raises:
        WrongData: a fault, with the number of the frame.
    """
    number = 1
    try:
        decoded = decode_chunks(source.chunks(flush), SCHEMA.names, start=start, stop=None, **options, **_LIMITS)
        for _, batch in record_batches(SCHEMA.names, decoded):
            yield batch
            number += len(batch)
    except ProtocolError as error:
        raise fault_at(number, start, error) from None

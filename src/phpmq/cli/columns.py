"""Columns: what `decode` writes as a Parquet or an Arrow file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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

#: Rows that are decoded at once.
MOST_ROWS: Final = 128 * 1024
#: Bytes, and so many rows are written at once.
_GROUP_SIZE: Final = 32 * 1024 * 1024

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
    """A file of record batches, with a column ``path`` before those of `phpmq.arrow.SCHEMA`.

    Nothing is written before there is something to write. Rows are held until they make a group worth its cost, which
    a reader of Parquet and of Arrow pays for each.
    """

    def __init__(self, form: str, output: Any) -> None:
        self._open = partial(_WRITERS[form], pa.PythonFile(_Sink(output), mode="w"), _SCHEMA)
        self._writer: Any = None
        self._held: list[pa.RecordBatch] = []
        self._size = 0

    def write(self, path: str, batch: pa.RecordBatch) -> None:
        """Write the rows of an input."""
        if not len(batch):
            return
        if self._size + batch.nbytes > _GROUP_SIZE:
            self._flush()
        name = path if path.isprintable() else escape(os.fsencode(path))
        self._held.append(pa.record_batch([pa.repeat(name, len(batch)), *batch.columns], schema=_SCHEMA))
        self._size += batch.nbytes

    def _flush(self) -> None:
        if self._held:
            with _uninterrupted():
                self._writer = self._writer or self._open()
                self._writer.write_table(pa.Table.from_batches(self._held, _SCHEMA).combine_chunks())
                self._held, self._size = [], 0

    def close(self, *, even_if_empty: bool) -> None:
        """Write the rest, and what makes the file whole."""
        self._flush()
        with _uninterrupted():
            if even_if_empty and not self._writer:
                self._writer = self._open()
            if self._writer:
                self._writer.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C, which would leave a file that cannot be read."""
    met: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: met.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if met:
        raise KeyboardInterrupt


def read_columns(
    source: Source, start: int, most: int, flush: Callable[[], object], **options: Any
) -> Iterator[pa.RecordBatch]:
    """The batches of an input that is open at the byte ``start``, each of so many rows at the most.

    Raises:
        WrongData: a fault, with the number of the frame.
    """
    number = 1
    try:
        decoded = decode_chunks(
            source.chunks(flush), SCHEMA.names, start=start, stop=None, max_rows=most, max_bytes=_GROUP_SIZE, **options
        )
        for _, batch in record_batches(SCHEMA.names, decoded):
            yield batch
            number += len(batch)
    except ProtocolError as error:
        raise fault_at(number, start, error) from None

"""What else takes the columns: pandas, Polars and DuckDB, all by Arrow's own protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from columns import BAD_BOTH, BROKEN, FOO, HELLO, MIXED, expected
from wire import message_wire

import phpmq
from phpmq.arrow import BatchReader, encode_batch, read_batches, read_table

SENDS = b"".join(message_wire("Send", {"queue": queue, "content": b"x" * 10, "ttl": 60}) for queue in "ABABBC")
DATA = SENDS + BROKEN + FOO + BAD_BOTH


def reader(**options: Any) -> BatchReader:
    """Four batches, where all columns are asked for."""
    return read_batches(DATA, on_fault="skip", max_batch_rows=3, **options)


def test_pyarrow_reads_a_stream() -> None:
    stream = pa.RecordBatchReader.from_stream(reader())
    assert stream.schema == phpmq.arrow.SCHEMA
    assert [batch.num_rows for batch in stream] == [3, 3, 3]
    table = pa.table(read_batches(MIXED, on_fault="skip", max_batch_rows=4))
    table.validate(full=True)
    assert table.to_pylist() == expected(MIXED, on_fault="skip").rows


def test_no_rows() -> None:
    assert pa.table(read_batches(b"")).num_rows == 0
    assert pl.DataFrame(read_batches(b"", columns=["ttl"])).schema == {"ttl": pl.Int64}


def test_a_reader_that_is_half_read() -> None:
    batches = reader()
    next(batches)
    assert pa.table(batches).num_rows == 6
    assert batches.offset == len(DATA)


def test_an_error_in_a_stream() -> None:
    """Whoever reads it gets the text, at least."""
    with pytest.raises(Exception, match="BAD_DIGITS at offset"):
        pa.table(read_batches(SENDS + BROKEN))
    with pytest.raises(Exception, match="BAD_DIGITS at offset"):
        pl.DataFrame(read_batches(SENDS + BROKEN))


def test_pandas() -> None:
    frame = pa.table(reader(columns=["queue", "ttl", "content", "fault"])).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["queue"].value_counts().to_dict() == {"B": 3, "A": 2, "C": 1, "Foo": 1}
    assert frame["ttl"].sum() == 360
    assert frame["content"][0] == b"x" * 10
    assert frame["fault"].dropna().tolist() == ["BAD_DIGITS", "NOT_UTF8"]


def test_pandas_with_the_types_of_arrow() -> None:
    frame = read_table(DATA, on_fault="skip").to_pandas(types_mapper=pd.ArrowDtype)
    assert frame["count"].dropna().tolist() == [5]
    assert frame["fault_offset"].dropna().tolist() == [len(SENDS) + 38, len(SENDS) + 2 * len(FOO) + 40]
    assert str(frame["queue"].dtype) == "string[pyarrow]"


def test_pandas_writes_frames() -> None:
    frame = pd.DataFrame({"type": ["consume", "consume"], "queue": ["Foo", "Foo"], "count": [5, 5]})
    assert encode_batch(pa.RecordBatch.from_pandas(frame)) == FOO * 2


def test_polars() -> None:
    frame = pl.DataFrame(reader())
    assert frame.columns == phpmq.arrow.SCHEMA.names
    assert frame.height == 9
    counts = frame.drop_nulls("queue").group_by("queue").len().sort("queue")
    assert counts.rows() == [("A", 2), ("B", 3), ("C", 1), ("Foo", 1)]
    assert frame["raw"].to_list() == [*[None] * 6, BROKEN, None, BAD_BOTH]
    assert frame["count"].dtype == pl.Int64


def test_polars_from_a_table() -> None:
    frame = pl.from_arrow(read_table(HELLO, columns=["queue", "content"]))
    assert isinstance(frame, pl.DataFrame)
    assert frame.rows() == [("Foo", b"Hello World")]


def test_polars_writes_frames() -> None:
    """Its texts are string views, its bytes are binary views."""
    frame = pl.DataFrame(read_batches(SENDS + FOO + HELLO))
    for batch in frame.to_arrow(compat_level=pl.CompatLevel.newest()).to_batches():
        assert encode_batch(batch) == SENDS + FOO + HELLO
    for batch in frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches():
        assert encode_batch(batch) == SENDS + FOO + HELLO


def test_duckdb_over_a_table() -> None:
    table = read_table(DATA, on_fault="skip")
    with duckdb.connect() as connection:
        connection.register("messages", table)
        query = "select queue, count(*), sum(ttl)::bigint from messages where type = 'send' group by 1 order by 1"
        assert connection.sql(query).fetchall() == [("A", 2, 120), ("B", 3, 180), ("C", 1, 60)]
        query = "select fault, raw from messages where fault is not null order by fault_offset"
        assert connection.sql(query).fetchall() == [("BAD_DIGITS", BROKEN), ("NOT_UTF8", BAD_BOTH)]


def test_duckdb_over_a_stream() -> None:
    with duckdb.connect() as connection:
        connection.register("messages", pa.RecordBatchReader.from_stream(reader(columns=["type", "queue"])))
        query = "select type, count(queue) from messages group by 1 order by 1 nulls last"
        right = [("acknowledge", 0), ("consume", 1), ("send", 6), (None, 0)]
        assert connection.sql(query).fetchall() == right


def test_duckdb_over_a_reader() -> None:
    messages = reader(columns=["type", "queue"])
    assert messages.schema.names == ["type", "queue"]
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        assert connection.sql("select count(*), count(queue) from messages").fetchall() == [(9, 7)]


def test_a_round_trip_by_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(read_batches(SENDS + FOO))
    frame.write_parquet(tmp_path / "messages.parquet")
    batches = pl.read_parquet(tmp_path / "messages.parquet").to_arrow().to_batches()
    assert b"".join(map(encode_batch, batches)) == SENDS + FOO

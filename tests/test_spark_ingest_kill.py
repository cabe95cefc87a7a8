"""A warehouse whose process is killed again and again while the captures grow and come. Takes minutes."""

from __future__ import annotations

import gzip
import subprocess
import time
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from columns import Row
from growth import capture, kill_session, start, write_slowly
from pyarrow import parquet

from phpmq.arrow import read_table

pytestmark = pytest.mark.long

KILLS = 20
#: What a batch makes, in this order.
MADE = (
    "_checkpoint/offsets/[0-9]*",
    "_staging/*/*.parquet",
    "damage/batch=*",
    "messages/batch=*",
    "_checkpoint/commits/[0-9]*",
)

INGEST = """
import sys
from phpmq.spark import ingest, local_session
source, warehouse, is_last = sys.argv[1:]
spark = local_session({"spark.master": "local[2]", "spark.ui.enabled": "false"})
options = {"maxBytesPerTrigger": "150k", "maxPartitionBytes": "40k"}
if is_last == "last":
    ingest(spark, source, warehouse, options={**options, "filesAreComplete": "true"})
else:
    while True:
        ingest(spark, source, warehouse, options=options)
"""


class Truth:
    """The rows of both tables that there have to be at last, in the order of the files."""

    def __init__(self, paths: dict[Path, bytes], scratch: Path) -> None:
        tables = []
        for path, data in paths.items():
            scratch.write_bytes(data)
            table = read_table(scratch, on_fault="skip")
            tables.append(table.add_column(0, "path", pa.repeat(str(path), len(table))))
        rows = [row for table in tables for row in table.to_pylist()]
        rows.sort(key=lambda row: (row["path"], row["offset"]))
        self.messages = [
            {**row, "content_size": None if row["content"] is None else len(row["content"])}
            for row in rows
            if row["type"]
        ]
        names = ("path", "offset", "size", "fault", "fault_offset", "raw")
        self.damage = [{name: row[name] for name in names} for row in rows if not row["type"]]
        self._places = {
            table: {(row["path"], row["offset"]): row for row in rows}
            for table, rows in (("messages", self.messages), ("damage", self.damage))
        }

    def holds(self, table: str, rows: list[Row]) -> None:
        """Each of the rows is one of these, and none is there twice."""
        right = self._places[table]
        assert len({(row["path"], row["offset"]) for row in rows}) == len(rows)
        assert [row for row in rows if row != right.get((row["path"], row["offset"]))] == []


def rows_of(warehouse: Path, table: str) -> list[Row]:
    """What each of two readers finds in all files of a table, which is the same."""
    files = sorted((warehouse / table).glob("**/*.parquet"))
    if not files:
        return []
    rows = [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]
    in_order = sorted(rows, key=lambda row: (row["path"], row["offset"]))
    whole = pyarrow.dataset.dataset(str(warehouse / table), format="parquet", partitioning="hive").to_table()
    assert sorted_rows(whole) == in_order
    pattern = f"{warehouse}/{table}/**/*.parquet"
    with duckdb.connect() as database:
        found = database.sql(
            "FROM read_parquet($files, hive_partitioning = true)", params={"files": pattern}
        ).to_arrow_table()
    assert sorted_rows(found) == in_order
    return in_order


def sorted_rows(table: Any) -> list[Row]:
    rows: list[Row] = table.drop_columns(["batch"]).to_pylist()
    return sorted(rows, key=lambda row: (row["path"], row["offset"]))


def wait_for(pattern: str, process: subprocess.Popen[bytes], warehouse: Path) -> None:
    """Wait until the process has made something new."""
    before, deadline = set(warehouse.glob(pattern)), time.monotonic() + 180
    while set(warehouse.glob(pattern)) <= before:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    source, warehouse = tmp_path / "captures", tmp_path / "warehouse"
    source.mkdir()
    random, stop, orphaned = Random(5), Event(), list[subprocess.Popen[bytes]]()
    growing = {source / f"part-{seed}": capture(seed) for seed in (8, 9, 10)}
    coming = {source / f"new {seed}": capture(seed, size=400_000) for seed in range(20, 20 + KILLS)}
    packed = {path.with_suffix(".gz"): data for path, data in list(coming.items())[::5]}
    for path in packed:
        del coming[path.with_suffix("")]
    truth = Truth({**growing, **coming, **packed}, tmp_path / "scratch")
    arrivals = [*coming.items(), *((path, gzip.compress(data)) for path, data in packed.items())]
    random.shuffle(arrivals)
    writers = [
        Thread(target=write_slowly, args=(path, data, stop, Random(path.name))) for path, data in growing.items()
    ]
    for writer in writers:
        writer.start()
    try:
        for number in range(KILLS):
            path, data = arrivals[number]
            (tmp_path / "new").write_bytes(data)
            (tmp_path / "new").rename(path)
            process = start(INGEST, source, warehouse, "")
            try:
                wait_for(MADE[number % len(MADE)], process, warehouse)
                time.sleep(random.choice([0, 0.1, 3]) * random.random())  # a batch takes about one second
            finally:
                if number % 4 == 3:  # the JVM and the workers see that it is gone, and end by themselves
                    process.kill()
                    process.wait()
                    orphaned.append(process)
                else:
                    kill_session(process)
            found = {table: rows_of(warehouse, table) for table in ("messages", "damage")}
            for table, rows in found.items():
                truth.holds(table, rows)
            counts = {pattern: len(list(warehouse.glob(pattern))) for pattern in MADE}
            print(counts, {table: len(rows) for table, rows in found.items()}, flush=True)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        for process in orphaned:
            kill_session(process)
    process = start(INGEST, source, warehouse, "last")
    try:
        assert process.wait(300) == 0
    finally:
        kill_session(process)
    assert rows_of(warehouse, "messages") == truth.messages
    assert rows_of(warehouse, "damage") == truth.damage

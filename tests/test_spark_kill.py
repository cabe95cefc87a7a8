"""A stream whose process is killed again and again while its files grow. Takes minutes."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from columns import Row, expected
from growth import capture, kill_session, start, write_slowly
from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

KILLS = 20

QUERY = """
import sys
from pyspark.sql import SparkSession
source, work, now = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.readStream.format("phpmq").option("maxBytesPerTrigger", "150k").option("maxPartitionBytes", "40k")
writer = frame.load(source).writeStream.format("parquet").option("checkpointLocation", work + "/checkpoint")
writer.trigger(availableNow=True) if now == "now" else writer.trigger(processingTime="0 seconds")
writer.start(work + "/rows").awaitTermination()
"""


def batches(work: Path) -> set[str]:
    """The files that Spark makes for each batch, in the order in which it makes them."""
    return {path.name for path in (work / "checkpoint" / "offsets").glob("[0-9]*")}


def test_killed_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    source, work = tmp_path / "captures", tmp_path / "work"
    source.mkdir()
    random, stop = Random(5), Event()
    data = {f"part-{seed}": capture(seed) for seed in range(3)}
    writers = [
        Thread(target=write_slowly, args=(source / name, content, stop, Random(name))) for name, content in data.items()
    ]
    for writer in writers:
        writer.start()
    try:
        for _ in range(KILLS):
            before = batches(work)
            process = start(QUERY, source, work, "")
            try:
                deadline = time.monotonic() + 120
                while batches(work) <= before and time.monotonic() < deadline:
                    assert process.poll() is None
                    time.sleep(0.01)
                time.sleep(random.random() * 3)  # a batch takes about one second
            finally:
                kill_session(process)
            print("killed after", len(batches(work)), "batches", flush=True)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    process = start(QUERY, source, work, "now")
    assert process.wait(300) == 0
    rows = spark.read.parquet(str(work / "rows"))
    for name, content in data.items():
        found: list[Row] = (
            rows.filter(rows.path == str(source / name)).drop("path").orderBy("offset").toArrow().to_pylist()
        )
        assert found == [row for row in expected(content, on_fault="skip").rows if row["fault"] != "TRUNCATED"]

"""A stream whose process is killed again and again while its files grow. Takes minutes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from columns import Row, expected
from pyspark.sql import SparkSession

from phpmq.generate import write_capture

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


def capture(seed: int) -> bytes:
    file = io.BytesIO()
    write_capture(file, 3_000_000, seed=seed, damages=30)
    return file.getvalue()


def write_slowly(path: Path, data: bytes, stop: Event, random: Random) -> None:
    """Append pieces of any length, so that most end within a frame, and the rest at last."""
    written = 0
    while written < len(data):
        size = len(data) if stop.is_set() else random.randrange(1, 6000)
        with path.open("ab") as file:
            written += file.write(data[written : written + size])
        stop.wait(0.4)


def start(source: Path, work: Path, now: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", QUERY, str(source), str(work), now],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


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
            process = start(source, work)
            try:
                deadline = time.monotonic() + 120
                while batches(work) <= before and time.monotonic() < deadline:
                    assert process.poll() is None
                    time.sleep(0.01)
                time.sleep(random.random() * 3)  # a batch takes about one second
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            print("killed after", len(batches(work)), "batches", flush=True)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    process = start(source, work, "now")
    assert process.wait(300) == 0
    rows = spark.read.parquet(str(work / "rows"))
    for name, content in data.items():
        found: list[Row] = (
            rows.filter(rows.path == str(source / name)).drop("path").orderBy("offset").toArrow().to_pylist()
        )
        assert found == [row for row in expected(content, on_fault="skip").rows if row["fault"] != "TRUNCATED"]

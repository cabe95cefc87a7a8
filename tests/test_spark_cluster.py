"""A real cluster on this machine: a master, two workers, and executors of their own. Takes minutes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
from columns import expected
from pipeline_checks import same
from pipeline_truth import generated, lifecycles, queue_summary

import phpmq
from phpmq.generate import write_capture

pytestmark = pytest.mark.long

HOME = Path(pyspark.__file__).parent
SOURCE = Path(phpmq.__file__).parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(name: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A part of the cluster, ended by its process id."""
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def wait_for(text: str, log: Path) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    url = f"spark://127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        log = directory / "master.log"
        ports = ["--port", url.rpartition(":")[2], "--webui-port", str(free_port())]
        stack.enter_context(running("master.Master", log, *ports))
        wait_for("I have been elected leader", log)
        for number in range(2):
            log, work = directory / f"worker{number}.log", directory / f"worker{number}"
            size = ["--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), "-d", str(work)]
            stack.enter_context(running("worker.Worker", log, *size, url))
            wait_for("Successfully registered with master", log)
        yield url


class Outcome(NamedTuple):
    result: Any
    errors: str


START = """
import json, sys
from pyspark.sql import SparkSession
master, source, target, settings, files = json.loads(sys.argv[1])
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.executor.memory", "700m").config("spark.driver.host", "127.0.0.1")
spark = builder.config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for file in files:
    spark.sparkContext.addPyFile(file)
"""


def submit(master: str, code: str, source: Path, target: Path, settings: dict[str, str], *files: Path) -> Outcome:
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            START + code,
            json.dumps([master, str(source), str(target), settings, [str(file) for file in files]]),
        ],
        env={
            **os.environ,
            "PYSPARK_PYTHON": settings.get("spark.pyspark.python", sys.executable),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = process.stdout.splitlines()
    return Outcome(json.loads(lines[-1]) if process.returncode == 0 else None, process.stderr)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "capture.phpmq"
    with path.open("wb") as file:
        write_capture(file, 20_000_000, seed=3, damages=20)
    return path


READ = """
frame = spark.read.format("phpmq").option("maxPartitionBytes", "4m").load(source)
rows = frame.select("offset", "fault").collect()
executors = frame.rdd.map(lambda row: __import__("os").environ["SPARK_EXECUTOR_DIRS"]).distinct().count()
print(json.dumps([sorted([row.offset, row.fault] for row in rows), frame.rdd.getNumPartitions(), executors]))
"""


def test_both_workers_read(master: str, source: Path, tmp_path: Path) -> None:
    outcome = submit(master, READ, source, tmp_path, {})
    assert outcome.result is not None, outcome.errors
    rows, partitions, executors = outcome.result
    right = expected(source.read_bytes(), on_fault="skip").rows
    assert rows == [[row["offset"], row["fault"]] for row in right]
    assert (partitions, executors) == (6, 2)


WRITE = """
frame = spark.read.format("phpmq").option("maxPartitionBytes", "4m").option("mode", "DROPMALFORMED").load(source)
frame.write.format("phpmq").mode("append").option("compression", "gzip").save(target)
again = spark.read.format("phpmq").load(target)
others = again.drop("path", "offset").exceptAll(frame.drop("path", "offset"))
print(json.dumps([again.count(), frame.count(), others.count()]))
"""


def test_writing_and_reading_back(master: str, source: Path, tmp_path: Path) -> None:
    outcome = submit(master, WRITE, source, tmp_path / "written", {})
    assert outcome.result is not None, outcome.errors
    rows, right, others = outcome.result
    assert rows == right == sum(row["type"] is not None for row in expected(source.read_bytes(), on_fault="skip").rows)
    assert others == 0
    assert len(list((tmp_path / "written").glob("part-*.phpmq.gz"))) == 6


PIPELINE = """
from phpmq.spark import ingest, lifecycles, queue_summary
options = {"maxPartitionBytes": "200k", "maxBytesPerTrigger": "1m", "filesAreComplete": "true"}
tables = ingest(spark, source, target, options=options)
told = [summary(*tables).toArrow().to_pylist() for summary in (lifecycles, queue_summary)]
executors = tables.messages.rdd.map(lambda row: __import__("os").environ["SPARK_EXECUTOR_DIRS"]).distinct().count()
print(json.dumps([*told, executors]))
"""


def test_the_pipeline(master: str, tmp_path: Path) -> None:
    traffic = generated(tmp_path / "captures", 6, size=1_500_000, damages=60, files=12)
    settings = {"spark.sql.shuffle.partitions": "4"}
    outcome = submit(master, PIPELINE, tmp_path / "captures", tmp_path / "warehouse", settings)
    assert outcome.result is not None, outcome.errors
    ids, queues, executors = outcome.result
    same(ids, lifecycles(traffic), "queue", "message_id")
    same(queues, queue_summary(traffic), "queue")
    assert executors == 2


@pytest.fixture(scope="module")
def without_phpmq(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings for executors that have no phpmq, though the driver has."""
    hiding = tmp_path_factory.mktemp("hiding")
    (hiding / "phpmq.py").write_text("raise ModuleNotFoundError(\"No module named 'phpmq'\", name='phpmq')\n")
    python = hiding / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="$HIDING:$PYTHONPATH"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return {"spark.executorEnv.HIDING": str(hiding), "spark.pyspark.python": str(python)}


@pytest.mark.parametrize(
    "code",
    [
        'spark.read.format("phpmq").load(source).count()',
        'spark.read.format("phpmq").load(source).limit(10).write.format("phpmq").mode("append").save(target)',
        "from phpmq.spark import from_phpmq\n"
        "spark.sql(\"SELECT encode('x', 'utf-8') AS x\").repartition(2).select(from_phpmq(\"x\")).collect()",
    ],
    ids=["read", "write", "function"],
)
def test_executors_without_phpmq(
    master: str, source: Path, tmp_path: Path, without_phpmq: dict[str, str], code: str
) -> None:
    outcome = submit(master, code, source, tmp_path / "written", without_phpmq)
    assert outcome.result is None
    assert re.search(
        r"ImportError: the Python of this executor cannot import phpmq[.\w]* \(No module named 'phpmq'\):"
        r" install phpmq\[spark\] on every machine, or send it with --py-files or spark.sparkContext.addPyFile,"
        r" and call phpmq.spark.register\(spark\) then",
        outcome.errors,
    ), outcome.errors


def test_the_pure_package_as_a_file(master: str, source: Path, tmp_path: Path, without_phpmq: dict[str, str]) -> None:
    package = tmp_path / "phpmq.zip"
    with zipfile.ZipFile(package, "w") as file:
        for module in SOURCE.glob("phpmq/**/*.py"):
            file.write(module, module.relative_to(SOURCE))
    code = """
from phpmq.spark import register
register(spark)
frame = spark.read.format("phpmq").load(source)
backends = frame.rdd.map(lambda row: __import__("phpmq").BACKEND).distinct().collect()
print(json.dumps([frame.count(), backends]))
"""
    small = tmp_path / "small.phpmq"
    small.write_bytes(source.read_bytes()[:500_000])
    outcome = submit(master, code, small, tmp_path, without_phpmq, package)
    assert outcome.result is not None, outcome.errors
    assert outcome.result == [len(expected(small.read_bytes(), on_fault="skip").rows), ["python"]]

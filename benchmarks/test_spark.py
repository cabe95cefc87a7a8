"""Captures on Spark beside JSON lines of the same messages, by Spark's own source with the same columns.

The groups are what is done with them: all rows into nothing (`noop`), counting, counting by queue, and writing Parquet;
with all fields of the messages, and with only the one that is used.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from phpmq import Dispatch, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Bytes of a capture.
SIZE = 1_000_000_000
FIELDS = "type string, queue string, content binary, message_id string, ttl bigint"

ACTIONS: dict[str, Callable[[DataFrame, Path], object]] = {
    "noop": lambda frame, target: frame.write.format("noop").mode("overwrite").save(),
    "count": lambda frame, target: frame.count(),
    "groupBy": lambda frame, target: frame.groupBy("queue").count().collect(),
    "parquet": lambda frame, target: frame.write.mode("overwrite").parquet(str(target)),
}
#: What is done, and the schemas: of the capture (None for all columns) and of the JSON lines.
CASES = [
    ("noop", None, FIELDS),
    ("count", None, FIELDS),
    ("groupBy", None, FIELDS),
    ("parquet", None, FIELDS),
    ("count", "offset bigint", "queue string"),
    ("groupBy", "queue string", "queue string"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from phpmq.spark import local_session  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = local_session({"spark.ui.enabled": "false", "spark.driver.memory": "3g"})
    yield session
    session.stop()


@pytest.fixture(scope="module", params=[60, 2048], ids="{}B".format)
def captures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same messages as frames and as JSON lines."""
    size = 1_000_000 if request.config.getoption("benchmark_disable") else SIZE
    random = Random(1)
    frames, lines = [], []
    for _ in range(250_000 // request.param):
        message = Dispatch(
            f"queue-{random.getrandbits(4)}", random.randbytes(request.param), f"{random.getrandbits(128):032x}", 3600
        )
        frames.append(encode(message))
        fields = {name: getattr(message, name) for name in message.__match_args__}
        record = {"type": "dispatch", **fields, "content": base64.b64encode(message.content).decode()}
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    directory = tmp_path_factory.mktemp(f"contents-{request.param}B-")
    paths = {"phpmq": directory / "capture.phpmq", "json": directory / "messages.jsonl"}
    for path, data in zip(paths.values(), (b"".join(frames), "".join(lines).encode()), strict=True):
        with path.open("wb") as file:
            for _ in range(size // sum(map(len, frames)) + 1):
                file.write(data)
    return paths


@pytest.mark.parametrize("source", ["phpmq", "json"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_read(
    benchmark: BenchmarkFixture,
    spark: SparkSession,
    captures: dict[str, Path],
    source: str,
    case: tuple[str, str | None, str],
) -> None:
    action, own, other = case
    schema = own if source == "phpmq" else other
    reader = spark.read.format(source)
    path = captures[source]
    frame = (reader.schema(schema) if schema else reader).load(str(path))
    benchmark.group = f"spark {action} {own or 'all columns'} of {path.parent.name}"
    pedantic: Any = benchmark.pedantic
    pedantic(ACTIONS[action], args=(frame, path.with_name("rows")), rounds=3, warmup_rounds=1)

"""From captures to what became of their messages, over a warehouse, against what is known without it. Takes minutes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from columns import Row
from pipeline_checks import collected, same, same_by_the_ledger
from pipeline_truth import Traffic, generated, lifecycles, source_rows
from pyspark.sql import SparkSession

from phpmq.spark import Tables, ingest, open_warehouse
from phpmq.spark.ingest import Batch

pytestmark = pytest.mark.long

SEEDS = range(10)
SIZE, DAMAGES = 400_000, 60
FINISHED = {"filesAreComplete": "true"}


def has(tables: Tables, traffic: Traffic) -> None:
    """The tables have each message, in every column, and the place of each damage."""
    right: list[Row] = []
    for row in source_rows(Traffic(traffic.messages, [])):
        del row["number"]
        right.append({**row, "content_size": None if row["content"] is None else len(row["content"])})
    same(collected(tables.messages), right, "path", "offset")
    ranges = [(row["path"], row["offset"], row["size"]) for row in collected(tables.damage)]
    assert sorted(ranges) == sorted(damage[:3] for damage in traffic.ranges)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_file(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    traffic = generated(tmp_path / "captures", seed, size=SIZE, damages=DAMAGES)
    batches: list[Batch] = []
    tables = ingest(
        spark,
        str(tmp_path / "captures"),
        str(tmp_path / "warehouse"),
        options={**FINISHED, "maxBytesPerTrigger": "150k", "maxPartitionBytes": "40k"},
        on_batch=batches.append,
    )
    has(tables, traffic)
    same_by_the_ledger(traffic, *tables)
    assert len(batches) > 2
    assert sum(batch.messages for batch in batches) == len(traffic.messages)
    assert sum(batch.damage for batch in batches) == len(traffic.ranges)
    assert sum(batch.size for batch in batches) == (tmp_path / "captures/part-0").stat().st_size
    assert any(row["anomalies"] for row in lifecycles(traffic))


@pytest.mark.parametrize("seed", SEEDS)
def test_many_files_that_come_in_any_order(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    traffic = generated(tmp_path / "captures", seed, size=SIZE, damages=DAMAGES, files=13)
    random = Random(seed)
    source, warehouse = tmp_path / "captures", str(tmp_path / "warehouse")
    paths = sorted(source.iterdir())
    coming = [(path, path.read_bytes()) for path in random.sample(paths, len(paths))]
    for path in paths:
        path.unlink()
    while coming:
        for path, data in coming[:4]:
            path.write_bytes(data)
        coming = coming[4:]
        for path, data in coming[:1]:  # one that is still being written
            path.write_bytes(data[: random.randrange(len(data))])
        ingest(spark, str(source), warehouse, options={"maxBytesPerTrigger": "100k"} if random.random() < 0.5 else None)
    ingest(spark, str(source), warehouse, options=FINISHED)
    tables = open_warehouse(spark, warehouse)
    has(tables, traffic)
    same_by_the_ledger(traffic, *tables)
    # in the order in which it all was before it was cut
    numbers = {placed.path: placed.number for placed in traffic.messages}
    assert len(numbers) > 11
    numbered = tables.messages.join(spark.createDataFrame([*numbers.items()], "path string, number int"), "path")
    same_by_the_ledger(traffic, numbered, tables.damage, order="number")
    assert any(row["anomalies"] for row in lifecycles(traffic, is_ordered=True))

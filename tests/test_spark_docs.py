"""Runs what the README, docs/spark.md and docs/pipeline.md show of Spark, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pipeline_truth as truth
import pytest
from command import Run
from pyspark.sql import SparkSession

from phpmq.spark.options import OPTIONS, READ, STREAM, WRITE

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
PIPELINE = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", [GUIDE, PIPELINE, README], ids=["guide", "pipeline", "readme"])
def test_the_examples_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {}
    shown = [block for block in blocks(text) if "spark" in block]
    assert shown
    for block in shown:
        exec(block, namespace)
    assert namespace["spark"] is spark


def test_the_worked_example_is_the_ledger(
    spark: SparkSession, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        line
        for line in README.split("\n")
        if line.startswith(("phpmq generate --size 20MB", "phpmq ingest m", "phpmq report"))
    ]
    assert len(lines) == 3
    for line in lines:
        result = run(*line.split()[1:])
        assert (result.code, result.errors) == (0, "")
    shown = README.split(lines[2], 1)[1].split("```")[2].strip().splitlines()
    printed = [line.rstrip() for line in result.output.decode().splitlines()]
    assert shown[:3] + shown[4:] == printed[:3] + printed[-2:]
    assert shown[3] == "..."
    (tmp_path / "truth").mkdir()
    traffic = truth.generated(tmp_path / "truth", 7, size=20_000_000, damages=20)
    rows = truth.queue_summary(traffic)
    figures = ("sent", "dispatched", "acknowledged", "requeued", "dead_lettered", "outstanding", "redelivered")
    found = {line.split()[0]: line.split()[1:] for line in printed[2:-2]}
    busiest = sorted(rows, key=lambda row: (-row["sent"] - row["dispatched"], row["queue"]))[: len(found)]
    assert found == {row["queue"]: [f"{row[figure]:,}" for figure in figures] for row in busiest}
    assert printed[-2].split()[3:] == [f"{sum(row[figure] for row in rows):,}" for figure in figures]
    anomalies = [anomaly for row in truth.lifecycles(traffic) for anomaly in row["anomalies"] if not anomaly["suspect"]]
    ranges = sum(row["ranges"] for row in truth.damage_summary(traffic))
    assert printed[-1] == f"{len(anomalies)} anomalies, {ranges} damaged ranges"


def test_the_guide_has_all_options_and_their_defaults() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (\S+)? ?\|", GUIDE, re.MULTILINE))
    assert set(table) == set(READ)
    units = {str(count * 2**20): f"{count}m" for count in (32, 64, 128)} | {"False": "false", "None": ""}
    for name, shown in table.items():
        default = OPTIONS[name][0]
        if name != "splitting":  # depends on what it is for
            assert shown.strip("`") == units.get(str(default), str(default)), name
    for name in (*STREAM, *WRITE):
        assert f"`{name}`" in GUIDE

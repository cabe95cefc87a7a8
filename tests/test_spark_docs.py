"""Runs what docs/spark.md and the README show of Spark, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from phpmq.spark.options import OPTIONS, READ, STREAM, WRITE

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", [GUIDE, README], ids=["guide", "readme"])
def test_the_examples_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {}
    shown = [block for block in blocks(text) if "spark" in block]
    assert shown
    for block in shown:
        exec(block, namespace)
    assert namespace["spark"] is spark


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

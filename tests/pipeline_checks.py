"""Whether what Spark tells of traffic is what `pipeline_truth` does."""

from __future__ import annotations

from typing import Any

import pipeline_truth as truth
from columns import Row
from pyspark.sql import DataFrame

from phpmq.spark import damage_summary, lifecycles, queue_summary


def collected(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def by(rows: list[Row], *columns: str) -> dict[tuple[Any, ...], Row]:
    found = {tuple(row[column] for column in columns): row for row in rows}
    assert len(found) == len(rows)
    return found


def same(found: list[Row], right: list[Row], *columns: str) -> None:
    """Each row is right; the columns are what tells them apart."""
    rows, right_rows = by(found, *columns), by(right, *columns)
    keys = [*right_rows, *(rows.keys() - right_rows.keys())]
    wrong = [(rows.get(key), right_rows.get(key)) for key in keys if rows.get(key) != right_rows.get(key)]
    assert not wrong, f"{len(wrong)} of {len(keys)} rows are wrong, for example {wrong[:3]}"


def same_by_the_ledger(
    traffic: truth.Traffic, messages: DataFrame, damage: DataFrame | None = None, *, order: str | None = None
) -> None:
    """Everything that Spark tells is right, as far as a ledger knows: it has no names of faults."""
    is_ordered = order is not None
    found = collected(lifecycles(messages, damage, order=order))
    same(found, truth.lifecycles(traffic, is_ordered=is_ordered), "queue", "message_id")
    found = collected(queue_summary(messages, damage, order=order))
    same(found, truth.queue_summary(traffic, is_ordered=is_ordered), "queue")
    found = collected(damage_summary(messages if damage is None else damage))
    same(_without_faults(found), truth.damage_summary(traffic), "path")


def _without_faults(rows: list[Row]) -> list[Row]:
    by_path: dict[str, Row] = {}
    for row in rows:
        assert row["fault"]
        known = by_path.setdefault(row["path"], {**row, "fault": None, "ranges": 0, "bytes": 0})
        known["ranges"] += row["ranges"]
        known["bytes"] += row["bytes"]
        known["first_offset"] = min(known["first_offset"], row["first_offset"])
    return list(by_path.values())

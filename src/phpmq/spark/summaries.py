"""Figures for each queue, and for each capture that is damaged."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from phpmq.spark.lifecycles import OUTCOMES, content_size, lifecycles

#: How many hundredths of all values are not above a percentile.
PERCENTILES: Final = (50, 90, 99)


def queue_summary(messages: DataFrame, damage: DataFrame | None = None, *, order: str | None = None) -> DataFrame:
    """Tell what became of the messages of each queue. The arguments are those of `lifecycles`.

    Returns:
        One row for each ``queue``, computed when it is used; NULL for messages whose queue is not UTF-8:

        * ``sent`` (bigint): how many Sends.
        * ``never_dispatched`` (bigint): how many more of them than there are ids that were dispatched. It is an
          estimate, as a Send has no id, and an id that is not UTF-8 is not known here.
        * ``dispatched`` (bigint): how many ids were.
        * ``acknowledged``, ``requeued``, ``dead_lettered``, ``outstanding`` (bigint): how many ids by their outcomes.
        * ``redelivered`` (bigint): how many ids were dispatched more than once.
        * ``redelivery_rate`` (double): of the ids that were dispatched; NULL if none was.
        * ``dead_letter_rate`` (double): of all ids, as of some there may be no dispatch; NULL if there are none.
        * ``content_bytes`` (bigint): of all contents, those of Sends and Dispatches.
        * ``content_size_percentiles`` (array of bigint): bytes, at `PERCENTILES`; NULL if there are no contents.
        * ``ttl_percentiles`` (array of bigint): seconds, of all Sends and Dispatches with a TTL but 0, which is for
          ever; NULL if there are none.

        A percentile is the least value that so many hundredths of all do not exceed.

    Raises:
        ValueError: there is no column ``order``.
    """
    return summary_of(messages, lifecycles(messages, damage, order=order))


def summary_of(messages: DataFrame, told: DataFrame) -> DataFrame:
    """`queue_summary`, of lifecycles that are there already."""
    has_content, frames = f.col("type").isin("send", "dispatch"), messages.where("type IS NOT NULL")
    # Equal values are counted first, which leaves little to be sorted.
    contents = frames.groupBy(
        "queue",
        (f.col("type") == "send").alias("is_send"),
        f.when(has_content, content_size(messages)).alias("size"),
        f.lit(None).cast("bigint").alias("ttl"),
    ).count()
    ttls = frames.where(has_content & (f.col("ttl") > 0)).groupBy(
        "queue", f.lit(False).alias("is_send"), f.lit(None).cast("bigint").alias("size"), "ttl"
    )
    flows = (
        _ranked(_ranked(contents.unionAll(ttls.count()), "size"), "ttl")
        .groupBy("queue")
        .agg(
            f.coalesce(f.sum(f.when(f.col("is_send"), f.col("count"))), f.lit(0)).alias("sent"),
            f.coalesce(f.sum(f.col("size") * f.col("count")), f.lit(0)).alias("content_bytes"),
            _percentiles("size").alias("content_size_percentiles"),
            _percentiles("ttl").alias("ttl_percentiles"),
        )
    )
    ids = told.groupBy("queue").agg(
        f.count_if(f.col("dispatches") > 0).alias("dispatched"),
        *(f.count_if(f.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES.values()),
        f.count_if("redelivered").alias("redelivered"),
    )
    rows = flows.join(ids, "queue", "left").fillna(0, [name for name in ids.columns if name != "queue"])
    all_ids = reduce(add, map(f.col, OUTCOMES.values()))
    return rows.select(
        "queue",
        "sent",
        f.greatest(f.col("sent") - f.col("dispatched"), f.lit(0)).alias("never_dispatched"),
        "dispatched",
        "acknowledged",
        "requeued",
        "dead_lettered",
        "outstanding",
        "redelivered",
        f.try_divide("redelivered", "dispatched").alias("redelivery_rate"),
        f.try_divide("dead_lettered", all_ids).alias("dead_letter_rate"),
        "content_bytes",
        "content_size_percentiles",
        "ttl_percentiles",
    )


def _ranked(values: DataFrame, name: str) -> DataFrame:
    """Tell of each value how many of its queue are not above it, and how many there are, in hundredths."""
    counted = f.when(f.col(name).isNotNull(), f.col("count"))
    of_queue = Window.partitionBy("queue")
    return values.withColumns(
        {
            f"{name}_rank": 100 * f.sum(counted).over(of_queue.orderBy(name)),
            f"{name}_number": f.sum(counted).over(of_queue),
        }
    )


def _percentiles(name: str) -> Column:
    found = [
        f.min(f.when(f.col(f"{name}_rank") >= hundredths * f.col(f"{name}_number"), f.col(name)))
        for hundredths in PERCENTILES
    ]
    return f.when(f.count(name) > 0, f.array(*found))


def damage_summary(damage: DataFrame) -> DataFrame:
    """Tell what is damaged.

    Args:
        damage: rows of damage, or of captures.

    Returns:
        One row for each ``path`` and ``fault``, computed when it is used: how many ``ranges`` there are, how many
        ``bytes`` are in them, and the ``first_offset`` (bigint).
    """
    rows = damage.where("type IS NULL") if "type" in damage.columns else damage
    return rows.groupBy("path", "fault").agg(
        f.count("*").alias("ranges"), f.sum("size").alias("bytes"), f.min("offset").alias("first_offset")
    )

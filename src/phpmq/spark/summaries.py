"""Figures for each queue, and for each capture that is damaged."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from phpmq.spark.lifecycles import OUTCOMES, content_size, lifecycles

#: The parts of all values that are not above a percentile.
PERCENTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 10_000


def queue_summary(messages: DataFrame, damage: DataFrame | None = None, *, order: str | None = None) -> DataFrame:
    """Tell what became of the messages of each queue. The arguments are those of `lifecycles`.

    Returns:
        One row for each ``queue``, computed when it is used; NULL for messages whose queue is not UTF-8:

        * ``sent`` (bigint): how many Sends.
        * ``never_dispatched`` (bigint): how many more of them than there are ids that were dispatched. It is an
          estimate, as a Send has no id.
        * ``dispatched`` (bigint): how many ids were.
        * ``acknowledged``, ``requeued``, ``dead_lettered``, ``outstanding`` (bigint): how many ids by their outcomes.
        * ``redelivered`` (bigint): how many ids were dispatched more than once.
        * ``redelivery_rate``, ``dead_letter_rate`` (double): of the ids that were dispatched; NULL if none was.
        * ``content_bytes`` (bigint): of all contents, those of Sends and Dispatches.
        * ``content_size_percentiles`` (array of bigint): bytes, at `PERCENTILES`; NULL if there are no contents.
        * ``ttl_percentiles`` (array of bigint): seconds, of all Sends and Dispatches with a TTL but 0, which is for
          ever; NULL if there are none.

        A percentile is a value that occurs, exact up to a ten-thousandth of the ranks.

    Raises:
        ValueError: there is no column ``order``.
    """
    return summary_of(messages, lifecycles(messages, damage, order=order))


def summary_of(messages: DataFrame, told: DataFrame) -> DataFrame:
    """`queue_summary`, of lifecycles that are there already."""
    has_content, percentiles = f.col("type").isin("send", "dispatch"), list(PERCENTILES)
    contents = f.when(has_content, content_size(messages))
    ttls = f.when(has_content & (f.col("ttl") > 0), f.col("ttl"))
    flows = (
        messages.where("type IS NOT NULL")
        .groupBy("queue")
        .agg(
            f.count_if(f.col("type") == "send").alias("sent"),
            f.coalesce(f.sum(contents), f.lit(0)).alias("content_bytes"),
            f.percentile_approx(contents, percentiles, _ACCURACY).alias("content_size_percentiles"),
            f.percentile_approx(ttls, percentiles, _ACCURACY).alias("ttl_percentiles"),
        )
    )
    ids = told.groupBy("queue").agg(
        f.count_if(f.col("dispatches") > 0).alias("dispatched"),
        *(f.count_if(f.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES.values()),
        f.count_if("redelivered").alias("redelivered"),
    )
    rows = flows.join(ids, "queue", "left").fillna(0, [name for name in ids.columns if name != "queue"])
    dispatched = f.nullif(f.col("dispatched"), f.lit(0))
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
        (f.col("redelivered") / dispatched).alias("redelivery_rate"),
        (f.col("dead_lettered") / dispatched).alias("dead_letter_rate"),
        "content_bytes",
        "content_size_percentiles",
        "ttl_percentiles",
    )


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

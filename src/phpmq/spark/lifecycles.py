"""What became of each message, and what was wrong on its way.

The events of a message are brought together by a hash of its queue and its id, and sorted. What an event shows with
those before it is told by functions that go over them row by row. So no task holds all events of a message, or all of a
queue, however many there are.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.window import Window

#: The events of a message, by the types of messages, and what the message is if nothing is behind. Of several of which
#: nobody knows which is behind which, the first one in this order counts.
OUTCOMES: Final = {
    "acknowledge": "acknowledged",
    "dead_letter": "dead_lettered",
    "requeue": "requeued",
    "dispatch": "outstanding",
}
#: What can be wrong on the way of a message, in the order in which it is told.
ANOMALIES: Final = ("acknowledged_without_dispatch", "acknowledged_twice", "dispatched_after_end", "ttl_raised")

_ACKNOWLEDGE, _DEAD_LETTER, _REQUEUE, _DISPATCH = range(4)
_COUNTS: Final = ("acknowledgements", "dead_letters", "requeues", "dispatches")
#: The place of an event, its capture and its offset, is one number, as Spark aggregates numbers best. The offset has so
#: many bits of it.
_OFFSET_BITS: Final = 42
_MOST_BYTES: Final = 2**_OFFSET_BITS
_MOST_CAPTURES: Final = 2 ** (63 - _OFFSET_BITS)
#: More than any TTL.
_NO_LIMIT: Final = 2**63 - 1


def lifecycles(messages: DataFrame, damage: DataFrame | None = None, *, order: str | None = None) -> DataFrame:
    """Tell what became of each message that has an id.

    Its events are the Dispatch, Requeue, Acknowledge and DeadLetter with its queue and its id. They are in the order of
    their paths (``part-2`` before ``part-10``) and offsets. But only events of one path are known to come one after the
    other, unless a column orders all of them.

    Args:
        messages: rows of captures, as the data source or the table ``messages`` of a warehouse has them.
        damage: rows of damage, if they are not among the messages.
        order: a column of ``messages`` that orders events across paths, for example a time. Events of which it has the
            same are in the order of their paths and offsets; those of which it is NULL come first.

    Returns:
        One row for each ``queue`` and ``message_id``, computed when it is used:

        * ``dispatches``, ``requeues``, ``acknowledgements``, ``dead_letters`` (bigint): how many events.
        * ``outcome`` (string): "outstanding", "requeued", "dead_lettered" or "acknowledged", by the last event. If the
          events are of several paths, and there is no ``order``, it is the first of acknowledged, dead-lettered, and
          requeued that ever happened.
        * ``redelivered`` (boolean): dispatched more than once.
        * ``first``, ``last`` (struct of ``path`` string and ``offset`` bigint): the places of the first and last event.
        * ``first_ttl``, ``last_ttl`` (bigint): seconds, in the first and the last dispatch; NULL without TTL.
        * ``content_size`` (bigint): bytes, the most of all dispatches.
        * ``suspect`` (boolean): an event is directly before or behind damage, which may have forged it.
        * ``anomalies`` (array of structs of ``kind`` string, ``path`` string, ``offset`` bigint, ``suspect`` boolean):
          of each kind in `ANOMALIES` the first event that shows it. It is suspect if it does not show without the
          suspect events.

    Raises:
        ValueError: there is no column ``order``.
    """
    if order is not None and order not in messages.columns:
        raise ValueError(f"there is no column {order!r} to order by; the columns are {', '.join(messages.columns)}")

    captures = _captures(messages)
    paths = captures.agg(f.array_sort(f.collect_list(f.struct("capture", "path")))["path"]).scalar()

    def capture_of(at: Column) -> Column:
        return f.shiftright(at if order is None else at["place"], _OFFSET_BITS).cast("int")  # from 1

    def place_of(at: Column) -> list[Column]:
        number = at if order is None else at["place"]
        return [f.element_at(paths, capture_of(at)).alias("path"), number.bitwiseAND(_MOST_BYTES - 1).alias("offset")]

    def anomaly(kind: str) -> Column:
        shown = f.col(kind)
        at, is_suspect = (_unmarked(shown), shown >= 0) if order is None else (shown["at"], shown["is_suspect"])
        told = f.struct(f.lit(kind).alias("kind"), *place_of(at), is_suspect.alias("suspect"))
        return f.when(shown.isNotNull(), told)

    scope = capture_of(f.col("at")) if order is None else f.lit(0)  # of events that can be compared
    first, last = f.col("first"), f.col("last")
    outcomes = [f.lit(outcome) for outcome in OUTCOMES.values()]
    by_last = f.get(f.array(*outcomes), f.col("last_kind"))
    by_existence = f.coalesce(
        *(f.when(f.col(count) > 0, outcome) for count, outcome in zip(_COUNTS, outcomes, strict=True))
    )
    is_known = f.lit(True) if order is not None else capture_of(first) == capture_of(last)
    return _told(_events(messages, damage, captures, order), scope, order).select(
        "queue",
        "message_id",
        "dispatches",
        "requeues",
        "acknowledgements",
        "dead_letters",
        f.when(is_known, by_last).otherwise(by_existence).alias("outcome"),
        (f.col("dispatches") > 1).alias("redelivered"),
        f.struct(*place_of(first)).alias("first"),
        f.struct(*place_of(last)).alias("last"),
        "first_ttl",
        "last_ttl",
        "content_size",
        "suspect",
        f.array_compact(f.array(*map(anomaly, ANOMALIES))).alias("anomalies"),
    )


def content_size(messages: DataFrame) -> Column:
    """Bytes of the content of a message: from a warehouse, which has them, the contents need not be read."""
    if "content_size" in messages.columns:
        return f.col("content_size")
    return f.octet_length("content").cast("bigint")


def _captures(messages: DataFrame) -> DataFrame:
    """All paths, each with its number in natural order."""

    def natural(part: Column) -> Column:
        """What to sort a part of a path by: its text, and its number, without the zeros before it."""
        number = f.regexp_extract(part, "0*([0-9]*)$", 1)
        return f.struct(f.regexp_replace(part, "[0-9]+$", ""), f.length(number), number)

    parts = f.transform(f.regexp_extract_all("path", f.lit("[^0-9]*[0-9]*"), f.lit(0)), natural)
    number = f.row_number().over(Window.orderBy(parts, "path"))
    return messages.select("path").distinct().select("path", number.alias("capture"))


def _events(messages: DataFrame, damage: DataFrame | None, captures: DataFrame, order: str | None) -> DataFrame:
    """All events, each with what orders it (``at``)."""
    # Two longs are joined a good deal faster than two paths with two offsets.
    start, stop = f.xxhash64("path", "offset"), f.xxhash64("path", f.col("offset") + f.col("size"))
    ranges = messages.where("type IS NULL") if damage is None else damage
    starts = ranges.select(start.alias("stop_edge"), f.lit(True).alias("is_before")).distinct()
    stops = ranges.select(stop.alias("start_edge"), f.lit(True).alias("is_behind")).distinct()
    ordering = f.lit(None) if order is None else f.col(f"`{order.replace('`', '``')}`")
    kind = f.coalesce(*(f.when(f.col("type") == name, number) for number, name in enumerate(OUTCOMES)))
    events = (
        messages.where(f.col("type").isin(*OUTCOMES) & f.col("queue").isNotNull() & f.col("message_id").isNotNull())
        .select(
            "path",
            "offset",
            "queue",
            "message_id",
            "ttl",
            kind.alias("kind"),
            content_size(messages).alias("content_size"),
            ordering.alias("order"),
            start.alias("start_edge"),
            stop.alias("stop_edge"),
        )
        .join(starts, "stop_edge", "left")
        .join(stops, "start_edge", "left")
        .join(f.broadcast(captures), "path")
    )
    place = f.when(
        (f.col("offset") < _MOST_BYTES) & (f.col("capture") < _MOST_CAPTURES),
        f.shiftleft(f.col("capture").cast("bigint"), _OFFSET_BITS).bitwiseOR(f.col("offset")),
    ).otherwise(
        f.raise_error(f.lit(f"more than {_MOST_CAPTURES} captures, or {_MOST_BYTES} bytes in one, have no order"))
    )
    return events.select(
        f.xxhash64("queue", "message_id").alias("key"),
        "queue",
        "message_id",
        "kind",
        (place if order is None else f.struct("order", place.alias("place"))).alias("at"),
        "ttl",
        "content_size",
        f.coalesce("is_before", "is_behind", f.lit(False)).alias("is_suspect"),
    )


def _told(events: DataFrame, scope: Column, order: str | None) -> DataFrame:
    """What the events of each message tell, with places as numbers."""
    kind, is_sure = f.col("kind"), ~f.col("is_suspect")
    is_dispatch, is_acknowledge = kind == _DISPATCH, kind == _ACKNOWLEDGE
    ttl = f.when(f.col("ttl") == 0, _NO_LIMIT).otherwise(f.col("ttl") - 1)  # 0 is for ever, and more than all others
    identity = ("key", "queue", "message_id")
    earlier = Window.partitionBy(*identity).orderBy("at").rowsBetween(Window.unboundedPreceding, -1)

    def is_raised(counts: Column) -> Column:
        """Whether a dispatch has a larger TTL than those before it allow, of which some count."""
        sets_limit = counts & ((kind == _REQUEUE) | (is_dispatch & ttl.isNotNull()))
        limit = f.last(f.when(sets_limit, f.when(is_dispatch, ttl).otherwise(_NO_LIMIT)), True).over(earlier)
        limit_scope = f.last(f.when(sets_limit, scope), True).over(earlier)
        return is_dispatch & (limit_scope == scope) & (ttl > limit)

    def first_place(is_shown: Column, is_certain: Column) -> Column:
        """What has its minimum where an anomaly is first shown for sure, or else first shown."""
        return f.when(is_certain & is_sure, mark(False)).when(is_shown, mark(True))

    def mark(is_suspect: bool) -> Column:
        if order is not None:
            return f.struct(f.lit(is_suspect).alias("is_suspect"), "at")
        return f.col("at") if is_suspect else _marked(f.col("at"))

    # What was before, and whether it is for sure, is one value, as each one more takes its time.
    acknowledged = f.max(f.when(is_acknowledge, is_sure)).over(earlier)
    is_end = is_acknowledge | (kind == _DEAD_LETTER)
    end = f.max(f.when(is_end, 2 * scope + is_sure.cast("int"))).over(earlier)
    is_ended = is_dispatch & (f.shiftright(end, 1) == scope)
    shown = [  # the first kind is one as far as there is no dispatch
        first_place(is_acknowledge, is_acknowledge),
        first_place(is_acknowledge & acknowledged.isNotNull(), is_acknowledge & acknowledged),
        first_place(is_ended, is_ended & (end % 2 == 1)),
        first_place(f.col("is_raised"), is_raised(is_sure)),
    ]
    events = events.repartition("key").withColumn("is_raised", is_raised(f.lit(True)))
    marked = events.withColumns(dict(zip(ANOMALIES, shown, strict=True)))
    anomalies = {kind: f.min(kind) for kind in ANOMALIES}
    anomalies[ANOMALIES[0]] = f.when(f.count_if(is_dispatch) == 0, anomalies[ANOMALIES[0]])
    anomalies[ANOMALIES[3]] = f.when(f.bool_or("is_raised"), anomalies[ANOMALIES[3]])  # a suspect requeue excuses it
    dispatched_at = f.when(is_dispatch, f.col("at"))
    return marked.groupBy(*identity).agg(
        *(f.count_if(kind == number).alias(name) for number, name in enumerate(_COUNTS)),
        f.min("at").alias("first"),
        f.max("at").alias("last"),
        f.max_by("kind", "at").alias("last_kind"),
        f.min_by("ttl", dispatched_at).alias("first_ttl"),
        f.max_by("ttl", dispatched_at).alias("last_ttl"),
        f.max(f.when(is_dispatch, f.col("content_size"))).alias("content_size"),
        f.bool_or("is_suspect").alias("suspect"),
        *(place.alias(name) for name, place in anomalies.items()),
    )


def _marked(place: Column) -> Column:
    """A place as a number that is less than those of all places without the mark."""
    return place.bitwiseOR(f.lit(-(2**63)))


def _unmarked(place: Column) -> Column:
    return place.bitwiseAND(2**63 - 1)

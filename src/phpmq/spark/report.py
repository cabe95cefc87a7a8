"""A report on a warehouse: facts that Spark counts, and a page of HTML that shows them and needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar

from jinja2 import Environment, StrictUndefined
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from phpmq import __version__
from phpmq.errors import Fault
from phpmq.spark import charts, wording
from phpmq.spark.charts import OUTCOMES
from phpmq.spark.lifecycles import lifecycles
from phpmq.spark.ranges import COMPRESSED_DATA
from phpmq.spark.summaries import damage_summary, summary_of

#: What is odd about a message, in words, and what it means.
_KINDS: Final = {
    "acknowledged_without_dispatch": (
        "acknowledged without a dispatch",
        "An acknowledgement of an id that no capture shows a dispatch of. The dispatch may have come before the"
        " captures began, or lie in a damaged range.",
    ),
    "acknowledged_twice": ("acknowledged twice", "A second acknowledgement of the same id."),
    "dispatched_after_end": (
        "dispatched after the end",
        "A dispatch that comes after an acknowledgement or a dead letter of the same id.",
    ),
    "ttl_raised": (
        "TTL raised",
        "A dispatch with more time to live than the dispatch before it and no requeue between the two, though time"
        " only runs down. A TTL of 0 is for ever.",
    ),
}
_EXPECTED: Final = {fault.name: f"expected {fault.value}" for fault in Fault} | {
    COMPRESSED_DATA: "the compressed data cannot be read any further"
}
#: Charts have so many queues; what is left is one more row.
_MAX_ROWS: Final = 40

_T = TypeVar("_T")


class Queue(NamedTuple):
    """A row of `phpmq.spark.summaries.queue_summary`, where None is NULL, or the sums of all."""

    queue: str | None
    sent: int
    never_dispatched: int
    dispatched: int
    acknowledged: int
    requeued: int
    dead_lettered: int
    outstanding: int
    redelivered: int
    redelivery_rate: float | None
    dead_letter_rate: float | None
    content_bytes: int | None
    content_size_percentiles: Sequence[int] | None = None
    ttl_percentiles: Sequence[int] | None = None


#: What is a number of messages in a `Queue`.
_COUNTS: Final = Queue._fields[1:9]


class SizeClass(NamedTuple):
    """How many contents in a queue have a size of so many binary digits; 0 bytes have none."""

    queue: str | None
    bits: int
    contents: int


class Anomaly(NamedTuple):
    """An anomaly of a message, as `phpmq.spark.lifecycles.lifecycles` has it, and the event that shows it."""

    kind: str
    queue: str
    message_id: str
    path: str
    offset: int
    suspect: bool


class Damage(NamedTuple):
    """A row of `phpmq.spark.summaries.damage_summary`."""

    path: str
    fault: str
    ranges: int
    bytes: int
    first_offset: int


class Facts(NamedTuple):
    """What a report is made of. Lists may stop early; the numbers are of all that there is.

    Attributes:
        messages: how many there are.
        captures: how many files have a message or a damaged range.
        queue_count: how many queues there are.
        totals: the sums over all queues; no percentiles.
        queues: the busiest first.
        sizes: of the contents in these queues.
        all_sizes: of all contents: how many have a size of so many binary digits.
        anomaly_counts: how many there are of a kind, and suspect or not.
        anomalies: those that are not suspect first, then by kind, path and offset.
        damage_count: how many pairs of a path and a fault there are.
        damaged_ranges: how many there are.
        damaged_bytes: how many there are.
        damage: the pairs with the most bytes first.
    """

    messages: int
    captures: int
    queue_count: int
    totals: Queue
    queues: Sequence[Queue]
    sizes: Sequence[SizeClass]
    all_sizes: Mapping[int, int]
    anomaly_counts: Mapping[tuple[str, bool], int]
    anomalies: Sequence[Anomaly]
    damage_count: int
    damaged_ranges: int
    damaged_bytes: int
    damage: Sequence[Damage]


def collect(
    messages: DataFrame,
    damage: DataFrame,
    *,
    most_queues: int = 1000,
    most_anomalies: int = 1000,
    most_damage: int = 1000,
) -> Facts:
    """Count the facts of a report with Spark; only sums and the rows of the lists come to the driver.

    Args:
        messages: a table of a warehouse.
        damage: the other one.
        most_queues: how many queues are listed at most.
        most_anomalies: how many anomalies are listed at most.
        most_damage: how many pairs of a path and a fault are listed at most.
    """
    bits = f.when(f.col("content_size") == 0, 0).otherwise(f.length(f.bin("content_size")))
    classes = messages.groupBy("queue", bits.alias("bits")).agg(f.count("*").alias("contents"))
    with (
        _kept(lifecycles(messages, damage)) as histories,
        _kept(summary_of(messages, histories)) as summary,
        _kept(classes) as sizes,
        _kept(damage_summary(damage)) as damages,
    ):
        queue_count, *sums = _sums(summary, [*_COUNTS, "content_bytes"])
        busiest = summary.orderBy((f.col("sent") + f.col("dispatched")).desc(), "queue").limit(most_queues)
        _, message_count = _sums(sizes, ["contents"])
        contents = sizes.where("bits IS NOT NULL")
        by_queue = contents.alias("all").join(
            busiest.select("queue").alias("listed"), f.expr("all.queue <=> listed.queue"), "left_semi"
        )
        found = histories.select("queue", "message_id", f.inline("anomalies"))
        by_kind = found.groupBy("kind", "suspect").agg(f.count("*"))
        rank = f.array_position(f.array(*map(f.lit, _KINDS)), f.col("kind"))
        damage_count, ranges, size = _sums(damages, ["ranges", "bytes"])
        return Facts(
            messages=message_count,
            captures=messages.select("path").union(damage.select("path")).distinct().count(),
            queue_count=queue_count,
            totals=_totals(sums),
            queues=_rows(Queue, busiest),
            sizes=_rows(SizeClass, by_queue),
            all_sizes=dict(contents.groupBy("bits").agg(f.sum("contents")).collect()),
            anomaly_counts={(kind, suspect): count for kind, suspect, count in by_kind.collect()},
            anomalies=_rows(Anomaly, found.orderBy("suspect", rank, "path", "offset").limit(most_anomalies)),
            damage_count=damage_count,
            damaged_ranges=ranges,
            damaged_bytes=size,
            damage=_rows(Damage, damages.orderBy(f.col("bytes").desc(), "path", "fault").limit(most_damage)),
        )


def render(facts: Facts) -> str:
    """A page of HTML, to be saved as UTF-8, that loads nothing and runs only the scripts that it has of its own.

    Names are the text of strangers: they stand in the page as text, with what is not printable escaped.
    """
    specifications = _charts(facts)
    counts = Counter[bool]()
    for (_, suspect), count in facts.anomaly_counts.items():
        counts[suspect] += count
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["hash"] = _hash
    template = environment.from_string(files("phpmq.spark").joinpath("report.html").read_text(encoding="utf-8"))
    return template.render(
        facts=facts,
        charts=specifications,
        scripts=[charts.javascript()] if specifications else [],
        text=wording,
        kinds=_KINDS,
        faults=_EXPECTED,
        sure=counts[False],
        suspect=counts[True],
        anomalies=[anomaly for anomaly in facts.anomalies if not anomaly.suspect],
        suspects=[anomaly for anomaly in facts.anomalies if anomaly.suspect],
        version=__version__,
    )


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once."""
    rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield rows
    finally:
        rows.unpersist()


def _sums(rows: DataFrame, columns: Sequence[str]) -> list[int]:
    """The number of rows, and the sum of each of the columns."""
    sums = [f.coalesce(f.sum(column), f.lit(0)) for column in columns]
    return list(rows.agg(f.count("*"), *sums).collect()[0])


def _rows(kind: Callable[..., _T], rows: DataFrame) -> list[_T]:
    return [kind(**row.asDict()) for row in rows.collect()]


def _totals(sums: Sequence[int]) -> Queue:
    """The sums of all queues: of `_COUNTS`, and of the bytes of contents."""
    counts = dict(zip(_COUNTS, sums, strict=False))
    rates = [
        part / whole if whole else None
        for part, whole in (
            (counts["redelivered"], counts["dispatched"]),
            (counts["dead_lettered"], sum(counts[outcome] for outcome in OUTCOMES)),
        )
    ]
    return Queue._make([None, *sums[:-1], *rates, sums[-1], None, None])


def _charts(facts: Facts) -> dict[str, dict[str, Any]]:
    """The charts that have anything to show, by the ids of the elements that they come to."""
    rows = _chart_rows(facts)
    specifications = {}
    if with_outcome := [row for row in rows if any(row.outcomes.values())]:
        specifications["outcome-chart"] = charts.outcome_chart(with_outcome)
    if facts.all_sizes:
        specifications["size-chart"] = charts.size_chart(facts.all_sizes)
        specifications["queue-size-chart"] = charts.queue_size_chart([row for row in rows if row.sizes])
    return specifications


def _chart_rows(facts: Facts) -> list[charts.Row]:
    """The busiest queues, and one row for all others."""
    sizes: dict[str | None, dict[int, int]] = defaultdict(dict)
    for queue, bits, number in facts.sizes:
        sizes[queue][bits] = number
    rows = [
        charts.Row(wording.queue_name(queue.queue), _outcomes(queue), sizes[queue.queue])
        for queue in facts.queues[:_MAX_ROWS]
    ]
    if others := facts.queue_count - len(rows):
        outcomes, contents = _outcomes(facts.totals), Counter(facts.all_sizes)
        for row in rows:
            outcomes.subtract(row.outcomes)
            contents.subtract(row.sizes)
        rows.append(charts.Row(wording.counted(others, "other queue"), outcomes, +contents))
    return rows


def _outcomes(queue: Queue) -> Counter[str]:
    return Counter({outcome: getattr(queue, outcome) for outcome in OUTCOMES})


def _hash(source: str) -> str:
    """How a Content-Security-Policy names the script or the style that it lets in."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"

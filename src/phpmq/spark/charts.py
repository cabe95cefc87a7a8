"""The charts of a report, as specifications of Vega-Lite whose colours are variables of the page's style.

A queue is a row, by its number: two queues that look the same are still two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import altair as alt
import vl_convert

from phpmq.spark.wording import counted, number, percent, size_class, size_class_start

#: What became of messages, in words. Bars begin with what is worst, because beginnings can be compared.
OUTCOMES: Final = {
    "dead_lettered": "dead-lettered",
    "requeued": "requeued",
    "outstanding": "outstanding",
    "acknowledged": "acknowledged",
}

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
#: A window that is narrower, in pixels, has less space for names.
_NARROW: Final = 600
#: Pixels, at most.
_SHARE_WIDTH: Final = 60
_PERCENT: Final = "round(1000 * datum.value) / 10 + '\u00a0%'"
_CONFIG: Final = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
    },
    "legend": {
        "labelColor": "var(--text)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolType": "square",
    },
}


class Row(NamedTuple):
    """What charts call a queue, and its numbers: messages by their outcome, or contents by the digits of their size."""

    queue: str
    outcomes: Mapping[str, int]
    sizes: Mapping[int, int]


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``."""
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)


def outcome_chart(rows: Sequence[Row]) -> dict[str, Any]:
    """Bars: which share of the messages of each queue had which outcome, and how many messages that is of."""
    bars, totals = [], []
    for place, row in enumerate(rows):
        total = sum(row.outcomes.values())
        totals.append(
            {"row": place, "total": number(total), "description": f"{row.queue}: {counted(total, 'message')}"}
        )
        for order, (outcome, words) in enumerate(OUTCOMES.items()):
            messages = row.outcomes[outcome]
            if messages:
                bars.append(
                    {
                        "row": place,
                        "order": order,
                        "messages": messages,
                        "outcome": words,
                        "queue": row.queue,
                        "exact": f"{number(messages)} of {number(total)} ({percent(messages / total)})",
                        "description": f"{row.queue}: {number(messages)} {words} ({percent(messages / total)})",
                    }
                )
    quarters = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], labelExpr=_PERCENT)
    colours = [f"var(--{outcome.replace('_', '-')})" for outcome in OUTCOMES]
    stacked = (
        alt.Chart({"values": bars})
        .mark_bar()
        .encode(
            x=alt.X("messages:Q", stack="normalize", title="share of the messages", axis=quarters),
            y=_rows(rows),
            color=alt.Color(
                "outcome:N",
                scale=alt.Scale(domain=[*OUTCOMES.values()], range=colours),
                legend=alt.Legend(orient="top", title=None, columns=_wide("4", "2")),
            ),
            order=alt.Order("order:O"),
            tooltip=[_told("queue"), _told("outcome"), _told("exact", "messages")],
            description="description:N",
        )
    )
    numbers = (
        alt.Chart({"values": totals})
        .mark_text(align="left", dx=6, color="var(--muted)", fontSize=12)
        .encode(x=alt.datum(1), y=_rows(rows), text="total:N", description="description:N")
    )
    return _finished(stacked + numbers, "What became of the messages of each queue", height=20 * len(rows))


def size_chart(sizes: Mapping[int, int]) -> dict[str, Any]:
    """Columns: how many contents have a size from one power of two to the next."""
    total = sum(sizes.values())
    classes = range(min(sizes), max(sizes) + 1)
    values = [
        {
            "class": bits,
            "contents": contents,
            "size": size_class(bits),
            "share": percent(contents / total),
            "exact": f"{number(contents)} ({percent(contents / total)})",
            "description": f"{size_class(bits)}: {counted(contents, 'content')}",
        }
        for bits, contents in sorted(sizes.items())
    ]
    every = alt.Chart({"values": values}).encode(
        x=_classes(classes),
        y=alt.Y("contents:Q", title="contents", axis=alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=5)),
        description="description:N",
    )
    bars = every.mark_bar(color="var(--accent)").encode(tooltip=[_told("size"), _told("exact", "contents")])
    fits = alt.ExprRef(f"containerSize()[0] < {_SHARE_WIDTH * len(classes)} ? 0 : 1")
    shares = every.mark_text(baseline="bottom", dy=-3, color="var(--muted)", fontSize=12, opacity=fits)
    return _finished(bars + shares.encode(text="share:N"), "How large contents are", height=220)


def queue_size_chart(rows: Sequence[Row]) -> dict[str, Any]:
    """Squares, the stronger the more: which share of the contents of each queue has which size."""
    present = {bits for row in rows for bits in row.sizes}
    values = [
        {
            "row": place,
            "class": bits,
            "share": contents / total,
            "queue": row.queue,
            "size": size_class(bits),
            "exact": f"{number(contents)} of {number(total)} ({percent(contents / total)})",
            "description": f"{row.queue}, {size_class(bits)}: {counted(contents, 'content')}",
        }
        for place, row in enumerate(rows)
        for total in [sum(row.sizes.values())]
        for bits, contents in row.sizes.items()
    ]
    chart = (
        alt.Chart({"values": values})
        .mark_rect(color="var(--accent)", stroke="var(--back)", strokeWidth=1)
        .encode(
            x=_classes(range(min(present), max(present) + 1)),
            y=_rows(rows),
            opacity=alt.Opacity(
                "share:Q",
                scale=alt.Scale(type="sqrt", domainMin=0, nice=True, range=[0.05, 1]),
                legend=alt.Legend(
                    orient="top",
                    title="share of the contents",
                    labelExpr=_PERCENT,
                    symbolFillColor="var(--accent)",
                    symbolStrokeWidth=0,
                    symbolSize=200,
                    columns=_wide("9", "4"),
                    tickCount=5,
                ),
            ),
            tooltip=[_told("queue"), _told("size"), _told("exact", "contents")],
            description="description:N",
        )
    )
    return _finished(chart, "How large the contents of each queue are", height=18 * len(rows))


def _rows(rows: Sequence[Row]) -> alt.Y:
    labels = json.dumps([row.queue for row in rows])
    axis = alt.Axis(
        title=None,
        labelExpr=f"{labels}[datum.value]",
        labelLimit=_wide("240", "104"),
        labelColor="var(--text)",
        labelPadding=6,
        ticks=False,
        domain=False,
    )
    return alt.Y("row:O", scale=alt.Scale(domain=[*range(len(rows))]), axis=axis)


def _classes(classes: range) -> alt.X:
    labels = json.dumps([size_class_start(bits) for bits in classes])
    axis = alt.Axis(
        title="size, from this to below the next",
        labelExpr=f"{labels}[datum.value - {classes[0]}]",
        labelAngle=0,
        labelOverlap="greedy",
        labelSeparation=6,
        ticks=False,
    )
    return alt.X("class:O", scale=alt.Scale(domain=[*classes]), axis=axis)


def _wide(wide: str, narrow: str) -> alt.ExprRef:
    return alt.ExprRef(f"containerSize()[0] < {_NARROW} ? {narrow} : {wide}")


def _told(field: str, title: str | None = None) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:N", title=title or field)


def _finished(chart: alt.Chart | alt.LayerChart, description: str, *, height: int) -> dict[str, Any]:
    whole = chart.properties(
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        padding={"left": 0, "top": 4, "right": 4, "bottom": 4},
        description=description,
    )
    specification: dict[str, Any] = whole.to_dict()
    del specification["$schema"]  # the address of a document that the page does not need
    return {**specification, "config": _CONFIG}

"""The page that shows the facts, read with a parser and not with a browser, and the facts that Spark counts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from facts import EMPTY, FACTS, HOSTILE, ORDERS, SHOWN, Page, hostile_facts
from pyspark.sql import DataFrame, SparkSession

from phpmq.spark import wording
from phpmq.spark.lifecycles import ANOMALIES
from phpmq.spark.report import _KINDS, Anomaly, Damage, Facts, Queue, SizeClass, collect, render


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(FACTS))


def shown(page: Page) -> str:
    """The text, with single common spaces."""
    return " ".join(page.text.split())


def data(page: Page, chart: str) -> list[dict[str, Any]]:
    """What a chart is made of."""
    return [value for values in json.loads(page.data["charts"])[chart]["datasets"].values() for value in values]


def test_the_totals(page: Page) -> None:
    text = shown(page)
    for total in (
        "Messages 12,345,678 of every type",
        "Contents 4.8 MiB 5,000,987 bytes",
        "Queues 3",
        "Captures 3",
        "Anomalies 1,237 and 23 suspect",
        "Damaged ranges 71 88,888 bytes",
    ):
        assert total in text


def test_queues(page: Page) -> None:
    groups, heads, orders, mail, unused, totals = page.tables["queues-caption"]
    assert groups == ["", "messages", "outcome", "redelivery", "contents", "time to live"]
    assert [head.replace("\u00ad", "") for head in heads] == [
        "Queue",
        *("Sent", "Never dispatched", "Dispatched"),
        *("Acknowledged", "Outstanding", "Requeued", "Dead-lettered", "Dead-letter rate"),
        *("Redelivered", "Redelivery rate"),
        *("All", "50 %", "90 %", "99 %"),
        *("50 %", "90 %", "99 %"),
    ]
    assert orders == [
        "orders",
        *("4,100", "≈ 100", "4,000"),
        *("3,700", "200", "40", "60", "1.50 %"),
        *("1,000", "25.00 %"),
        *("4.8 MiB", "141 B", "2.0 KiB", "64.0 KiB"),
        *("1 min", "1 h", "1 d 1 h"),
    ]
    assert mail == [
        "mail",
        *("30", "≈ 0", "50"),
        *("49", "0", "0", "1", "2.00 %"),
        *("3", "6.00 %"),
        *("987 B", "7 B", "8 B", "9 B"),
        *("—", "—", "—"),
    ]
    assert (unused[8], unused[10]) == ("—", "—")  # rates of nothing
    assert totals == [
        "All queues",
        *("4,135", "≈ 105", "4,050"),
        *("3,749", "200", "40", "61", "1.51 %"),
        *("1,003", "24.77 %"),
        *("4.8 MiB", "—", "—", "—"),
        *("—", "—", "—"),
    ]


def test_titles_have_what_is_shortened(page: Page) -> None:
    titles = page.attributes("title")
    for exact in ("5,000,000 bytes", "65,537 bytes", "90,061 seconds", "1 second", "987 bytes"):
        assert exact in titles


def test_what_sorting_compares_is_exact(page: Page) -> None:
    held = page.attributes("data-value")
    assert held[:17] == [
        *("4100", "100", "4000", "3700", "200", "40", "60", "0.015", "1000", "0.25"),
        *("5000000", "141", "2048", "65537", "60", "3600", "90061"),
    ]
    assert held[31:34] == ["", "", ""]  # the TTLs of mail


def test_sizes(page: Page) -> None:
    assert page.tables["sizes-caption"] == [
        ["Size", "Contents", "Share"],
        ["0 bytes", "5", "0.06 %"],
        ["4 to 7 bytes", "75", "0.93 %"],
        ["8 to 15 bytes", "5", "0.06 %"],
        ["128 to 255 bytes", "6,000", "74.21 %"],
        ["1,024 to 2,047 bytes", "2,000", "24.74 %"],
    ]


def test_anomalies(page: Page) -> None:
    assert [row[:3] for row in page.tables["kinds-caption"]] == [
        ["Kind", "Anomalies", "Suspect"],
        ["acknowledged without a dispatch", "1,234", "17"],
        ["acknowledged twice", "2", "0"],
        ["dispatched after the end", "0", "6"],
        ["TTL raised", "1", "0"],
        ["All kinds", "1,237", "23"],
    ]
    heads = ["Kind", "Queue", "Message id", "Capture", "Offset"]
    assert page.tables["anomalies-caption"] == [
        heads,
        ["acknowledged without a dispatch", "orders", "id-1", "/captures/a.phpmq", "1,000,001"],
        ["acknowledged twice", "orders", "id-2", "/captures/a.phpmq", "1,000,002"],
        ["TTL raised", "mail", "id-3", "/captures/b.phpmq", "1,000,003"],
    ]
    assert page.tables["suspects-caption"] == [
        heads,
        ["acknowledged without a dispatch", "mail", "id-4", "/captures/b.phpmq", "1,000,004"],
    ]
    assert "The first 3 of 1,237 anomalies" in shown(page)
    assert "The first 1 of 23 anomalies" in shown(page)


def test_every_kind_has_words() -> None:
    assert tuple(_KINDS) == ANOMALIES


def test_damage(page: Page) -> None:
    assert page.tables["damage-caption"] == [
        ["Capture", "Fault", "Ranges", "Bytes", "First offset", "Meaning"],
        [
            *("/captures/a.phpmq", "NOT_A_PACKET", "31", "55,555", "1,234,567"),
            "expected a packet header, which starts with 'P'",
        ],
        [
            *("/captures/c.phpmq.gz", "COMPRESSED_DATA", "1", "4,444", "7,654,321"),
            "the compressed data cannot be read any further",
        ],
        ["All captures", "", "71", "88,888", "", ""],
    ]
    assert "The first 2 of 7 rows; the totals are of all" in shown(page)


def test_the_outcome_chart(page: Page) -> None:
    bars = [row for row in data(page, "outcome-chart") if "messages" in row]
    assert [(bar["row"], bar["description"].replace("\xa0", " ")) for bar in bars] == [
        (0, "orders: 60 dead-lettered (1.50 %)"),
        (0, "orders: 40 requeued (1.00 %)"),
        (0, "orders: 200 outstanding (5.00 %)"),
        (0, "orders: 3,700 acknowledged (92.50 %)"),
        (1, "mail: 1 dead-lettered (2.00 %)"),
        (1, "mail: 49 acknowledged (98.00 %)"),
    ]
    assert [bar["messages"] for bar in bars] == [60, 40, 200, 3700, 1, 49]
    totals = [row for row in data(page, "outcome-chart") if "total" in row]
    assert [(total["row"], total["total"], total["description"]) for total in totals] == [
        (0, "4,000", "orders: 4,000 messages"),
        (1, "50", "mail: 50 messages"),
    ]


def test_the_charts_of_sizes(page: Page) -> None:
    assert [(size["class"], size["contents"], size["description"]) for size in data(page, "size-chart")] == [
        (0, 5, "0 bytes: 5 contents"),
        (3, 75, "4 to 7 bytes: 75 contents"),
        (4, 5, "8 to 15 bytes: 5 contents"),
        (8, 6000, "128 to 255 bytes: 6,000 contents"),
        (11, 2000, "1,024 to 2,047 bytes: 2,000 contents"),
    ]
    assert [(size["row"], size["share"], size["exact"]) for size in data(page, "queue-size-chart")] == [
        (0, 0.75, "6,000 of 8,000 (75.00\xa0%)"),
        (0, 0.25, "2,000 of 8,000 (25.00\xa0%)"),
        (1, 0.9375, "75 of 80 (93.75\xa0%)"),
        (1, 0.0625, "5 of 80 (6.25\xa0%)"),
        (2, 1, "5 of 5 (100.00\xa0%)"),
    ]


def test_charts_have_the_busiest_queues_and_one_row_for_the_others() -> None:
    """Of 60 queues with 1 to 60 messages, 50 are listed."""
    queues = [
        Queue(f"queue {count}", count, 0, count, count - 1, 0, 1, 0, 0, 0.0, 1 / count, count)
        for count in range(60, 0, -1)
    ]
    facts = EMPTY._replace(
        queue_count=60,
        totals=Queue(None, 1830, 0, 1830, 1770, 0, 60, 0, 0, 0.0, 60 / 1830, 1830),
        queues=queues[:50],
        sizes=[SizeClass(queue.queue, 1, queue.sent) for queue in queues[:50]],
        all_sizes={1: 1830, 9: 7},
    )
    page = Page(render(facts))
    assert len(page.tables["queues-caption"]) == 2 + 50 + 1
    assert "The first 50 of 60 queues; the totals are of all" in shown(page)
    found = {row["description"] for row in data(page, "outcome-chart") if "total" in row}
    assert len(found) == 41
    assert {"queue 60: 60 messages", "queue 21: 21 messages", "20 other queues: 210 messages"} <= found
    found = {row["description"] for row in data(page, "queue-size-chart")}
    assert len(found) == 42
    assert {"20 other queues, 1 byte: 210 contents", "20 other queues, 256 to 511 bytes: 7 contents"} <= found


def test_nothing_at_all() -> None:
    page = Page(render(EMPTY))
    assert not page.tables
    text = shown(page)
    for words in (
        "There are no messages.",
        "No message has an outcome.",
        "No message has a content.",
        "There is no anomaly.",
        "There is no suspect anomaly.",
        "There is no damage.",
    ):
        assert words in text
    assert len(page.scripts) == 1  # and not Vega
    assert json.loads(page.data["charts"]) == {}


@pytest.mark.parametrize(
    ("suspect", "words"),
    [(True, "There is no anomaly that is not suspect."), (False, "There is no suspect anomaly.")],
)
def test_only_one_sort_of_anomalies(suspect: bool, words: str) -> None:
    page = Page(render(EMPTY._replace(anomaly_counts={("ttl_raised", suspect): 1})))
    assert words in shown(page)
    assert page.tables["kinds-caption"][4][1:3] == (["0", "1"] if suspect else ["1", "0"])


def test_a_queue_that_was_only_sent_to_has_no_outcome() -> None:
    page = Page(render(EMPTY._replace(queue_count=1, queues=[Queue("q", 1, 1, 0, 0, 0, 0, 0, 0, None, None, 0)])))
    assert "No message has an outcome." in shown(page)
    assert page.tables["queues-caption"][2][:3] == ["q", "1", "≈ 1"]


def test_names_are_text() -> None:
    html = render(hostile_facts())
    page = Page(html)
    names = [*HOSTILE, *SHOWN.values()]
    assert [row[0] for row in page.tables["queues-caption"][2:-1]] == names
    for table in ("anomalies-caption", "suspects-caption"):
        assert [row[1] for row in page.tables[table][1:]] == [
            SHOWN[""] if name == SHOWN[None] else name for name in names
        ]
        assert [row[2] for row in page.tables[table][1 : 1 + len(HOSTILE)]] == [f"id {name}" for name in HOSTILE]
        assert [row[3] for row in page.tables[table][1 : 1 + len(HOSTILE)]] == [f"/path/{name}" for name in HOSTILE]
    assert [row[0] for row in page.tables["damage-caption"][1 : 1 + len(HOSTILE)]] == [
        f"/path/{name}" for name in HOSTILE
    ]
    for chart in ("outcome-chart", "queue-size-chart"):
        assert [row["queue"] for row in data(page, chart) if "queue" in row][
            :: 4 if chart == "outcome-chart" else 1
        ] == names
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(render(FACTS)).tags}
    assert len(page.scripts) == 2
    assert "\u202e" not in html


def test_queues_that_look_the_same_are_two() -> None:
    twins = [ORDERS._replace(queue=name) for name in ("", "(empty name)")]
    page = Page(render(EMPTY._replace(queue_count=2, totals=ORDERS, queues=twins)))
    assert [row["row"] for row in data(page, "outcome-chart") if "total" in row] == [0, 1]


def test_nothing_is_from_outside(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {"src", "srcset", "action", "formaction", "data", "poster", "style", "background"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")
    [style] = page.styles
    assert "@import" not in style
    assert "url(" not in style
    assert "://" not in page.data["charts"]
    assert '"url"' not in page.data["charts"]


def test_the_policy_lets_in_what_the_page_has_and_nothing_else(page: Page) -> None:
    [policy] = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def digest(source: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "style-src": digest(page.styles[0]),
        "script-src": " ".join(digest(script) for script in page.scripts),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    names = [name for name, _ in page.tags]
    assert names.index("meta") < names.index("style") < names.index("script")


def test_the_frame_of_the_page(page: Page) -> None:
    assert render(FACTS).startswith('<!DOCTYPE html>\n<html lang="en">')
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels == [1, 2, 2, 2, 2, 3, 2, 2]
    tables = [tag for tag, _ in page.tags if tag in ("table", "caption")]
    assert tables == ["table", "caption"] * 6
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {href[1:] for href in page.attributes("href")} <= set(ids)
    assert set(page.attributes("aria-labelledby")) <= set(ids)
    assert set(json.loads(page.data["charts"])) <= set(ids)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1,024.0 KiB"),
        (2**20, "1.0 MiB"),
        (5 * 2**40, "5.0 TiB"),
        (2**63 - 1, "8.0 EiB"),
        (2**70, "1,024.0 EiB"),
    ],
)
def test_a_size(size: int, words: str) -> None:
    assert wording.size(size).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (86_400, "1 d"),
        (86_401, "1 d 1 s"),
        (90_061, "1 d 1 h"),
        (604_800_000, "7,000 d"),
    ],
)
def test_a_span(seconds: int, words: str) -> None:
    assert wording.span(seconds).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0.00 %"), (1e-9, "<0.01 %"), (0.0001, "0.01 %"), (0.12345, "12.35 %"), (1, "100.00 %")],
)
def test_per_cent(share: float, words: str) -> None:
    assert wording.percent(share).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("bits", "words", "start"),
    [
        (0, "0 bytes", "0 B"),
        (1, "1 byte", "1 B"),
        (2, "2 to 3 bytes", "2 B"),
        (10, "512 to 1,023 bytes", "512 B"),
        (11, "1,024 to 2,047 bytes", "1 KiB"),
        (20, "524,288 to 1,048,575 bytes", "512 KiB"),
        (27, "67,108,864 to 134,217,727 bytes", "64 MiB"),
        (63, "4,611,686,018,427,387,904 to 9,223,372,036,854,775,807 bytes", "4 EiB"),
    ],
)
def test_a_class_of_sizes(bits: int, words: str, start: str) -> None:
    assert wording.size_class(bits) == words
    assert wording.size_class_start(bits).replace("\xa0", " ") == start


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plain name", "plain name"),
        ("aufträge", "aufträge"),
        ("طلبات", "طلبات"),
        ("\u202egpj", "\\u202egpj"),
        ("\0\t\x7f\u200b", "\\x00\\t\\x7f\\u200b"),
        ("\U000e0001", "\\U000e0001"),
        ("C:\\captures", "C:\\captures"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 80 + "…"),
    ],
)
def test_a_name(text: str, words: str) -> None:
    assert wording.name(text) == words


def tables(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Those of a warehouse with three captures."""
    messages = [  # path, offset, type, queue, message id, TTL, bytes of the content; all have 10 bytes
        ("/a", 0, "send", "q", None, 60, 5),
        ("/a", 10, "send", "q", None, None, 0),
        ("/a", 20, "dispatch", "q", "m1", 60, 5),
        ("/a", 30, "acknowledge", "q", "m1", None, None),
        ("/a", 40, "acknowledge", "q", "m1", None, None),
        ("/a", 50, "dispatch", "p", "m2", 10, 8),
        ("/a", 60, "dispatch", "p", "m2", 20, 8),
        ("/a", 100, "acknowledge", "p", "m3", None, None),
        ("/a", 110, "receipt", "q", "m4", None, None),
        ("/a", 120, "send", None, None, None, 3),
        ("/b", 0, "acknowledge", "p", "m5", None, None),
        ("/b", 10, "dead_letter", "q", "m6", None, None),
    ]
    rows = [
        {"path": path, "offset": offset, "size": 10, "type": kind, "queue": queue, "message_id": message_id, "ttl": ttl}
        | {"content_size": content}
        for path, offset, kind, queue, message_id, ttl, content in messages
    ]
    damages = [("/a", 70, 30, "NOT_A_PACKET"), ("/b", 20, 5, "TRUNCATED"), ("/c", 0, 7, "NOT_A_MESSAGE")]
    damage = [{"path": path, "offset": offset, "size": size, "fault": fault} for path, offset, size, fault in damages]
    return spark.createDataFrame(pa.Table.from_pylist(rows)), spark.createDataFrame(pa.Table.from_pylist(damage))


def test_facts_of_a_warehouse(spark: SparkSession) -> None:
    """Of 3 queues, 4 anomalies and 3 damaged captures one each is not listed, but in the totals."""
    facts = collect(*tables(spark), most_queues=2, most_anomalies=3, most_damage=2)
    assert facts._replace(sizes=sorted(facts.sizes, key=lambda size: size.bits)) == Facts(
        messages=12,
        captures=3,
        queue_count=3,
        totals=Queue(None, 3, 2, 2, 3, 0, 1, 1, 1, 0.5, 0.2, 29),
        queues=[
            Queue("q", 2, 1, 1, 1, 0, 1, 0, 0, 0.0, 0.5, 10, [5, 5, 5], [60, 60, 60]),
            Queue(None, 1, 1, 0, 0, 0, 0, 0, 0, None, None, 3, [3, 3, 3], None),
        ],
        sizes=[SizeClass("q", 0, 1), SizeClass(None, 2, 1), SizeClass("q", 3, 2)],
        all_sizes={0: 1, 2: 1, 3: 2, 4: 2},
        anomaly_counts={
            ("acknowledged_without_dispatch", False): 1,
            ("acknowledged_twice", False): 1,
            ("acknowledged_without_dispatch", True): 1,
            ("ttl_raised", True): 1,
        },
        anomalies=[
            Anomaly("acknowledged_without_dispatch", "p", "m5", "/b", 0, False),
            Anomaly("acknowledged_twice", "q", "m1", "/a", 40, False),
            Anomaly("acknowledged_without_dispatch", "p", "m3", "/a", 100, True),
        ],
        damage_count=3,
        damaged_ranges=3,
        damaged_bytes=42,
        damage=[Damage("/a", "NOT_A_PACKET", 1, 30, 70), Damage("/c", "NOT_A_MESSAGE", 1, 7, 0)],
    )
    page = Page(render(facts))
    assert [row[0] for row in page.tables["queues-caption"][2:]] == ["q", "(not UTF-8)", "All queues"]


def test_facts_of_an_empty_warehouse(spark: SparkSession) -> None:
    messages, damage = tables(spark)
    assert collect(messages.limit(0), damage.limit(0)) == EMPTY
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()

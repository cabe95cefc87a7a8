"""What became of messages: hand-made conversations, random ones and damaged captures, against plain Python."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pipeline_truth as truth
import pyarrow as pa
import pytest
from columns import Row, expected
from pipeline_checks import by, collected, same, same_by_the_ledger
from pipeline_truth import Placed, Range, Tape, Traffic, generated, made, natural, percentiles, source_rows
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from pyspark.testing import assertSchemaEqual
from wire import CAPTURES, VECTORS, read_capture

from phpmq import Acknowledge, Consume, Damage, Dispatch, Receipt, Send, encode, iter_messages
from phpmq.arrow import SCHEMA as ARROW_SCHEMA
from phpmq.spark import damage_summary, lifecycles, queue_summary
from phpmq.spark.files import natural as natural_of_files

MOST = 2**63 - 1
WITHOUT, TWICE, AFTER_END, RAISED = truth.ANOMALIES


# --- what happens to a message, and what is to be told of it ---


class Case(NamedTuple):
    """A story of `Tape.story`; the columns of its row that are worth a word; and its anomalies.

    An anomaly is a kind and the number of the message that shows it, ``suspect`` if there is a third thing.
    """

    story: str
    columns: Row
    anomalies: tuple[tuple[Any, ...], ...] = ()


def case(story: str, outcome: str, *anomalies: tuple[Any, ...], suspect: bool = False, **columns: Any) -> Case:
    return Case(story, {"outcome": outcome, "suspect": suspect, **columns}, anomalies)


CASES = (
    # what comes last
    case("d60 a", "acknowledged", dispatches=1, acknowledgements=1, redelivered=False, first_ttl=60, last_ttl=60),
    case("d", "outstanding", dispatches=1, acknowledgements=0, requeues=0, dead_letters=0, first_ttl=None),
    case("d60 q30", "requeued", requeues=1, redelivered=False),
    case("d60 l", "dead_lettered", dead_letters=1),
    case("d0 q0 d0 a", "acknowledged", dispatches=2, redelivered=True, first_ttl=0, last_ttl=0),
    case("d60 q90 q30 d30 q20", "requeued", requeues=3, first_ttl=60, last_ttl=30),
    case("l", "dead_lettered", dispatches=0, content_size=None, first_ttl=None, last_ttl=None, redelivered=False),
    case("q60", "requeued", requeues=1, dispatches=0, content_size=None),
    case("l q60", "requeued"),
    case("c r d60 r s a r c", "acknowledged", dispatches=1, acknowledgements=1),
    case("d60 d", "outstanding", first_ttl=60, last_ttl=None),
    case("d d0 a", "acknowledged", first_ttl=None, last_ttl=0),
    case("d d60 d a", "acknowledged", first_ttl=None, last_ttl=None),
    case("d60*5 d60*9 d60*7", "outstanding", content_size=9, dispatches=3),
    case("d*0 a", "acknowledged", content_size=0),
    case("s60*100 d60*5 s*90", "outstanding", content_size=5),
    # acknowledged without a dispatch
    case("a", "acknowledged", (WITHOUT, 0), dispatches=0, content_size=None),
    case("s60 r a", "acknowledged", (WITHOUT, 2)),
    case("l a", "acknowledged", (WITHOUT, 1)),
    case("q60 a l", "dead_lettered", (WITHOUT, 1)),
    case("a q60", "requeued", (WITHOUT, 0)),
    # acknowledged twice
    case("d60 a a", "acknowledged", (TWICE, 2), acknowledgements=2),
    case("a a a", "acknowledged", (WITHOUT, 0), (TWICE, 1), acknowledgements=3),
    case("d60 a l a", "acknowledged", (TWICE, 3)),
    # dispatched after its end
    case("a d60", "outstanding", (AFTER_END, 1)),
    case("d60 a d60", "outstanding", (AFTER_END, 2)),
    case("d60 l d60 a", "acknowledged", (AFTER_END, 2)),
    case("l d", "outstanding", (AFTER_END, 1)),
    case("d60 a q60 d60 a", "acknowledged", (TWICE, 4), (AFTER_END, 3)),
    case("d60 a d60 a a d60", "outstanding", (TWICE, 3), (AFTER_END, 2)),
    case("d60 a l q60 q60", "requeued"),
    # TTL raised
    case("d60 d60 d59", "outstanding"),
    case("d60 d61", "outstanding", (RAISED, 1)),
    case("d60 d61 d62 d61", "outstanding", (RAISED, 1)),
    case("d60 d50 d55", "outstanding", (RAISED, 2)),
    case("d60 d0", "outstanding", (RAISED, 1)),
    case("d0 d60 d0", "outstanding", (RAISED, 2)),
    case("d0 d0", "outstanding"),
    case(f"d0 d{MOST}", "outstanding", last_ttl=MOST),
    case(f"d{MOST} d0", "outstanding", (RAISED, 1), first_ttl=MOST),
    case(f"d{MOST - 1} d{MOST}", "outstanding", (RAISED, 1), first_ttl=MOST - 1, last_ttl=MOST),
    case("d60 d", "outstanding"),
    case("d d60", "outstanding"),
    case("d60 d d d61", "outstanding", (RAISED, 3)),
    case("d60 d d60", "outstanding"),
    case("d60 q100 d100", "outstanding"),
    case("d60 q0 d100", "outstanding"),
    case("d60 q100 d d100", "outstanding"),
    case("d60 d q100 d100 a", "acknowledged"),
    case("d60 q100 d100 d101", "outstanding", (RAISED, 3)),
    case("q100 d60 d100", "outstanding", (RAISED, 2)),
    case("d60 d61 q10 d5 d4", "outstanding", (RAISED, 1)),
    case("d60 l d61", "outstanding", (AFTER_END, 2), (RAISED, 2)),
    case("d60 a r d61 a", "acknowledged", (TWICE, 4), (AFTER_END, 3), (RAISED, 3)),
    # several files
    case("d60 /1 a", "acknowledged"),
    case("a /1 d60", "acknowledged"),
    case("d60 a /1 d60", "acknowledged"),
    case("d60 l /1 d60 q60", "dead_lettered"),
    case("q60 /1 d60 d60", "requeued"),
    case("l /1 a /2 q60 /3 d60", "acknowledged"),
    case("d60 /1 d61", "outstanding", dispatches=2, redelivered=True, first_ttl=60, last_ttl=61),
    case("d1 /10 d3 /9 d2", "outstanding", dispatches=3, first_ttl=1, last_ttl=3),
    case("/10 a /9 a", "acknowledged", (WITHOUT, 1), (TWICE, 0)),
    case("/2 a /10 a a", "acknowledged", (WITHOUT, 0), (TWICE, 1)),
    case(
        "/99999999999999999999 d2 /100000000000000000000 d3 /9 d1 /9999999999 q1", "requeued", first_ttl=1, last_ttl=3
    ),
    case("d60 /1 d50 a d40 /2 l", "acknowledged", (AFTER_END, 3)),
    case("/10 d60 a d60 /9 d60 a d60", "acknowledged", (TWICE, 1), (AFTER_END, 5)),
    case("/10 d60 d61 /9 d60 d61", "outstanding", (RAISED, 3)),
    case("d60 /1 q60 /0 d80", "requeued", (RAISED, 2)),
    case("d60 /1 d70 /0 d65 /1 d70", "outstanding", (RAISED, 2)),
    case("d60 q60 /1 d80 d90 /0 d100", "requeued", (RAISED, 3)),
    # next to damages
    case("x d60 c a", "acknowledged", suspect=True),
    case("d60 c a x", "acknowledged", suspect=True),
    case("x d60 x", "outstanding", suspect=True),
    case("d60 c x c a", "acknowledged", suspect=False),
    case("d60 /1 x", "outstanding", suspect=False),
    case("d60 /1 x a", "acknowledged", suspect=True),
    case("x a", "acknowledged", (WITHOUT, 0, "suspect"), suspect=True),
    case("a x", "acknowledged", (WITHOUT, 0, "suspect"), suspect=True),
    case("x a c a", "acknowledged", (WITHOUT, 2), (TWICE, 2, "suspect"), suspect=True),
    case("x a c a a", "acknowledged", (WITHOUT, 2), (TWICE, 3), suspect=True),
    case("x q60 c a", "acknowledged", (WITHOUT, 2), suspect=True),
    case("d60 c a x a c", "acknowledged", (TWICE, 3, "suspect"), suspect=True),
    case("d60 a c x a c a", "acknowledged", (TWICE, 5), suspect=True),
    case("d60 a c x d60 c", "outstanding", (AFTER_END, 3, "suspect"), suspect=True),
    case("d60 a c x d60 c d60", "outstanding", (AFTER_END, 5), suspect=True),
    case("d60 c x a c d60", "outstanding", (AFTER_END, 4, "suspect"), suspect=True),
    case("d60 c x a c d60 l d60", "outstanding", (AFTER_END, 6), suspect=True),
    case("d60 c x d70 c", "outstanding", (RAISED, 2, "suspect"), suspect=True),
    case("d60 c x d70 c d65", "outstanding", (RAISED, 4), suspect=True),
    case("d60 c x d50 c d55", "outstanding", (RAISED, 4, "suspect"), suspect=True),
    case("d60 c x d50 c d65", "outstanding", (RAISED, 4), suspect=True),
    case("x d60 c d70", "outstanding", (RAISED, 2, "suspect"), suspect=True),
    case("x d c d60 d70", "outstanding", (RAISED, 3), suspect=True),
    case("d60 c x q70 c d70", "outstanding", suspect=True),
    case("d60 d61 c x q70", "requeued", (RAISED, 1), suspect=True),
    case("x d60 a a c x", "acknowledged", (TWICE, 2), suspect=True),
    # many
    case(" ".join(f"d{ttl}" for ttl in range(1000, 0, -1)) + " a", "acknowledged", dispatches=1000, last_ttl=1),
    case(" ".join(f"/{ttl % 13} d{ttl}" for ttl in range(1, 1001)), "outstanding", (RAISED, 25), dispatches=1000),
    case("a " * 500 + "/1 " + "a " * 500, "acknowledged", (WITHOUT, 0), (TWICE, 1), acknowledgements=1000),
)
#: The same where the messages are in the order of their numbers, which are behind the @; all of them are comparable.
ORDERED = (
    case("d60@2 /1 a@1", "outstanding", (AFTER_END, 0)),
    case("a@2 /1 d60@1", "acknowledged"),
    case("d60@2 a@1", "outstanding", (AFTER_END, 0)),
    case("d60@3 a@2 /1 a@1", "outstanding", (TWICE, 1), (AFTER_END, 0)),
    case("d60@1 /1 d70@2 /2 d80@3", "outstanding", (RAISED, 1), first_ttl=60, last_ttl=80),
    case("d60@3 /1 d70@2 /2 d80@1", "outstanding", first_ttl=80, last_ttl=60),
    case("d60@1 /1 q70@2 /2 d70@3", "outstanding"),
    case("d60@1 /1 d70@2 /2 q70@3", "requeued", (RAISED, 1)),
    case("a@2 /1 a@3 /2 a@1", "acknowledged", (WITHOUT, 2), (TWICE, 0)),
    case("l@1 /1 q60@2 /2 d60@3 /3 l@4", "dead_lettered", (AFTER_END, 2)),
    case("q60@5 /1 a@4", "requeued", (WITHOUT, 1)),
    case("/10 a /9 d60", "acknowledged"),  # the same number
    case("/10 d60@7 /9 a", "outstanding", (AFTER_END, 0)),
    case("d60@1 /1 x d70@2 c@2 /2 d65@3", "outstanding", (RAISED, 3), suspect=True),
    case("d60@1 /1 x d70@2 c@2 /2 d60@3", "outstanding", (RAISED, 1, "suspect"), suspect=True),
    case("d60@3 c@3 x a@2 c@2", "outstanding", (AFTER_END, 0, "suspect"), suspect=True),
    case("a /1 d60@1", "outstanding", (AFTER_END, 1)),
)


class Scene(NamedTuple):
    """Where a story was told, and what is right to tell of it."""

    key: tuple[str, str]
    columns: Row
    anomalies: list[Row]


def staged(tape: Tape, story: Case, number: int) -> Scene:
    """Tell a story of one id, which has its files for itself; queues and ids are such that they could be mixed up."""
    queue, id = f"q{number % 7}", f"{number // 7}"
    told = tape.story(story.story, queue, id, f"/tapes/{number}")
    anomalies = [
        {"kind": kind, "path": told[place].path, "offset": told[place].offset, "suspect": bool(doubt)}
        for kind, place, *doubt in story.anomalies
    ]
    return Scene((queue, id), story.columns, anomalies)


def check(row: Row, scene: Scene) -> None:
    assert {name: row[name] for name in scene.columns} == scene.columns
    assert row["anomalies"] == scene.anomalies


# --- the truth itself, by hand ---


@pytest.mark.parametrize("story", CASES, ids=lambda story: story.story[:40])
def test_the_truth(story: Case) -> None:
    tape = Tape()
    scene = staged(tape, story, 0)
    [row] = truth.lifecycles(tape.traffic)
    check(row, scene)


@pytest.mark.parametrize("story", ORDERED, ids=lambda story: story.story[:40])
def test_the_truth_of_an_order(story: Case) -> None:
    tape = Tape()
    scene = staged(tape, story, 0)
    [row] = truth.lifecycles(tape.traffic, is_ordered=True)
    check(row, scene)


def test_a_whole_row_of_the_truth() -> None:
    tape = Tape()
    tape.story("c d60 r q5 d5*3 /1 a l", "q", "id", "/tapes")
    assert truth.lifecycles(tape.traffic) == [
        {
            "queue": "q",
            "message_id": "id",
            "dispatches": 2,
            "requeues": 1,
            "acknowledgements": 1,
            "dead_letters": 1,
            "outcome": "acknowledged",
            "redelivered": True,
            "first": {"path": "/tapes/part-0", "offset": len(encode(Consume("q", 1)))},
            "last": {"path": "/tapes/part-1", "offset": len(encode(Acknowledge("q", "id")))},
            "first_ttl": 60,
            "last_ttl": 5,
            "content_size": 3,
            "suspect": False,
            "anomalies": [],
        }
    ]


def test_the_truth_of_queues() -> None:
    tape = Tape()
    tape.story("s60*1 s60*2 s0*3 s*4 d60*10 q5 d5*20 a c", "a", "1", "/tapes")
    tape.story("d60*30 l /1 a", "a", "2", "/tapes/2")
    tape.story("d7*40 l", "a", "3", "/tapes")
    tape.story("l q60 r", "a", "4", "/tapes")
    tape.story("d0*0", "b", "", "/tapes")
    tape.story("c", "c", "", "/tapes")
    tape.message("/tapes/part-0", Dispatch("\udcff", b"12345", "1"))
    nothing: Row = {
        **dict.fromkeys(("sent", "never_dispatched", "dispatched"), 0),
        **dict.fromkeys(("acknowledged", "requeued", "dead_lettered", "outstanding", "redelivered"), 0),
        **dict.fromkeys(("redelivery_rate", "dead_letter_rate", "content_size_percentiles", "ttl_percentiles"), None),
        "content_bytes": 0,
    }
    assert truth.queue_summary(tape.traffic) == [
        nothing | {"queue": None, "content_bytes": 5, "content_size_percentiles": [5, 5, 5]},
        {
            "queue": "a",
            "sent": 4,
            "never_dispatched": 1,
            "dispatched": 3,
            "acknowledged": 2,
            "requeued": 1,
            "dead_lettered": 1,
            "outstanding": 0,
            "redelivered": 1,
            "redelivery_rate": 1 / 3,
            "dead_letter_rate": 1 / 4,  # of all ids
            "content_bytes": 110,
            "content_size_percentiles": [4, 40, 40],  # of 1 2 3 4 10 20 30 40
            "ttl_percentiles": [60, 60, 60],  # of 5 7 60 60 60 60
        },
        nothing
        | {
            "queue": "b",
            "dispatched": 1,
            "outstanding": 1,
            "redelivery_rate": 0.0,
            "dead_letter_rate": 0.0,
            "content_size_percentiles": [0, 0, 0],
        },
        nothing | {"queue": "c"},
    ]


def test_the_truth_of_percentiles() -> None:
    assert percentiles([]) is None
    assert percentiles([7]) == [7, 7, 7]
    assert percentiles([2, 1]) == [1, 2, 2]
    assert percentiles([3, 1, 2]) == [2, 3, 3]
    assert percentiles([*range(10, 0, -1)]) == [5, 9, 10]
    assert percentiles([*range(1, 101)]) == [50, 90, 99]
    assert percentiles([*range(1, 102)]) == [51, 91, 100]


def test_the_truth_of_damages() -> None:
    ranges = [Range("b", 5, 7, "X"), Range("a", 90, 3, "X"), Range("a", 20, 1, "Y"), Range("a", 30, 4, "X")]
    assert truth.damage_summary(Traffic([], ranges)) == [
        {"path": "a", "fault": "X", "ranges": 2, "bytes": 7, "first_offset": 30},
        {"path": "a", "fault": "Y", "ranges": 1, "bytes": 1, "first_offset": 20},
        {"path": "b", "fault": "X", "ranges": 1, "bytes": 7, "first_offset": 5},
    ]


def test_the_order_of_paths_is_that_of_files() -> None:
    paths = ["part-10", "part-9", "part", "part-", "1", "", "a1/b", "a/b", "part-9/3", "part-9/20", "9" * 30, "10"]
    assert sorted(paths, key=natural) == sorted(paths, key=natural_of_files)
    assert sorted(["part-10", "part-9", "part-x"], key=natural) == ["part-9", "part-10", "part-x"]


def test_tapes_are_what_they_say() -> None:
    """The bytes of a tape, decoded, are its rows."""
    tape = Tape()
    for number, story in enumerate((*CASES[:20], *CASES[70:90])):
        staged(tape, story, number)
    strange(tape)
    wanted = [row for row in source_rows(tape.traffic) if row["path"] != "/strange/huge"]
    for path, data in tape.files.items():
        rows = [{name: value for name, value in row.items() if name != "number"} for row in wanted]
        found = [{"path": path, **row} for row in expected(data, on_fault="skip").rows]
        assert found == sorted((row for row in rows if row["path"] == path), key=lambda row: row["offset"])


def test_generated_traffic_is_what_a_codec_reads(tmp_path: Path) -> None:
    for seed in range(10):
        for number in (1, 12):
            traffic = generated(tmp_path / f"{seed}-{number}", seed, size=200_000, damages=40, files=number)
            paths = sorted((tmp_path / f"{seed}-{number}").iterdir(), key=lambda path: natural(str(path)))
            assert [path.name for path in paths] == [f"part-{file}" for file in range(number)]
            for path in paths:
                messages, ranges = [], []
                for item in iter_messages(path.read_bytes(), on_fault="skip"):
                    if isinstance(item, Damage):
                        ranges.append((item.start, item.stop - item.start))
                    else:
                        messages.append(item)
                assert messages == [placed.message for placed in traffic.messages if placed.path == str(path)]
                assert ranges == [(one.offset, one.size) for one in traffic.ranges if one.path == str(path)]


# --- one traffic with all of it, told once without an order and once with ---


def strange(tape: Tape) -> None:
    """What is hard to tell apart, and what is no event."""
    for queue, id in (
        *[("same", "id"), ("other", "id"), ("a", "b c"), ("a b", "c"), ("", "id"), ("id", ""), ("", "")],
        *[("\0", "id"), ("id", "\0"), ("grün", "\U0001f600"), ("Same", "id"), ("same ", "id"), ("NULL", "null")],
    ):
        for number, character in enumerate(f"{queue}\1{id}"):
            tape.story(f"d{ord(character)} c /{number % 3} d5", queue, id, "/strange")
        tape.story("a" if len(queue) % 2 else "l", queue, id, "/strange")
    for message in (
        Dispatch("caf\udce9", b"12345", "id", 60),
        Acknowledge("caf\udce9", "id"),
        Send("caf\udce9", b"123", 30),
        Acknowledge("same", "\udcff"),
        Dispatch("same", b"123456", "\udcff", 70),
        Dispatch("\udcff", b"1", "\udcff"),
        Receipt("same", "no event"),
        Consume("nothing but this", 5),
        Receipt("nothing but that", "id"),
        Send("sent only", b"", 0),
    ):
        tape.message("/strange/part-0", message)
    # Around a text that is not UTF-8, which is no damage; and behind as many bytes as a damage of another file has.
    tape.message("/strange/a", Dispatch("neighbour", b"", "id", 60))
    tape.message("/strange/a", Acknowledge("caf\udce9", "id"))
    tape.damage("/strange/b", len(tape.files["/strange/a"]))
    tape.message("/strange/a", Acknowledge("neighbour", "id"))
    tape.message("/strange/b", Consume("neighbour", 1))
    # A capture of more bytes than a number of 32 bits counts.
    for offset, message in (
        (2**30, Dispatch("huge", b"1", "id", 60)),
        (2**33, Dispatch("huge", b"12", "id", 50)),
        (2**37 + 1, Acknowledge("huge", "id")),
        (2**40 - 1, Dispatch("huge", b"123", "id", 70)),
    ):
        tape.traffic.messages.append(Placed(message, "/strange/huge", offset, len(encode(message))))
    # Two files, though they are called by the same number.
    tape.message("/strange/07", Acknowledge("files", "id"))
    tape.message("/strange/7", Dispatch("files", b"", "id", 60))


def chance(tape: Tape, random: Random) -> None:
    """Conversations that nobody would have, in a few files."""
    ids = [(f"random{number % 3}", f"{number // 3}") for number in range(500)]
    of_one_file = {pair: random.choice([None, 1, 2, 10, 11]) for pair in ids}
    types = {pair: random.choice(["ddda", "ddddaaqlsrc", "ddqqdddd", "aaqlrc"]) for pair in ids}
    damaged: set[str] = set()
    for _ in range(3000):
        queue, id = random.choice(ids)
        path = f"/random/part-{of_one_file[queue, id] or random.choice([1, 2, 10, 11])}"
        if path not in damaged and random.random() < 0.2:
            tape.damage(path, random.randrange(1, 40))
            damaged.add(path)
        else:
            ttl = random.choice([None, 0, 5, 60, 60, 3600])
            message = made(random.choice(types[queue, id]), queue, id, bytes(random.randrange(9)), ttl)
            tape.message(path, message, random.randrange(20))
            damaged.discard(path)


class Told(NamedTuple):
    """A traffic, and what Spark tells of it."""

    traffic: Traffic
    scenes: list[Scene]
    lifecycles: list[Row]
    damages: list[Row]
    queues: list[Row]


def frame_of(spark: SparkSession, rows: list[Row], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


SOURCE_SCHEMA = pa.schema([("path", pa.string()), *ARROW_SCHEMA, ("number", pa.int64())])


def all_of(cases: tuple[Case, ...]) -> tuple[Tape, list[Scene]]:
    tape = Tape()
    scenes = [staged(tape, story, number) for number, story in enumerate(cases)]
    strange(tape)
    chance(tape, Random(1))
    return tape, scenes


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> Told:
    """As the data source gives it: messages and damages in one."""
    tape, scenes = all_of(CASES)
    rows = source_rows(tape.traffic)
    Random(2).shuffle(rows)
    frame = frame_of(spark, rows, SOURCE_SCHEMA).drop("number")
    return Told(
        tape.traffic,
        scenes,
        collected(lifecycles(frame)),
        collected(damage_summary(frame)),
        [],
    )


@pytest.fixture(scope="module")
def told_in_order(spark: SparkSession) -> Told:
    """As a warehouse gives it: messages and damages apart, and columns that are nobody's business."""
    tape, scenes = all_of(ORDERED)
    rows = source_rows(tape.traffic)
    Random(3).shuffle(rows)
    frame = frame_of(spark, rows, SOURCE_SCHEMA).withColumnRenamed("number", "the order")
    for name in ("kind", "key", "file", "at", "event", "first", "last", "batch", "place", "damage"):
        frame = frame.withColumn(name, f.lit("x"))
    messages = frame.where("type IS NOT NULL").withColumn("content_size", f.length("content").cast("bigint"))
    damage = frame.where("type IS NULL").select("path", "offset", "size", "fault", "fault_offset", "raw", "batch")
    return Told(
        tape.traffic,
        scenes,
        collected(lifecycles(messages, damage, order="the order")),
        collected(damage_summary(damage)),
        collected(queue_summary(messages, damage, order="the order")),
    )


@pytest.mark.parametrize("number", range(len(CASES)), ids=[story.story[:40] for story in CASES])
def test_a_case(told: Told, number: int) -> None:
    scene = told.scenes[number]
    check(by(told.lifecycles, "queue", "message_id")[scene.key], scene)


@pytest.mark.parametrize("number", range(len(ORDERED)), ids=[story.story[:40] for story in ORDERED])
def test_a_case_in_order(told_in_order: Told, number: int) -> None:
    scene = told_in_order.scenes[number]
    check(by(told_in_order.lifecycles, "queue", "message_id")[scene.key], scene)


def test_all_lifecycles(told: Told, told_in_order: Told) -> None:
    for found, is_ordered in ((told, False), (told_in_order, True)):
        right = truth.lifecycles(found.traffic, is_ordered=is_ordered)
        same(found.lifecycles, right, "queue", "message_id")
        of_chance = [anomaly for row in right if row["queue"].startswith("random") for anomaly in row["anomalies"]]
        kinds = Counter((anomaly["kind"], anomaly["suspect"]) for anomaly in of_chance)
        assert len(kinds) == 8
        assert min(kinds.values()) > 20


def test_all_queues(told_in_order: Told) -> None:
    same(told_in_order.queues, truth.queue_summary(told_in_order.traffic, is_ordered=True), "queue")


def test_all_damages(told: Told, told_in_order: Told) -> None:
    for found in (told, told_in_order):
        same(found.damages, truth.damage_summary(found.traffic), "path", "fault")


def test_one_damage_of_each_fault(spark: SparkSession) -> None:
    ranges = [
        Range(f"/{number % 3}", number * 100, number, fault)
        for number, fault in enumerate(["TRUNCATED", "BAD_DIGITS", "NOT_A_MESSAGE", "COMPRESSED_DATA"] * 5)
    ]
    tape = Tape()
    tape.message("/0", Acknowledge("caf\udce9", "id"))  # it has a fault, too, but is no damage
    traffic = Traffic(tape.traffic.messages, ranges)
    found = collected(damage_summary(frame_of(spark, source_rows(traffic), SOURCE_SCHEMA)))
    same(found, truth.damage_summary(traffic), "path", "fault")


# --- captures ---


def test_damaged_captures(spark: SparkSession, tmp_path: Path) -> None:
    """Two in one file each, and two that are cut into many."""
    parts = [
        generated(tmp_path / str(seed), seed, size=200_000, damages=40, files=files)
        for seed, files in ((1, 1), (2, 1), (3, 12), (4, 12))
    ]
    traffic = Traffic([one for part in parts for one in part.messages], [one for part in parts for one in part.ranges])
    for part in parts:
        assert sum(len(row["anomalies"]) for row in truth.lifecycles(part)) > 2
    same_by_the_ledger(traffic, spark.read.format("phpmq").load(str(tmp_path / "*")))


def test_the_original_has_no_anomalies(spark: SparkSession) -> None:
    tape = Tape()
    for name in CAPTURES:
        for message in iter_messages(read_capture(name)):
            tape.message(str(VECTORS / f"{name}.phpmq"), message)
        assert tape.files[str(VECTORS / f"{name}.phpmq")] == read_capture(name)
    frame = spark.read.format("phpmq").load(str(VECTORS / "*.phpmq"))
    rows = collected(lifecycles(frame))
    same(rows, truth.lifecycles(tape.traffic), "queue", "message_id")
    assert rows
    assert [row["anomalies"] for row in rows] == [[]] * len(rows)


# --- what they are as functions ---

LIFECYCLES = (
    "queue string, message_id string, dispatches bigint, requeues bigint, acknowledgements bigint, dead_letters bigint,"
    " outcome string, redelivered boolean, first struct<path string, offset bigint>, last struct<path string, offset"
    " bigint>, first_ttl bigint, last_ttl bigint, content_size bigint, suspect boolean,"
    " anomalies array<struct<kind string, path string, offset bigint, suspect boolean>>"
)
QUEUES = (
    "queue string, sent bigint, never_dispatched bigint, dispatched bigint, acknowledged bigint, requeued bigint,"
    " dead_lettered bigint, outstanding bigint, redelivered bigint, redelivery_rate double, dead_letter_rate double,"
    " content_bytes bigint, content_size_percentiles array<bigint>, ttl_percentiles array<bigint>"
)
DAMAGES = "path string, fault string, ranges bigint, bytes bigint, first_offset bigint"
SUMMARIES: tuple[tuple[Callable[[DataFrame], DataFrame], str], ...] = (
    (lifecycles, LIFECYCLES),
    (queue_summary, QUEUES),
    (damage_summary, DAMAGES),
)


@pytest.mark.parametrize(("summary", "columns"), SUMMARIES, ids=["lifecycles", "queues", "damages"])
def test_nothing(spark: SparkSession, tmp_path: Path, summary: Callable[[DataFrame], DataFrame], columns: str) -> None:
    (tmp_path / "empty").touch()
    found = summary(spark.read.format("phpmq").load(str(tmp_path)))
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    assertSchemaEqual(found.schema, schema)
    assert found.columns == schema.names
    assert found.collect() == []


@pytest.fixture
def vanished(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A frame that fails where anybody looks what is in it."""
    path = tmp_path / "a"
    path.write_bytes(encode(Consume("q", 1)))
    frame = spark.read.format("phpmq").load(str(path)).withColumn("a.`b", f.lit(1))
    path.unlink()
    return frame


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """How many jobs there were since the fixture was asked for."""
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    context.setJobGroup("watched", "")

    def seen() -> int:
        # what is told of a later job is told after what is told of those before
        context.setJobGroup("later", "")
        before = len(tracker.getJobIdsForGroup("later"))
        spark.range(1).collect()
        deadline = time.monotonic() + 30
        while len(tracker.getJobIdsForGroup("later")) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        context.setJobGroup("watched", "")
        return len(tracker.getJobIdsForGroup("watched"))

    yield seen
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_nothing_runs_before_rows_are_asked_for(
    spark: SparkSession, vanished: DataFrame, jobs: Callable[[], int]
) -> None:
    before = jobs()
    messages, damage = vanished.where("type IS NOT NULL"), vanished.where("type IS NULL")
    for order in (None, "a.`b"):
        for summary in (lifecycles, queue_summary):
            told = [summary(vanished, order=order), summary(messages, damage, order=order)]
            assert told[0].columns == told[1].columns
    assert damage_summary(damage).columns[0] == "path"
    assert jobs() == before
    spark.range(1).collect()
    assert jobs() > before


@pytest.mark.parametrize("summary", [lifecycles, queue_summary])
def test_an_order_that_is_no_column(vanished: DataFrame, summary: Callable[..., DataFrame]) -> None:
    summary = partial(summary, vanished.drop("raw"), order="nothing")
    with pytest.raises(ValueError, match=r"nothing.* path, offset, size, type, queue, .*, fault_offset"):
        summary()


@pytest.mark.parametrize("order", ["capture", "start_edge", "kind", "at", "order"])
def test_columns_that_are_named_like_ours(spark: SparkSession, order: str) -> None:
    sixty, seventy = (Dispatch("a", b"", "id", ttl) for ttl in (60, 70))
    messages = [Placed(sixty, "/2", 0, 200), Placed(seventy, "/1", 0, 200)]
    frame = frame_of(spark, source_rows(Traffic(messages, [])), SOURCE_SCHEMA)
    times = f.when(f.col("path") == "/1", 2).otherwise(1)
    [row] = lifecycles(frame.withColumn(order, times), order=order).collect()
    assert (row.first.path, row.last.path) == ("/2", "/1")
    assert [anomaly.kind for anomaly in row.anomalies] == ["ttl_raised"]


@pytest.mark.parametrize("offset", [2**42 - 1, 2**42])
def test_a_capture_that_is_too_large_to_be_put_in_order(spark: SparkSession, offset: int) -> None:
    traffic = Traffic([Placed(Dispatch("huge", b"", "id", 60), "/huge", offset, 200)], [])
    told = lifecycles(frame_of(spark, source_rows(traffic), SOURCE_SCHEMA))
    if offset < 2**42:
        assert [row.last.offset for row in told.collect()] == [offset]
    else:
        with pytest.raises(PySparkException, match="bytes in one, have no order"):
            told.collect()

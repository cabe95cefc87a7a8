"""Captures as record batches and back: every row as ``iter_messages`` tells it, however it was asked for."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, product
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple

import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from buffers import BUFFERS, mapped
from columns import (
    BAD_BOTH,
    BAD_ID,
    BAD_QUEUE,
    BROKEN,
    FOO,
    FORMS,
    HELLO,
    MIXED,
    NAMES,
    ODD,
    UNKNOWN,
    WIRES,
    WORDS,
    Row,
    Told,
    drained,
    expected,
    packed,
    read,
    row,
    row_size,
    same,
)
from command import COMPRESS
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import Case
from strategies import cases, messages_of
from wire import CAPTURES, message_wire, parts, read_capture, read_vectors

import phpmq
from phpmq._compressed import CompressedDataError
from phpmq.arrow import SCHEMA, encode_batch, read_batches, read_table
from phpmq.capture import Capture

pytestmark = pytest.mark.usefixtures("backend")
modes = pytest.mark.parametrize("mode", ["raise", "skip"])

#: Rows of every kind, the last ones damaged.
GOOD = b"".join([*WIRES, BAD_QUEUE, BAD_ID, BAD_BOTH])


@pytest.fixture
def backend(codec: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are made by this codec; what they are compared with is not."""
    monkeypatch.setattr("phpmq.arrow.codec", codec)
    monkeypatch.setattr("phpmq.capture.codec", codec)


def fixed(examples: int) -> settings:
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None)


# --- rows ---


def test_schema() -> None:
    integer, text, binary = pa.int64(), pa.string(), pa.binary()
    kinds = [integer, integer, text, text, binary, text, integer, integer, text, integer, binary]
    assert pa.schema(list(zip(NAMES, kinds, strict=True))) == SCHEMA
    assert all(field.nullable for field in SCHEMA)
    assert read_batches(b"").schema == SCHEMA
    assert read_table(b"").schema == SCHEMA
    assert read_table(HELLO).schema == SCHEMA


def test_every_form() -> None:
    ends = list(accumulate(map(len, WIRES)))
    right = [
        row(offset=end - len(wire), size=len(wire), type=WORDS[name], **fields)
        for end, wire, (name, fields) in zip(ends, WIRES, FORMS, strict=True)
    ]
    assert read(b"".join(WIRES)).rows == right
    assert read(b"".join(WIRES)).offset == ends[-1]


def test_values_of_a_row() -> None:
    table = read_table(FOO + HELLO)
    assert table.to_pylist()[1] == {
        "offset": 76,
        "size": 122,
        "type": "send",
        "queue": "Foo",
        "content": b"Hello World",
        "message_id": None,
        "ttl": 3600,
        "count": None,
        "fault": None,
        "fault_offset": None,
        "raw": None,
    }


@pytest.mark.parametrize(("name", "fields"), FORMS, ids=lambda value: value if isinstance(value, str) else "")
def test_empty_is_not_missing(name: str, fields: dict[str, Any]) -> None:
    empty = {"queue": "", "content": b"", "message_id": "", "ttl": 0, "count": 0}
    values = {key: empty[key] for key in fields}
    wire = message_wire(name, values)
    assert read(wire).rows == [row(offset=0, size=len(wire), type=WORDS[name], **values)]


def test_any_order_of_packets() -> None:
    data = b"".join(parts(3, [(5, b"7"), (3, b"id"), (2, b"Hi"), (1, b"Foo")])) + FOO
    assert read(data).rows == [
        row(offset=0, size=144, type="dispatch", queue="Foo", content=b"Hi", message_id="id", ttl=7),
        row(offset=144, size=76, type="consume", queue="Foo", count=5),
    ]


@pytest.mark.parametrize("number", [0, 1, 9, 10, 2**31, 2**32, 2**53 + 1, 2**63 - 1])
def test_integers(number: int) -> None:
    data = message_wire("Consume", {"queue": "", "count": number})
    data += message_wire("Send", {"queue": "", "content": b"", "ttl": number})
    table = read_table(data)
    assert table["count"].to_pylist() == [number, None]
    assert table["ttl"].to_pylist() == [None, number]


@pytest.mark.parametrize("name", CAPTURES)
def test_captures(name: str) -> None:
    data = read_capture(name)
    reading = read(data)
    same(reading, expected(data))
    assert len(reading.rows) > 3


def test_vectors() -> None:
    """What the original's own code wrote."""
    for size in (32, 35, 36):
        data = b"".join(vector.wire for vector in read_vectors() if vector.size == size and not vector.refused)
        same(read(data, packet_header_size=size), expected(data, packet_header_size=size))
        data = b"".join(vector.wire for vector in read_vectors() if vector.size == size)
        right = expected(data, packet_header_size=size, on_fault="skip")
        same(read(data, packet_header_size=size, on_fault="skip"), right)


def test_no_rows() -> None:
    sources: list[Any] = [b"", iter([]), [b"", b""], io.BytesIO()]
    for source in sources:
        assert read(source) == ([], None, 0, [])
    assert read_table(b"").num_rows == 0
    assert read_table(b"", columns=["ttl", "raw"]).schema == pa.schema([("ttl", pa.int64()), ("raw", pa.binary())])


# --- faults ---


@pytest.mark.parametrize("damage", [ODD, BROKEN, UNKNOWN, b"junk", HELLO[:50]], ids=lambda wire: repr(wire[:12]))
@pytest.mark.parametrize("before", [0, 1, 9])
@pytest.mark.parametrize("last", [True, False])
def test_the_rows_before_a_fault_and_then_the_fault(damage: bytes, before: int, last: bool) -> None:
    data = b"".join(WIRES[:before]) + damage + (b"" if last else FOO)
    right = expected(data)
    assert (len(right.rows), right.error is not None, right.offset) == (before, True, len(b"".join(WIRES[:before])))
    for options in ({}, {"max_batch_rows": 1}, {"max_batch_rows": 4}, {"columns": ["ttl", "size"]}):
        reading = read(data, **options)
        assert reading[1:3] == right[1:3]
        assert [values["size"] for values in reading.rows] == [values["size"] for values in right.rows]
    same(read(data), right)
    same(read([data[:100], data[100:]]), right)


@pytest.mark.parametrize("damage", [ODD, BROKEN, UNKNOWN, b"junk", HELLO[:50]], ids=lambda wire: repr(wire[:12]))
def test_an_equal_error(damage: bytes) -> None:
    with pytest.raises(phpmq.ProtocolError) as right:
        list(phpmq.iter_messages(FOO + damage))
    with pytest.raises(phpmq.ProtocolError) as raised:
        list(read_batches(FOO + damage))
    assert raised.value == right.value
    with pytest.raises(phpmq.ProtocolError) as raised:
        read_table(FOO + damage)
    assert raised.value == right.value


def test_every_cut_of_the_last_frame() -> None:
    for cut in range(1, len(HELLO)):
        data = FOO + HELLO[:cut]
        for mode in ("raise", "skip"):
            same(read(data, on_fault=mode), expected(data, on_fault=mode))


def test_a_damage_is_a_row() -> None:
    data = FOO + BROKEN + HELLO + ODD + UNKNOWN + FOO + b"junk"
    reading = read(data, on_fault="skip")
    assert reading.rows[1] == row(offset=76, size=76, fault="BAD_DIGITS", fault_offset=114, raw=BROKEN)
    assert [values["fault"] for values in reading.rows] == [
        *(None, "BAD_DIGITS", None, "BAD_INTEGER", "UNKNOWN_MESSAGE_TYPE", None, "NOT_A_MESSAGE"),
    ]
    same(reading, expected(data, on_fault="skip"))


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 200_000])
def test_long_damage(size: int) -> None:
    damage = random.Random(1).randbytes(size).replace(b"H", b"h")
    data = FOO + damage + HELLO
    right = row(offset=76, size=size, fault="NOT_A_MESSAGE", fault_offset=76, raw=damage[:65_536])
    chunks = [data[place : place + 30_000] for place in range(0, len(data), 30_000)]
    for source in (data, chunks):
        assert read(source, on_fault="skip").rows[1] == right
        assert len(read(source, on_fault="skip").rows) == 3
    same(read(chunks), expected(data))


@modes
def test_everything_at_once(mode: str) -> None:
    right = expected(MIXED, on_fault=mode)
    assert len(right.rows) == {"raise": 10, "skip": 22}[mode]
    same(read(MIXED, on_fault=mode), right)
    for length in (1, 7, 333):
        chunks = [MIXED[place : place + length] for place in range(0, len(MIXED), length)]
        same(read(chunks, on_fault=mode), right)


def test_many_rows() -> None:
    """As many as it takes for nulls to fill some words of bits, in batches that begin and end anywhere in them."""
    dice = random.Random(11)
    frames = dice.choices([*WIRES, BAD_QUEUE, BAD_ID, BAD_BOTH, ODD + FOO, BROKEN + FOO, UNKNOWN + FOO], k=2000)
    data = b"".join(frames)
    right = expected(data, on_fault="skip")
    assert len(right.rows) > 2200
    for rows in (10**6, 64, 63, 7):
        same(read(data, on_fault="skip", max_batch_rows=rows), right)
        assert len(encode_all(b"".join(WIRES * 100), max_batch_rows=rows)) == 100 * len(b"".join(WIRES))
    same(read(FOO * 1000), expected(FOO * 1000))  # columns without any null, and of nothing else


@pytest.mark.parametrize("effort", [pytest.param(60, id="few"), pytest.param(2000, id="many", marks=pytest.mark.long)])
def test_damaged_streams(effort: int) -> None:
    @fixed(effort)
    @given(cases(), st.sampled_from(["raise", "skip"]), st.integers(1, 5), st.integers(1, 400), st.integers(1, 3))
    def compare(case: Case, mode: str, rows: int, size: int, threads: int) -> None:
        right = expected(case.data, on_fault=mode, **case.options)
        options = {"max_batch_rows": rows, "max_batch_bytes": size, "on_fault": mode, **case.options}
        for source in (case.data, case.chunks):
            reading = read(source, **options)
            same(reading, right)
            assert reading.lengths == packed([row_size(values) for values in right.rows], rows, size)
        same(read(case.data, threads=threads, **options), right)

    compare()


# --- text ---

GOOD_TEXTS = [
    *(b"", b"\0", b"\x7f", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80"),
    *(b"\xef\xbb\xbf", b"\xef\xbf\xbe", b"\xef\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf3\xa0\x80\x81", b"\xf4\x8f\xbf\xbf"),
    *(b"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", b"\xe6\xbc\xa2\xe5\xad\x97", b"\xf0\x9f\x98\x80\xc3\xa9"),
]
BAD_TEXTS = [
    *(b"\x80", b"\xbf", b"\x80\x80", b"\xa9\xc3", b"\xfe", b"\xff", b"\xff\xff"),  # nothing to continue
    *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"),  # overlong
    *(b"\xed\xa0\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"),  # surrogates
    *(
        b"\xf4\x90\x80\x80",
        b"\xf4\xbf\xbf\xbf",
        b"\xf5\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
    ),
    *(b"\xc3", b"\xe2", b"\xe2\x82", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xc3\xa9\xc3"),  # cut
    *(b"\xc3(", b"\xe2(\xa1", b"\xe2\x82(", b"\xf0(\x8c\xbc", b"\xf0\x90(\xbc", b"\xf0\x9f\x98("),  # broken off
    *(b"\xc3\xc3\xa9", b"\xe2\x82\xc3\xa9", b"\xf0\x9f\x98\xe2\x82\xac", b"\xc3\xa9\xa9", b"\xe2\x82\xac\x80"),
]
#: Some readers look at 8 or 16 bytes at once.
BEFORE = [*(b"a" * length for length in (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64)), b"\xc3\xa9" * 7, b"a\xc3\xa9" * 5]
BEHIND = [b"", b"z", b"z" * 8, b"z" * 16]


def spelled(text: bytes) -> str | None:
    """The text, null where it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def queues_read(texts: Sequence[bytes]) -> list[tuple[str | None, str | None, int | None]]:
    frames = [b"".join(parts(2, [(1, text), (4, b"1")])) for text in texts]
    starts = [0, *accumulate(map(len, frames))]
    table = read_table(b"".join(frames), columns=["queue", "fault", "fault_offset"])
    table.validate(full=True)
    read_rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert len(read_rows) == len(texts)
    offsets = [
        place and place - start - 40 for place, start in zip(table["fault_offset"].to_pylist(), starts, strict=False)
    ]
    return [(queue, fault, offset) for (queue, fault, _), offset in zip(read_rows, offsets, strict=True)]


def judged(text: bytes) -> tuple[str | None, str | None, int | None]:
    value = spelled(text)
    return (value, None, None) if value is not None else (None, "NOT_UTF8", 0)


def test_the_texts_are_what_they_are_said_to_be() -> None:
    assert all(spelled(text) is not None for text in GOOD_TEXTS)
    assert all(spelled(text) is None for text in BAD_TEXTS)


def test_text_anywhere() -> None:
    texts = [b"".join(pieces) for pieces in product(BEFORE, GOOD_TEXTS + BAD_TEXTS, BEHIND)]
    assert queues_read(texts) == list(map(judged, texts))


def test_all_sequences_of_bytes_with_a_meaning() -> None:
    edges = b"A\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"
    texts = [bytes(values) for values in product(edges, repeat=2)]
    texts += [bytes(values) for values in product(b"A\x80\xc2\xe0\xe1\xec\xed\xee\xef\xf0", edges, b"A\x80\xbf\xc2")]
    texts += [
        bytes(values) for values in product(b"\xf0\xf1\xf3\xf4\xf5", edges, b"A\x7f\x80\xbf\xc0", b"A\x80\xbf\xc0")
    ]
    assert queues_read(texts) == list(map(judged, texts))


def test_texts_are_judged_apart() -> None:
    """Half a character in one row is not completed by the next, nor by the other text of the row."""
    half, rest = b"\xc3", b"\xa9"
    assert queues_read([half, rest, b"\xc3\xa9", half]) == list(map(judged, [half, rest, b"\xc3\xa9", half]))
    data = b"".join(parts(4, [(1, half), (3, rest)])) + b"".join(parts(1, [(1, half), (2, rest)]))
    assert [(values["queue"], values["message_id"]) for values in read(data).rows] == [(None, None), (None, None)]


@pytest.mark.parametrize("before", range(33))
def test_ids_at_every_place(before: int) -> None:
    for text in (b"\xe2\x82\xac", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80"):
        data = b"".join(parts(6, [(1, b"q" * before), (3, b"i" * before + text)]))
        same(read(data), expected(data))


def test_which_text_is_wrong() -> None:
    assert read(BAD_QUEUE).rows == [
        row(
            offset=0,
            size=len(BAD_QUEUE),
            type="send",
            content=b"content",
            ttl=60,
            fault="NOT_UTF8",
            fault_offset=40,
            raw=BAD_QUEUE,
        )
    ]
    assert read(FOO + BAD_ID).rows[1] == row(
        offset=76,
        size=len(BAD_ID),
        type="dispatch",
        queue="Foo",
        content=b"\xff",
        ttl=1,
        fault="NOT_UTF8",
        fault_offset=76 + 40 + 1 + 32 + 3 + 32,
        raw=BAD_ID,
    )
    assert read(BAD_BOTH).rows == [
        row(offset=0, size=76, type="acknowledge", fault="NOT_UTF8", fault_offset=40, raw=BAD_BOTH)
    ]


@pytest.mark.parametrize("size", [32, 35, 36])
def test_the_first_wrong_text_in_any_order(size: int) -> None:
    packets = {1: b"\xff", 2: b"\xff", 3: b"\xfe", 5: b"10"}
    for order in ((1, 2, 3, 5), (3, 2, 1, 5), (2, 5, 3, 1), (5, 1, 3, 2)):
        data = b"".join(parts(3, [(kind, packets[kind]) for kind in order], size))
        reading = read(data, packet_header_size=size)
        same(reading, expected(data, packet_header_size=size))
        place = 8 + size
        for kind in order:
            if kind in (1, 3):
                break
            place += len(packets[kind]) + size
        assert reading.rows[0]["fault_offset"] == place


def test_not_utf8_is_good_and_its_bytes_are_kept_whole() -> None:
    frame = b"".join(parts(1, [(1, b"\xff"), (2, b"x" * 200_000)]))
    for mode in ("raise", "skip"):
        reading = read(FOO + frame + FOO, on_fault=mode)
        assert [values["type"] for values in reading.rows] == ["consume", "send", "consume"]
        assert reading.rows[1]["raw"] == frame
        assert reading.rows[1]["content"] == b"x" * 200_000


@pytest.mark.parametrize("effort", [pytest.param(100, id="few"), pytest.param(3000, id="many", marks=pytest.mark.long)])
def test_random_text(effort: int) -> None:
    pieces = st.sampled_from([*GOOD_TEXTS, *BAD_TEXTS, *BEFORE])
    text = st.lists(pieces, max_size=3).map(lambda drawn: b"".join(drawn).decode("utf-8", "surrogateescape"))

    @fixed(effort)
    @given(st.lists(messages_of(text, st.sampled_from([b"", b"\xff", b"H0100202"]), st.just(7)), max_size=6))
    def compare(messages: list[Any]) -> None:
        data = b"".join(message_wire(*message) for message in messages)
        same(read(data), expected(data))
        assert encode_all(data) == data

    compare()


# --- columns ---


def columns_of(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    return [{name: values[name] for name in names} for values in rows]


@pytest.mark.parametrize("name", NAMES)
def test_one_column(name: str) -> None:
    right = expected(MIXED, on_fault="skip").rows
    for source in (MIXED, [MIXED[:700], MIXED[700:]]):
        assert read(source, columns=[name], on_fault="skip").rows == columns_of(right, [name])
    assert read(MIXED, columns=(name,)).rows == columns_of(expected(MIXED).rows, [name])


def test_columns_in_any_order() -> None:
    right = expected(MIXED, on_fault="skip").rows
    dice = random.Random(5)
    for _ in range(60):
        names = dice.sample(NAMES, dice.randint(1, len(NAMES)))
        reader = read_batches(MIXED, columns=names, on_fault="skip")
        assert reader.schema == pa.schema([SCHEMA.field(name) for name in names])
        reading = drained(reader)
        assert reading.rows == columns_of(right, names)
        assert [list(values) for values in reading.rows[:1]] == [names]
        assert reading.offset == len(MIXED)
        assert read_table(MIXED, columns=names, on_fault="skip").column_names == names


def test_all_pairs_of_columns() -> None:
    right = expected(MIXED, on_fault="skip").rows
    for names in product(NAMES, repeat=2):
        if names[0] != names[1]:
            assert read(MIXED, columns=names, on_fault="skip").rows == columns_of(right, names)


def test_no_columns() -> None:
    batches = list(read_batches(MIXED, columns=[], on_fault="skip", max_batch_rows=7, max_batch_bytes=1))
    assert [batch.num_rows for batch in batches] == [7, 7, 7, 1]
    assert {batch.num_columns for batch in batches} == {0}
    assert read_table(GOOD, columns=()).num_rows == 12


def test_columns_in_raise_mode_end_with_the_error() -> None:
    for name in NAMES:
        reading = read(MIXED, columns=[name])
        assert reading.error == expected(MIXED).error
        assert len(reading.rows) == 10


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (["nothing"], ValueError),
        (["queue", "Queue"], ValueError),
        (["queue", "ttl", "queue"], ValueError),
        ("queue", TypeError),
        ("", TypeError),
        (5, TypeError),
        ([5], (TypeError, ValueError)),
        ([None], (TypeError, ValueError)),
        ([["queue"]], (TypeError, ValueError)),
    ],
    ids=repr,
)
def test_wrong_columns(columns: Any, error: type[Exception]) -> None:
    for call in (read_batches, read_table):
        with pytest.raises(error):
            call(FOO, columns=columns)


# --- batches ---


def test_rows_of_a_batch() -> None:
    total = len(expected(MIXED, on_fault="skip").rows)
    for most in (1, 2, 3, 7, total - 1, total, total + 1, 10**6):
        reading = read(MIXED, on_fault="skip", max_batch_rows=most)
        assert reading.lengths == packed([1] * total, most, 10**9)
        same(reading, expected(MIXED, on_fault="skip"))


@pytest.mark.parametrize(
    "columns",
    [NAMES, ("content",), ("ttl", "queue"), ("raw", "offset", "message_id"), ("fault", "type"), ("count",)],
    ids="-".join,
)
def test_bytes_of_a_batch(columns: tuple[str, ...]) -> None:
    """At a limit that some rows reach exactly, at one byte less, and at one more."""
    right = expected(MIXED, on_fault="skip").rows
    sizes = [row_size(values, columns) for values in right]
    sums = {sum(sizes[start:stop]) for start in (0, 4, 9) for stop in range(start + 1, len(sizes) + 1)}
    for limit in sorted({total + change for total in sums for change in (-1, 0, 1)} - {0}):
        reading = read(MIXED, on_fault="skip", columns=columns, max_batch_bytes=limit)
        assert reading.lengths == packed(sizes, 10**9, limit)
        assert reading.rows == columns_of(right, columns)


def test_bytes_of_a_row() -> None:
    """Five integers and six texts or bytes, and what is in them: send, Foo and Hello World are 18 bytes."""
    size = 5 * 8 + 6 * 4 + 18
    for count, limit in ((1, size), (1, 2 * size - 1), (2, 2 * size), (2, 3 * size - 1), (3, 3 * size)):
        assert read(HELLO * 6, max_batch_bytes=limit).lengths == [count] * (6 // count)
    assert read(FOO * 4, columns=["ttl"], max_batch_bytes=16).lengths == [2, 2]  # null takes the same
    assert read(FOO * 4, columns=["raw"], max_batch_bytes=8).lengths == [2, 2]
    assert read(FOO * 4, columns=["queue"], max_batch_bytes=14).lengths == [2, 2]
    assert read(FOO * 4, columns=["queue"], max_batch_bytes=13).lengths == [1, 1, 1, 1]


def test_both_limits() -> None:
    right = expected(MIXED, on_fault="skip").rows
    sizes = [row_size(values) for values in right]
    for rows, size in product((1, 2, 3, 5), (1, 200, 300, 500, 1000)):
        reading = read(MIXED, on_fault="skip", max_batch_rows=rows, max_batch_bytes=size)
        assert reading.lengths == packed(sizes, rows, size)


def test_a_row_over_the_limit_is_a_batch_of_its_own() -> None:
    large = message_wire("Send", {"queue": "Foo", "content": bytes(5000)})
    assert read(FOO * 3 + large + FOO * 3, max_batch_bytes=1000).lengths == [3, 1, 3]
    assert read(large * 3, max_batch_bytes=1).lengths == [1, 1, 1]
    broken = b"x" * 5000
    assert read(FOO * 3 + broken + FOO * 3, max_batch_bytes=1000, on_fault="skip").lengths == [3, 1, 3]


def test_ten_thousand_rows_of_a_kibibyte() -> None:
    """40 bytes of integers, 24 of lengths, 7 of text and 1024: 1095 a row."""
    wire = message_wire("Send", {"queue": "Foo", "content": bytes(1024), "ttl": 60})
    chunks = [wire * 1000] * 10

    def lengths(**options: Any) -> list[int]:
        return [batch.num_rows for batch in read_batches(chunks, **options)]

    assert lengths(max_batch_bytes=2**20) == [957] * 10 + [430]
    assert lengths(max_batch_bytes=957 * 1095 - 1) == [956] * 10 + [440]
    assert lengths(max_batch_bytes=1028 * 5000, columns=["content"]) == [5000] * 2


def test_default_limits() -> None:
    batches = read_batches(FOO * 16_385, columns=["count"])
    assert [batch.num_rows for batch in batches] == [16_384, 1]
    large = message_wire("Send", {"queue": "Foo", "content": bytes(2**20)})
    assert read(large * 33, columns=["content"]).lengths == [31, 2]


def test_a_batch_that_ends_with_the_file() -> None:
    assert read(FOO * 6, max_batch_rows=3).lengths == [3, 3]
    assert read(FOO * 6 + b"x", max_batch_rows=3).lengths == [3, 3]
    assert read(FOO * 6 + b"x", max_batch_rows=3, on_fault="skip").lengths == [3, 3, 1]


# --- sources ---


class Source(NamedTuple):
    """A way to hand over bytes; ``make`` gets them and a directory."""

    name: str
    make: Callable[[bytes, Path], Any]


def written(data: bytes, directory: Path) -> Path:
    path = directory / "capture.phpmq"
    path.write_bytes(data)
    return path


def opened(data: bytes, directory: Path) -> Any:
    return written(data, directory).open("rb")


def unbuffered(data: bytes, directory: Path) -> Any:
    return written(data, directory).open("rb", buffering=0)


def pieces(data: bytes, length: int) -> list[bytes]:
    return [data[place : place + length] for place in range(0, len(data), length)]


SOURCES = (
    Source("path", written),
    Source("str", lambda data, directory: str(written(data, directory))),
    Source("file", opened),
    Source("raw file", unbuffered),
    Source("BytesIO", lambda data, directory: io.BytesIO(data)),
    Source("bytes one by one", lambda data, directory: pieces(data, 1)),
    Source("generator", lambda data, directory: (piece for piece in pieces(data, 300))),
    Source("bytearrays", lambda data, directory: [bytearray(piece) for piece in pieces(data, 90)]),
    Source("memoryviews", lambda data, directory: map(memoryview, pieces(data, 90))),
    Source("empty chunks", lambda data, directory: [b"", data[:100], b"", b"", data[100:], b""]),
    Source("Capture of bytes", lambda data, directory: Capture(data)),
    Source("Capture of a path", lambda data, directory: Capture(written(data, directory))),
    Source("Capture of chunks", lambda data, directory: Capture(pieces(data, 50))),
)


@modes
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_sources(tmp_path: Path, source: Source, mode: str) -> None:
    right = expected(MIXED, on_fault=mode)
    made = source.make(MIXED, tmp_path)
    same(read(made, on_fault=mode), right)
    if hasattr(made, "close"):
        made.close()


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers(kind: str) -> None:
    data = GOOD + b"x" * (-len(GOOD) % 4)
    same(read(BUFFERS[kind](data)), expected(data))


def test_a_map_is_a_buffer_and_no_file() -> None:
    """It has a position, as a file has, and one does not read a buffer from its position."""
    area = mapped(FOO + HELLO + BROKEN)
    area.seek(76)
    for _ in range(2):
        same(read(area), expected(FOO + HELLO + BROKEN))
    same(read(area, threads=2, on_fault="skip"), expected(FOO + HELLO + BROKEN, on_fault="skip"))


@modes
def test_two_chunks_cut_anywhere(mode: str) -> None:
    data = HELLO + BAD_ID + ODD + FOO + BROKEN + HELLO[:60]
    right = expected(data, on_fault=mode)
    for cut in range(len(data) + 1):
        same(read([data[:cut], data[cut:]], on_fault=mode), right)


def test_a_file_is_read_from_where_it_stands() -> None:
    file = io.BytesIO(b"not this" + FOO + HELLO)
    file.seek(8)
    assert read(file).rows == read(FOO + HELLO).rows
    assert not file.closed


@pytest.mark.parametrize("name", COMPRESS)
@modes
def test_compressed_files(tmp_path: Path, name: str, mode: str) -> None:
    """Two members, cut in the middle of a frame."""
    compress = squeezers()[name]
    data = compress(MIXED[:700]) + compress(MIXED[700:])
    path = written(data, tmp_path)
    right = expected(MIXED, on_fault=mode)
    for source in (path, data, io.BytesIO(data), pieces(data, 1), Capture(path)):
        same(read(source, on_fault=mode), right)
        same(read(path, on_fault=mode, threads=3), right)


def squeezers() -> dict[str, Callable[[bytes], bytes]]:
    return {**COMPRESS, "gzip": lambda data: gzip.compress(data, mtime=0), "bzip2": bz2.compress}


@pytest.mark.parametrize("name", COMPRESS)
def test_damaged_compressed_files(tmp_path: Path, name: str) -> None:
    compress = squeezers()[name]
    first = compress(FOO * 5)
    for second in (compress(HELLO * 5)[:-4], b"junk" * 20):
        reader = read_batches(written(first + second, tmp_path))
        batches: list[Any] = []
        with pytest.raises(CompressedDataError):
            batches.extend(reader)
        assert [values for batch in batches for values in batch.to_pylist()][:5] == read(FOO * 5).rows
        assert reader.offset >= 5 * len(FOO)


@modes
@pytest.mark.parametrize("squeezed", [False, True], ids=["plain", "gzip"])
def test_urls(monkeypatch: pytest.MonkeyPatch, mode: str, squeezed: bool) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 300)
    files = fsspec.filesystem("memory")
    url = f"memory://columns/{mode}"
    files.pipe(f"/columns/{mode}", gzip.compress(MIXED, mtime=0) if squeezed else MIXED)
    right = expected(MIXED, on_fault=mode)
    for threads in (1, 3):
        same(read(url, on_fault=mode, threads=threads), right)
    assert read(url, stop=100).offset == 122
    assert read(url, start=122, stop=123).offset == 201
    files.rm("/columns", recursive=True)
    with pytest.raises(FileNotFoundError):
        read_batches(url)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for threads in (1, 3):
        writer = Thread(target=path.write_bytes, args=[MIXED])
        writer.start()
        same(read(path, threads=threads), expected(MIXED))
        writer.join()


@pytest.mark.parametrize("place", [0, 1, len(FOO), len(GOOD)])
def test_start(tmp_path: Path, place: int) -> None:
    """Offsets count from the start of the source, whatever stands before the place where reading starts."""
    data = b"x" * place + GOOD
    right = [values | {"offset": values["offset"] + place} for values in expected(GOOD).rows]
    for values in right:
        if values["fault_offset"] is not None:
            values["fault_offset"] += place
    packedfile = tmp_path / "packed.gz"
    packedfile.write_bytes(gzip.compress(data, mtime=0))
    for source in (data, written(data, tmp_path), packedfile, pieces(data, 100), io.BytesIO(data)):
        reading = read(source, start=place)
        assert reading.rows == right
        assert reading.offset == len(data)


def test_start_counts_in_errors() -> None:
    reading = read(FOO + FOO + BROKEN, start=len(FOO))
    assert reading.error == Told("ProtocolError", "BAD_DIGITS", 2 * len(FOO) + 38, None)
    assert [values["offset"] for values in reading.rows] == [76]


def test_start_at_the_end() -> None:
    assert read(GOOD, start=len(GOOD)) == ([], None, len(GOOD), [])


@modes
def test_stop(mode: str) -> None:
    """Reading ends at the first boundary at or behind the place, and an error behind it is none."""
    right = expected(MIXED, on_fault=mode)
    boundaries = [0, *(values["offset"] + values["size"] for values in right.rows)]
    for stop in range(0, len(MIXED) + 2, 7):
        ends = [place for place in boundaries if place >= stop]
        for source in (MIXED, [MIXED]):
            reading = read(source, stop=stop, on_fault=mode)
            if ends:
                assert reading.rows == [values for values in right.rows if values["offset"] < ends[0]]
                assert reading[1:3] == (None, ends[0])
            else:
                same(reading, right)


@modes
def test_stop_at_every_boundary(mode: str) -> None:
    right = expected(MIXED, on_fault=mode)
    for number, values in enumerate(right.rows):
        for stop, count in ((values["offset"], number), (values["offset"] + 1, number + 1)):
            reading = read(MIXED, stop=stop, on_fault=mode)
            assert (len(reading.rows), reading.error) == (count, None)


def test_start_and_stop() -> None:
    right = expected(MIXED, on_fault="skip").rows
    places = [values["offset"] for values in right]
    for one, start in enumerate(places):
        for two in range(one, len(places)):
            reading = read(MIXED, start=start, stop=places[two], on_fault="skip")
            assert reading.rows == right[one:two]
            assert reading.offset == places[two]


# --- sizes ---


@pytest.mark.parametrize("size", [32, 35, 36])
def test_packet_header_size(tmp_path: Path, size: int) -> None:
    data = b"".join(message_wire(name, fields, size) for name, fields in FORMS)
    data += b"".join(parts(4, [(3, b"id\xff"), (1, b"\xc3")], size))
    right = expected(data, packet_header_size=size)
    assert len(right.rows) == 10
    packed_data = gzip.compress(data, mtime=0)
    for choice in (size, "auto"):
        for source in (data, written(data, tmp_path), pieces(data, 3), io.BytesIO(data), packed_data):
            same(read(source, packet_header_size=choice), right)
    assert read_table(data, packet_header_size="auto").num_rows == 10


def test_auto_with_nothing() -> None:
    sources: list[Any] = [b"", [], io.BytesIO()]
    for source in sources:
        assert read(source, packet_header_size="auto") == ([], None, 0, [])


@pytest.mark.parametrize("data", [b"junk", FOO[:20], b"H0199900"], ids=["junk", "short", "ambiguous"])
def test_auto_that_cannot_tell(codec: ModuleType, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"none|ambiguous") as right:
        codec.detect_packet_header_size(data)
    for source, name in ((data, "<bytes>"), ([data], "<stream>")):
        with pytest.raises(ValueError, match=r"none|ambiguous") as raised:
            read_batches(source, packet_header_size="auto")
        assert str(raised.value) == f"{name}: {right.value}"


def test_auto_looks_at_the_first_mebibyte() -> None:
    old = message_wire("Consume", {"queue": "Foo", "count": 5}, 36)
    data = old * (2**20 // len(old) + 1) + FOO
    for source in (data, [data[:10], data[10:100], data[100:]]):
        sizes = [values["size"] for values in read(source, packet_header_size="auto", on_fault="skip").rows]
        assert sizes == [84] * (2**20 // 84 + 1) + [76]


@modes
def test_max_frame_size(mode: str) -> None:
    data = FOO + HELLO + FOO
    for limit in (8, 75, 76, 77, 121, 122, 123, None):
        right = expected(data, on_fault=mode, max_frame_size=limit)
        assert (right.error is None) == (mode == "skip" or limit is None or limit >= 122)
        for source in (data, pieces(data, 20)):
            same(read(source, on_fault=mode, max_frame_size=limit), right)


@pytest.mark.parametrize("limit", [None, 2**31 - 1, 2**31, 2**40, 2**62])
def test_the_largest_frame(limit: int | None) -> None:
    """No column holds more than 2**31-1 bytes, so a frame of more is too large at its header."""
    most = 2**31 - 1 - 8 - 32
    errors = {
        most: Told("IncompleteMessage", "TRUNCATED", 76, most + 32),
        most + 1: Told("ProtocolError", "TOO_LARGE", 76 + 8 + 3, None),
    }
    for length, error in errors.items():
        data = FOO + b"H0100102P02%029d" % length
        assert read(data, max_frame_size=limit).error == error
        assert expected(data, max_frame_size=limit).error == error


# --- arguments ---


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"packet_header_size": 33}, ValueError),
        ({"packet_header_size": 0}, ValueError),
        ({"packet_header_size": "32"}, (TypeError, ValueError)),
        ({"packet_header_size": 32.0}, TypeError),
        ({"packet_header_size": None}, TypeError),
        ({"max_frame_size": 7}, ValueError),
        ({"max_frame_size": -1}, ValueError),
        ({"max_frame_size": "8"}, TypeError),
        ({"max_frame_size": True}, TypeError),
        ({"on_fault": "ignore"}, ValueError),
        ({"on_fault": None}, (TypeError, ValueError)),
        ({"max_batch_rows": 0}, ValueError),
        ({"max_batch_rows": -1}, ValueError),
        ({"max_batch_rows": 1.5}, TypeError),
        ({"max_batch_rows": None}, TypeError),
        ({"max_batch_bytes": 0}, ValueError),
        ({"max_batch_bytes": 2**31}, ValueError),
        ({"max_batch_bytes": "1"}, TypeError),
        ({"threads": 0}, ValueError),
        ({"threads": -1}, ValueError),
        ({"threads": 1.0}, TypeError),
        ({"threads": None}, TypeError),
        ({"start": -1}, ValueError),
        ({"start": "0"}, TypeError),
        ({"start": None}, TypeError),
        ({"stop": -1}, ValueError),
        ({"stop": 1.0}, TypeError),
        ({"nothing": 1}, TypeError),
    ],
    ids=repr,
)
def test_wrong_options(options: dict[str, Any], error: type[Exception]) -> None:
    for call in (read_batches, read_table):
        for source in (FOO, [FOO]):
            with pytest.raises(error):
                call(source, **options)


@pytest.mark.parametrize("source", [None, 5, 1.5, object()], ids=["None", "int", "float", "object"])
def test_wrong_sources(source: Any) -> None:
    with pytest.raises(TypeError):
        read_batches(source)


def test_a_buffer_with_gaps() -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        read_batches(memoryview(FOO)[::2])


@pytest.mark.parametrize("chunk", ["text", 5, None], ids=repr)
def test_chunks_that_are_not_bytes(chunk: Any) -> None:
    with pytest.raises(TypeError):
        list(read_batches([FOO, chunk]))


def test_a_text_file() -> None:
    with pytest.raises(TypeError):
        list(read_batches(io.StringIO("H0100202")))  # type: ignore[arg-type,unused-ignore]


def test_options_have_names() -> None:
    with pytest.raises(TypeError):
        read_batches(FOO, ["queue"])  # type: ignore[call-arg,misc,unused-ignore]


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for call in (read_batches, read_table):
        for path in (tmp_path / "missing", str(tmp_path / "missing")):
            with pytest.raises(FileNotFoundError):
                call(path)
        with pytest.raises(IsADirectoryError):
            call(tmp_path)


# --- the reader ---


def test_offset_while_reading() -> None:
    right = expected(MIXED, on_fault="skip").rows
    ends = [values["offset"] + values["size"] for values in right]
    for source in (MIXED, pieces(MIXED, 100)):
        reader = read_batches(source, on_fault="skip", max_batch_rows=5)
        assert iter(reader) is reader
        assert reader.offset == 0
        offsets = []
        for _ in reader:
            offsets.append(reader.offset)
        assert offsets == [ends[4], ends[9], ends[14], ends[19], ends[21]]
        assert reader.offset == len(MIXED)
    assert read_batches(MIXED, start=122).offset == 122


def test_an_ended_reader_stays_ended() -> None:
    reader = read_batches(FOO * 2)
    assert [batch.num_rows for batch in reader] == [2]
    assert list(reader) == []
    with pytest.raises(StopIteration):
        next(reader)


def test_close() -> None:
    reader = read_batches(FOO * 9, max_batch_rows=2)
    assert next(reader).num_rows == 2
    reader.close()
    reader.close()
    rest = 0
    with suppress(ValueError):
        rest = len(list(reader))
    assert rest == 0
    assert reader.offset == 2 * len(FOO)


def test_context_manager() -> None:
    with read_batches(FOO * 9, max_batch_rows=2) as reader:
        assert next(reader).num_rows == 2
    with suppress(ValueError):
        assert list(reader) == []


def handles(path: Path) -> int:
    """How often this process has the file open or mapped."""
    links = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links += os.readlink(f"/proc/self/fd/{number}") == str(path)
    return links + Path("/proc/self/maps").read_text().count(str(path))


on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files where Linux lists them")


@on_linux
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("squeezed", [False, True], ids=["plain", "gzip"])
def test_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, squeezed: bool) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 100)
    data = FOO * 1000
    path = written(gzip.compress(data, mtime=0) if squeezed else data, tmp_path)
    reader = read_batches(path, max_batch_rows=100, threads=threads)
    batches = [next(reader)]
    reader.close()
    assert handles(path) == 0
    reader = read_batches(path, max_batch_rows=100, threads=threads)
    batches += reader
    assert handles(path) == 0
    assert sum(batch.num_rows for batch in batches[1:]) == 1000
    for batch in batches:
        batch.validate(full=True)
    assert batches[-1].to_pylist()[-1]["offset"] == 999 * 76


@on_linux
@pytest.mark.parametrize("threads", [1, 3])
def test_a_reader_that_was_never_read_is_closed(tmp_path: Path, threads: int) -> None:
    path = written(FOO, tmp_path)
    reader = read_batches(path, threads=threads)
    reader.close()
    assert handles(path) == 0
    assert list(reader) == []
    with read_batches(path, threads=threads) as reader:
        assert reader.offset == 0
    assert handles(path) == 0


@on_linux
def test_a_file_is_closed_after_an_error(tmp_path: Path) -> None:
    path = written(FOO + b"junk", tmp_path)
    with pytest.raises(phpmq.ProtocolError):
        read_table(path)
    assert handles(path) == 0
    with pytest.raises(ValueError, match="none"):
        read_batches(written(b"junk", tmp_path), packet_header_size="auto")
    assert handles(path) == 0


def test_what_was_given_open_is_not_closed(tmp_path: Path) -> None:
    with opened(GOOD, tmp_path) as file:
        with read_batches(file) as reader:
            list(reader)
        assert not file.closed
    with Capture(GOOD) as capture:
        for _ in range(2):
            with read_batches(capture) as reader:
                assert len(drained(reader).rows) == 12


def test_batches_outlive_what_they_were_read_from() -> None:
    data = bytearray(GOOD)
    batches = list(read_batches(data, max_batch_rows=5))
    right = read(GOOD).rows
    data[:] = bytes(len(data))
    data.clear()  # no batch holds the buffer
    assert [values for batch in batches for values in batch.to_pylist()] == right


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = written(FOO + b"junk", tmp_path)
    for source in (path, str(path)):
        with pytest.raises(phpmq.ProtocolError) as raised:
            read_table(source)
        assert any(str(path) in note for note in raised.value.__notes__)


def test_read_table_has_the_same_options() -> None:
    options: dict[str, Any] = {"columns": ["ttl", "queue"], "start": 122, "stop": 1300, "on_fault": "skip"}
    options |= {"max_batch_rows": 3, "max_batch_bytes": 100, "threads": 2, "max_frame_size": 130}
    assert read_table(MIXED, **options).to_pylist() == read(MIXED, **options).rows


# --- writing ---


def encode_all(data: bytes, **options: Any) -> bytes:
    header = options.get("packet_header_size", 32)
    return b"".join(encode_batch(batch, packet_header_size=header) for batch in read_batches(data, **options))


@pytest.mark.parametrize("size", [32, 35, 36])
def test_round_trip(size: int) -> None:
    data = b"".join(message_wire(name, fields, size) for name, fields in FORMS)
    data += b"".join(parts(4, [(3, b"id\xff"), (1, b"\xc3")], size)) * 2
    for rows in (1, 2, 100):
        assert encode_all(data, packet_header_size=size, max_batch_rows=rows) == data


def test_round_trip_of_captures() -> None:
    for name in CAPTURES:
        assert encode_all(read_capture(name)) == read_capture(name)


def test_round_trip_of_vectors() -> None:
    for size in (32, 35, 36):
        data = b"".join(vector.wire for vector in read_vectors() if vector.size == size and not vector.refused)
        assert encode_all(data, packet_header_size=size) == data


def test_rows_that_are_not_utf8_are_written_as_they_were() -> None:
    assert encode_all(GOOD) == GOOD
    assert encode_batch(batch_of(row(type="send", queue="?", fault="NOT_UTF8", raw=BAD_ID))) == BAD_ID


def test_written_in_canonical_order() -> None:
    frame = b"".join(parts(3, [(5, b"7"), (3, b"id"), (2, b"Hi"), (1, b"Foo")]))
    canonical = {"queue": "Foo", "content": b"Hi", "message_id": "id", "ttl": 7}
    assert encode_all(frame) == message_wire("Dispatch", canonical)


def test_another_packet_header_size() -> None:
    (batch,) = read_batches(b"".join(WIRES))
    for size in (32, 35, 36):
        right = b"".join(message_wire(name, fields, size) for name, fields in FORMS)
        assert encode_batch(batch, packet_header_size=size) == right


def test_large_contents() -> None:
    data = b"".join(message_wire("Send", {"queue": "q", "content": bytes(2**20), "ttl": ttl}) for ttl in range(3))
    assert encode_all(data) == data


def batch_of(*rows: Row, schema: pa.Schema = SCHEMA) -> Any:
    return pa.RecordBatch.from_pylist([{name: values.get(name) for name in schema.names} for values in rows], schema)


CONSUME: Row = {"type": "consume", "queue": "Foo", "count": 5}
MEANING = [name for name in NAMES if name not in ("offset", "size", "fault_offset")]


def test_offsets_are_ignored() -> None:
    assert encode_batch(batch_of(CONSUME | {"offset": -7, "size": 3, "fault_offset": 9})) == FOO


def test_only_the_columns_that_are_needed() -> None:
    schema = pa.schema([("count", pa.int64()), ("type", pa.string()), ("queue", pa.string())])
    assert encode_batch(batch_of(CONSUME, CONSUME, schema=schema)) == FOO * 2
    schema = pa.schema([SCHEMA.field(name) for name in ("content", "queue", "type")])
    older = {"type": "send", "queue": "Foo", "content": b"Hi"}
    assert encode_batch(batch_of(older, schema=schema)) == message_wire("Send", {"queue": "Foo", "content": b"Hi"})


def test_unknown_columns_are_ignored() -> None:
    schema = SCHEMA.append(pa.field("broker", pa.float64()))
    assert encode_batch(batch_of(CONSUME | {"broker": 1.5}, schema=schema)) == FOO


@pytest.mark.parametrize("missing", ["type", "queue"])
def test_columns_that_have_to_be_there(missing: str) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name != missing])
    with pytest.raises(ValueError, match=missing):
        encode_batch(batch_of(CONSUME, schema=schema))


def test_no_rows_are_no_bytes() -> None:
    assert encode_batch(batch_of()) == b""


@pytest.mark.parametrize("text", ["string", "large_string", "string_view"])
@pytest.mark.parametrize("binary", ["binary", "large_binary", "binary_view"])
def test_other_types_of_text(text: str, binary: str) -> None:
    kinds = {pa.string(): getattr(pa, text)(), pa.binary(): getattr(pa, binary)()}
    schema = pa.schema([(field.name, kinds.get(field.type, field.type)) for field in SCHEMA])
    rows = read(GOOD).rows
    assert encode_batch(batch_of(*rows, schema=schema)) == GOOD
    assert encode_batch(batch_of(*rows, schema=schema)[2:9]) == b"".join(WIRES[2:9])


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
def test_other_integers(kind: str) -> None:
    integer = getattr(pa, kind)()
    schema = pa.schema([("type", pa.string()), ("queue", pa.string()), ("count", integer), ("ttl", integer)])
    right = message_wire("Consume", {"queue": "Foo", "count": 100})
    assert encode_batch(batch_of(CONSUME | {"count": 100}, schema=schema)) == right


def test_an_integer_that_is_too_large() -> None:
    schema = pa.schema([("type", pa.string()), ("queue", pa.string()), ("count", pa.uint64())])
    with pytest.raises((ValueError, OverflowError)):
        encode_batch(batch_of(CONSUME | {"count": 2**63}, schema=schema))


@pytest.mark.parametrize("name", ["queue", "type", "ttl", "content"])
def test_columns_of_a_wrong_type(name: str) -> None:
    schema = pa.schema(
        [pa.field(field.name, pa.list_(pa.int8()) if field.name == name else field.type) for field in SCHEMA]
    )
    rows = [CONSUME | {name: [1]}]
    with pytest.raises((TypeError, ValueError)):
        encode_batch(batch_of(*rows, schema=schema))


@pytest.mark.parametrize("value", [None, b"", 5, [CONSUME]], ids=repr)
def test_what_is_no_batch(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_batch(value)


@pytest.mark.parametrize("size", [33, "32", None, 32.0], ids=repr)
def test_a_wrong_packet_header_size_to_write(size: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_batch(batch_of(CONSUME), packet_header_size=size)


class Exported:
    """Nothing but a batch's part of the protocol."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


def test_anything_that_exports_an_array() -> None:
    assert encode_batch(Exported(batch_of(*read(GOOD).rows))) == GOOD


def test_slices() -> None:
    (batch,) = read_batches(GOOD)
    ends = [0, *accumulate(values["size"] for values in read(GOOD).rows)]
    for start in range(batch.num_rows + 1):
        for stop in range(start, batch.num_rows + 1):
            assert encode_batch(batch[start:stop]) == GOOD[ends[start] : ends[stop]]


BAD_OLD = b"".join(parts(4, [(1, b"\xff"), (3, b"")], 36))
REFUSED: dict[str, Row] = {
    "a damage": {"fault": "BAD_DIGITS", "fault_offset": 3, "raw": b"junk"},
    "a damage with a message": CONSUME | {"fault": "BAD_DIGITS", "raw": b"junk"},
    "no type": {"queue": "Foo", "count": 5},
    "nothing": {},
    "an unknown type": CONSUME | {"type": "publish"},
    "a type in capitals": CONSUME | {"type": "Consume"},
    "an empty type": CONSUME | {"type": ""},
    "no queue": {"type": "consume", "count": 5},
    "no count": {"type": "consume", "queue": "Foo"},
    "send without content": {"type": "send", "queue": "Foo", "ttl": 5},
    "dispatch without content": {"type": "dispatch", "queue": "Foo", "message_id": "id"},
    "dispatch without id": {"type": "dispatch", "queue": "Foo", "content": b""},
    "acknowledge without id": {"type": "acknowledge", "queue": "Foo"},
    "acknowledge without queue": {"type": "acknowledge", "message_id": "id"},
    "requeue without ttl": {"type": "requeue", "queue": "Foo", "message_id": "id"},
    "dead letter without id": {"type": "dead_letter", "queue": "Foo"},
    "receipt without id": {"type": "receipt", "queue": "Foo"},
    "consume with content": CONSUME | {"content": b""},
    "consume with id": CONSUME | {"message_id": ""},
    "consume with ttl": CONSUME | {"ttl": 0},
    "send with id": {"type": "send", "queue": "Foo", "content": b"", "message_id": ""},
    "send with count": {"type": "send", "queue": "Foo", "content": b"", "count": 0},
    "dispatch with count": {"type": "dispatch", "queue": "Foo", "content": b"", "message_id": "", "count": 0},
    "acknowledge with ttl": {"type": "acknowledge", "queue": "Foo", "message_id": "", "ttl": 0},
    "acknowledge with content": {"type": "acknowledge", "queue": "Foo", "message_id": "", "content": b""},
    "requeue with content": {"type": "requeue", "queue": "Foo", "message_id": "", "ttl": 0, "content": b""},
    "dead letter with ttl": {"type": "dead_letter", "queue": "Foo", "message_id": "", "ttl": 0},
    "receipt with ttl": {"type": "receipt", "queue": "Foo", "message_id": "", "ttl": 0},
    "a negative count": CONSUME | {"count": -1},
    "the least count": CONSUME | {"count": -(2**63)},
    "a negative ttl": {"type": "send", "queue": "Foo", "content": b"", "ttl": -1},
    "a negative ttl of a requeue": {"type": "requeue", "queue": "Foo", "message_id": "", "ttl": -5},
    "not UTF-8 without raw": {"type": "consume", "count": 5, "fault": "NOT_UTF8"},
    "not UTF-8 with empty raw": {"type": "send", "fault": "NOT_UTF8", "raw": b""},
    "not UTF-8 with two messages": {"type": "send", "fault": "NOT_UTF8", "raw": BAD_QUEUE * 2},
    "not UTF-8 with a part": {"type": "send", "fault": "NOT_UTF8", "raw": BAD_QUEUE[:-1]},
    "not UTF-8 with damage": {"type": "consume", "fault": "NOT_UTF8", "raw": ODD},
    "not UTF-8 with an unknown type": {"type": "consume", "fault": "NOT_UTF8", "raw": UNKNOWN},
    "not UTF-8 with other headers": {"type": "acknowledge", "fault": "NOT_UTF8", "raw": BAD_OLD},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_rows(name: str) -> None:
    """The row is named, counted from 0, wherever it stands in the batch, and in a slice from its start."""
    for before in (0, 1, 3):
        batch = batch_of(*[CONSUME] * before, REFUSED[name], CONSUME)
        with pytest.raises(ValueError, match=rf"^row {before}: "):
            encode_batch(batch)
    with pytest.raises(ValueError, match=r"^row 1: "):
        encode_batch(batch[2:])
    assert encode_batch(batch[4:]) == FOO


def test_the_first_refused_row_is_named() -> None:
    batch = batch_of(CONSUME, CONSUME, CONSUME | {"count": -1}, {}, CONSUME | {"ttl": 1})
    with pytest.raises(ValueError, match=r"^row 2: "):
        encode_batch(batch)


def test_not_utf8_with_another_packet_header_size() -> None:
    batch = batch_of(CONSUME, *read(BAD_QUEUE).rows)
    assert encode_batch(batch) == FOO + BAD_QUEUE
    with pytest.raises(ValueError, match=r"^row 1: "):
        encode_batch(batch, packet_header_size=36)


def test_damage_rows_of_a_reader_are_refused() -> None:
    (batch,) = read_batches(FOO + BROKEN + FOO, on_fault="skip")
    with pytest.raises(ValueError, match=r"^row 1: "):
        encode_batch(batch)
    assert encode_batch(batch.filter(pa.array([True, False, True]))) == FOO * 2


def sizes_seen(data: bytes) -> Iterator[int]:
    for values in read(data).rows:
        yield values["size"]


def test_sizes_tile_the_input() -> None:
    assert sum(sizes_seen(GOOD)) == len(GOOD)

"""Captures read in ranges: guesses where frames begin may be wrong, the rows never are.

A range is read up to the first boundary at or behind the place where the next one is guessed to begin. If that is
another place, the next range is read from there instead. What makes a guess wrong is a content that holds frames, or
what looks like them, so the captures here are full of it.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from columns import (
    BAD_BOTH,
    BAD_ID,
    BROKEN,
    FOO,
    HELLO,
    MIXED,
    NAMES,
    ODD,
    UNKNOWN,
    Reading,
    Row,
    expected,
    packed,
    read,
    row_size,
    same,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mutations import Case
from strategies import cases
from wire import message_header, message_parts, message_wire, packet_header, parts

import phpmq
from phpmq.arrow import read_batches
from phpmq.capture import Capture

pytestmark = pytest.mark.usefixtures("backend")
modes = pytest.mark.parametrize("mode", ["raise", "skip"])


@pytest.fixture
def backend(codec: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are made by this codec; what they are compared with is not."""
    monkeypatch.setattr("phpmq.arrow.codec", codec)
    monkeypatch.setattr("phpmq.capture.codec", codec)


# --- captures that mislead ---


def send(content: bytes, ttl: int | None = None, queue: str = "q") -> bytes:
    """The older form, whose content comes last, unless there is a TTL."""
    fields: dict[str, Any] = {"queue": queue, "content": content}
    return message_wire("Send", fields if ttl is None else fields | {"ttl": ttl})


def ttl_first(content: bytes) -> bytes:
    """A Send of the newer form whose content comes last all the same."""
    return b"".join(parts(1, [(5, b"60"), (1, b"q"), (2, content)]))


def id_first(content: bytes) -> bytes:
    return b"".join(parts(3, [(3, b"id"), (5, b"0"), (1, b"\xff"), (2, content)]))


def swallowing(length: int) -> bytes:
    """The head of a Send whose content is as long as this and stands behind it, then its last packet."""
    return message_header(1, 3) + packet_header(1, 0) + packet_header(2, length)


#: What follows the content of ``send(..., 60)``: a packet that ends the frame, and any Send with a TTL.
TAIL = packet_header(5, 2) + b"60"

INNER = FOO + HELLO + send(FOO + HELLO[:-1]) + BAD_BOTH + FOO
DEEP = send(FOO + send(INNER + send(INNER, 3)) + HELLO, 60) + send(b"x", 1)
HEADERS = b"H0100304P01" * 12
CUT = [HELLO[:length] for length in (1, 7, 8, 9, 39, 40, 75, 121)]

CAPTURES: Mapping[str, bytes] = {
    "nested": DEEP + FOO + send(MIXED) + ttl_first(MIXED[:900]) + FOO,
    "nothing but nested": send(send(send(INNER * 2) + FOO) * 2),
    "headers": send(HEADERS) + send(HEADERS, 60) + FOO + id_first(HEADERS) + send(b"H0100202" * 20) + send(b"H" * 99),
    "heads": b"".join(send(head) for head in CUT) + b"".join(send(head, 60) + ttl_first(head) for head in CUT),
    # the last packet of the frame is that of the frame that seems to begin in its content, too
    "own tail": (send(FOO + swallowing(0), 60) + FOO) * 4 + send(swallowing(0), 60),
    # the frame in the content holds the rest of its frame and the next one but its last packet
    "next tail": (send(FOO + swallowing(len(TAIL + send(b"abc", 60)) - len(TAIL)), 60) + send(b"abc", 60)) * 4 + FOO,
    # it ends in the middle of the next content, and another one begins there
    "mid content": (
        send(swallowing(len(TAIL) + 8 + 33 + 32), 60) + send(TAIL + FOO + swallowing(len(TAIL) + 76), 60) + FOO + HELLO
    )
    * 3,
    "older forms": (send(INNER) + message_wire("Dispatch", {"queue": "", "content": INNER, "message_id": ""})) * 2,
    "content last": (ttl_first(INNER) + id_first(HELLO) + ttl_first(swallowing(0)) + ttl_first(b"")) * 2,
    "damage with frames": b"".join(
        [
            *(send(INNER, 60)[:-1] + b"x", FOO),  # sound, so nothing of it surfaces
            *(b"".join(parts(42, [(1, INNER), (77, FOO)])), HELLO, b"".join(parts(42, [(1, INNER)])), b"junk", FOO),
            *(b"H0100103P02" + send(INNER, 60)[11:], send(INNER, 60)[:100] + send(INNER, 60)[101:], FOO),
            *(b"h" + send(HEADERS + FOO, 60)[1:], send(INNER)[1:], BROKEN, BAD_ID),
        ]
    ),
    "damage without frames": BROKEN + FOO + ODD + HELLO + b"junk" + UNKNOWN + FOO + b"H" * 70 + BROKEN + BROKEN + ODD,
    "truncated": FOO + HELLO + send(INNER + HELLO * 3, 60)[:-30],
    "truncated and deep": DEEP + send(DEEP)[:-1],
    "all": MIXED,
}
captures = pytest.mark.parametrize("name", CAPTURES)


def all_starts(data: bytes) -> list[int]:
    """Where whole valid frames begin, in contents, too."""
    starts = []
    for place in range(len(data)):
        if data[place] == ord("H"):
            try:
                next(phpmq.iter_messages(memoryview(data)[place:]))
            except phpmq.ProtocolError:
                continue
            starts.append(place)
    return starts


def boundaries(rows: list[Row]) -> list[int]:
    return [0, *(values["offset"] + values["size"] for values in rows)]


def at_or_behind(places: list[int], place: int) -> int:
    return places[bisect_left(places, place)]


def test_that_captures_mislead() -> None:
    """Most captures here have frames where reading them one by one finds none."""
    honest = []
    for name, data in CAPTURES.items():
        assert 500 < len(data) < 6000
        if set(all_starts(data)) <= set(boundaries(expected(data, on_fault="skip").rows)):
            honest.append(name)
    assert honest == ["headers", "heads", "damage without frames", "all"]


def test_that_frames_in_contents_end_anywhere() -> None:
    ends = set()
    for name in ("own tail", "next tail", "mid content"):
        data = CAPTURES[name]
        right = set(boundaries(expected(data).rows))
        for start in set(all_starts(data)) - right:
            frame = next(phpmq.iter_frames(data[start:]))
            ends.add((name, start + frame.size in right))
    assert ends >= {("own tail", True), ("next tail", True), ("mid content", False)}


# --- one cut ---


@captures
def test_cut_anywhere(name: str) -> None:
    data = CAPTURES[name]
    right = expected(data, on_fault="skip")
    places = boundaries(right.rows)
    starts = [*all_starts(data), len(data)]
    with Capture(data) as capture:
        guesses = [capture.find_frame(cut) for cut in range(len(data) + 1)]
    assert guesses == [at_or_behind(starts, cut) for cut in range(len(data) + 1)]
    for guess in sorted(set(guesses)):
        first = read(data, stop=guess, on_fault="skip")
        assert first.offset == at_or_behind(places, guess)
        second = read(data, start=first.offset, on_fault="skip")
        assert first.rows + second.rows == right.rows
        assert (first.error, second.error, second.offset) == (None, None, len(data))


@captures
def test_stop_anywhere(name: str) -> None:
    """Whatever the place, and not only where a frame seems to begin."""
    data = CAPTURES[name]
    right = expected(data, on_fault="skip")
    places = boundaries(right.rows)
    for stop in range(0, len(data) + 1, 13):
        end = at_or_behind(places, stop)
        reading = read(data, stop=stop, on_fault="skip", columns=["offset"])
        assert [values["offset"] for values in reading.rows] == places[: places.index(end)]
        assert reading.offset == end


@captures
def test_start_at_every_boundary(name: str) -> None:
    data = CAPTURES[name]
    right = expected(data, on_fault="skip")
    for number, place in enumerate(boundaries(right.rows)):
        reading = read(data, start=place, on_fault="skip")
        assert reading.rows == right.rows[number:]
        assert reading.offset == len(data)


# --- many ranges ---


def read_by_ranges(capture: Capture, size: int, **options: Any) -> tuple[list[Row], int]:
    """Follow the rule: a range that was read from the right place counts, another one is read again."""
    rows: list[Row] = []
    place = wrong = 0
    for start, stop in capture.ranges(size, **options):
        reading = read(capture, start=start, stop=stop, on_fault="skip")
        if place != start:
            wrong += 1
            reading = read(capture, start=place, stop=stop, on_fault="skip")
        rows += reading.rows
        place = reading.offset
    return rows, wrong


@captures
@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_ranges(name: str, count: int) -> None:
    data = CAPTURES[name]
    right = expected(data, on_fault="skip").rows
    with Capture(data) as capture:
        rows, wrong = read_by_ranges(capture, -(-len(data) // count))
        assert rows == right
        if name in ("headers", "heads", "damage without frames", "all"):
            assert wrong == 0
        rows, wrong = read_by_ranges(capture, -(-len(data) // count), exact=True)
        assert (rows, wrong) == (right, 0)


def test_that_ranges_are_read_again() -> None:
    with Capture(CAPTURES["nested"]) as capture:
        assert read_by_ranges(capture, 50)[1] > 10


# --- threads ---


@captures
@modes
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_threads(monkeypatch: pytest.MonkeyPatch, name: str, mode: str, threads: int) -> None:
    data = CAPTURES[name]
    right = expected(data, on_fault=mode)
    for size in (8, 60, 150, 500, 1500, 10**6):
        monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", size)
        same(read(data, threads=threads, on_fault=mode), right)


@modes
def test_threads_over_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 200)
    path = tmp_path / "capture.phpmq"
    for data in CAPTURES.values():
        path.write_bytes(data)
        right = expected(data, on_fault=mode)
        with Capture(path) as capture:
            for source in (path, str(path), bytearray(data), capture):
                same(read(source, threads=3, on_fault=mode), right)


def test_threads_over_what_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 100)
    for data in CAPTURES.values():
        same(read([data[:77], data[77:]], threads=3, on_fault="skip"), expected(data, on_fault="skip"))


def long_first(rows: int) -> bytes:
    """Contents of frames, first one that spans many ranges."""
    return send(FOO * rows) + (send(FOO * 3, 60) + FOO) * (rows // 10) + BROKEN + send(HELLO * rows)[:-1]


@modes
def test_threads_over_a_larger_file(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    data = long_first(600)
    right = expected(data, on_fault=mode)
    for size, threads in ((1000, 4), (4096, 2), (30_000, 3)):
        monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", size)
        same(read(data, threads=threads, on_fault=mode), right)


def test_an_error_in_every_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error counts, whichever thread meets one first, and nothing comes behind it."""
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 76 * 3)
    for number in (0, 1, 2, 3, 5, 17, 28, 29):
        frames = [FOO] * 30
        frames[number:] = [BROKEN if place == number or place % 3 == 0 else FOO for place in range(number, 30)]
        data = b"".join(frames)
        reading = read(data, threads=4)
        same(reading, expected(data))
        assert (len(reading.rows), reading.offset) == (number, 76 * number)


def test_an_equal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 100)
    for damage in (ODD, BROKEN, UNKNOWN, b"HTTP/1.1", b"\r\n", HELLO[:-1]):
        data = FOO * 9 + damage
        with pytest.raises(phpmq.ProtocolError) as right:
            list(phpmq.iter_messages(data))
        with pytest.raises(phpmq.ProtocolError) as raised:
            list(read_batches(data, threads=3))
        assert raised.value == right.value


def test_a_fault_that_only_a_wrong_guess_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A content with a frame and damage behind it: read from the frame on there is a fault, and there is none."""
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 100)
    data = (send(FOO + b"junk" * 30, 60) + send(FOO + BROKEN * 3)) * 8
    same(read(data, threads=4), expected(data))
    assert read(data, threads=4).error is None


@modes
def test_threads_with_start_and_stop(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    data = CAPTURES["nested"] + FOO + BROKEN + HELLO
    places = boundaries(expected(data, on_fault="skip").rows)
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 120)
    for start in places[:-1]:
        for stop in (*range(start, len(data) + 1, 401), len(data), None):
            options: dict[str, Any] = {"start": start, "stop": stop, "on_fault": mode}
            same(read(data, threads=3, **options), read(data, **options))


def test_threads_with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 90)
    for data in CAPTURES.values():
        right = expected(data, on_fault="skip").rows
        for columns in (["queue"], ["raw", "fault"], ["size", "content", "ttl"]):
            rows = read(data, columns=columns, threads=3, on_fault="skip").rows
            assert rows == [{name: values[name] for name in columns} for values in right]
        batches = read_batches(data, columns=[], threads=3, on_fault="skip")
        assert sum(batch.num_rows for batch in batches) == len(right)


def check_limits(reading: Reading, rows: int, size: int) -> None:
    """No batch is over a limit but one of a single row."""
    place = 0
    for length in reading.lengths:
        batch = reading.rows[place : place + length]
        assert length <= rows
        assert length == 1 or sum(map(row_size, batch)) <= size
        place += length


def test_threads_with_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in CAPTURES.values():
        right = expected(data, on_fault="skip")
        for rows, size, length in ((1, 10**6, 100), (3, 10**6, 500), (100, 300, 400), (4, 700, 8)):
            monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", length)
            reading = read(data, threads=3, on_fault="skip", max_batch_rows=rows, max_batch_bytes=size)
            same(reading, right)
            check_limits(reading, rows, size)
            alone = read(data, on_fault="skip", max_batch_rows=rows, max_batch_bytes=size)
            assert alone.lengths == packed([row_size(values) for values in right.rows], rows, size)


@pytest.mark.parametrize("size", [35, 36])
def test_threads_with_other_headers(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 150)
    inner = message_wire("Consume", {"queue": "Foo", "count": 5}, size)
    data = b"".join(message_wire("Send", {"queue": "q", "content": inner * number}, size) for number in range(9))
    right = expected(data, packet_header_size=size)
    for choice in (size, "auto"):
        same(read(data, threads=3, packet_header_size=choice), right)


def test_threads_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 150)
    for data in CAPTURES.values():
        for mode in ("raise", "skip"):
            for limit in (100, 200, 500):
                right = expected(data, on_fault=mode, max_frame_size=limit)
                same(read(data, threads=3, on_fault=mode, max_frame_size=limit), right)


def test_offset_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 100)
    data = CAPTURES["nested"]
    seen = 0
    reader = read_batches(data, threads=3, max_batch_rows=1)
    for batch in reader:
        assert batch["offset"][0].as_py() == seen
        seen += batch["size"][0].as_py()
        assert reader.offset == seen
    assert seen == len(data)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_leaving_early(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 1000)
    data = bytearray(FOO * 10_000)
    with read_batches(data, threads=4, max_batch_rows=10) as reader:
        for _ in range(count):
            assert next(reader).num_rows <= 10
    assert reader.offset <= 760 * count


def test_more_threads_than_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 10**9):
        monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", size)
        assert read(FOO * 3, threads=16).rows == expected(FOO * 3).rows
        assert read(b"", threads=16) == ([], None, 0, [])
        assert read(b"x", threads=2, on_fault="skip").rows == expected(b"x", on_fault="skip").rows


@pytest.mark.parametrize("effort", [pytest.param(60, id="few"), pytest.param(3000, id="many", marks=pytest.mark.long)])
def test_damaged_streams(monkeypatch: pytest.MonkeyPatch, effort: int) -> None:
    @settings(max_examples=effort, derandomize=True, deadline=None, database=None)
    @given(
        st.lists(cases(), min_size=1, max_size=3), st.sampled_from([16, 60, 200]), st.sampled_from(["raise", "skip"])
    )
    def compare(drawn: list[Case], size: int, mode: str) -> None:
        monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", size)
        data = b"".join(case.data for case in drawn)
        assume(not data.startswith((b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")))  # what is told to be compressed
        options = {"on_fault": mode, **drawn[0].options}
        same(read(data, threads=3, **options), expected(data, **options))

    compare()


# --- damage alone ---


class Damaged(NamedTuple):
    """A capture with damage, and where its frames begin that have none."""

    data: bytes
    starts: list[int]


def plain_frame(dice: random.Random) -> list[bytes]:
    text = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=dice.randint(0, 60)))
    values = {"queue": text[:9], "content": text.encode(), "message_id": text[9:25], "ttl": 60, "count": len(text)}
    fields = {
        "Send": ("queue", "content", "ttl"),
        "Consume": ("queue", "count"),
        "Dispatch": ("queue", "content", "message_id", "ttl"),
        "Acknowledge": ("queue", "message_id"),
        "Requeue": ("queue", "message_id", "ttl"),
    }
    name = dice.choice(list(fields))
    return message_parts(name, {key: values[key] for key in fields[name]})


def is_damaged(data: bytearray, place: int, size: int) -> bool:
    """No message begins here any more, and no frame without meaning that is as long as to hold other frames."""
    rest = memoryview(data)[place:]
    if phpmq.scan(rest[:size]).frames:
        return False
    try:
        return next(phpmq.iter_frames(rest)).size == size
    except phpmq.ProtocolError:
        return True


def damaged(count: int, seed: int) -> Damaged:
    """Three of ten frames have another byte in a header, at a marker or a digit, and are no frames any more."""
    dice = random.Random(seed)
    frames = [plain_frame(dice) for _ in range(count)]
    data = bytearray()
    starts: list[int] = []
    touched: list[tuple[int, int, int]] = []
    for number, frame in enumerate(frames):
        starts.append(len(data))
        if number % 10 in (2, 3, 7):
            header = dice.choice([0, *range(1, len(frame), 2)])
            inside = dice.choice([0, dice.randrange(len(frame[header])), len(frame[header]) - 1])
            touched.append((len(data), len(b"".join(frame)), len(data) + len(b"".join(frame[:header])) + inside))
        data += b"".join(frame)
    for start, size, place in reversed(touched):  # what follows a frame is what it stays
        before = data[place]
        for byte in dice.sample(b"0123456789HPhx \n\0", 17):
            data[place] = byte
            if byte != before and is_damaged(data, start, size):
                break
        else:
            raise AssertionError("nothing damages this frame")
    lost = {start for start, *_ in touched}
    return Damaged(bytes(data), [start for start in starts if start not in lost])


efforts = pytest.mark.parametrize(
    ("frames", "cuts"),
    [pytest.param(1000, 2000, id="few"), pytest.param(20_000, 100_000, id="many", marks=pytest.mark.long)],
)


@efforts
def test_damage_alone_makes_no_guess_wrong(frames: int, cuts: int) -> None:
    data, starts = damaged(frames, seed=frames)
    rows = expected(data, on_fault="skip").rows
    assert [values["offset"] for values in rows if values["fault"] is None] == starts
    places = boundaries(rows)
    starts.append(len(data))
    dice = random.Random(7)
    with Capture(data) as capture:
        for number in range(cuts):
            cut = dice.randrange(len(data))
            guess = capture.find_frame(cut)
            assert guess == at_or_behind(starts, cut)
            assert guess == at_or_behind(places, guess)
            if number % 5 == 0:  # read there from some rows before
                start = places[max(0, bisect_left(places, cut) - 4)]
                reading = read(capture, start=start, stop=guess, columns=["size"], on_fault="skip")
                assert reading.offset == guess


@pytest.mark.parametrize("threads", [2, 4])
def test_damage_alone_with_threads(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    data = damaged(1000, seed=3).data
    monkeypatch.setattr("phpmq.arrow._RANGE_SIZE", 5000)
    for mode in ("raise", "skip"):
        same(read(data, threads=threads, on_fault=mode), expected(data, on_fault=mode))


def test_all_columns_are_compared() -> None:
    assert set(NAMES) == set(read(FOO).rows[0])

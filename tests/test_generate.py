"""Generated traffic: that it looks like a broker's, is the same everywhere, and that its damage is what it says."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from itertools import islice, pairwise
from statistics import median
from types import ModuleType
from typing import Any

import pytest
from wire import message_wire

from phpmq import (
    Acknowledge,
    Consume,
    DeadLetter,
    Dispatch,
    Message,
    Receipt,
    Requeue,
    Send,
    encode,
    encode_many,
    iter_messages,
)
from phpmq.generate import _NOISE, Touch, generate_messages, write_capture

SIZES = (32, 35, 36)
KINDS = {"marker", "digit", "junk", "head", "cut"}


@pytest.fixture(scope="module")
def traffic() -> list[Message]:
    return list(islice(generate_messages(), 100_000))


def capture(size: int, **options: int) -> tuple[bytes, list[Touch]]:
    file = io.BytesIO()
    touches = write_capture(file, size, **options)
    return file.getvalue(), touches


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that meet as one."""
    result: list[tuple[int, int]] = []
    for start, stop in ranges:
        if result and result[-1][1] == start:
            start = result.pop()[0]  # noqa: PLW2901
        result.append((start, stop))
    return result


def contents(traffic: Iterable[Message]) -> list[bytes]:
    return [message.content for message in traffic if isinstance(message, Send)]


# What a broker sees


def test_types(traffic: list[Message]) -> None:
    shares = {kind: number / len(traffic) for kind, number in Counter(map(type, traffic)).items()}
    assert 0.30 < shares[Send] < 0.37
    assert 0.29 < shares[Dispatch] < 0.36
    assert 0.26 < shares[Acknowledge] < 0.33
    assert 0.005 < shares[Consume] < 0.03
    assert 0.005 < shares[Requeue] < 0.02
    assert 0.002 < shares[DeadLetter] < 0.01
    assert 0.01 < shares[Receipt] < 0.03
    assert len(shares) == 7


def test_causality(traffic: list[Message]) -> None:  # noqa: PLR0915 (it is a broker)
    """Each message of the protocol is one that the state of the broker, as told so far, allows."""
    sent: dict[str, Counter[bytes]] = {}
    asked: Counter[str] = Counter()
    held: dict[str, Dispatch] = {}
    back: dict[str, tuple[Dispatch, int | None]] = {}  # what was requeued, with its new TTL
    begun: dict[str, Dispatch] = {}  # all that was ever dispatched, as it was the last time
    done: set[str] = set()
    again = Counter[str]()
    for message in traffic:
        match message:
            case Send(queue, content, ttl):
                assert ttl is None or ttl in (0, 60, 300, 1800, 3600, 86_400, 604_800)
                sent.setdefault(queue, Counter())[content] += 1
            case Consume(queue, count):
                assert 1 <= count <= 64
                asked[queue] = count
            case Dispatch(queue, content, id, ttl):
                assert id not in done
                assert len(id) == 32
                assert not set(id) - set("0123456789abcdef")
                asked[queue] -= 1
                assert asked[queue] >= 0
                if id in back:
                    last, limit = back.pop(id)
                    again["requeue"] += 1
                elif id in begun:  # its consumer died
                    last = begun[id]
                    limit = last.ttl
                    again["death"] += 1
                    again["death, older form"] += ttl is None
                    again["death, later"] += ttl is not None and limit is not None and ttl < limit
                else:
                    assert sent[queue][content] > 0
                    sent[queue][content] -= 1
                    last, limit = message, ttl
                assert (last.queue, last.content) == (queue, content)
                if limit:
                    assert ttl is not None
                    assert 0 < ttl <= limit
                else:
                    assert ttl == limit
                held[id] = begun[id] = message
            case Acknowledge(queue, id) | DeadLetter(queue, id):
                assert held.pop(id).queue == queue
                done.add(id)
            case Requeue(queue, id, ttl):
                last = held.pop(id)
                assert last.queue == queue
                back[id] = last, ttl
            case Receipt(queue, id):
                assert id not in begun
                assert sent[queue].total() > 0
    assert again["requeue"] > 500
    assert again["death"] > 500
    assert again["death, older form"] > 50
    assert again["death, later"] > 0.6 * again["death"]


def test_a_receipt_is_for_what_was_just_sent_in_the_older_form(traffic: list[Message]) -> None:
    receipts = [(sent, it) for sent, it in pairwise(traffic) if isinstance(it, Receipt)]
    dispatched = {message.message_id: message for message in traffic if isinstance(message, Dispatch)}
    found = 0
    for sent, receipt in receipts:
        assert isinstance(sent, Send)
        assert (sent.queue, sent.ttl) == (receipt.queue, None)
        if receipt.message_id in dispatched:
            found += 1
            assert dispatched[receipt.message_id].content == sent.content
    assert found > 0.9 * len(receipts)


def test_some_messages_expire(traffic: list[Message]) -> None:
    """Of those that may wait for a minute many are never dispatched; of those that may wait for a week nearly all."""
    dispatched = {(message.queue, message.content) for message in traffic if isinstance(message, Dispatch)}
    there: dict[int | None, list[bool]] = {}
    for message in traffic[: len(traffic) // 2]:
        if isinstance(message, Send):
            there.setdefault(message.ttl, []).append((message.queue, message.content) in dispatched)
    shares = {ttl: sum(them) / len(them) for ttl, them in there.items()}
    assert 0.3 < shares[60] < 0.8
    assert shares[60] < shares[300] < 0.99
    assert min(shares[ttl] for ttl in (None, 0, 604_800)) > 0.98


def test_a_requeue_sets_a_new_ttl(traffic: list[Message]) -> None:
    """It runs from then on: by the next dispatch as much of it is gone as by the first one, not twice as much."""
    busiest = [message for message in traffic if message.queue == "orders.new"]
    gone: dict[bool, list[int]] = {True: [], False: []}
    seen: set[str] = set()
    new: dict[str, int] = {}
    for message in busiest:
        if isinstance(message, Requeue):
            new[message.message_id] = message.ttl
        elif isinstance(message, Dispatch):
            if message.message_id in new:
                full = new.pop(message.message_id)
                if full and message.ttl:
                    gone[True].append(full - message.ttl)
            elif message.message_id not in seen and (message.ttl or 0) > 600_000:
                gone[False].append(604_800 - (message.ttl or 0))
            seen.add(message.message_id)
    assert min(map(len, gone.values())) > 100
    assert median(gone[True]) < 1.4 * median(gone[False])


def test_memory_is_bounded(traffic: list[Message]) -> None:
    """Of what was sent, few are not dispatched or have expired; and of those dispatched few are not done with."""
    dispatched = {message.message_id for message in traffic if isinstance(message, Dispatch)}
    done = {message.message_id for message in traffic if isinstance(message, Acknowledge | DeadLetter)}
    assert done <= dispatched
    assert len(dispatched - done) < 40 * 32


def test_queues_have_a_long_tail(traffic: list[Message]) -> None:
    counts = [number for _, number in Counter(message.queue for message in traffic).most_common()]
    assert len(counts) == 40
    assert 0.2 < counts[0] / len(traffic) < 0.3
    for rank in (2, 4, 8, 16):
        assert counts[rank - 1] == pytest.approx(counts[0] / rank, rel=0.25)
    assert any(not message.queue.isascii() for message in traffic)


def test_contents_have_a_long_tail(traffic: list[Message]) -> None:
    sizes = sorted(map(len, contents(traffic)))
    assert sizes[0] == 2
    assert 10 < sizes[len(sizes) // 10] < 40
    assert 100 < sizes[len(sizes) // 2] < 200
    assert 3000 < sizes[len(sizes) * 99 // 100] < 7000
    assert 32 * 1024 < sizes[-1] <= 64 * 1024


def test_contents_are_text_json_and_binary(traffic: list[Message]) -> None:
    forms: Counter[str] = Counter()
    for content in contents(traffic):
        if content.startswith(b"{"):
            assert json.loads(content)["method"] == "HTTP"
            forms["json"] += 1
        elif content.startswith(b"\0"):
            forms["binary"] += 1
        else:
            assert not set(content) - set(b" abcdefghijklmnopqrstuvwxyz")
            forms["text"] += 1
    total = forms.total()
    assert 0.3 < forms["json"] / total < 0.5
    assert 0.1 < forms["binary"] / total < 0.15
    assert len(set(contents(traffic))) > 0.95 * total


def test_no_content_looks_like_a_frame(traffic: list[Message]) -> None:
    assert any(b"H" in content for content in contents(traffic) if content.startswith(b"\0"))
    for content in contents(traffic):
        assert b"H01" not in content
        assert not content.startswith(b"H")
        assert not content.endswith((b"H", b"H0"))
    assert b"H01" not in _NOISE  # of which all binary contents are made


# The same everywhere


def test_a_seed_means_the_same_messages_in_every_version() -> None:
    digest = sha256(encode_many(islice(generate_messages(7), 20_000))).hexdigest()
    assert digest == "1992f4bda312165de3068dd233f3b13c15bbee3030abfae50a56616b1f32cc6b"
    assert sha256(encode_many(islice(generate_messages(8), 20_000))).hexdigest() != digest
    assert list(islice(generate_messages(), 100)) == list(islice(generate_messages(0), 100))


def test_a_seed_means_the_same_capture_in_every_version() -> None:
    data, touches = capture(500_000, seed=7, damages=50, packet_header_size=36)
    assert (
        sha256(data + repr([tuple(touch) for touch in touches]).encode()).hexdigest()
        == "19bee5ba1b325683860dcdee81fb99ff65be52d4b48011c0397fcf1b16abaf4c"
    )


def test_the_wire_by_hand() -> None:
    data, _ = capture(1)
    first = next(generate_messages())
    assert isinstance(first, Send)
    assert data == message_wire("Send", {"queue": first.queue, "content": first.content, "ttl": first.ttl})


# How much is written


@pytest.mark.parametrize("packet_header_size", SIZES)
@pytest.mark.parametrize("size", [1, 5000, 1_000_000])
def test_the_frame_that_reaches_the_size_is_the_last(size: int, packet_header_size: int) -> None:
    data, touches = capture(size, seed=1, packet_header_size=packet_header_size)
    messages = list(iter_messages(data, packet_header_size=packet_header_size))
    assert messages == list(islice(generate_messages(1), len(messages)))
    last = len(encode(messages[-1], packet_header_size=packet_header_size))
    assert len(data) - last < size <= len(data)
    assert touches == []


def test_a_size_that_is_reached_exactly() -> None:
    for number in (1, 3, 1024, 1025):
        wire = encode_many(islice(generate_messages(), number))
        assert capture(len(wire))[0] == wire
        assert capture(len(wire) - 1)[0] == wire
        assert capture(len(wire) + 1)[0] == encode_many(islice(generate_messages(), number + 1))


def test_nothing() -> None:
    assert capture(0) == (b"", [])
    assert capture(0, damages=3) == (b"", [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": -1}, "must not be negative, got -1 and 0"),
        ({"damages": -1}, "must not be negative, got 1000 and -1"),
        ({"packet_header_size": 33}, "packet_header_size"),
        ({"packet_header_size": 33, "damages": 1}, "packet_header_size"),
    ],
)
def test_wrong_arguments(options: dict[str, int], text: str) -> None:
    file = io.BytesIO()
    with pytest.raises(ValueError, match=text):
        write_capture(file, **({"size": 1000} | options))
    assert file.getvalue() == b""


# Damage


def check_guarantee(codec: ModuleType, size: int, seed: int, damages: int, packet_header_size: int) -> list[Touch]:
    """Read it: each message that was not touched is there, and the damage is where it is said to be."""
    data, touches = capture(size, seed=seed, damages=damages, packet_header_size=packet_header_size)
    whole, _ = capture(size, seed=seed, packet_header_size=packet_header_size)
    options: dict[str, Any] = {"packet_header_size": packet_header_size}
    sent = list(codec.iter_messages(whole, **options))
    assert len(touches) == min(damages, len(sent))
    read = list(codec.iter_messages(data, **options, on_fault="skip"))
    found = [(item.start, item.stop) for item in read if hasattr(item, "fault")]
    lost = {touch.message for touch in touches}
    assert [item for item in read if not hasattr(item, "fault")] == [
        message for number, message in enumerate(sent) if number not in lost
    ]
    assert merged(found) == merged((touch.start, touch.stop) for touch in touches)
    check_touches(codec, data, sent, touches, packet_header_size)
    return touches


def check_touches(
    codec: ModuleType, data: bytes, sent: list[Message], touches: list[Touch], packet_header_size: int
) -> None:
    """Each kind of damage is what it is said to be."""
    for touch in touches:
        left = data[touch.start : touch.stop]
        if touch.message is None:
            assert touch.kind == "junk"
            assert 1 <= len(left) <= 400
            assert not left.startswith(b"H")
            assert not left.endswith(b"H")
            assert 0 < touch.start < touch.stop < len(data)
            continue
        frame = codec.encode(sent[touch.message], packet_header_size=packet_header_size)
        if touch.kind == "head":
            assert 0 < len(left) < len(frame)
            assert frame.endswith(left)
            assert not left.startswith(b"H")
        elif touch.kind == "cut":
            assert touch is touches[-1]
            assert touch.message == len(sent) - 1
            assert 0 < len(left) < len(frame)
            assert frame.startswith(left)
            assert touch.stop == len(data)
        else:
            [(was, became)] = [(a, b) for a, b in zip(frame, left, strict=True) if a != b]
            assert chr(was) in ("HP" if touch.kind == "marker" else "0123456789")
            assert chr(became) not in "HP0123456789"


def test_each_message_that_was_not_damaged_is_read(codec: ModuleType) -> None:
    """Three of about ten frames, so that damages stand next to each other in every way."""
    kinds: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    for seed in range(250):
        touches = check_guarantee(codec, 4000, seed, 3, SIZES[seed % 3])
        kinds.update(touch.kind for touch in touches)
        pairs.update((a.kind, b.kind) for a, b in pairwise(touches) if a.stop == b.start)
    assert kinds.keys() == KINDS
    assert min(kinds.values()) > 50
    assert len(pairs) > 12


def test_each_frame_can_be_damaged(codec: ModuleType) -> None:
    pairs: set[tuple[str, str]] = set()
    for seed in range(60):
        touches = check_guarantee(codec, 8000, seed, 1000, SIZES[seed % 3])
        pairs.update((a.kind, b.kind) for a, b in pairwise(touches) if a.stop == b.start)
        assert touches[0].kind != "junk"
    # behind junk comes the whole frame that it stands in front of, and nothing comes behind the cut
    assert pairs == {(a, b) for a in KINDS - {"junk", "cut"} for b in KINDS}


def test_damages_are_spread_over_the_whole_file(codec: ModuleType) -> None:
    touches = check_guarantee(codec, 3_000_000, 1, 5000, 32)
    assert touches == sorted(touches, key=lambda touch: touch.start)
    numbers = [touch.message for touch in touches if touch.message is not None]
    frames = sum(1 for _ in iter_messages(capture(3_000_000, seed=1)[0]))
    for tenth in range(10):
        assert 300 < sum(tenth * frames <= 10 * number < (tenth + 1) * frames for number in numbers) < 450


def test_a_cut_is_at_the_end_of_every_other_file() -> None:
    last = [capture(20_000, seed=seed, damages=3)[1][-1].kind for seed in range(100)]
    assert 30 < last.count("cut") < 70


@pytest.mark.parametrize("kind", sorted(KINDS - {"junk"}))
def test_a_single_damage(codec: ModuleType, kind: str) -> None:
    """A file of one frame, damaged in every way that it can be."""
    assert kind in {check_guarantee(codec, 1, seed, 1, 32)[0].kind for seed in range(40)}


@pytest.mark.parametrize("damages", [1, 20])
def test_h01_stands_only_where_a_frame_begins(damages: int) -> None:
    for seed in range(30):
        data, touches = capture(20_000, seed=seed, damages=damages)
        items = iter_messages(data, on_fault="skip")
        whole = sum(not hasattr(item, "fault") for item in items)
        assert data.count(b"H01") <= whole + len(touches)


@pytest.mark.long
def test_a_thousand_damages_in_100_megabytes(codec: ModuleType) -> None:
    for seed in range(3):
        assert len(check_guarantee(codec, 100_000_000, seed, 1000, 32)) == 1000

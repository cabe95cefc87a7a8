"""What the pipeline has to tell of traffic, worked out one event after the other in plain Python; and the traffic.

It comes from `generated`, which knows what is left of a damaged capture without decoding it, or is made by hand with a
`Tape`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from columns import Row, message_row, row

from phpmq import Acknowledge, Consume, DeadLetter, Dispatch, Message, Receipt, Requeue, Send, encode
from phpmq.generate import generate_messages, write_capture

ANOMALIES = ("acknowledged_without_dispatch", "acknowledged_twice", "dispatched_after_end", "ttl_raised")


class Placed(NamedTuple):
    """A message, and where it is. ``number`` is for an order that is not the one of the files."""

    message: Any
    path: str
    offset: int
    size: int
    number: int = 0


class Range(NamedTuple):
    """A damage. ``fault`` is None where only the place of a damage is known."""

    path: str
    offset: int
    size: int
    fault: str | None


class Traffic(NamedTuple):
    messages: list[Placed]
    ranges: list[Range]


# --- what it has to be told as ---


def lifecycles(traffic: Traffic, *, is_ordered: bool = False) -> list[Row]:
    """The rows of ``lifecycles``; with ``is_ordered`` those for the order of ``Placed.number``."""
    stories: dict[tuple[str, str], list[Placed]] = {}
    for placed in traffic.messages:
        message = placed.message
        is_event = isinstance(message, Dispatch | Acknowledge | Requeue | DeadLetter)
        if is_event and is_text(message.queue) and is_text(message.message_id):
            stories.setdefault((message.queue, message.message_id), []).append(placed)
    suspects = suspects_of(traffic)
    return [lifecycle(queue, id, stories[queue, id], suspects, is_ordered) for queue, id in sorted(stories)]


def lifecycle(queue: str, id: str, events: list[Placed], suspects: set[Placed], is_ordered: bool) -> Row:
    events = in_order(events, is_ordered)
    dispatches = [event for event in events if isinstance(event.message, Dispatch)]
    return {
        "queue": queue,
        "message_id": id,
        "dispatches": len(dispatches),
        "requeues": count(events, Requeue),
        "acknowledgements": count(events, Acknowledge),
        "dead_letters": count(events, DeadLetter),
        "outcome": outcome_of(events, is_ordered),
        "redelivered": len(dispatches) > 1,
        "first": place(events[0]),
        "last": place(events[-1]),
        "first_ttl": dispatches[0].message.ttl if dispatches else None,
        "last_ttl": dispatches[-1].message.ttl if dispatches else None,
        "content_size": max((len(event.message.content) for event in dispatches), default=None),
        "suspect": any(event in suspects for event in events),
        "anomalies": anomalies_of(events, suspects, is_ordered),
    }


def in_order(events: Iterable[Placed], is_ordered: bool) -> list[Placed]:
    return sorted(
        events, key=lambda event: (event.number if is_ordered else 0, natural(event.path), event.path, event.offset)
    )


def natural(path: str) -> list[Any]:
    """Texts and numbers in turns."""
    parts: list[Any] = re.split("([0-9]+)", path)
    parts[1::2] = [int(part) for part in parts[1::2]]
    return parts


def outcome_of(events: list[Placed], is_ordered: bool) -> str:
    if is_ordered or len({event.path for event in events}) == 1:
        events = events[-1:]
    if count(events, Acknowledge):
        return "acknowledged"
    if count(events, DeadLetter):
        return "dead_lettered"
    if count(events, Requeue):
        return "requeued"
    return "outstanding"


def anomalies_of(events: list[Placed], suspects: set[Placed], is_ordered: bool) -> list[Row]:
    shown = showing(events, is_ordered)
    trusted = showing([event for event in events if event not in suspects], is_ordered)
    return [
        {"kind": kind, **place(trusted.get(kind, shown[kind])), "suspect": kind not in trusted}
        for kind in ANOMALIES
        if kind in shown
    ]


def showing(events: list[Placed], is_ordered: bool) -> dict[str, Placed]:
    """The first event that shows each kind of anomaly, of events in their order."""
    found: dict[str, Placed] = {}
    acknowledgements = [event for event in events if isinstance(event.message, Acknowledge)]
    if acknowledgements and not count(events, Dispatch):
        found["acknowledged_without_dispatch"] = acknowledgements[0]
    if len(acknowledgements) > 1:
        found["acknowledged_twice"] = acknowledgements[1]
    for number, event in enumerate(events):
        if isinstance(event.message, Dispatch):
            before = [other for other in events[:number] if is_ordered or other.path == event.path]
            if count(before, Acknowledge | DeadLetter):
                found.setdefault("dispatched_after_end", event)
            if is_raised(event, before):
                found.setdefault("ttl_raised", event)
    return found


def is_raised(dispatch: Placed, before: list[Placed]) -> bool:
    for event in reversed(before):
        if isinstance(event.message, Requeue):
            return False
        if isinstance(event.message, Dispatch) and event.message.ttl is not None:
            return dispatch.message.ttl is not None and seconds(dispatch) > seconds(event)
    return False


def seconds(dispatch: Placed) -> float:
    return dispatch.message.ttl or float("inf")


def suspects_of(traffic: Traffic) -> set[Placed]:
    starts = {(damage.path, damage.offset) for damage in traffic.ranges}
    ends = {(damage.path, damage.offset + damage.size) for damage in traffic.ranges}
    return {
        placed
        for placed in traffic.messages
        if (placed.path, placed.offset) in ends or (placed.path, placed.offset + placed.size) in starts
    }


def queue_summary(traffic: Traffic, *, is_ordered: bool = False) -> list[Row]:
    """The rows of ``queue_summary``."""
    queues: dict[str | None, list[Message]] = {}
    for placed in traffic.messages:
        queue = placed.message.queue
        queues.setdefault(queue if is_text(queue) else None, []).append(placed.message)
    stories = lifecycles(traffic, is_ordered=is_ordered)
    return [
        summary(queue, queues[queue], [story for story in stories if story["queue"] == queue])
        for queue in sorted(queues, key=lambda queue: queue or "")
    ]


def summary(queue: str | None, messages: list[Any], stories: list[Row]) -> Row:
    outcomes = [story["outcome"] for story in stories]
    sent = sum(isinstance(message, Send) for message in messages)
    dispatched = sum(story["dispatches"] > 0 for story in stories)
    redelivered = sum(story["redelivered"] for story in stories)
    dead_lettered = outcomes.count("dead_lettered")
    full = [message for message in messages if isinstance(message, Send | Dispatch)]
    return {
        "queue": queue,
        "sent": sent,
        "never_dispatched": max(sent - dispatched, 0),
        "dispatched": dispatched,
        "acknowledged": outcomes.count("acknowledged"),
        "requeued": outcomes.count("requeued"),
        "dead_lettered": dead_lettered,
        "outstanding": outcomes.count("outstanding"),
        "redelivered": redelivered,
        "redelivery_rate": redelivered / dispatched if dispatched else None,
        "dead_letter_rate": dead_lettered / len(stories) if stories else None,
        "content_bytes": sum(len(message.content) for message in full),
        "content_size_percentiles": percentiles([len(message.content) for message in full]),
        "ttl_percentiles": percentiles([message.ttl for message in full if message.ttl]),
    }


def percentiles(values: list[int]) -> list[int] | None:
    """The least value that so many hundredths of the values do not exceed."""
    if not values:
        return None
    return [sorted(values)[-(-hundredths * len(values) // 100) - 1] for hundredths in (50, 90, 99)]


def damage_summary(traffic: Traffic) -> list[Row]:
    """The rows of ``damage_summary``."""
    kinds: dict[tuple[str, str], list[Range]] = {}
    for damage in traffic.ranges:
        kinds.setdefault((damage.path, damage.fault or ""), []).append(damage)
    return [
        {
            "path": path,
            "fault": fault or None,
            "ranges": len(ranges),
            "bytes": sum(damage.size for damage in ranges),
            "first_offset": min(damage.offset for damage in ranges),
        }
        for (path, fault), ranges in sorted(kinds.items())
    ]


def source_rows(traffic: Traffic) -> list[Row]:
    """The rows of the data source, and the column ``number``."""
    rows = []
    for placed in traffic.messages:
        values = message_row(placed.message, encode(placed.message), placed.offset, 32)
        rows.append({"path": placed.path, **values, "number": placed.number})
    for damage in traffic.ranges:
        values = row(offset=damage.offset, size=damage.size, fault=damage.fault, fault_offset=damage.offset)
        rows.append({"path": damage.path, **values, "raw": bytes(damage.size), "number": None})
    return rows


def is_text(text: str) -> bool:
    """Whether it came from UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def place(event: Placed) -> Row:
    return {"path": event.path, "offset": event.offset}


def count(events: Iterable[Placed], kind: Any) -> int:
    return sum(isinstance(event.message, kind) for event in events)


# --- traffic of a seed ---


def generated(directory: Path, seed: int, *, size: int, damages: int, files: int = 1) -> Traffic:
    """Write a damaged capture, cut into so many files, and tell what is left by what was sent and what was damaged."""
    file = io.BytesIO()
    touches = write_capture(file, size, seed=seed, damages=damages)
    data = file.getvalue()
    pieces: list[tuple[Message | None, int]] = []  # what is left, in the order of the file: None is damage
    by_message = {touch.message: touch for touch in touches if touch.message is not None}
    junk = [touch for touch in touches if touch.message is None]
    sent = end = 0
    for number, message in enumerate(generate_messages(seed)):
        if sent >= size:
            break
        whole = len(encode(message))
        sent += whole
        if junk and junk[0].start == end:
            touch = junk.pop(0)
            pieces.append((None, touch.stop - touch.start))
            end = touch.stop
        if number in by_message:
            touch = by_message.pop(number)
            assert touch.start == end
            pieces.append((None, touch.stop - touch.start))
        else:
            pieces.append((message, whole))
        end += pieces[-1][1]
    assert end == len(data)
    assert not junk
    assert not by_message
    return written(directory, data, _with_damages_that_meet_as_one(pieces), files, Random(seed))


def _with_damages_that_meet_as_one(pieces: list[tuple[Message | None, int]]) -> list[tuple[Message | None, int]]:
    merged: list[tuple[Message | None, int]] = []
    for message, size in pieces:
        if message is None and merged and merged[-1][0] is None:
            merged[-1] = (None, merged[-1][1] + size)
        else:
            merged.append((message, size))
    return merged


def written(
    directory: Path, data: bytes, pieces: Sequence[tuple[Message | None, int]], files: int, random: Random
) -> Traffic:
    """Write a capture as so many files, each with some of its pieces, and tell what is where."""
    directory.mkdir(parents=True, exist_ok=True)
    cuts = {0, *random.sample(range(1, len(pieces)), files - 1)}
    traffic = Traffic([], [])
    place, file, offset = 0, -1, 0
    for number, (message, size) in enumerate(pieces):
        if number in cuts:
            file, offset = file + 1, 0
        path = directory / f"part-{file}"
        with path.open("ab") as output:
            output.write(data[place : place + size])
        if message is None:
            traffic.ranges.append(Range(str(path), offset, size, None))
        else:
            traffic.messages.append(Placed(message, str(path), offset, size, file))
        place += size
        offset += size
    return traffic


# --- traffic made by hand ---

_STEP = re.compile(r"(?P<word>[a-z/])(?P<number>\d*)(?:\*(?P<size>\d+))?(?:@(?P<order>\d+))?")


class Tape:
    """Files with messages and damages, one behind the other."""

    def __init__(self) -> None:
        self.traffic = Traffic([], [])
        self.files: dict[str, bytes] = {}

    def message(self, path: str, message: Message, number: int = 0) -> Placed:
        wire = encode(message)
        placed = Placed(message, path, len(self.files.get(path, b"")), len(wire), number)
        self.traffic.messages.append(placed)
        self.files[path] = self.files.get(path, b"") + wire
        return placed

    def damage(self, path: str, size: int) -> None:
        """Bytes that are no frame; not behind others, with which they would be one damage."""
        self.traffic.ranges.append(Range(path, len(self.files.get(path, b"")), size, "NOT_A_MESSAGE"))
        self.files[path] = self.files.get(path, b"") + bytes(size)

    def story(self, story: str, queue: str, id: str, directory: str) -> list[Placed]:
        """What happens to a message, as words: these are its messages, and each has a place of its own in the list.

        ``d60`` is a dispatch with a TTL of 60, ``d`` one without, ``d60*7`` one with a content of 7 bytes; ``a`` an
        acknowledgement, ``q60`` a requeue, ``l`` a dead letter, ``r`` a receipt, ``s60`` a send, ``c`` a consume, which
        keeps what is around it apart. ``x`` is a damage, ``x30`` one of 30 bytes, and behind ``/2`` comes what is in
        the file ``part-2``. Behind an ``@`` is the number of a message; without, it is that of the message before.
        """
        told: list[Placed] = []
        path, order = f"{directory}/part-0", 0
        for step in story.split():
            match = _STEP.fullmatch(step)
            assert match, step
            word, number = match["word"], int(match["number"]) if match["number"] else None
            order = int(match["order"] or order)
            if word == "/":
                path = f"{directory}/part-{number}"
            elif word == "x":
                self.damage(path, number or 9)
            else:
                content = bytes(int(match["size"] or 1))
                told.append(self.message(path, made(word, queue, id, content, number), order))
        return told


def made(word: str, queue: str, id: str, content: bytes, number: int | None) -> Message:
    messages: dict[str, Message] = {
        "d": Dispatch(queue, content, id, number),
        "s": Send(queue, content, number),
        "q": Requeue(queue, id, number or 0),
        "a": Acknowledge(queue, id),
        "l": DeadLetter(queue, id),
        "r": Receipt(queue, id),
        "c": Consume(queue, 1),
    }
    return messages[word]

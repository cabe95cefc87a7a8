"""Traffic of a broker that never was: captures of any size for whoever has none, with all their damages known.

What makes damage predictable is one property of every capture written here: **the bytes** ``H01`` **stand in it only
where a frame begins.** No content has them, begins with ``H`` or ends in a part of them, and no damage makes them. So
a reader that looks behind damage for the next frame can take nothing else for one: it loses the damaged frames and not
a byte more.

A seed means the same bytes in every version of Python: ``Random.random`` and ``Random.getrandbits`` are the only
chance here, and of floating point there is only what IEEE 754 rounds exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from math import sqrt
from random import Random
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from phpmq import Acknowledge, Consume, DeadLetter, Dispatch, Message, Receipt, Requeue, Send, encode, encode_many
from phpmq.protocol import DEFAULT_PACKET_HEADER_SIZE, MESSAGE_HEADER_SIZE

__all__ = ["Kind", "Touch", "generate_messages", "write_capture"]

#: From the busiest queue to the one with the least to do.
_QUEUES: Final = [
    f"{thing}.{step}"
    for step in ("new", "changed", "checked", "done", "undone")
    for thing in ("orders", "mail", "images", "invoices", "users", "stock", "search", "aufträge")
]
#: A queue takes no more while it has so many messages that are not done with. This bounds the memory.
_MAX_UNDONE: Final = 32
#: Seconds; 0 is for ever. An eighth of all messages are sent in the older form, without one.
_TTLS: Final = (0, 60, 300, 1800, 3600, 3600, 86_400, 604_800)
_STEPS_PER_SECOND: Final = 8
#: Of 256 times that a consumer could be done with a message: how often it has left, requeues it, or dead-letters it.
_LEAVES, _REQUEUES, _DEAD_LETTERS = 1, 9, 4

_MAX_CONTENT: Final = 64 * 1024
#: Sizes of contents in bytes, log-logistic: half of them under 142, one in a hundred over 4 KiB.
_SIZES: Final = [
    min(2 + int(140 * sqrt(odds * sqrt(odds))), _MAX_CONTENT)
    for odds in ((2 * rank + 1) / (8191 - 2 * rank) for rank in range(4096))
]
#: Of 8 contents: how many are binary, and how many are text. The others are JSON, if they are large enough.
_BINARY, _PLAIN = 1, 3
_WORDS: Final = (
    b"the and of to for with from by on order item customer address payment received paid shipped parcel returned "
    b"refund invoice reminder stock empty again later please answer question thanks price total"
).split()
#: What contents are cut out of: random bytes, which happen to be without "H01", and words without "H".
_NOISE: Final = Random(0).getrandbits(16 * _MAX_CONTENT).to_bytes(2 * _MAX_CONTENT, "big")
_TEXT: Final = b" ".join(_WORDS[byte % len(_WORDS)] for byte in _NOISE[: _MAX_CONTENT // 2])
_JSON: Final = b'{"number": %d, "method": "HTTP", "price": "%d.99 \xe2\x82\xac", "note": "%b"}'
_JSON_SIZE: Final = len(_JSON % (10**9, 100, b""))

#: Messages that are encoded at once.
_BATCH: Final = 256
#: What has no place in a header, and begins none.
_WRONG: Final = bytes(set(range(256)) - set(b"HP0123456789"))
_MAX_JUNK: Final = 300

_T = TypeVar("_T")
Kind = Literal["marker", "digit", "head", "junk", "cut"]
#: The last one needs a frame in front of it.
_KINDS: Final[tuple[Kind, ...]] = ("marker", "digit", "head", "junk")


class Touch(NamedTuple):
    """One deliberate damage of a capture.

    ``kind`` says what was done: "marker" (an H or P that begins a header became another byte), "digit" (a digit of a
    header became another byte), "head" (the first bytes of a frame are missing), "junk" (bytes between two frames) or
    "cut" (the last bytes of the last frame are missing). ``start`` and ``stop`` delimit, in bytes of the capture, what
    is left of the frame, or the junk. ``message`` is the index of the message in ``generate_messages``, None for junk.
    """

    kind: Kind
    start: int
    stop: int
    message: int | None


class _Writable(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Undone(NamedTuple):
    """A message that the broker has. Its TTL, in seconds, runs from the second ``since`` on."""

    content: bytes
    id: str
    ttl: int | None
    since: int


class _Queue:
    """A queue and its consumer: what each can do next, in the second ``now``, as the messages that this takes."""

    def __init__(self, name: str, random: Random) -> None:
        self._name = name
        self._chance, self._bits = random.random, random.getrandbits
        self._ready: deque[_Undone] = deque()
        self._held: list[_Undone] = []
        self._asked = 0

    def send(self, now: int) -> tuple[Message, ...]:
        if len(self._ready) + len(self._held) == _MAX_UNDONE:
            return ()
        ttl = _TTLS[self._bits(3)] if self._bits(3) else None
        message = _Undone(self._content(), f"{self._bits(128):032x}", ttl, now)
        self._ready.append(message)
        sent = Send(self._name, message.content, ttl)
        return (sent, Receipt(self._name, message.id)) if ttl is None and self._bits(1) else (sent,)

    def dispatch(self, now: int) -> tuple[Message, ...]:
        if not self._ready:
            return ()
        if not self._asked:
            self._asked = 1 + self._bits(6)
            return (Consume(self._name, self._asked),)
        message = self._ready.popleft()
        left = message.ttl
        if left:
            left -= now - message.since
            if left <= 0:  # it has expired
                return ()
        self._asked -= 1
        self._held.append(message)
        return (Dispatch(self._name, message.content, message.id, left),)

    def settle(self, now: int) -> tuple[Message, ...]:
        if not self._held:
            return ()
        fate = self._bits(8)
        if fate < _LEAVES:  # another consumer gets all that it held
            self._ready.extendleft(reversed(self._held))
            self._held.clear()
            self._asked = 0
            return ()
        message = self._held.pop(int(self._chance() * len(self._held)))
        if fate < _LEAVES + _REQUEUES:
            ttl = _TTLS[self._bits(3)]
            self._ready.append(message._replace(ttl=ttl, since=now))
            return (Requeue(self._name, message.id, ttl),)
        if fate < _LEAVES + _REQUEUES + _DEAD_LETTERS:
            return (DeadLetter(self._name, message.id),)
        return (Acknowledge(self._name, message.id),)

    def _content(self) -> bytes:
        size, start, form = _SIZES[self._bits(12)], self._bits(16), self._bits(3)
        if form < _BINARY:
            return b"\0" + _NOISE[start : start + size - 2] + b"\n"
        if form < _BINARY + _PLAIN or size < _JSON_SIZE:
            return _TEXT[start : start + size]
        note = _TEXT[start : start + size - _JSON_SIZE]
        return _JSON % (10**9 + start, 100 + self._bits(8), note)


def generate_messages(seed: int = 0) -> Iterator[Message]:
    """Simulate a broker: give what it receives and what it sends, in order of time and without end.

    There are some dozen queues, few of them busy. Contents are text, JSON and some binary, mostly small, a few of up to
    64 KiB. Most messages are sent, dispatched and acknowledged. Some are put back with a new TTL or dead-lettered, some
    are dispatched again, with the TTL that is left by then, because their consumer went away, and some expire. The
    memory that this takes is bounded.

    Args:
        seed: the same one gives the same messages.
    """
    random = Random(seed)
    chance = random.random
    lots: list[tuple[Callable[[int], tuple[Message, ...]], ...]] = []
    for rank, name in enumerate(_QUEUES, 1):  # by Zipf's law: the second has half as much to do as the first
        queue = _Queue(name, random)
        lots += [(queue.send, queue.dispatch, queue.settle)] * (1000 // rank)
    step = 0
    while True:
        actions = lots[int(chance() * len(lots))]
        yield from actions[int(chance() * 3)](step // _STEPS_PER_SECOND)
        step += 1


def write_capture(
    file: _Writable,
    size: int,
    *,
    seed: int = 0,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    damages: int = 0,
) -> list[Touch]:
    """Write the first messages of ``generate_messages`` as frames, in flat memory, and damage some of them.

    Which messages are written does not depend on ``damages``: as many as it takes, undamaged, to reach ``size``. Read
    with ``on_fault="skip"``, the capture gives each of them that is not in a ``Touch`` once, and the damaged ranges are
    those of the touches, where ranges that meet count as one. With damages the messages are generated twice, because
    they are spread over a number of frames that has to be known.

    Args:
        file: binary, with a ``write`` that takes all it is given.
        size: bytes; the frame that reaches it is the last one.
        seed: the same one gives the same capture.
        packet_header_size: bytes; 32, 35 or 36.
        damages: how many, each to another frame or in front of another one; where there are fewer frames, so many.

    Returns:
        The damages in the order of the file.

    Raises:
        ValueError: ``size`` or ``damages`` is negative, or no packet header has this size.
    """
    if size < 0 or damages < 0:
        raise ValueError(f"size and damages must not be negative, got {size} and {damages}")
    random, places, cut = Random(~seed), set[int](), None
    if damages:
        frames = sum(len(batch) for batch, _ in _batches(seed, size, packet_header_size))
        damages = min(damages, frames)
        if frames and random.random() < 0.5:  # noqa: PLR2004 (every other file)
            cut = frames - 1
            places = {cut}
        while len(places) < damages:
            places.add(_pick(random, range(frames)))
    touches: list[Touch] = []
    first = offset = 0
    for batch, data in _batches(seed, size, packet_header_size):
        if not places.isdisjoint(range(first, first + len(batch))):
            pieces, place = [], offset
            for number, message in enumerate(batch, first):
                piece = encode(message, packet_header_size=packet_header_size)
                if number in places:
                    kind = "cut" if number == cut else _pick(random, _KINDS if number else _KINDS[:-1])
                    left = _junk(random) if kind == "junk" else _damaged(piece, kind, packet_header_size, random)
                    touches.append(Touch(kind, place, place + len(left), None if kind == "junk" else number))
                    piece = left + piece if kind == "junk" else left
                pieces.append(piece)
                place += len(piece)
            data = b"".join(pieces)  # noqa: PLW2901
        file.write(data)
        first, offset = first + len(batch), offset + len(data)
    return touches


def _batches(seed: int, size: int, packet_header_size: int) -> Iterator[tuple[list[Message], bytes]]:
    """Messages and their frames, many at once, up to the frame with which ``size`` bytes are reached."""
    messages = generate_messages(seed)
    while size > 0:
        batch = list(islice(messages, _BATCH))
        data = encode_many(batch, packet_header_size=packet_header_size)
        if len(data) > size:
            ends = accumulate(len(encode(message, packet_header_size=packet_header_size)) for message in batch)
            batch = batch[: 1 + sum(end < size for end in ends)]
            data = encode_many(batch, packet_header_size=packet_header_size)
        yield batch, data
        size -= len(data)


def _pick(random: Random, items: Sequence[_T]) -> _T:
    return items[int(random.random() * len(items))]


def _junk(random: Random) -> bytes:
    size = _pick(random, range(1, _MAX_JUNK + 1))
    # it may have an "H" anywhere but at its ends, where a frame without its first bytes could complete it
    return random.getrandbits(8 * size).to_bytes(size, "big").replace(b"H", b"\nH\n")


def _damaged(frame: bytes, kind: Kind, packet_header_size: int, random: Random) -> bytes:
    """What is left of a frame."""
    place = _pick(random, range(1, len(frame)))
    if kind == "cut":
        return frame[:place]
    if kind == "head":
        while frame.startswith(b"H", place):
            place -= 1  # at most to the second byte, which is a digit
        return frame[place:]
    headers, end = [range(MESSAGE_HEADER_SIZE)], MESSAGE_HEADER_SIZE
    while end < len(frame):
        headers.append(range(end, end + packet_header_size))
        end += packet_header_size + int(frame[end + 3 : end + packet_header_size])
    marker, *digits = _pick(random, headers)
    place = marker if kind == "marker" else _pick(random, digits)
    return frame[:place] + bytes([_pick(random, _WRONG)]) + frame[place + 1 :]

"""Threads that have a decoder each, or share what does not change, see what one thread alone sees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from batches import at_once, decoded
from differential import drain, iterated, streamed
from wire import message_wire, read_vectors

from phpmq.records import COLUMNS

THREADS, ROUNDS = 8, 6
MESSAGES = [message_wire(vector.message, vector.fields) for vector in read_vectors() if not vector.refused][:60]
DATA = b"junk".join(MESSAGES)
CHUNKS = [DATA[start : start + 700] for start in range(0, len(DATA), 700)]
OPTIONS = {"on_fault": "skip", "packet_header_size": 32, "max_frame_size": 2**20}
LIMITS = {"max_rows": 7, "max_bytes": 2**20}


def in_threads(work: Callable[[], Any]) -> list[Any]:
    """What the same work gives in threads that begin it together, and go on for a while."""
    barrier, outcomes = threading.Barrier(THREADS), []

    def run() -> None:
        barrier.wait()
        for _ in range(ROUNDS):
            outcomes.append(work())

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == THREADS * ROUNDS
    return outcomes


WORKS: dict[str, Callable[[ModuleType], Any]] = {
    "Decoder": lambda codec: streamed(codec, "messages", CHUNKS, **OPTIONS),
    "FrameDecoder": lambda codec: streamed(codec, "frames", CHUNKS, **OPTIONS),
    "iter_messages": lambda codec: iterated(codec, "messages", DATA, **OPTIONS),
    "iter_frames": lambda codec: iterated(codec, "frames", DATA, **OPTIONS),
    # Batches go as they come, so that their memory is used again by whichever thread is next.
    "columns": lambda codec: at_once(codec, DATA, list(COLUMNS), **OPTIONS, **LIMITS),
    "columns in chunks": lambda codec: decoded(codec, CHUNKS, list(COLUMNS), **OPTIONS, **LIMITS),
    "scan": lambda codec: [tuple(codec.scan(data)[:2]) for data in (DATA, b"".join(MESSAGES))],
    "decode and encode": lambda codec: [codec.encode(codec.decode(message)) for message in MESSAGES],
    "encode_many": lambda codec: codec.encode_many([codec.decode(message) for message in MESSAGES]),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_many_threads_agree_with_one(codec: ModuleType, work: Callable[[ModuleType], Any]) -> None:
    alone = work(codec)
    assert all(outcome == alone for outcome in in_threads(lambda: work(codec)))


def test_messages_are_shared(codec: ModuleType) -> None:
    messages = [codec.decode(message) for message in MESSAGES]
    twins = [codec.decode(message) for message in MESSAGES]

    def use() -> list[Any]:
        return [
            (repr(message), hash(message), codec.encode(message), message == twin)
            for message, twin in zip(messages, twins, strict=True)
        ]

    alone = use()
    assert all(outcome == alone for outcome in in_threads(use))


def test_an_iterator_gives_each_item_once(codec: ModuleType) -> None:
    """Or refuses, while it is in use by another thread."""
    items = codec.iter_messages(b"".join(MESSAGES))

    def take() -> list[Any]:
        try:
            return drain([next(items)])
        except (RuntimeError, StopIteration, ValueError):  # a generator says ValueError
            return []

    given = [item for outcome in in_threads(take) for item in outcome] + drain(items)
    assert sorted(map(str, given)) == sorted(map(str, iterated(codec, "messages", b"".join(MESSAGES))))

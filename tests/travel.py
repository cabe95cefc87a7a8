"""What travels between processes: `python tests/travel.py write|read FILE`, with the codec that phpmq chooses there."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wire import message_header, message_wire, packet_header, parts

import phpmq

GOOD = b"".join(
    [
        message_wire("Send", {"queue": "Gr\xfc\xdfe", "content": b"\0\xff", "ttl": 2**63 - 1}),
        message_wire("Consume", {"queue": "\udcff", "count": 0}),
        message_wire("Dispatch", {"queue": "Foo", "content": b"", "message_id": "d7"}),
        message_wire("Acknowledge", {"queue": "Foo", "message_id": "d7"}),
        message_wire("Requeue", {"queue": "Foo", "message_id": "d7", "ttl": 1}),
        message_wire("DeadLetter", {"queue": "Foo", "message_id": "d7"}),
        message_wire("Receipt", {"queue": "Foo", "message_id": "d7"}),
    ]
)
ANSWER = message_wire("Acknowledge", {"queue": "Foo", "message_id": "d7"})
#: One input for each fault, and for hints.
FAULTY = (
    *(b"junk", b"HTTP/1.1", b"H02", b"H01009", b"H0100499", b"H0100402x", b"H0100402P09", b"", ANSWER[:-1]),
    *(ANSWER + b"\n", ANSWER[:43] + b"P01", message_header(4, 2) + packet_header(1, 10**12)),
    *(b"".join(parts(2, [(1, b"Foo"), (4, b"007")])), b"".join(parts(4, [(1, b""), (3, b"")], 36))),
)


def caught(call: Callable[..., Any], *arguments: Any) -> Exception:
    try:
        call(*arguments)
    except ValueError as error:
        return error
    raise AssertionError("nothing was raised")


def decode(data: bytes) -> phpmq.Message:
    return phpmq.decode(data)


def decoded_in_chunks(data: bytes) -> list[Any]:
    decoder = phpmq.Decoder()
    decoder.feed(data)
    decoder.close()
    return list(decoder)


def things() -> list[Any]:
    """Whatever a codec gives: messages, frames, damages, scans and exceptions."""
    damaged = b"".join(GOOD + data for data in FAULTY)
    return [
        *phpmq.iter_messages(damaged, on_fault="skip"),
        *phpmq.iter_frames(damaged, on_fault="skip"),
        *(phpmq.scan(data) for data in FAULTY),
        *(caught(phpmq.decode, data) for data in FAULTY),
        caught(decoded_in_chunks, GOOD + b"x"),
        caught(decoded_in_chunks, GOOD[:-1]),
    ]


def main(action: str, path: str) -> None:
    file = Path(path)
    if action == "write":
        pickles = [pickle.dumps(things(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        file.write_bytes(pickle.dumps(pickles))
        return
    own = things()
    for text in pickle.loads(file.read_bytes()):
        read = pickle.loads(text)
        assert read == own
        assert [type(thing) for thing in read] == [type(thing) for thing in own]
        assert [repr(thing) for thing in read] == [repr(thing) for thing in own]
        assert [str(thing) for thing in read] == [str(thing) for thing in own]
    print(phpmq.BACKEND, len(own))


if __name__ == "__main__":
    main(*sys.argv[1:])

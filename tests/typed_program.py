"""A program such as users write; type checkers run over it, strictly, against the installed package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import phpmq
from phpmq import Acknowledge, Consume, Damage, Decoder, Dispatch, Frame, IncompleteMessage, ProtocolError, Send


def counted(path: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in phpmq.iter_messages(path.read_bytes(), on_fault="skip"):
        name = item.fault.name if isinstance(item, Damage) else item.queue
        counts[name] = counts.get(name, 0) + 1
    return counts


def answers(chunks: Iterator[bytes]) -> Iterator[bytes]:
    decoder = Decoder(max_frame_size=1_000_000)
    for chunk in chunks:
        decoder.feed(chunk)
        for message in decoder:
            match message:
                case Dispatch(queue, content, message_id, ttl):
                    size: int = len(content)
                    seconds: int | None = ttl
                    print(queue, size, seconds)
                    yield phpmq.encode(Acknowledge(queue, message_id))
                case Send() | Consume():
                    print(message.queue)


def first_type(data: memoryview) -> int:
    frames: list[Frame] = list(phpmq.iter_frames(data))
    return frames[0].type


def judged(data: bytearray) -> str:
    try:
        message: phpmq.Message = phpmq.decode(data)
    except IncompleteMessage as error:
        missing: int = error.missing
        return f"{missing} bytes are missing"
    except ProtocolError as error:
        return f"{error.fault.name} at {error.offset}"
    return message.queue


def written(messages: list[phpmq.Message]) -> bytes:
    wire = phpmq.encode_many(messages)
    frames, end, error = phpmq.scan(wire)
    assert (frames, end, error) == (len(messages), len(wire), None)
    return wire

"""What a user writes by hand in ten minutes, for the one message that is needed. It checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.peers import Take
from benchmarks.traffic import Traffic, fields_of


class Dispatch(NamedTuple):
    queue: str
    content: bytes
    message_id: str
    ttl: int


def read(data: bytes) -> Iterator[Dispatch]:
    offset = 0
    while offset < len(data):
        packet_count = int(data[offset + 6 : offset + 8])
        offset += 8
        packets = {}
        for _ in range(packet_count):
            packet_type = int(data[offset + 1 : offset + 3])
            length = int(data[offset + 3 : offset + 32])
            offset += 32
            packets[packet_type] = data[offset : offset + length]
            offset += length
        yield Dispatch(packets[1].decode(), packets[2], packets[3].decode(), int(packets[5]))


def packet(packet_type: int, content: bytes) -> bytes:
    return b"P%02d%029d" % (packet_type, len(content)) + content


def write(message: Dispatch) -> bytes:
    return (
        b"H0100304"
        + packet(1, message.queue.encode())
        + packet(2, message.content)
        + packet(3, message.message_id.encode())
        + packet(5, b"%d" % message.ttl)
    )


def wire(traffic: Traffic) -> bytes:
    return traffic.wire


def iter_messages(traffic: Traffic, take: Take) -> Callable[[], object]:
    return lambda: take(read(traffic.wire))


def decode(traffic: Traffic, take: Take) -> Callable[[], object]:
    return lambda: take(map(next, map(read, traffic.frames)))


def encode(traffic: Traffic, take: Take) -> Callable[[], object]:
    messages = [Dispatch(*fields_of(message)) for message in traffic.messages]
    return lambda: take(map(write, messages))

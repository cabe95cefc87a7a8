"""The peer: what a user writes by hand in ten minutes, for the one message that is needed. It checks nothing."""

from collections.abc import Iterator
from typing import NamedTuple


class Dispatch(NamedTuple):
    queue: str
    content: bytes
    message_id: str
    ttl: int


def iter_messages(data: bytes) -> Iterator[Dispatch]:
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


def encode(message: Dispatch) -> bytes:
    return (
        b"H0100304"
        + packet(1, message.queue.encode())
        + packet(2, message.content)
        + packet(3, message.message_id.encode())
        + packet(5, b"%d" % message.ttl)
    )

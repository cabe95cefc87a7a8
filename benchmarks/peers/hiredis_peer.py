"""hiredis: a RESP array of the type and the fields of a message, all of them as bytes, which it is fastest with.

One buffer for a whole input takes it quadratic time; so it gets chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hiredis

from benchmarks.peers import Take
from benchmarks.traffic import Traffic, chunks


def wire(traffic: Traffic) -> bytes:
    return b"".join(map(hiredis.pack_command, traffic.rows()))


def iter_messages(traffic: Traffic, take: Take) -> Callable[[], object]:
    return decoder_64KiB(traffic, take)


def decoder_64KiB(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802 (a unit)
    return _reader(traffic, 65536, take)


def decoder_1400B(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802
    return _reader(traffic, 1400, take)


def decode(traffic: Traffic, take: Take) -> Callable[[], object]:
    packed, reader = [hiredis.pack_command(row) for row in traffic.rows()], hiredis.Reader()

    def receive() -> Iterator[object]:
        for message in packed:
            reader.feed(message)
            yield reader.gets()

    return lambda: take(receive())


def encode(traffic: Traffic, take: Take) -> Callable[[], object]:
    rows = traffic.rows()
    return lambda: take(map(hiredis.pack_command, rows))


def _reader(traffic: Traffic, size: int, take: Take) -> Callable[[], object]:
    fed = chunks(wire(traffic), size)

    def receive() -> None:
        reader = hiredis.Reader()
        for chunk in fed:
            reader.feed(chunk)
            take(iter(reader.gets, False))  # False is what it gives where more bytes are needed

    return receive

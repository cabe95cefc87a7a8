"""hiredis: a RESP array of the type and the fields of a message, all of them as bytes, which it is fastest with.

One buffer for a whole input takes it quadratic time; so it gets chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hiredis

from benchmarks.peers import Take, feeding
from benchmarks.traffic import Traffic, chunks


def wire(traffic: Traffic) -> bytes:
    return b"".join(map(hiredis.pack_command, traffic.rows()))


def decoder_64KiB(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802 (a unit)
    return feeding(hiredis.Reader, _messages, chunks(wire(traffic), 65536), take)


iter_messages = decoder_64KiB


def decoder_1400B(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802
    return feeding(hiredis.Reader, _messages, chunks(wire(traffic), 1400), take)


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


def _messages(reader: hiredis.Reader) -> Iterator[object]:
    return iter(reader.gets, False)  # which it gives where more bytes are needed

"""msgpack, by its C extension: an array of the type and the fields of a message, texts as str and contents as bytes.

One buffer for a whole input is slower than its chunks; so these are what it gets.
"""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from benchmarks.peers import Take, feeding
from benchmarks.traffic import Traffic, chunks


def wire(traffic: Traffic) -> bytes:
    return b"".join(map(msgpack.packb, traffic.rows()))


def decoder_64KiB(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802 (a unit)
    return feeding(msgpack.Unpacker, iter, chunks(wire(traffic), 65536), take)


iter_messages = decoder_64KiB


def decoder_1400B(traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802
    return feeding(msgpack.Unpacker, iter, chunks(wire(traffic), 1400), take)


def decode(traffic: Traffic, take: Take) -> Callable[[], object]:
    packed = [msgpack.packb(row) for row in traffic.rows()]
    return lambda: take(map(msgpack.unpackb, packed))


def encode(traffic: Traffic, take: Take) -> Callable[[], object]:
    rows, pack = traffic.rows(), msgpack.Packer().pack
    return lambda: take(map(pack, rows))


def encode_many(traffic: Traffic, take: Take) -> Callable[[], object]:
    rows, packer = traffic.rows(), msgpack.Packer(autoreset=False)

    def pack() -> None:
        packer.reset()
        for row in rows:
            packer.pack(row)
        take([packer.bytes()])

    return pack

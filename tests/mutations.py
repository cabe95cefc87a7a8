"""Streams of frames, and ways to damage them that the grammar suggests: each as headers and contents in a list.

All chance comes from a ``Random``, which Hypothesis can stand behind, or a fuzzer's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from random import Random
from typing import Any, NamedTuple

from wire import Fields, field_names, message_header, message_parts, message_wire, packet_header, parts

from phpmq.protocol import CATALOGUE, MAX_INTEGER, MESSAGE_HEADER_SIZE, PACKET_HEADER_SIZES


class Told(NamedTuple):
    """A message told without a codec: its class's name and its fields, no ``ttl`` in an older form."""

    name: str
    fields: Fields


TEXTS = ("", "Foo", "Grüße", "\u0663\uff12\xb2", "\udcff\0", "H0100103", "d7e7f68761d34838494b233148b5486c")
INTEGERS = (0, 1, 9, 10, 3600, 2**31, 2**32, MAX_INTEGER)
#: Among them what looks like the protocol itself, whole and cut.
CONTENTS = (
    *(b"", b"0", b"\0\xff\r\n", b"0123456789", b"-5", bytes(40), message_header(1, 2), message_header(7, 0)),
    *(packet_header(2, length, size) for length in (0, 9) for size in PACKET_HEADER_SIZES),
    *(message_wire("Consume", {"queue": "Foo", "count": 7}, size) for size in PACKET_HEADER_SIZES),
    message_wire("Send", {"queue": "Foo", "content": message_header(4, 2), "ttl": 60})[:-1],
)
_VALUES: dict[str, Sequence[Any]] = {
    **dict.fromkeys(["queue", "message_id"], TEXTS),
    **dict.fromkeys(["ttl", "count"], INTEGERS),
    "content": CONTENTS,
}
_FORMS = tuple(CATALOGUE.values())


def any_message(random: Random) -> Told:
    form = random.choice(_FORMS)
    return Told(form.message, {name: random.choice(_VALUES[name]) for name in field_names(form)})


def any_frame(random: Random, size: int) -> list[bytes]:
    """A frame of a type that may be known, with packets that may be its."""
    packets = [(random.randrange(7), random.choice(CONTENTS)) for _ in range(random.randrange(5))]
    return parts(random.choice([*range(8), 999]), packets, size)


def any_stream(random: Random, size: int) -> list[bytes]:
    """Whole frames: good messages, or any frames among them."""
    good = random.randrange(2)

    def frame() -> list[bytes]:
        return message_parts(*any_message(random), size) if good or random.randrange(2) else any_frame(random, size)

    return list(chain.from_iterable(frame() for _ in range(random.randrange(1, 5))))


#: A byte of every class that a lenient reader of digits lets pass, or that ends something elsewhere.
BYTES = (
    *(b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"9", b"+", b"-", b" ", b"_", b".", b"e", b"x", b"H", b"P", b"/", b":"),
    *(b"\0", b"\n", b"\r", b"\t", b"\x80", b"\xff", "\u0663".encode(), "\uff12".encode(), "\xb2".encode()),
)
LENGTHS = (0, 1, 18, 19, 20, 2**31, 2**32 + 4, 2**63 - 1, 2**63, 2**64, 2**64 + 5, 10**29 - 1)
NOT_INTEGERS = (
    *(b"", b"00", b"007", b"+5", b"-5", b" 5", b"5 ", b"1e3", b"\xd9\xa3", b"%d" % 2**63, b"9" * 19, b"1" * 20),
)
JUNK = (b"x", b"H", b"HH", b"\0" * 9, b"\r\n", b"H01", b"H0100101", b"HTTP/1.1", b"P01", b"H0100202P01")


def _packet_headers(pieces: Sequence[bytes]) -> list[int]:
    return [at for at, piece in enumerate(pieces) if piece[:1] == b"P" and len(piece) in PACKET_HEADER_SIZES]


def replace_byte(random: Random, pieces: list[bytes]) -> None:
    """Put a byte of another class, or a character of some bytes, in the place of a byte."""
    at = random.randrange(len(pieces))
    position = random.randrange(max(1, len(pieces[at])))
    pieces[at] = pieces[at][:position] + random.choice(BYTES) + pieces[at][position + 1 :]


def change_length(random: Random, pieces: list[bytes]) -> None:
    """Let a packet header declare another length: a near one, a huge one, or one that reaches into what follows."""
    if headers := _packet_headers(pieces):
        at = random.choice(headers)
        size, real = len(pieces[at]), len(pieces[at + 1]) if at + 1 < len(pieces) else 0
        length = random.choice([real + 1, max(0, real - 1), random.choice(LENGTHS), random.randrange(301)])
        pieces[at] = pieces[at][:3] + b"%0*d" % (size - 3, length)


def change_type(random: Random, pieces: list[bytes]) -> None:
    """Let a packet be of another type; its length and content stay."""
    if headers := _packet_headers(pieces):
        at = random.choice(headers)
        pieces[at] = b"P%02d" % random.randrange(7) + pieces[at][3:]


def change_integer(random: Random, pieces: list[bytes]) -> None:
    """Let a TTL or a count be what a lenient reader takes for an integer."""
    if headers := [at for at in _packet_headers(pieces[:-1]) if pieces[at][:3] in (b"P04", b"P05")]:
        at = random.choice(headers)
        content = random.choice(NOT_INTEGERS)
        pieces[at : at + 2] = packet_header(int(pieces[at][1:3]), len(content), len(pieces[at])), content


def change_header(random: Random, pieces: list[bytes]) -> None:
    """Let a message header declare another type, count or version."""
    if headers := [at for at, piece in enumerate(pieces) if piece[:1] == b"H" and len(piece) == MESSAGE_HEADER_SIZE]:
        at = random.choice(headers)
        field = random.choice([slice(1, 3), slice(3, 6), slice(6, 8)])
        header = bytearray(pieces[at])
        header[field] = b"%0*d" % (field.stop - field.start, random.choice([*range(8), 99]))
        pieces[at] = bytes(header)


def truncate(random: Random, pieces: list[bytes]) -> None:
    at = random.randrange(len(pieces))
    pieces[at] = pieces[at][: random.randrange(len(pieces[at]) + 1)]


def end_early(random: Random, pieces: list[bytes]) -> None:
    at = random.randrange(len(pieces))
    del pieces[at + 1 :]
    pieces[at] = pieces[at][: random.randrange(len(pieces[at]) + 1)]


def drop(random: Random, pieces: list[bytes]) -> None:
    if len(pieces) > 1:
        del pieces[random.randrange(len(pieces))]


def double(random: Random, pieces: list[bytes]) -> None:
    at = random.randrange(len(pieces))
    pieces.insert(at, pieces[at])


def swap(random: Random, pieces: list[bytes]) -> None:
    one, other = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[one], pieces[other] = pieces[other], pieces[one]


def shuffle(random: Random, pieces: list[bytes]) -> None:
    random.shuffle(pieces)


def insert_junk(random: Random, pieces: list[bytes]) -> None:
    junk = random.choice(JUNK) if random.randrange(2) else random.randbytes(random.randrange(1, 10))
    pieces.insert(random.randrange(len(pieces)), junk)


def nest(random: Random, pieces: list[bytes]) -> None:
    """Put a frame into a content; the length in front of it stays as it was, or counts it."""
    at = random.randrange(len(pieces))
    inner = message_wire(*any_message(random), random.choice(PACKET_HEADER_SIZES))
    if at - 1 in _packet_headers(pieces) and random.randrange(2):
        size = len(pieces[at - 1])
        pieces[at - 1] = pieces[at - 1][:3] + b"%0*d" % (size - 3, len(inner))
        pieces[at] = inner
    else:
        pieces[at] += inner


MUTATIONS = (
    *(replace_byte, replace_byte, change_length, change_length, change_type, change_integer, change_header),
    *(truncate, end_early, drop, double, swap, shuffle, insert_junk, nest),
)


def damage(random: Random, pieces: list[bytes]) -> None:
    """Up to four mutations."""
    for _ in range(random.randrange(5)):
        random.choice(MUTATIONS)(random, pieces)


def any_limit(random: Random, pieces: list[bytes]) -> int | None:
    """A size of frames, often that of some frame there is, or one byte less."""
    if random.randrange(3):
        return random.choice([None, 2**26, 10**5, 1000, 500, 300])
    start, stop = sorted(random.choice([0, *accumulate(map(len, pieces))]) for _ in range(2))
    return max(MESSAGE_HEADER_SIZE, stop - start - random.randrange(2))


class Case(NamedTuple):
    """What a codec is given: bytes in chunks, and options."""

    chunks: list[bytes]
    options: dict[str, Any]

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The same bytes in pieces."""
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]

"""Generated input: valid messages and frames, and streams of them damaged in ways that the grammar suggests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st
from wire import Fields, field_names, message_header, message_parts, message_wire, packet_header, parts

from phpmq.protocol import CATALOGUE, MAX_INTEGER, MESSAGE_HEADER_SIZE, PACKET_HEADER_SIZES, Form


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

sizes = st.sampled_from(PACKET_HEADER_SIZES)
texts = (
    st.sampled_from(TEXTS)
    | st.binary(max_size=12).map(lambda data: data.decode("utf-8", "surrogateescape"))
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
contents = st.sampled_from(CONTENTS) | st.binary(max_size=40)
integers = st.sampled_from(INTEGERS) | st.integers(0, MAX_INTEGER)


def messages_of(
    texts: st.SearchStrategy[str], contents: st.SearchStrategy[bytes], integers: st.SearchStrategy[int]
) -> st.SearchStrategy[Told]:
    """Messages of all forms."""
    values: dict[str, st.SearchStrategy[Any]] = {"queue": texts, "content": contents, "message_id": texts}
    values |= {"count": integers, "ttl": integers}

    def of_form(form: Form) -> st.SearchStrategy[Told]:
        fields = st.fixed_dictionaries({name: values[name] for name in field_names(form)})
        return fields.map(partial(Told, form.message))

    return st.sampled_from(list(CATALOGUE.values())).flatmap(of_form)


messages = messages_of(texts, contents, integers)
#: Frames of any type with any packets, as the arguments of ``parts``.
frames = st.tuples(st.integers(0, 999), st.lists(st.tuples(st.integers(0, 99), contents), max_size=5))

#: The same with fewer choices, each an interesting one: streams of many are drawn faster.
likely_messages = messages_of(st.sampled_from(TEXTS), st.sampled_from(CONTENTS), st.sampled_from(INTEGERS))
likely_frames = st.tuples(
    st.sampled_from([*range(8), 999]), st.lists(st.tuples(st.integers(0, 6), st.sampled_from(CONTENTS)), max_size=4)
)


def parts_of_streams(size: int) -> st.SearchStrategy[list[bytes]]:
    """Whole frames in headers and contents: good messages, or any frames."""
    message = likely_messages.map(lambda told: message_parts(*told, size))
    frame = likely_frames.map(lambda told: parts(*told, size))
    streams = st.lists(message, min_size=2, max_size=5) | st.lists(message | frame, min_size=1, max_size=4)
    return streams.map(lambda frames: list(chain.from_iterable(frames)))


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


def index(draw: st.DrawFn, pieces: Sequence[bytes]) -> int:
    return int(draw(st.integers(0, len(pieces) - 1)))


def packet_headers(pieces: Sequence[bytes]) -> list[int]:
    return [at for at, piece in enumerate(pieces) if piece[:1] == b"P" and len(piece) in PACKET_HEADER_SIZES]


def replace_byte(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Put a byte of another class, or a character of some bytes, in the place of a byte."""
    at = index(draw, pieces)
    position = draw(st.integers(0, max(0, len(pieces[at]) - 1)))
    pieces[at] = pieces[at][:position] + draw(st.sampled_from(BYTES)) + pieces[at][position + 1 :]


def change_length(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Let a packet header declare another length: a near one, a huge one, or one that reaches into what follows."""
    if headers := packet_headers(pieces):
        at = draw(st.sampled_from(headers))
        size, real = len(pieces[at]), len(pieces[at + 1]) if at + 1 < len(pieces) else 0
        near = st.sampled_from([real + 1, max(0, real - 1)])
        length = draw(near | st.sampled_from(LENGTHS) | st.integers(0, 300))
        pieces[at] = pieces[at][:3] + b"%0*d" % (size - 3, length)


def change_type(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Let a packet be of another type; its length and content stay."""
    if headers := packet_headers(pieces):
        at = draw(st.sampled_from(headers))
        pieces[at] = b"P%02d" % draw(st.integers(0, 6)) + pieces[at][3:]


def change_integer(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Let a TTL or a count be what a lenient reader takes for an integer."""
    if headers := [at for at in packet_headers(pieces[:-1]) if pieces[at][:3] in (b"P04", b"P05")]:
        at = draw(st.sampled_from(headers))
        content = draw(st.sampled_from(NOT_INTEGERS))
        pieces[at : at + 2] = packet_header(int(pieces[at][1:3]), len(content), len(pieces[at])), content


def change_header(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Let a message header declare another type, count or version."""
    if headers := [at for at, piece in enumerate(pieces) if piece[:1] == b"H" and len(piece) == MESSAGE_HEADER_SIZE]:
        at = draw(st.sampled_from(headers))
        field = draw(st.sampled_from([slice(1, 3), slice(3, 6), slice(6, 8)]))
        header = bytearray(pieces[at])
        header[field] = b"%0*d" % (field.stop - field.start, draw(st.integers(0, 7) | st.just(99)))
        pieces[at] = bytes(header)


def truncate(draw: st.DrawFn, pieces: list[bytes]) -> None:
    at = index(draw, pieces)
    pieces[at] = pieces[at][: draw(st.integers(0, len(pieces[at])))]


def end_early(draw: st.DrawFn, pieces: list[bytes]) -> None:
    at = index(draw, pieces)
    del pieces[at + 1 :]
    pieces[at] = pieces[at][: draw(st.integers(0, len(pieces[at])))]


def drop(draw: st.DrawFn, pieces: list[bytes]) -> None:
    if len(pieces) > 1:
        del pieces[index(draw, pieces)]


def double(draw: st.DrawFn, pieces: list[bytes]) -> None:
    at = index(draw, pieces)
    pieces.insert(at, pieces[at])


def swap(draw: st.DrawFn, pieces: list[bytes]) -> None:
    one, other = index(draw, pieces), index(draw, pieces)
    pieces[one], pieces[other] = pieces[other], pieces[one]


def shuffle(draw: st.DrawFn, pieces: list[bytes]) -> None:
    pieces[:] = draw(st.permutations(pieces))


def insert_junk(draw: st.DrawFn, pieces: list[bytes]) -> None:
    pieces.insert(index(draw, pieces), draw(st.sampled_from(JUNK) | st.binary(min_size=1, max_size=9)))


def nest(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Put a frame into a content; the length in front of it stays as it was, or counts it."""
    at = index(draw, pieces)
    inner = message_wire(*draw(likely_messages), draw(sizes))
    if at - 1 in packet_headers(pieces) and draw(st.booleans()):
        size = len(pieces[at - 1])
        pieces[at - 1] = pieces[at - 1][:3] + b"%0*d" % (size - 3, len(inner))
        pieces[at] = inner
    else:
        pieces[at] += inner


MUTATIONS = (
    *(replace_byte, replace_byte, change_length, change_length, change_type, change_integer, change_header),
    *(truncate, end_early, drop, double, swap, shuffle, insert_junk, nest),
)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The same bytes in pieces."""
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def chunkings(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """The same bytes whole, byte by byte, or cut anywhere, empty chunks included."""
    places = st.lists(st.integers(0, len(data)), min_size=1, max_size=6)
    return (st.just(range(1, len(data))) | places | st.sampled_from([(), (len(data) // 2,)])).map(partial(cut, data))


class Case(NamedTuple):
    """What a codec is given: bytes in chunks, and options."""

    chunks: list[bytes]
    options: dict[str, Any]

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)


def damage(draw: st.DrawFn, pieces: list[bytes]) -> None:
    """Up to four mutations."""
    for mutate in draw(st.lists(st.sampled_from(MUTATIONS), max_size=4)):
        mutate(draw, pieces)


def limits(pieces: list[bytes]) -> st.SearchStrategy[int | None]:
    """Frame sizes, often as large as some frame there is or one byte less."""
    ends = [0, *accumulate(map(len, pieces))]
    exact = {stop - start + change for start in ends for stop in ends for change in (0, -1)}
    wide = st.sampled_from([None, 2**26, 10**5, 1000, 500, 300])
    return wide | wide | st.sampled_from(sorted(size for size in exact if size >= MESSAGE_HEADER_SIZE))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A damaged stream, cut anyhow, read with its own packet header size or sometimes with another."""
    size = draw(sizes)
    pieces = draw(parts_of_streams(size))
    options = {"max_frame_size": draw(limits(pieces))}
    options["packet_header_size"] = draw(st.sampled_from([size] * 8 + [*PACKET_HEADER_SIZES]))
    damage(draw, pieces)
    return Case(draw(chunkings(b"".join(pieces))), options)


#: Calls on a decoder, by method and arguments, over the chunks of a case: any order is legal.
calls = st.sampled_from(["feed", "feed", "feed", "next", "next", "drain", "feed nothing", "close", "reset"])

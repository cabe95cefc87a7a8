"""However the bytes are cut: the same items at the same moment, the same fault, and what is missing counted right.

A message has to come with its last byte, not later; what a cut leaves over has to stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, combinations, pairwise
from types import ModuleType

import pytest
from differential import DECODERS, LAYERS, MODES, Outcome, attempt, drain, iterated, joined, lasting
from wire import CAPTURES, Vector, message_parts, message_wire, missing, read_capture, read_vectors

LONGEST = 299
SHORT = [vector for vector in read_vectors() if vector.length <= LONGEST]
WRITTEN = [vector for vector in SHORT if not vector.refused]


def splits(data: bytes) -> Iterator[list[bytes]]:
    """The data byte by byte, and in two at every place."""
    yield [bytes([byte]) for byte in data]
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]


def test_that_all_are_there() -> None:
    assert (len(SHORT), len(WRITTEN)) == (180, 171)


@pytest.mark.parametrize("vector", SHORT, ids=lambda vector: vector.name)
def test_split_anywhere(codec: ModuleType, vector: Vector) -> None:
    options = {"packet_header_size": vector.size}
    for layer in LAYERS:
        for mode in MODES:
            right = lasting(iterated(codec, layer, vector.wire, on_fault=mode, **options))
            for chunks in splits(vector.wire):
                assert lasting(joined(codec, layer, chunks, on_fault=mode, **options)) == right


@pytest.mark.parametrize("vector", WRITTEN, ids=lambda vector: vector.name)
def test_cut_anywhere(codec: ModuleType, vector: Vector) -> None:
    """A frame cut short is waited for, then reported as cut, with what is missing."""
    options = {"packet_header_size": vector.size}
    frame = message_parts(vector.message, vector.fields, vector.size)
    for have in range(1, vector.length):
        data = vector.wire[:have]
        cut = ("IncompleteMessage", "TRUNCATED", 0, missing(frame, have))
        assert [attempt(codec.decode, data, **options)[:4]] == [cut]
        for layer in LAYERS:
            assert lasting(iterated(codec, layer, data, **options)) == [cut]
            decoder = getattr(codec, DECODERS[layer])(**options)
            decoder.feed(data)
            assert (drain(decoder), decoder.offset, decoder.buffered) == ([], 0, have)
            decoder.feed(vector.wire[have:])
            assert (len(drain(decoder)), decoder.offset, decoder.buffered) == (1, vector.length, 0)


@pytest.mark.parametrize("vector", WRITTEN, ids=lambda vector: vector.name)
def test_more_than_one_frame(codec: ModuleType, vector: Vector) -> None:
    """What follows the one frame that ``decode`` wants is reported where it starts, whatever it is."""
    for extra in (b"\0", b"H", vector.wire[:10], vector.wire):
        data = vector.wire + extra
        error = attempt(codec.decode, data, packet_header_size=vector.size)
        assert error[:5] == ("ProtocolError", "TRAILING_DATA", vector.length, None, extra[:40])


def arrivals(codec: ModuleType, layer: str, chunks: list[bytes]) -> list[Outcome]:
    """What has come out after each chunk."""
    decoder = getattr(codec, DECODERS[layer])()
    seen = []
    for chunk in chunks:
        decoder.feed(chunk)
        seen.append(drain(decoder))
    return seen


def due(items: Outcome, ends: list[int], chunks: list[bytes]) -> list[Outcome]:
    """What has to come out after each chunk: the items whose last byte is in it."""
    places = [0, *accumulate(map(len, chunks))]
    return [
        [item for item, end in zip(items, ends, strict=True) if start < end <= stop] for start, stop in pairwise(places)
    ]


def read_with_ends(codec: ModuleType, layer: str, data: bytes) -> tuple[Outcome, list[int]]:
    ends = [frame.offset + frame.size for frame in codec.iter_frames(data)]
    return iterated(codec, layer, data), ends


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", CAPTURES)
def test_captures(codec: ModuleType, name: str, layer: str) -> None:
    data = read_capture(name)
    items, ends = read_with_ends(codec, layer, data)
    for chunks in splits(data):
        assert arrivals(codec, layer, chunks) == due(items, ends, chunks)


THREE = [
    message_wire("Send", {"queue": "Foo", "content": b"H0100402"}),
    message_wire("Consume", {"queue": "", "count": 10}),
    message_wire("Acknowledge", {"queue": "\xfc", "message_id": "P01"}),
]


@pytest.mark.parametrize("layer", LAYERS)
def test_three_frames_in_three_pieces(codec: ModuleType, layer: str) -> None:
    data = b"".join(THREE)
    items, ends = read_with_ends(codec, layer, data)
    assert ends == list(accumulate(map(len, THREE)))
    for one, two in combinations(range(len(data)), 2):
        chunks = [data[:one], data[one:two], data[two:]]
        assert arrivals(codec, layer, chunks) == due(items, ends, chunks)

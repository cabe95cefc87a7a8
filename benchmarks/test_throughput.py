"""Messages per second, over Dispatch frames with contents of 60 bytes.

Each operation is one group, with both codecs and, where it has that operation, the hand-written peer. Compare
within a group of one run: from run to run the same machine can differ by a factor of two.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterable
from types import ModuleType

import handwritten
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

MODULES = {"python": "phpmq._codec_py", "cython": "phpmq._codec_c", "handwritten": "handwritten"}
CHUNK_SIZE = 64 * 1024
FIELDS = [
    ("orders", b'{"order": %04d, "currency": "EUR", "total": 1999, "paid": 1}' % number, f"{number:032x}", 3600)
    for number in range(4096)
]
FRAMES = [handwritten.encode(handwritten.Dispatch(*fields)) for fields in FIELDS]
WIRE = b"".join(FRAMES)
CHUNKS = [WIRE[start : start + CHUNK_SIZE] for start in range(0, len(WIRE), CHUNK_SIZE)]


@pytest.fixture(params=["python", "cython"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(MODULES[request.param])


@pytest.fixture(params=MODULES)
def codec_or_peer(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(MODULES[request.param])


def exhaust(iterable: Iterable[object]) -> None:
    deque(iterable, maxlen=0)


def measure(benchmark: BenchmarkFixture, group: str, function: Callable[[], object], times: int = 1) -> None:
    """Measure a function that goes so many times through all the frames."""
    benchmark.group = group
    benchmark(function)
    if benchmark.stats:  # none where measuring is disabled
        seconds = benchmark.stats.stats.min
        benchmark.extra_info["messages_per_second"] = round(times * len(FRAMES) / seconds)
        benchmark.extra_info["bytes_per_second"] = round(times * len(WIRE) / seconds)


def test_what_is_measured_is_right(codec_or_peer: ModuleType) -> None:
    messages = [codec_or_peer.Dispatch(*fields) for fields in FIELDS]
    assert list(codec_or_peer.iter_messages(WIRE)) == messages
    assert list(map(codec_or_peer.encode, messages)) == FRAMES


def test_iter_messages(benchmark: BenchmarkFixture, codec_or_peer: ModuleType) -> None:
    measure(benchmark, "iter_messages", lambda: exhaust(codec_or_peer.iter_messages(WIRE)))


def test_decoder(benchmark: BenchmarkFixture, codec: ModuleType) -> None:
    def receive() -> None:
        decoder = codec.Decoder()
        for chunk in CHUNKS:
            decoder.feed(chunk)
            exhaust(decoder)

    measure(benchmark, "Decoder", receive)


def test_decode(benchmark: BenchmarkFixture, codec: ModuleType) -> None:
    measure(benchmark, "decode", lambda: exhaust(map(codec.decode, FRAMES)))


def test_scan(benchmark: BenchmarkFixture, codec: ModuleType) -> None:
    measure(benchmark, "scan", lambda: codec.scan(WIRE))


def test_encode(benchmark: BenchmarkFixture, codec_or_peer: ModuleType) -> None:
    messages = [codec_or_peer.Dispatch(*fields) for fields in FIELDS]
    measure(benchmark, "encode", lambda: exhaust(map(codec_or_peer.encode, messages)))

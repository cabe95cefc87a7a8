"""Compressed files as streams: all members, bounded reads, and every way of being damaged."""

from __future__ import annotations

import gzip
import io
import random
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from command import COMPRESS

from phpmq._compressed import MAGIC_SIZE, CompressedDataError, decompressed

Compress = Callable[[bytes], bytes]
NOISE = random.Random(1).randbytes(100_000)
each_format = pytest.mark.parametrize(("name", "compress"), COMPRESS.items(), ids=COMPRESS)


class Trickle(io.RawIOBase):
    """A pipe that gives at most so many bytes at a time, and counts how often it is read."""

    def __init__(self, data: bytes, most: int) -> None:
        self.data = io.BytesIO(data)
        self.most = most
        self.reads = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.reads += 1
        return self.data.readinto(memoryview(buffer)[: self.most])


def opened(data: bytes, most: int = 10**9) -> io.RawIOBase:
    return decompressed(Trickle(data, most), data[:MAGIC_SIZE])


def read_all(raw: io.RawIOBase, size: int = 10_000) -> tuple[bytes, str]:
    """What could be read, and what ended it."""
    data = bytearray()
    try:
        while piece := raw.read(size):
            assert len(piece) <= size
            data += piece
    except CompressedDataError as error:
        return bytes(data), str(error)
    return bytes(data), ""


@each_format
@pytest.mark.parametrize("most", [1, 7, 10**9])
def test_all_members(name: str, compress: Compress, most: int) -> None:
    parts = [b"first", b"", NOISE[: 300 * most], b"x" * 200_000]
    raw = opened(b"".join(map(compress, parts)), most)
    assert raw.readable()
    assert read_all(raw) == (b"".join(parts), "")


def test_what_is_not_compressed_is_left_alone() -> None:
    raw = Trickle(b"H0100202", 10)
    assert decompressed(raw, b"H010") is raw
    assert raw.reads == 0


@each_format
def test_a_member_that_is_cut(name: str, compress: Compress) -> None:
    data = compress(NOISE)
    for before in (b"", b"before"):
        for stop in (*range(MAGIC_SIZE, 40), len(data) // 2, *range(len(data) - 20, len(data))):
            given, error = read_all(opened((compress(before) if before else b"") + data[:stop]))
            assert given == (before + NOISE)[: len(given)]
            assert len(given) >= len(before)
            assert error == f"damaged {name} data: it ends too early"


@each_format
@pytest.mark.parametrize("junk", [b"junk", b"\0", b"H0100202"])
def test_junk_behind_a_member(name: str, compress: Compress, junk: bytes) -> None:
    given, error = read_all(opened(compress(b"good") + junk * 100))
    assert given == b"good"
    assert error.startswith(f"damaged {name} data: ")


@each_format
def test_a_damaged_header(name: str, compress: Compress) -> None:
    data = compress(b"good")
    given, error = read_all(opened(data[:MAGIC_SIZE] + b"\xff" * 100))
    assert given == b""
    assert error.startswith(f"damaged {name} data: ")


@each_format
def test_a_bomb_is_read_in_pieces(name: str, compress: Compress) -> None:
    raw = opened(compress(bytes(30 * 2**20)))
    raw.read(10)
    tracemalloc.start()
    try:
        size = sum(map(len, iter(lambda: raw.read(2**16) or b"", b"")))
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()
    assert size == 30 * 2**20 - 10


@each_format
def test_a_pipe_is_not_read_further_than_needed(name: str, compress: Compress) -> None:
    pipe = Trickle(compress(b"first") + compress(NOISE), len(compress(b"first")))
    raw = decompressed(pipe, compress(b"")[:MAGIC_SIZE])
    assert raw.read(100) == b"first"
    assert pipe.reads == 1


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library has it")
def test_zstd_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(ImportError, match=r'pip install "phpmq\[capture\]"'):
        opened(COMPRESS["zstd"](b"x"))


@pytest.mark.parametrize("size", [1, 10, 70_000, 3_000_000])
@pytest.mark.parametrize("most", [1000, 1 << 20])
def test_all_that_stands_before_a_wrong_checksum_of_gzip(size: int, most: int) -> None:
    data = (NOISE * 30)[:size] if size < 1_000_000 else NOISE + bytes(size)
    packed = gzip.compress(data)
    raw = opened(packed[:-8] + bytes(4) + packed[-4:])
    found, error = read_all(raw, most)
    assert found == data
    assert "incorrect data check" in error
    assert read_all(raw) == (b"", error)

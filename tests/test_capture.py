"""Captures: their bytes from any offset, wherever they are, and where frames begin in them."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import random
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from buffers import BUFFERS, mapped
from columns import BAD_BOTH, BROKEN, FOO, HELLO, MIXED, ODD, UNKNOWN, expected
from command import COMPRESS
from wire import message_wire

import phpmq
from phpmq._compressed import CompressedDataError
from phpmq.capture import Capture, Range

pytestmark = pytest.mark.usefixtures("backend")

#: Frames in contents, frames cut off there, and headers that only look like one.
NESTED = b"".join(
    [
        message_wire("Send", {"queue": "Foo", "content": MIXED, "ttl": 3}),
        message_wire("Send", {"queue": "Foo", "content": HELLO + BROKEN + HELLO[:-1] + b"H0100304P01" * 9}),
        b"HHH0100202",
        message_wire("Send", {"queue": "Foo", "content": message_wire("Send", {"queue": "", "content": FOO * 2})}),
        MIXED,
    ]
)


@pytest.fixture
def backend(codec: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are found by this codec; what they are compared with is not."""
    monkeypatch.setattr("phpmq.capture.codec", codec)


def squeezed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def joined(capture: Capture, start: int = 0) -> bytes:
    return b"".join(bytes(memoryview(chunk)) for chunk in capture.chunks(start))


# --- sources ---


class Source(NamedTuple):
    """A way to hold bytes: its name and size as a capture tells them ("" for the path), and whether it is read once."""

    label: str
    make: Callable[[bytes, Path], Any]
    name: str
    sized: bool
    once: bool = False


def written(data: bytes, directory: Path, name: str = "capture") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


SOURCES = (
    Source("path", written, "", True),
    Source("str", lambda data, directory: str(written(data, directory)), "", True),
    Source("bytes", lambda data, directory: data, "<bytes>", True),
    Source("bytearray", lambda data, directory: bytearray(data), "<bytes>", True),
    Source("memoryview", lambda data, directory: memoryview(b"<" + data)[1:], "<bytes>", True),
    Source("mmap", lambda data, directory: mapped(data), "<bytes>", True),
    Source("file", lambda data, directory: written(data, directory).open("rb"), "", False, True),
    Source("BytesIO", lambda data, directory: io.BytesIO(data), "<stream>", False, True),
    Source("list", lambda data, directory: [data[:9], b"", data[9:]], "<stream>", False, True),
    Source(
        "generator",
        lambda data, directory: (data[i : i + 50] for i in range(0, len(data), 50)),
        "<stream>",
        False,
        True,
    ),
    Source("gzip", lambda data, directory: written(squeezed(data), directory), "", False),
    Source("gzip in memory", lambda data, directory: squeezed(data), "<bytes>", False),
)
sources = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.label)


@sources
def test_attributes(tmp_path: Path, source: Source) -> None:
    made = source.make(MIXED, tmp_path)
    with Capture(made) as capture:
        assert capture.name == (source.name or str(tmp_path / "capture"))
        assert capture.size == (len(MIXED) if source.sized else None)
        assert joined(capture) == MIXED
        if not source.once:
            assert joined(capture) == MIXED
    if source.label == "file":
        assert not made.closed
        made.close()


@sources
@pytest.mark.parametrize("start", [0, 1, 50, 1000, len(MIXED) - 1, len(MIXED)])
def test_chunks(tmp_path: Path, source: Source, start: int) -> None:
    made = source.make(MIXED, tmp_path)
    with Capture(made) as capture:
        assert joined(capture, start) == MIXED[start:]
    if source.label == "file":
        made.close()


@sources
def test_detection(tmp_path: Path, source: Source) -> None:
    data = b"".join(message_wire("Consume", {"queue": "Foo", "count": 5}, 36) for _ in range(9))
    made = source.make(data, tmp_path)
    with Capture(made) as capture:
        assert capture.detect_packet_header_size() == 36
        assert joined(capture) == data  # nothing is lost by looking
    if source.label == "file":
        made.close()


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers(kind: str) -> None:
    with Capture(BUFFERS[kind](MIXED + b"x" * (-len(MIXED) % 4))) as capture:
        assert capture.size == len(MIXED) + (-len(MIXED) % 4)
        assert joined(capture)[: len(MIXED)] == MIXED


def test_detection_that_cannot_tell() -> None:
    for data, word in ((b"junk", "none"), (FOO[:20], "none"), (b"H0199900", "ambiguous")):
        with pytest.raises(ValueError, match=word):
            Capture(data).detect_packet_header_size()


def test_detection_looks_at_the_first_mebibyte() -> None:
    old = message_wire("Consume", {"queue": "Foo", "count": 5}, 35)
    data = old * (2**20 // len(old) + 1) + b"junk"
    assert Capture(data).detect_packet_header_size() == 35
    assert Capture([data[:100], data[100:]]).detect_packet_header_size() == 35


def test_a_large_file_comes_in_pieces(tmp_path: Path) -> None:
    data = random.Random(3).randbytes(3_000_001)
    for source in (written(data, tmp_path), written(squeezed(data), tmp_path, "packed"), io.BytesIO(data)):
        for start in (0, 1, 2**20, 2_999_999):
            if isinstance(source, io.BytesIO):
                source.seek(0)
            with Capture(source) as capture:
                assert joined(capture, start) == data[start:]


def test_a_file_is_read_from_where_it_stands() -> None:
    file = io.BytesIO(b"not this" + MIXED)
    file.seek(8)
    assert joined(Capture(file)) == MIXED


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self.data.readinto(memoryview(buffer)[:1])


@pytest.mark.parametrize("name", COMPRESS)
def test_compressed(tmp_path: Path, name: str) -> None:
    """All members, however they come."""
    data = COMPRESS[name](MIXED[:500]) + COMPRESS[name](b"") + COMPRESS[name](MIXED[500:])
    made: list[Any] = [data, written(data, tmp_path), written(data, tmp_path, "capture.gz"), io.BytesIO(data)]
    made += [[data[:1], data[1:]], [bytes([byte]) for byte in data], Trickle(data)]
    for source in made:
        with Capture(source) as capture:
            assert capture.size is None
            assert joined(capture) == MIXED
    with Capture(data) as capture:
        assert joined(capture, 600) == MIXED[600:]
        assert capture.ranges(100) == [Range(0, None)]


def test_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, MIXED)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, Capture(pipe) as capture:
        assert capture.size is None
        assert joined(capture) == MIXED


@pytest.mark.parametrize("name", COMPRESS)
def test_damaged_compression(tmp_path: Path, name: str) -> None:
    good = COMPRESS[name](MIXED)
    for damage in (good[:-3], b"junk" * 20):
        with Capture(written(good + damage, tmp_path)) as capture:
            seen = bytearray()
            chunks = capture.chunks()
            with suppress(CompressedDataError):
                while True:
                    seen += next(chunks, b"")
            assert seen.startswith(MIXED)


@pytest.mark.parametrize("data", [b"", b"H", FOO[:3]], ids=["empty", "one byte", "three"])
def test_short_sources(tmp_path: Path, data: bytes) -> None:
    made: list[Any] = [data, written(data, tmp_path), io.BytesIO(data), [data]]
    for source in made:
        with Capture(source) as capture:
            assert capture.size in (len(data), None)
            assert joined(capture) == data
            assert (capture.size is None) == isinstance(source, io.BytesIO | list)


def test_nothing(tmp_path: Path) -> None:
    path = written(b"", tmp_path)
    made: list[Any] = [b"", path, str(path)]
    for source in made:
        with Capture(source) as capture:
            assert (capture.size, capture.find_frame(0), capture.ranges(10)) == (0, 0, [])
            assert capture.ranges(10, exact=True) == []
            assert list(map(bytes, capture.chunks())) in ([], [b""])
    with Capture([]) as capture:
        assert capture.ranges(10) == [Range(0, None)]
    with Capture(squeezed(b"")) as capture:
        assert joined(capture) == b""


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", str(tmp_path / "missing")):
        with pytest.raises(FileNotFoundError):
            Capture(path)
    with pytest.raises(IsADirectoryError):
        Capture(tmp_path)


@pytest.mark.parametrize("source", [None, 5, 1.5, object()], ids=["None", "int", "float", "object"])
def test_what_is_no_source(source: Any) -> None:
    with pytest.raises(TypeError):
        Capture(source)


def test_a_buffer_with_gaps() -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        Capture(memoryview(FOO)[::2])


def test_closing(tmp_path: Path) -> None:
    capture = Capture(written(MIXED, tmp_path))
    with capture as entered:
        assert entered is capture
        next(iter(capture.chunks()))
    capture.close()
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_closing_lets_a_buffer_go() -> None:
    for data in (bytearray(MIXED), mapped(MIXED)):
        with Capture(data) as capture:
            assert capture.find_frame(1) == 122
        if isinstance(data, mmap.mmap):
            data.close()
        else:
            data.clear()


CYCLE = """
import gc
from phpmq.capture import Capture

def leave(source):
    capture = Capture(source)
    chunks = capture.chunks()
    chunk = next(chunks)
    try:
        raise KeyError
    except KeyError as error:
        kept = error

for _ in range(20):
    leave(bytes(1000))
    leave(bytearray(1000))
print(gc.collect() > 0)
"""


def test_captures_can_be_collected_as_garbage() -> None:
    """Views of views in a cycle end some versions of CPython."""
    run = subprocess.run([sys.executable, "-c", CYCLE], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


# --- URLs and packages ---


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.pipe("/captures/plain", MIXED)
    files.pipe("/captures/packed", squeezed(MIXED[:500]) + squeezed(MIXED[500:]))
    files.pipe("/captures/empty", b"")
    yield files
    files.rm("/captures", recursive=True)


def test_urls(memory: Any) -> None:
    with Capture("memory://captures/plain") as capture:
        assert capture.name == "memory://captures/plain"
        assert capture.size == len(MIXED)
        for start in (0, 1, 122, len(MIXED)):
            assert joined(capture, start) == MIXED[start:]
        places = [capture.find_frame(offset) for offset in range(0, len(MIXED), 50)]
        assert places == [starting(MIXED, offset) for offset in range(0, len(MIXED), 50)]
        assert capture.ranges(300) == Capture(MIXED).ranges(300)
        assert capture.ranges(300, exact=True) == Capture(MIXED).ranges(300, exact=True)
    with Capture("memory://captures/empty") as capture:
        assert (capture.size, joined(capture), capture.ranges(5)) == (0, b"", [])


def test_large_urls(memory: Any) -> None:
    """Places that are far behind where looking begins, with frames that are larger than what is read at once."""
    large = message_wire("Send", {"queue": "", "content": b"Hi" * 600_000, "ttl": 1})
    pieces = [FOO, b"H0" * 800_000, large, BROKEN, large, FOO]
    data = b"".join(pieces)
    starts = [0, 1_600_076, 1_600_152 + len(large), 1_600_152 + 2 * len(large), len(data)]
    memory.pipe("/captures/large", data)
    with Capture("memory://captures/large") as capture:
        assert capture.size == len(data)
        for offset in (0, 1, 76, 1_600_076, 1_600_077, 2_000_000, *starts[2:], len(data) - 1):
            assert capture.find_frame(offset) == starts[bisect_left(starts, offset)]
        assert [part.start for part in capture.ranges(10**6)] == starts[:-1]
        assert joined(capture, 2_000_000) == data[2_000_000:]


def test_compressed_urls(memory: Any) -> None:
    with Capture("memory://captures/packed") as capture:
        assert (capture.name, capture.size) == ("memory://captures/packed", None)
        assert [joined(capture), joined(capture, 700)] == [MIXED, MIXED[700:]]


def test_missing_urls(memory: Any) -> None:
    with pytest.raises(FileNotFoundError):
        Capture("memory://captures/missing")


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "fsspec"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "phpmq\[capture\]"'):
        Capture("memory://captures/plain")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library has it")
def test_without_zstd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = COMPRESS["zstd"](MIXED)
    monkeypatch.setitem(sys.modules, "backports", None)
    made: list[Any] = [data, written(data, tmp_path)]
    for source in made:
        with pytest.raises(ImportError, match=r'pip install "phpmq\[capture\]"'):
            joined(Capture(source))


def test_plain_files_take_no_package() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'fsspec', 'backports', 'backports.zstd', 'numpy']))\n"
        "from phpmq.capture import Capture\n"
        "print(Capture(b'xx' + bytes.fromhex(sys.argv[1])).ranges(1, exact=True))\n"
        "try: import phpmq.arrow\n"
        "except ImportError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, FOO.hex()]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert output[0] == "[Range(start=0, stop=2), Range(start=2, stop=78)]"
    assert 'pip install "phpmq[arrow]"' in output[1]


# --- where frames begin ---


def begins(data: bytes, place: int, **options: Any) -> bool:
    """Whether a whole valid frame begins there, whatever follows it."""
    try:
        return next(phpmq.iter_messages(memoryview(data)[place:], **options), None) is not None
    except phpmq.ProtocolError:
        return False


def all_starts(data: bytes, **options: Any) -> list[int]:
    return [place for place in range(len(data)) if data[place] == ord("H") and begins(data, place, **options)]


def starting(data: bytes, offset: int, **options: Any) -> int:
    return next((place for place in all_starts(data, **options) if place >= offset), len(data))


@pytest.mark.parametrize(
    "data",
    [
        MIXED,
        NESTED,
        FOO * 3,
        BROKEN * 3,
        b"H" * 300,
        b"H0100202P01" * 20,
        HELLO[:-1],
        ODD + FOO,
        UNKNOWN + FOO,
        BAD_BOTH,
    ],
    ids=lambda data: f"{data[:8].decode()}-{len(data)}",
)
def test_find_frame(data: bytes) -> None:
    starts = [*all_starts(data), len(data)]
    with Capture(data) as capture:
        found = [capture.find_frame(offset) for offset in range(len(data) + 1)]
    assert found == [starts[bisect_left(starts, offset)] for offset in range(len(data) + 1)]


def test_find_frame_in_contents() -> None:
    """A place inside a content counts: whoever asks has to be prepared."""
    inner = message_wire("Send", {"queue": "", "content": FOO * 2, "ttl": 0})
    place = 8 + 32 + 32
    with Capture(inner) as capture:
        assert [capture.find_frame(offset) for offset in (0, 1, place, place + 1, place + 77)] == [
            *(0, place, place, place + 76, len(inner)),
        ]


@pytest.mark.parametrize("size", [35, 36])
def test_find_frame_with_other_headers(size: int) -> None:
    data = b"junk".join(message_wire("Consume", {"queue": "Foo", "count": number}, size) for number in range(9)) + FOO
    starts = [*all_starts(data, packet_header_size=size), len(data)]
    assert len(starts) == 10
    with Capture(data) as capture:
        for offset in range(len(data) + 1):
            found = capture.find_frame(offset, packet_header_size=size)
            assert found == starts[bisect_left(starts, offset)]


def test_find_frame_with_a_limit() -> None:
    data = HELLO + FOO + HELLO
    with Capture(data) as capture:
        assert capture.find_frame(0, max_frame_size=122) == 0
        assert capture.find_frame(0, max_frame_size=121) == 122
        assert capture.find_frame(0, max_frame_size=75) == len(data)
        assert capture.find_frame(123, max_frame_size=76) == len(data)


def test_find_frame_in_a_file(tmp_path: Path) -> None:
    with Capture(written(NESTED, tmp_path)) as capture:
        for offset in range(0, len(NESTED), 97):
            assert capture.find_frame(offset) == starting(NESTED, offset)


def test_find_frame_far_away() -> None:
    data = FOO + b"H" * 3_000_000 + HELLO
    with Capture(data) as capture:
        assert capture.find_frame(1) == 3_000_076
    large = message_wire("Send", {"queue": "", "content": bytes(5_000_000), "ttl": 1})
    with Capture(b"x" * 10 + large + FOO) as capture:
        assert capture.find_frame(1) == 10
        assert capture.find_frame(11) == 10 + len(large)


def test_find_frame_takes_a_known_size() -> None:
    made: list[Any] = [[MIXED], io.BytesIO(MIXED), squeezed(MIXED)]
    for source in made:
        with Capture(source) as capture, pytest.raises(ValueError, match="."):  # noqa: RUF043
            capture.find_frame(0)


# --- ranges ---


def check_tiles(ranges: list[Range], size: int) -> None:
    assert all(isinstance(part, Range) and part.stop is not None and part.start < part.stop for part in ranges)
    assert [part.start for part in ranges] == [0, *(part.stop for part in ranges[:-1])]
    assert ranges[-1].stop == size


SIZES = [1, 2, 50, 76, 100, 122, 300, 1000, 2000, 10**6]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("data", [MIXED, NESTED, BROKEN * 5, b"H" * 300], ids=["mixed", "nested", "damage", "H"])
def test_guessed_ranges(data: bytes, size: int) -> None:
    starts = [*all_starts(data), len(data)]
    cuts = {starts[bisect_left(starts, offset)] for offset in range(size, len(data), size)}
    with Capture(data) as capture:
        ranges = capture.ranges(size)
    check_tiles(ranges, len(data))
    assert {part.start for part in ranges} - {0} == cuts - {0, len(data)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("data", [MIXED, NESTED, BROKEN * 5, b"H" * 300], ids=["mixed", "nested", "damage", "H"])
def test_exact_ranges(data: bytes, size: int) -> None:
    rows = expected(data, on_fault="skip").rows
    boundaries = {0, *(values["offset"] + values["size"] for values in rows)}
    largest = max(values["size"] for values in rows)
    with Capture(data) as capture:
        ranges = capture.ranges(size, exact=True)
    check_tiles(ranges, len(data))
    assert {part.start for part in ranges} <= boundaries
    assert all(stop - start <= size + largest for start, stop in ranges if stop is not None)
    assert len(ranges) >= len(data) // (size + largest)


def test_ranges_of_one_row_each() -> None:
    data = FOO * 5 + HELLO + BROKEN + FOO
    ends = [0, 76, 152, 228, 304, 380, 502, 578, 654]
    assert Capture(data).ranges(1, exact=True) == [Range(*pair) for pair in pairwise(ends)]
    guessed = [0, 76, 152, 228, 304, 380, 578, 654]  # no frame begins where the damage does
    assert Capture(data).ranges(1) == [Range(*pair) for pair in pairwise(guessed)]


@pytest.mark.parametrize("exact", [False, True])
def test_ranges_with_options(exact: bool) -> None:
    old = message_wire("Consume", {"queue": "Foo", "count": 5}, 36)
    with Capture(old * 6) as capture:
        ranges = capture.ranges(168, exact=exact, packet_header_size=36)
        assert ranges == [Range(0, 168), Range(168, 336), Range(336, 504)]
        assert capture.ranges(168, exact=exact) == [Range(0, 504)]
        assert capture.ranges(168, exact=exact, packet_header_size=36, max_frame_size=83) == [Range(0, 504)]


def test_ranges_of_streams() -> None:
    made: list[Any] = [[MIXED], io.BytesIO(MIXED), squeezed(MIXED)]
    for source in made:
        for exact in (False, True):
            assert Capture(source).ranges(10, exact=exact) == [Range(0, None)]


@pytest.mark.parametrize("size", [0, -1, 1.5, "1", None], ids=repr)
def test_wrong_sizes(size: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Capture(MIXED).ranges(size)


@pytest.mark.parametrize("options", [{"packet_header_size": 33}, {"max_frame_size": 7}], ids=repr)
def test_wrong_options(options: dict[str, Any]) -> None:
    with Capture(MIXED) as capture:
        with pytest.raises(ValueError, match="size"):
            capture.find_frame(0, **options)
        for exact in (False, True):
            with pytest.raises(ValueError, match="size"):
                capture.ranges(100, exact=exact, **options)


def test_boundaries_from_a_place(tmp_path: Path) -> None:
    size = len(FOO)
    (tmp_path / "a").write_bytes(FOO * 4 + b"junk" + FOO * 2)
    with Capture(tmp_path / "a") as capture:
        assert list(capture.boundaries([0, 1, size, 3 * size + 1, 4 * size + 1])) == [
            0,
            size,
            size,
            4 * size,
            4 * size + 4,
        ]
        assert list(capture.boundaries([2 * size, 4 * size + 3, 5 * size + 5], start=2 * size)) == [
            2 * size,
            4 * size + 4,
        ]


def test_an_end_before_the_end(tmp_path: Path, memory: Any) -> None:
    data = FOO * 30_000
    path = tmp_path / "a"
    path.write_bytes(data)
    memory.pipe("/captures/cut", data)
    for source in (path, "memory://captures/cut", data):
        for size in (0, 1, len(FOO) + 1, len(data) - 1, len(data), len(data) + 1):
            with Capture(source) as capture:
                capture.end_at(size)
                assert capture.size == min(size, len(data))
                assert b"".join(capture.chunks()) == data[:size]
                assert b"".join(capture.chunks(min(size, 7))) == data[7:size]
                whole = size // len(FOO) * len(FOO)
                assert capture.find_frame(1) == (len(FOO) if whole > len(FOO) else min(size, len(data)))
                capture.end_at(size + 5)
                assert capture.size == min(size, len(data))
    with Capture(gzip.compress(FOO)) as capture:
        capture.end_at(5)
        assert b"".join(capture.chunks()) == FOO

"""Captures: frames one after another, in a file of any size, wherever it is.

A capture gives its bytes in chunks from any offset, and it can be cut into ranges that are read apart. Frames have no
mark to find them by, and a content may hold whole frames, so a place where a frame seems to begin is a guess. Whoever
reads the range before verifies it: reading goes on to the first boundary (where a frame or a damage ends) at or behind
the place, and if that is another one, the guess was wrong, and the next range begins there.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import chain, pairwise
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias

from phpmq._backend import codec
from phpmq._compressed import MAGIC_SIZE, CompressedDataError, decompressed
from phpmq.errors import ProtocolError
from phpmq.protocol import DEFAULT_MAX_FRAME_SIZE, DEFAULT_PACKET_HEADER_SIZE, DETECTION_SIZE

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    Source: TypeAlias = str | os.PathLike[str] | Buffer | BinaryIO | Iterable[Buffer]

__all__ = ["Capture", "CompressedDataError", "Range"]

#: How many bytes are read at once.
_CHUNK_SIZE: Final = 1024 * 1024

#: A batch as the codec gives it, behind the offset where its last row ends.
Batch: TypeAlias = tuple[int, int, list[tuple[int, list[Any]]]]


class Range(NamedTuple):
    """A part of a capture, from the byte ``start`` up to, not including, ``stop``; None if the end is not known."""

    start: int
    stop: int | None


class Capture:
    """Frames one after another, in whatever holds them.

    Args:
        source: a path, a URL of fsspec (``s3://…``), any C-contiguous buffer, a binary file, which is read from where
            it stands, or an iterable of chunks. gzip, bzip2 and zstd are told by their content. Files and iterables can
            be read once. A local file is mapped into memory, so nobody may cut it while it is read.

    Attributes:
        name: the path or the URL; the name of a file, if it has one; else ``"<bytes>"`` or ``"<stream>"``.
        size: how many bytes of frames there are; None if only reading can tell.
        data: all of them, where they need not be read; else None.

    Raises:
        TypeError: the source is none of these.
        OSError: it cannot be opened.
        ImportError: the package is missing that reads the URL, or zstd.
    """

    def __init__(self, source: Source) -> None:
        self.name = "<stream>"
        self.size: int | None = None
        self.data: memoryview | None = None
        self._map: mmap.mmap | None = None
        self._pipe: BinaryIO | None = None
        self._once: Iterator[Buffer] | None = None
        self._open: Callable[[], Any]
        self._is_compressed = False
        if isinstance(source, str | os.PathLike):
            self.name = os.fspath(source)
            if "://" in self.name:
                self._open_url()
            else:
                self._open_path()
        elif (data := _bytes_of(source)) is not None:
            self.name = "<bytes>"
            self._open = partial(io.BytesIO, data)
            self._is_compressed = _is_compressed(bytes(data[:MAGIC_SIZE]))
            if not self._is_compressed:
                self.data = data
                self.size = len(data)
        elif hasattr(source, "read"):
            if isinstance(name := getattr(source, "name", None), str):
                self.name = name
            self._once = _plain(_checked(_chunks_of(source)))
        elif isinstance(source, Iterable):
            self._once = _plain(_checked(iter(source)))
        else:
            raise TypeError(f"source must be a path, a buffer, a binary file or chunks, not {type(source).__name__}")

    def _open_path(self) -> None:
        self._open = partial(open, self.name, "rb", buffering=0)
        file: Any = self._open()
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            self._pipe = file
            self._once = _plain(_chunks_of(file))
            return
        with file:
            self._is_compressed = _is_compressed(file.read(MAGIC_SIZE))
            if self._is_compressed:
                return
            self.size = os.fstat(file.fileno()).st_size
            if self.size:
                self._map = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
            self.data = memoryview(self._map or b"")

    def _open_url(self) -> None:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415
        except ImportError:
            raise ImportError(f'to read {self.name} takes: pip install "phpmq[capture]"') from None
        system, path = url_to_fs(self.name)
        self._open = partial(system.open, path, "rb")
        with self._open() as file:
            self._is_compressed = _is_compressed(file.read(MAGIC_SIZE))
        if not self._is_compressed:
            self.size = system.size(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; what still reads it keeps it open."""
        if self._pipe is not None:
            self._pipe.close()
        with suppress(BufferError):
            if self.data is not None:
                self.data.release()
            if self._map is not None:
                self._map.close()

    def end_at(self, size: int) -> None:
        """Show nothing behind so many bytes, where it is known how many there are, and there are more."""
        if self.size is not None and self.size > size:
            self.size = size
            if self.data is not None:
                self.data = self.data[:size]

    def chunks(self, start: int = 0) -> Iterator[Buffer]:
        """The bytes from an offset on, in chunks of any size.

        Raises:
            CompressedDataError: while iterating, after all that could be decompressed.
            ValueError: this can be read once, and was; or, while iterating, it ends before ``start``.
        """
        _not_negative("start", start)
        if self.data is not None:
            return (self.data[place : place + _CHUNK_SIZE] for place in range(start, len(self.data), _CHUNK_SIZE))
        if self.size is not None:
            return _closing_chunks(self._open(), start, self.size)
        if self._is_compressed:
            return _behind(start, _plain(_closing_chunks(self._open())))
        if self._once is None:
            raise ValueError(f"{self.name} can be read once, and was")
        once, self._once = self._once, None
        return _behind(start, once)

    def detect_packet_header_size(self) -> int:
        """Which packet header size the frames have, 32, 35 or 36 bytes; 32 where there are no bytes.

        Raises:
            ValueError: no size fits, or several do (docs/protocol.md, section 1).
        """
        once, head = self._once, b""
        chunks = self.chunks()
        while len(head) < DETECTION_SIZE and (chunk := next(chunks, None)) is not None:
            head += chunk
        if once is not None:
            self._once = chain([head], chunks)
        return codec.detect_packet_header_size(head) if head else DEFAULT_PACKET_HEADER_SIZE

    def find_frame(
        self,
        offset: int,
        *,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    ) -> int:
        """The first place at or behind an offset where a whole valid message begins; ``size`` if there is none.

        Inside a damage this is where recovery ends (docs/protocol.md, section 4, "Recovery"). Inside a content it is
        wrong if the content holds frames.

        Raises:
            ValueError: the size is not known.
        """
        if self.size is None:
            raise ValueError(f"{self.name} can only be read from its start")
        options = {"packet_header_size": packet_header_size, "max_frame_size": max_frame_size}
        offset = min(_not_negative("offset", offset), self.size)
        if self.data is not None:
            return codec._find_frame(self.data, offset, **options)  # type: ignore[arg-type]
        # The recovery from a byte of junk, which here stands before the offset, ends at the place.
        recovery = decode_chunks(
            chain([b"x"], self.chunks(offset)),
            ["size"],
            start=offset,
            stop=None,
            on_fault="skip",
            max_rows=1,
            max_bytes=1,
            **options,
        )
        _, _, [(_, [_, size])] = next(recovery)
        return offset + _numbers(size)[0] - 1

    def ranges(
        self,
        size: int,
        *,
        exact: bool = False,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    ) -> list[Range]:
        """Cut the capture into ranges of about so many bytes, without gaps.

        Args:
            size: bytes of a range.
            exact: hop over all headers, so that each range begins where a frame or a damage does. Otherwise each begins
                at a guess (`find_frame`), which takes next to no time, and has to be verified by reading.
            packet_header_size, max_frame_size: as `phpmq.iter_messages` takes them.

        Returns:
            The ranges; one without an end where the size is not known.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        if self.size is None:
            return [Range(0, None)]
        options: dict[str, Any] = {"packet_header_size": packet_header_size, "max_frame_size": max_frame_size}
        cuts = range(size, self.size, size)
        places = self.boundaries(cuts, **options) if exact else self._guesses(cuts, options)
        return [Range(start, stop) for start, stop in pairwise(sorted({0, *places, self.size}))]

    def _guesses(self, cuts: Sequence[int], options: dict[str, Any]) -> Iterator[int]:
        place = 0
        for cut in cuts:
            if cut > place:  # else it is the place that was found for the cut before
                place = self.find_frame(cut, **options)
                yield place

    def boundaries(
        self,
        cuts: Sequence[int],
        *,
        start: int = 0,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    ) -> Iterator[int]:
        """For each cut, in ascending order, the first place at or behind it where a frame or a damage begins.

        Nothing is given for cuts behind the last of these places. A frame or a damage has to begin at ``start``.
        """
        number = 0
        for _, _, [(_, [_, offsets])] in decode(
            self,
            ["offset"],
            start=start,
            stop=None,
            on_fault="skip",
            max_rows=65536,
            max_bytes=_CHUNK_SIZE,
            packet_header_size=packet_header_size,
            max_frame_size=max_frame_size,
        ):
            boundaries = _numbers(offsets)
            while number < len(cuts) and cuts[number] <= boundaries[-1]:
                yield boundaries[bisect_left(boundaries, cuts[number])]
                number += 1
            if number == len(cuts):
                return


def decode(
    capture: Capture, columns: Sequence[str], *, start: int, stop: int | None, **options: Any
) -> Iterator[Batch]:
    """Decode a capture to columns: the batches of the codec, each behind the offset where its last row ends."""
    if capture.data is None:
        return decode_chunks(capture.chunks(start), columns, start=start, stop=stop, **options)
    return _given(codec._decode_columns(capture.data, columns, start=start, stop=stop, **options))


def decode_chunks(
    chunks: Iterable[Buffer], columns: Sequence[str], *, start: int, stop: int | None, **options: Any
) -> Iterator[Batch]:
    """`decode` for the chunks of an input, from the byte ``start`` of it on."""
    decoder = codec._decode_columns(None, columns, start=start, stop=stop, **options)
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            yield from _given(decoder)
            if stop is not None and decoder.offset >= stop:
                return
    except ProtocolError:
        raise
    except (Exception, KeyboardInterrupt):  # what was read before is good
        decoder.close()
        with suppress(ProtocolError):
            yield from _given(decoder)
        raise
    decoder.close()
    yield from _given(decoder)


def _given(decoder: Any) -> Iterator[Batch]:
    return ((decoder.offset, rows, columns) for rows, columns in decoder)


def _numbers(data: Buffer) -> memoryview:
    return memoryview(data).cast("B").cast("q")


def _not_negative(name: str, offset: int) -> int:
    if offset < 0:
        raise ValueError(f"{name} must not be negative, but is {offset}")
    return offset


class _Chunks(io.RawIOBase):
    """A file of chunks."""

    def __init__(self, chunks: Iterator[Buffer]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _is_compressed(magic: bytes) -> bool:
    raw = _Chunks(iter(()))
    return decompressed(raw, magic) is not raw


def _plain(chunks: Iterator[Buffer]) -> Iterator[Buffer]:
    """The chunks, or if they are those of a compressed file, what it holds."""
    head = b""
    while len(head) < MAGIC_SIZE and (chunk := next(chunks, None)) is not None:
        head += chunk
    whole: Iterator[Buffer] = chain([head], chunks)
    raw = _Chunks(whole)
    plain = decompressed(raw, head)
    return whole if plain is raw else _chunks_of(plain)


def _chunks_of(file: Any) -> Iterator[Buffer]:
    read = getattr(file, "read1", file.read)  # of a pipe, what has come
    return iter(lambda: read(_CHUNK_SIZE), b"")


def _checked(chunks: Iterator[Any]) -> Iterator[Buffer]:
    for chunk in chunks:
        if not isinstance(chunk, bytes) and _bytes_of(chunk) is None:
            advice = "; open it in binary mode" if isinstance(chunk, str) else ""
            raise TypeError(f"source must give chunks of bytes, not {type(chunk).__name__}{advice}")
        yield chunk


def _closing_chunks(file: Any, start: int = 0, stop: int = sys.maxsize) -> Iterator[Buffer]:
    with closing(file):
        if start:
            file.seek(start)
        for chunk in _chunks_of(file):
            view = memoryview(chunk)[: stop - start]
            yield view
            start += len(view)
            if start == stop:
                return


def _behind(start: int, chunks: Iterator[Buffer]) -> Iterator[Buffer]:
    """All but the first bytes."""
    left = start
    for chunk in chunks:
        view = memoryview(chunk)
        if left < len(view):
            yield view[left:]
        left = max(left - len(view), 0)
    if left:
        raise ValueError(f"start is {start}, behind the end at {start - left}")


def _bytes_of(source: Any) -> memoryview | None:
    """The bytes under any C-contiguous buffer, None for what is no buffer."""
    try:
        view = memoryview(source)
    except TypeError:
        return None
    if not view.c_contiguous:
        raise TypeError(f"source must be a C-contiguous buffer, not a strided {type(source).__name__}")
    # A view of a view can bring CPython down where both are garbage.
    return view if view.format == "B" and view.ndim == 1 else PickleBuffer(source).raw()

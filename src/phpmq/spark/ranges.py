"""Shares of the work: pieces of captures, as the driver plans them and as a task reads them.

Where a piece begins is a guess (`phpmq.capture`), unless all headers before it were hopped over to plan it. What is
guessed for a cut depends on the bytes behind the cut only. So the task that reads a piece finds where the next one
begins, too, and verifies that its own ends there. If no task fails, every frame was read once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from phpmq._backend import codec
from phpmq.arrow import read_batches, schema_of
from phpmq.capture import Capture, CompressedDataError
from phpmq.errors import ProtocolError
from phpmq.protocol import DEFAULT_PACKET_HEADER_SIZE, PACKET_HEADER_SIZES
from phpmq.spark.options import FAILFAST

#: What the column ``fault`` says where a compressed file cannot be decompressed any further.
COMPRESSED_DATA: Final = "COMPRESSED_DATA"

#: What opening a file costs, in bytes that could have been read meanwhile.
_OPENING: Final = 1024 * 1024


class Extent(NamedTuple):
    """A part of a file, in bytes, that begins where a frame or a damage does.

    ``is_open`` tells that nobody reads on behind it: that may be in the middle of a frame.
    """

    path: str
    start: int
    stop: int
    is_open: bool


class Piece(NamedTuple):
    """A part of an extent, cut out of it at guesses; None where it is not cut."""

    extent: Extent
    after: int | None
    until: int | None


def plan(extents: Iterable[Extent], options: dict[str, Any]) -> list[list[Piece]]:
    """Share extents out: as few shares as ``maxPartitionBytes`` allows, of about one size, by cutting what is large."""
    extents = [extent for extent in extents if extent.start < extent.stop]
    if not extents:
        return []
    total = sum(_OPENING + extent.stop - extent.start for extent in extents)
    size = -(-total // -(-total // options["maxPartitionBytes"]))
    shares: list[list[Piece]] = [[]]
    room = size  # in the last share, for bytes
    for extent in extents:
        if shares[-1]:
            room -= _OPENING
            if room <= 0:
                shares.append([])
                room = size
        cuts = range(extent.start + room, extent.stop, size)
        first, *others = _pieces(extent, cuts, options)
        if cuts and not others and shares[-1]:  # it cannot be cut, and is too large for the room
            shares.append([])
            room = size
        shares[-1].append(first)
        shares += [[piece] for piece in others]
        room = size - (extent.stop - cuts[-1]) if others else room - (extent.stop - extent.start)
    return shares


def _pieces(extent: Extent, cuts: Sequence[int], options: dict[str, Any]) -> list[Piece]:
    if cuts and options["splitting"] != "none":
        with suppress(FileNotFoundError), Capture(extent.path) as capture:  # without the file, its task says so
            if capture.size is not None and options["splitting"] == "exact":
                places = capture.boundaries(cuts, start=extent.start, **framing(capture, options))
                ends = sorted({extent.start, *(place for place in places if place < extent.stop), extent.stop})
                parts = [Extent(extent.path, *part, False) for part in pairwise(ends)]
                parts[-1] = parts[-1]._replace(is_open=extent.is_open)
                return [Piece(part, None, None) for part in parts]
            if capture.size is not None:
                return [Piece(extent, *part) for part in pairwise([None, *cuts, None])]
    return [Piece(extent, None, None)]


def framing(capture: Capture, options: dict[str, Any]) -> dict[str, Any]:
    """How the frames of a capture are told: the arguments for it that everything takes."""
    size = options["packetHeaderSize"]
    if size == "auto":
        try:
            size = capture.detect_packet_header_size()
        except ValueError as error:
            if options["mode"] == FAILFAST:
                raise ValueError(f"{capture.name}: {error}") from None
            size = _likely_packet_header_size(capture)
    return {"packet_header_size": size, "max_frame_size": options["maxFrameSize"]}


def _likely_packet_header_size(capture: Capture) -> int:
    """The one with which there are the most whole messages in the first chunk, which is damaged."""
    frames = {}
    with suppress(CompressedDataError):
        head = next(capture.chunks(), b"")
        for size in PACKET_HEADER_SIZES:
            scanner = codec._Scanner(packet_header_size=size, on_fault="skip")
            scanner.feed(head)
            deque(scanner, maxlen=0)
            frames[size] = sum(count for count, _ in scanner.counts.values())
    return max(frames, key=frames.__getitem__, default=DEFAULT_PACKET_HEADER_SIZE)


def read(
    pieces: Iterable[Piece], columns: Sequence[str], options: dict[str, Any]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read pieces: each batch of these columns, behind the path of the file that it is from.

    Raises:
        FileNotFoundError: a file has vanished, unless ``ignoreMissingFiles``.
        ValueError: a file is damaged and the mode FAILFAST, it became shorter, or a guess was wrong.
    """
    for piece in pieces:
        path = piece.extent.path
        try:
            capture = Capture(path)
        except FileNotFoundError:
            if options["ignoreMissingFiles"]:
                continue
            raise FileNotFoundError(f"{path} has vanished since it was listed") from None
        with capture:
            for batch in _read(capture, piece, columns, options):
                yield path, batch
                del batch  # whose memory the next one can have


def _read(capture: Capture, piece: Piece, columns: Sequence[str], options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    path, start, stop, is_open = piece.extent
    how = framing(capture, options)
    if capture.size is not None and capture.size < stop:
        raise ValueError(f"{path} had at least {stop} bytes when it was listed, and has {capture.size} now")
    if is_open:
        capture.end_at(stop)  # so that all who read pieces of it see the same, while it grows
    if piece.after is not None:
        start = min(stop, capture.find_frame(piece.after, **how))
    if piece.until is not None:
        stop, is_open = min(stop, capture.find_frame(piece.until, **how)), False
    if start == stop:  # something large that began before it reaches over all of it
        return
    reader = read_batches(
        capture,
        columns=columns,
        start=start,
        stop=None if capture.size is None else stop,
        on_fault="raise" if options["mode"] == FAILFAST else "skip",
        max_batch_bytes=options["maxBatchBytes"],
        **how,
    )
    try:
        yield from reader
    except (ProtocolError, CompressedDataError) as error:
        if options["mode"] == FAILFAST:
            text = f"{path}: {error}; what is good before it ends at offset {reader.offset}"
            if piece.after is not None:
                text += f"; reading began at a guess, at offset {start}, so see if splitting=exact says the same"
            raise ValueError(text) from None
        fault = {"offset": reader.offset, "size": 0, "fault": COMPRESSED_DATA, "fault_offset": reader.offset}
        # by way of a struct, which has a length also without columns
        yield pa.RecordBatch.from_struct_array(pa.array([fault], pa.struct(schema_of(columns))))
    if not is_open and reader.offset != stop and capture.size is not None:
        if piece.until is None:
            reason = "the file has changed"
        else:
            reason = 'its contents hold frames, so it has to be read with option("splitting", "exact")'
        raise ValueError(f"{path}: the frame before offset {stop} ends at {reader.offset}: {reason}")

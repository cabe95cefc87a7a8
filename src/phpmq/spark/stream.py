"""Reading files that grow, and files that come, as a stream.

An offset says how far each file was read. It is a function of the files and of the offset before, so a restart goes on
with what the checkpoint has, and nothing else.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from phpmq._backend import codec
from phpmq.capture import Capture, decode
from phpmq.spark.files import File, read_head
from phpmq.spark.ranges import Extent, framing, plan
from phpmq.spark.reader import PieceReader, Share

_VERSION: Final = 1
#: How many bytes at the start of a file tell whether it is the same file.
_HEAD_SIZE: Final = 1024
#: Of a file that was read to its end: the hash of its path, how many bytes that were, and the checksum of its head.
_FINISHED: Final = struct.Struct("<8sQI")
#: With guessed splitting, how much of the end of a file is looked at to find the last frame.
_TAIL_SIZE: Final = 64 * 1024 * 1024


class Mark(NamedTuple):
    """How far a file was read, in bytes, and the checksum of its head up to there.

    ``seen`` is its size when there was no more whole frame in it, if it was not read to its end.
    """

    offset: int
    head: int
    seen: int = 0


_UNREAD: Final = Mark(0, 0)
Marks: TypeAlias = dict[bytes, Mark]


def _key(path: str) -> bytes:
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _offset(
    looked: float, files: Iterable[File], marks: Marks, taken: dict[str, bool], *, remember: bool
) -> dict[str, Any]:
    """An offset as Spark keeps it.

    Files that are not read to their end stand in it by their paths. Of all others, which become ever more, it has 27
    characters each; of those that are missing only if they are to be remembered. ``taken`` are those of which there is
    more than in the offset before, and whether the place in it is their end for good, so that a batch is the same when
    it is read again, whatever is listed and told by then.
    """
    unfinished, finished, missing = {}, b"", dict(marks)
    for file in files:
        mark = missing.pop(key := _key(file.path), _UNREAD)
        if mark.offset == file.size:
            finished += _FINISHED.pack(key, mark.offset, mark.head)
        elif mark.offset or mark.seen:
            unfinished[file.path] = list(mark)
    if remember:
        for key, mark in missing.items():
            finished += _FINISHED.pack(key, mark.offset, mark.head)
    return {
        "version": _VERSION,
        "looked": looked,
        "taken": taken,
        "unfinished": unfinished,
        "finished": base64.b64encode(finished).decode(),
    }


def _marks(offset: dict[str, Any]) -> Marks:
    if offset.get("version") != _VERSION:
        raise ValueError(f"the checkpoint is from another version of phpmq, which wrote {str(offset)[:80]}")
    marks = {_key(path): Mark(*mark) for path, mark in offset["unfinished"].items()}
    for key, *mark in _FINISHED.iter_unpack(base64.b64decode(offset["finished"])):
        marks[key] = Mark(*mark)
    return marks


class PhpmqStreamReader(PieceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows files that grow and that come."""

    _snapshot: list[File] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _offset(0, [], {}, {}, remember=False)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if limit := self._options["maxBytesPerTrigger"]:
            return ReadMaxBytes(limit)
        if limit := self._options["maxFilesPerTrigger"]:
            return ReadMaxFiles(limit)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._snapshot = self._files()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far to read next: to the last whole frame of each file, the oldest files first.

        Raises:
            ValueError: a file is shorter than what was read of it, or has become another one.
        """
        is_limited = not isinstance(limit, ReadAllAvailable)
        room = (is_limited and self._options["maxBytesPerTrigger"]) or sys.maxsize
        files_left = (is_limited and self._options["maxFilesPerTrigger"]) or sys.maxsize
        listed = self._files() if self._snapshot is None else self._snapshot
        files = sorted(listed, key=lambda file: file.modified)
        marks = _marks(start)
        taken: dict[str, bool] = {}
        for file in files:
            mark = marks.get(_key(file.path), _UNREAD)
            try:
                self._verify(file, mark, start["looked"])
                if not self._has_more(file, mark, start["looked"]) or room <= 0 or files_left <= 0:
                    continue
                seen = file.size if file.size - mark.offset <= room else 0
                end = self._end(file, mark.offset, room, is_first=not taken)
                marks[_key(file.path)] = mark._replace(seen=seen)
                if end > mark.offset:
                    marks[_key(file.path)] = Mark(end, _checksum(file.path, end), seen)
                    room -= end - mark.offset
                    files_left -= 1
                    taken[file.path] = end == file.size and self._options["filesAreComplete"]
            except FileNotFoundError:
                continue  # it is not there any more, so there is nothing to read
        if not taken:
            return start  # as it is, so that Spark sees that there is nothing to do
        looked = max(start["looked"], *(file.modified for file in files))
        return _offset(looked, files, marks, taken, remember=self._options["rememberMissingFiles"])

    def _has_more(self, file: File, mark: Mark, looked: float) -> bool:
        is_seen = file.size == mark.seen and file.modified <= looked
        return file.size > mark.offset and (not is_seen or self._options["filesAreComplete"])

    def _verify(self, file: File, mark: Mark, looked: float) -> None:
        if file.size < mark.offset:
            raise ValueError(
                f"{file.path} was truncated or replaced: {mark.offset} bytes were read, and it has {file.size} now"
            )
        changed = self._has_more(file, mark, looked) or file.modified > looked
        if mark.offset and changed and _checksum(file.path, mark.offset) != mark.head:
            raise ValueError(f"{file.path} was replaced: it begins in another way than the file that was read")

    def _end(self, file: File, start: int, room: int, *, is_first: bool) -> int:
        """How far to read a file: ``room`` bytes, whole frames and damages; the first one in any case."""
        with Capture(file.path) as capture:
            if capture.size is None:
                if start:
                    raise ValueError(f"{file.path} is compressed and has grown, which cannot be followed")
                return file.size
            how = framing(capture, self._options)
            limit = min(file.size, start + room)
            if limit == file.size and self._options["filesAreComplete"]:
                return limit
            if self._options["splitting"] == "guessed" and limit - start > _TAIL_SIZE:
                guess = capture.find_frame(limit - _TAIL_SIZE, **how)
                if guess < limit and (end := _last_boundary(capture, guess, limit, how)) > guess:
                    return end
            end = _last_boundary(capture, start, limit, how)
            if end > start or not is_first:
                return end
            if _last_boundary(capture, start, file.size, how, stop_early=True) > start:
                end, *_ = next(
                    decode(capture, [], start=start, stop=start + 1, on_fault="skip", max_rows=1, max_bytes=1, **how)
                )
                return end
            return file.size if self._options["filesAreComplete"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = _marks(start), _marks(end)
        extents = []
        for path, is_complete in end["taken"].items():
            part = before.get(_key(path), _UNREAD).offset, after[_key(path)].offset
            extents.append(Extent(path, *part, is_open=is_complete))
        return [Share(pieces) for pieces in plan(extents, self._options)]


def unread(offset: dict[str, Any], files: Iterable[File]) -> dict[str, int]:
    """How many bytes of each file are not read at an offset, where there are some."""
    marks = _marks(offset)
    left = {file.path: file.size - marks.get(_key(file.path), _UNREAD).offset for file in files}
    return {path: size for path, size in left.items() if size}


def _checksum(path: str, offset: int) -> int:
    return zlib.crc32(read_head(path, min(offset, _HEAD_SIZE)))


def _last_boundary(capture: Capture, start: int, stop: int, how: dict[str, Any], *, stop_early: bool = False) -> int:
    """Where the last whole frame or damage between two places ends, or some other one; ``start`` if there is none."""
    scanner = codec._Scanner(on_fault="skip", **how)
    place = start
    for chunk in capture.chunks(start):
        view = memoryview(chunk)[: stop - place]
        scanner.feed(view)
        deque(scanner, maxlen=0)
        place += len(view)
        if place == stop or (stop_early and scanner.offset):
            break
    return start + scanner.offset

"""Where bytes come from: files, patterns, standard input, plain or compressed, one after another as chunks."""

from __future__ import annotations

import glob
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from phpmq import (
    Damage,
    Decoder,
    FrameDecoder,
    IncompleteMessage,
    ProtocolError,
    detect_packet_header_size,
)
from phpmq._compressed import MAGIC_SIZE, CompressedDataError, decompressed
from phpmq.cli.terminal import Bar, NoBar, complain, progress_bar
from phpmq.errors import LISTING_HINT
from phpmq.protocol import DEFAULT_PACKET_HEADER_SIZE, DETECTION_SIZE

if TYPE_CHECKING:
    from typing_extensions import Self

STANDARD_INPUT: Final = "-"
_CHUNK_SIZE: Final = 256 * 1024


class WrongData(Exception):  # noqa: N818
    """What an input holds is not what it should be; the text says what and where."""


class _Unreadable(Exception):  # noqa: N818
    """An input cannot be read: an OSError that is told from those of the output, or a package is missing."""

    def __init__(self, error: OSError | ImportError) -> None:
        super().__init__(getattr(error, "strerror", None) or str(error))


class _File(io.RawIOBase):
    """A file that is asked for its first bytes before all others, and told about as it is read."""

    def __init__(self, file: Any, told: Callable[[int], None]) -> None:
        self._file = file
        self._told = told
        self._ahead = b""
        first = bytearray(_CHUNK_SIZE)
        while len(self._ahead) < MAGIC_SIZE and (size := self._read(first)):
            self._ahead += first[:size]
        self.magic = self._ahead[:MAGIC_SIZE]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ahead:
            return self._read(buffer)
        data, self._ahead = self._ahead[: len(buffer)], self._ahead[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def skip(self, size: int) -> bool:
        """Pass over the first bytes at once, if the file can do that."""
        try:
            self._file.seek(size - len(self._ahead), io.SEEK_CUR)
        except OSError:
            return False
        self._told(size - len(self._ahead))
        self._ahead = b""
        return True

    def _read(self, buffer: Any) -> int:
        try:
            size: int = self._file.readinto1(buffer)
        except OSError as error:
            raise _Unreadable(error) from None
        self._told(size)
        return size


class Source:
    """One input, open at the byte ``start``: its plain bytes, and the name that messages call it by.

    Leaving its context tells what is wrong with it, and closes it.
    """

    def __init__(self, reading: Reading, name: str, file: Any, start: int) -> None:
        self.name = name
        self._reading = reading
        self._file = file
        self._prefix = b""
        raw = _File(file, reading.bar.advance)
        plain = decompressed(raw, raw.magic)
        at_start = not start or (plain is raw and raw.skip(start))
        self.stream: io.BufferedReader[Any] = io.BufferedReader(plain, _CHUNK_SIZE)
        while not at_start and start and (chunk := self.stream.read(min(start, _CHUNK_SIZE))):
            start -= len(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        _close(self._file)
        return self._reading.tell(self.name, error)

    def chunks(self, flush: Callable[[], object] = lambda: None) -> Iterator[bytes]:
        """The bytes as they come; what was made of those before is flushed, because the next ones can take long."""
        if self._prefix:
            yield self._prefix
        flush()
        while chunk := self.stream.read1(_CHUNK_SIZE):
            yield chunk
            flush()

    def find_packet_header_size(self) -> int:
        """The packet header size of the first bytes, of no more than are needed to tell.

        Raises:
            WrongData: no size fits, or several do.
        """
        tried = 0
        while True:
            chunk = self.stream.read1(_CHUNK_SIZE)
            self._prefix += chunk
            if chunk and len(self._prefix) < 2 * tried:
                continue  # trying after every few bytes of a slow pipe would take the square of their number
            tried = len(self._prefix)
            if not tried:
                return DEFAULT_PACKET_HEADER_SIZE
            try:
                return detect_packet_header_size(self._prefix)
            except ValueError as error:
                if not chunk or tried >= DETECTION_SIZE:
                    raise WrongData(str(error)) from None


class Reading:
    """All inputs of a command, open one after another, and the exit code that they lead to."""

    def __init__(self, paths: list[str], start: int, bar: Bar | NoBar) -> None:
        self.paths = paths
        self.bar = bar
        self.code = 0
        self._start = start

    def __iter__(self) -> Iterator[Source]:
        """Open what can be opened, and tell what cannot."""
        for path in self.paths:
            name = "<stdin>" if path == STANDARD_INPUT else path
            try:
                file = sys.stdin.buffer if path == STANDARD_INPUT else open(path, "rb")  # noqa: SIM115 (Source does)
            except OSError as error:
                self.tell(name, _Unreadable(error))
                continue
            try:
                source = Source(self, name, file, self._start)
            except (CompressedDataError, ImportError, _Unreadable) as error:
                _close(file)
                self.tell(name, _Unreadable(error) if isinstance(error, ImportError) else error)
            else:
                yield source

    def met_damage(self) -> None:
        """What was read is not sound, though reading went on."""
        self.code = max(self.code, 1)

    def tell(self, name: str, error: BaseException | None) -> bool:
        """Say what is wrong with an input, and remember it; False if it is no fault of the input."""
        if isinstance(error, CompressedDataError | WrongData):
            code, text = 1, str(error)
        elif isinstance(error, _Unreadable):
            code, text = 2, str(error)
        else:
            return False
        complain(f"{name}: {text}")
        self.code = max(self.code, code)
        return True


@contextmanager
def reading(files: Iterable[str], *, start: int = 0, over_output: bool = False) -> Iterator[Reading]:
    """Get ready to read these files, paths or patterns, each from the byte ``start``.

    Raises:
        click.UsageError: there is no input, or a pattern matches none.
    """
    paths = list(_expanded(list(files)))
    _refuse_circles(paths)
    with progress_bar(_total_size(paths), over_output=over_output) as bar:
        yield Reading(paths, start, bar)


def feed(chunks: Iterable[bytes], decoder: Any, *, skip: bool) -> Iterator[None]:
    """Feed the decoder, and hand over after each chunk and after the end."""
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            yield
    except CompressedDataError:
        if skip:  # what the decoder holds back is damage, and has its place before the complaint
            decoder.close()
            yield
        raise
    decoder.close()
    yield


def read(
    chunks: Iterable[bytes], decoder: Decoder[Any] | FrameDecoder[Any], start: int, *, skip: bool
) -> Iterator[tuple[int, int, Any]]:
    """Give all items with where they start and stop in an input that is read from the byte ``start`` on.

    Raises:
        WrongData: a fault, with the number of the frame.
    """
    number, end = 1, start
    try:
        for _ in feed(chunks, decoder, skip=skip):
            for item in decoder:
                begin, end = end, start + decoder.offset
                yield begin, end, _moved_damage(item, start) if isinstance(item, Damage) else item
                number += 1
    except ProtocolError as error:
        raise fault_at(number, start, moved(error, start)) from None


def _moved_damage(damage: Damage, by: int) -> Damage:
    return damage._replace(start=damage.start + by, stop=damage.stop + by, offset=damage.offset + by)


def fault_at(number: int, start: int, error: ProtocolError) -> WrongData:
    """A fault, and in which frame of an input that is read from the byte ``start`` on."""
    place = f"frame {number} from offset {start}" if start else f"frame {number}"
    way_out = "; phpmq convert --from-listing reads one" if error.hint == LISTING_HINT else ""
    return WrongData(f"{place}: {error}{way_out}")


def moved(error: ProtocolError, by: int) -> ProtocolError:
    """The same error, so many bytes further on."""
    if isinstance(error, IncompleteMessage):
        return IncompleteMessage(error.offset + by, error.found, error.missing, error.hint)
    return ProtocolError(error.fault, error.offset + by, error.found, error.hint)


def _expanded(files: list[str]) -> Iterator[str]:
    """The files that are named, and for a pattern that names none those that it matches."""
    if not files and sys.stdin and sys.stdin.isatty():
        raise click.UsageError("name a FILE, or - to read from this terminal")
    files = files or [STANDARD_INPUT]
    if STANDARD_INPUT in files and not sys.stdin:
        raise click.UsageError("standard input is closed")
    for file in files:
        if file == STANDARD_INPUT or os.path.lexists(file) or glob.escape(file) == file:
            yield file
            continue
        matches = [
            path for path in sorted(glob.glob(file, recursive=True)) if os.path.exists(path) and not os.path.isdir(path)
        ]
        if not matches:
            raise click.UsageError(f"{file} matches no file")
        # a match is a path, also where it looks like the sign for standard input
        yield from (os.path.join(os.curdir, path) if path == STANDARD_INPUT else path for path in matches)


def _close(file: Any) -> None:
    if not sys.stdin or file is not sys.stdin.buffer:
        file.close()


def _refuse_circles(paths: list[str]) -> None:
    """What is read must not be what standard output appends to: it would never end."""
    try:
        output = os.fstat(sys.stdout.fileno())
    except OSError:  # it has no descriptor
        return
    for path in paths:
        status = status_of(path)
        if status and stat.S_ISREG(output.st_mode) and os.path.samestat(output, status):
            raise click.UsageError(f"{path} is read, and is standard output at the same time")


def status_of(path: str) -> os.stat_result | None:
    """What the system knows of an input, or of a file to write, if it is there."""
    try:
        return os.fstat(sys.stdin.fileno()) if path == STANDARD_INPUT else os.stat(path)
    except OSError:
        return None


def _total_size(paths: list[str]) -> int | None:
    """The bytes of all these files, None if one of them can be a pipe."""
    total = 0
    for path in paths:
        status = status_of(path)
        if not status or not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total

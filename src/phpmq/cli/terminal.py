"""What a person sees: escaped text that fits the window, colours, complaints in one line, and a progress bar."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: A progress bar is for inputs that take longer than a moment.
_LARGE: Final = 32 * 1024 * 1024


class _Escapes(dict[int, str]):
    """How characters are shown that are not printable: no two in the same way, and none as it is."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isprintable() and character != "\\":
            return character
        if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 (where surrogateescape puts bytes that are not UTF-8)
            return f"\\x{code - 0xDC00:02x}"
        if character in "\t\n\r\\":
            return ascii(character)[1:-1]
        if code < 0x80:  # noqa: PLR2004 (ASCII; beyond it \x stands for a byte, not for a character)
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


_ESCAPES: Final = _Escapes()
#: ASCII is looked up quicker than asked for.
_ESCAPES.update({code: _ESCAPES[code] for code in range(0x80)})


def escape(data: bytes) -> str:
    """Bytes as printable text, from which they can be told again: UTF-8 as it is, all else behind a backslash."""
    text = data.decode("utf-8", "surrogateescape")
    return text if text.isprintable() and "\\" not in text else text.translate(_ESCAPES)


def fit(data: bytes, width: int) -> str:
    """``escape``, cut to so many cells of a terminal; fewer than none are none."""
    width = max(width, 0)
    stop = 4 * width  # a cell is at most 4 bytes
    while stop < min(len(data), 4 * width + 3) and data[stop] & 0xC0 == 0x80:  # noqa: PLR2004 (in a character of UTF-8)
        stop += 1
    text = escape(data[:stop]) + ("…" if stop < len(data) else "")
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"


def counted(number: int, what: str) -> str:
    """A number of things: "1 byte", "2 bytes"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def width() -> int:
    """The width of the window that standard output goes to, in cells."""
    return shutil.get_terminal_size((80, 24)).columns


def wants_colour(choice: str = "auto") -> bool:
    """Whether to colour, by the conventions: https://no-color.org and https://force-color.org."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def painter(coloured: bool) -> Callable[..., str]:
    """``click.style``, or what leaves the text as it is."""
    return click.style if coloured else lambda text, **_: text


def heading(name: str) -> bytes:
    """The line before what comes from a file, where there are several."""
    return f"{escape(os.fsencode(name))}:\n".encode()


def complain(text: str) -> None:
    """Say it on standard error, in one line of printable characters, whatever the name of a file holds."""
    if sys.stdout:
        sys.stdout.flush()  # what was good comes first
    print("phpmq: " + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text), file=sys.stderr)


class Bar:
    """A progress bar over all inputs."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, size: int) -> None:
        """So many bytes more are read."""
        self._progress.advance(self._task, size)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without the bar where it would get in the way of what is printed."""
        in_the_way = sys.stdout.isatty()
        if in_the_way:
            self._progress.stop()
        yield
        if in_the_way:
            self._progress.start()


class NoBar:
    """Nothing is shown: in a pipe, in a log, and where the work takes only a moment."""

    def advance(self, size: int) -> None:
        """Do nothing."""

    def away(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


@contextmanager
def progress_bar(total: int | None, *, over_output: bool) -> Iterator[Bar | NoBar]:
    """Show a bar on standard error if that is a terminal, and so many bytes, if they are known, are worth one.

    It would get in the way of output in the same terminal, of this command or of one behind a pipe, unless
    ``over_output`` says that there is no such output, or that it makes way.
    """
    shares_terminal = not over_output and (sys.stdout.isatty() or _is_pipe(sys.stdout))
    if total is None or total < _LARGE or not sys.stderr.isatty() or shares_terminal:
        yield NoBar()
        return
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns: list[Any] = [
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    ]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        yield Bar(bar, bar.add_task("", total=total))


def working(what: str) -> AbstractContextManager[object]:
    """Show on standard error what takes a while, if that is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True).status(f"{what} …")


def _is_pipe(file: TextIO) -> bool:
    with suppress(OSError):  # it has no descriptor
        return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    return False

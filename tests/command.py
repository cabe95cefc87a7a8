"""The ``phpmq`` command under test: as a process, in a terminal, and what its tests read and write."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from wire import CAPTURES as NAMES
from wire import VECTORS, message_wire, parts

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

on_posix = pytest.mark.skipif(os.name != "posix", reason="this system has no such signals and shells")

COMMAND = (sys.executable, "-c", "import sys; from phpmq.cli import main; sys.exit(main())")
#: Those that read files.
COMMANDS = ("decode", "encode", "check", "inspect", "convert")
CAPTURES = [VECTORS / f"{name}.phpmq" for name in NAMES]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "zstd": zstd.compress}

#: A good frame of 76 bytes, and its record.
FOO = message_wire("Consume", {"queue": "Foo", "count": 5})
FOO_RECORD = b'{"type": "consume", "queue": "Foo", "count": 5}\n'
#: The frame in section 1 of docs/protocol.md, 122 bytes.
HELLO = message_wire("Send", {"queue": "Foo", "content": b"Hello World", "ttl": 3600})
#: A frame that is whole, with an integer at its byte 75 that is none.
ODD = FOO[:-1] + b"x"
#: A frame that is not: the length of its first packet is no number at its byte 38.
BROKEN = FOO[:38] + b"x" + FOO[39:]
#: A frame of a message that nobody knows.
UNKNOWN = b"".join(parts(42, [(1, b"Foo"), (77, b"?")]))
#: A Send whose packets stand in another order than the canonical one.
REORDERED = b"".join(parts(1, [(2, b"Hi"), (1, b"Foo")]))

BAD_INTEGER = "expected a canonical decimal integer from 0 to 2**63-1, found b'x'"
NOT_A_MESSAGE = "expected a message header, which starts with 'H', found b'junk'"
BAD_DIGITS = "expected a digit 0-9 in a header field, found b'x"

#: What a terminal would act on, or a reader of lines, of CSV or of UTF-8 stumble over.
ADVERSARIAL_CONTENTS = [
    b"",
    b"0",
    b"a\nb",
    b"a\r\nb",
    b"\r",
    b"\x1a",
    b"\0" * 3,
    b"\x1b[31mred",
    b"\x7f",
    "\x9b31m \x85 \u2028 \u202e \ufeff \ufffe".encode(),
    "\U0001f600 Grüße".encode(),
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 does not have
    b"\xc0\x80",
    bytes(range(256)),
    b'"}\n{"type": "send"}\n',
    b'"",\t,""\n',
    b"\\n\\x1b",
    FOO,
    b"x" * 200_000,
]


class Result(NamedTuple):
    code: int
    output: bytes
    errors: str


Run = Callable[..., Result]

#: What changes the look of the output is not left to the shell that runs the tests.
_LOOKS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM")


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LOOKS} | dict(variables or {})


def run_process(
    *arguments: str | Path,
    stdin: bytes = b"",
    command: Sequence[str] = COMMAND,
    variables: Mapping[str, str] | None = None,
) -> Result:
    process = subprocess.run(
        [*command, *arguments], input=stdin, capture_output=True, env=environment(variables), check=False
    )
    return Result(process.returncode, process.stdout, process.stderr.decode())


def in_terminal(
    *arguments: str | Path,
    stdin: bytes = b"",
    streams: Collection[str] = ("stdout",),
    columns: int = 80,
    variables: Mapping[str, str] | None = None,
) -> Result:
    """Run it with a terminal as these streams; what the terminal shows is the output, or the errors without stdout."""
    fcntl, termios, tty = map(pytest.importorskip, ("fcntl", "termios", "tty"))
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with contextlib.ExitStack() as stack:
        files: dict[str, IO[bytes]] = {
            name: stack.enter_context(tempfile.TemporaryFile()) for name in ("stdin", "stdout", "stderr")
        }
        files["stdin"].write(stdin)
        files["stdin"].seek(0)
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs if "stdin" in streams else files["stdin"],
            stdout=theirs if "stdout" in streams else files["stdout"],
            stderr=theirs if "stderr" in streams else files["stderr"],
            env=environment({"TERM": "xterm"} | dict(variables or {})),
        )
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # on Linux a terminal that nobody has open any more is an error
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        code = process.wait()
        files["stdout"].seek(0)
        files["stderr"].seek(0)
        output, errors = files["stdout"].read(), files["stderr"].read()
        if "stdout" in streams:
            output = shown
        elif "stderr" in streams:
            errors = shown
        return Result(code, output, errors.decode())


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def words(text: str | bytes) -> list[str]:
    """The lines, with one blank between the words of each."""
    return [" ".join(line.split()) for line in (text if isinstance(text, str) else text.decode()).splitlines()]

"""Captures that grow, and processes that read them and are killed meanwhile."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event

from phpmq.generate import write_capture


def capture(seed: int, *, size: int = 3_000_000, damages: int = 30) -> bytes:
    file = io.BytesIO()
    write_capture(file, size, seed=seed, damages=damages)
    return file.getvalue()


def write_slowly(path: Path, data: bytes, stop: Event, random: Random) -> None:
    """Append pieces of any length, so that most end within a frame, and the rest at last."""
    written = 0
    while written < len(data):
        size = len(data) if stop.is_set() else random.randrange(1, 6000)
        with path.open("ab") as file:
            written += file.write(data[written : written + size])
        stop.wait(0.4)


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Run Python in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started; the workers of Spark are in a group of their own."""
    while numbers := _alive(process.pid):
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)
    process.wait()


def _alive(session: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, _, _, number, *_ = status.read_text().rpartition(") ")[2].split()
            if int(number) == session and state != "Z":
                found.append(int(status.parent.name))
    return found

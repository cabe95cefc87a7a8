"""How many instructions an operation takes for a message: the same in every run, whatever else the machine does.

    python -m benchmarks.instructions

By valgrind's callgrind, which has to be installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.counted import MESSAGES, NAMES, TIMES

ROOT = Path(__file__).parents[1]
_VALGRIND = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
_COUNTED = [sys.executable, "-m", "benchmarks.counted"]
#: Bytecode is written whatever the caller's environment says, so that no counted process compiles any.
_ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}


def count() -> dict[str, int]:
    """Instructions for a message, by the names of operation, traffic and codec.

    Raises:
        RuntimeError: there is no valgrind, or it failed.
    """
    if shutil.which("valgrind") is None:
        raise RuntimeError("valgrind counts the instructions, and is not installed (apt install valgrind)")
    _run(_COUNTED)  # all others find the bytecode that this one writes
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        nothing, *counts = pool.map(_collected, [(), *NAMES])
    return {
        " ".join(name): round((found - nothing) / (MESSAGES * TIMES[name[-1]]))
        for name, found in zip(NAMES, counts, strict=True)
    }


def _collected(name: tuple[str, ...]) -> int:
    """Instructions of the whole process that does an operation several times more."""
    said = _run([*_VALGRIND, *_COUNTED, *name])
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise RuntimeError(f"valgrind counted nothing: {said[-1000:]}")
    return int(found[1])


def _run(command: list[str]) -> str:
    """What it says on standard error."""
    done = subprocess.run(command, check=False, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stderr


if __name__ == "__main__":
    for name, number in count().items():
        print(f"{number:8,}  {name}")

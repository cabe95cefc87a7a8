"""What is made and dropped leaves nothing: neither blocks of memory, nor bytes of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from backends import backend_of
from leaks import LOOKS, PLANTS, SCRIPTS

TESTS = Path(__file__).parent
#: How often everything is made; ten times as often by hand.
TIMES = {"python": 800, "cython": 2000}
#: How much a process may grow for what it keeps for the next time, in bytes.
SLACK = 4 * 2**20


def growth(name: str, codec: ModuleType, factor: int) -> tuple[int, int, int]:
    """How often a script was run for that, and how many blocks and bytes there were more behind it."""
    times = factor * TIMES[backend_of(codec)]
    command = [sys.executable, str(TESTS / "leaks.py"), name, backend_of(codec), str(times)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    _, blocks, size = done.stdout.split()
    return times // LOOKS, int(blocks), int(size)


@pytest.mark.parametrize(
    "factor", [pytest.param(1, id="ordinary"), pytest.param(10, id="long", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_left(codec: ModuleType, name: str, factor: int) -> None:
    times, blocks, size = growth(name, codec, factor)
    assert blocks < times / 20
    assert size < SLACK


@pytest.mark.parametrize("name", PLANTS)
def test_a_leak_is_seen(codec: ModuleType, name: str) -> None:
    """One object that is kept in one of ten rounds; a large one in bytes, where the system tells how many there are."""
    times, blocks, size = growth(name, codec, 1)
    assert blocks > times / 20
    if "large" in name and Path("/proc/self/statm").exists():
        assert size > SLACK

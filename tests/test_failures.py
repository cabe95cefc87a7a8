"""What a codec does where it gets no memory: it says so, and goes on as if it had not been asked."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent
BACKENDS = {"phpmq._codec_py": "python", "phpmq._codec_c": "cython"}


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="only CPython's own tests can fail an allocation")
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)], ids=["ordinary", "long"])
def test_every_allocation_fails_once(codec: ModuleType, is_long: bool) -> None:
    backend = BACKENDS[codec.__name__]
    # the reference takes ten times as many allocations, and as long for each
    step = 1 if is_long or backend == "cython" else 7
    command = [sys.executable, str(TESTS / "failures.py"), backend, str(step)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    # the operation in hand, if the process has crashed, is the last one named
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    failures = [int(line.split()[-2]) for line in done.stdout.splitlines()]
    assert len(failures) > 100
    assert sum(failures) > 5_000

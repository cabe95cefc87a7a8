"""What `import phpmq` takes, beside a module that everybody imports, and beside starting Python alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize("statement", ["pass", "import json", "import phpmq"])
def test_import(benchmark: BenchmarkFixture, statement: str) -> None:
    benchmark.group = "import"
    benchmark.extra_info.update(operation="import", implementation=statement)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", statement]
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        subprocess.run, (command,), {"check": True, "env": environment}, rounds=30, warmup_rounds=2
    )

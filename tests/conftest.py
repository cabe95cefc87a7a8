"""The implementations under test, ``--backends`` to choose among them, and the command in this process.

A test that takes ``codec`` runs once with each. Choosing deselects; nothing is skipped, so a run that
should have tested the compiled codec and could not fails instead of passing.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from backends import MODULES
from buffers import with_exact_inputs

if TYPE_CHECKING:
    from command import Result, Run
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backends",
        default="python,cython",
        help="the codecs to test, by their names with a comma between; a test of both runs only where both are named",
    )
    parser.addoption("--exact", action="store_true", help="inputs in blocks of exactly their size, for a sanitizer")


def pytest_configure(config: pytest.Config) -> None:
    chosen = set(config.getoption("--backends").split(","))
    unknown = chosen - MODULES.keys()
    if unknown:
        raise pytest.UsageError(f"--backends takes python and cython, not {', '.join(sorted(unknown))}")
    if "cython" in chosen and not is_installed(MODULES["cython"]):
        raise pytest.UsageError(
            "the compiled codec is not installed: PHPMQ_BUILD_EXT=require pip install --no-cache-dir -e '.[test]' shows"
            " why it does not build, and --backends python tests the other one"
        )


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # with PHPMQ_BACKEND=cython the package itself refuses
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "codec" in metafunc.fixturenames:
        metafunc.parametrize("codec", MODULES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--backends").split(",")

    def is_chosen(item: pytest.Item) -> bool:
        if "both_codecs" in getattr(item, "fixturenames", ()):
            return set(chosen) == MODULES.keys()
        callspec = getattr(item, "callspec", None)
        return callspec is None or callspec.params.get("codec", chosen[0]) in chosen

    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))  # one process for all of them, and so one session
    dropped = [item for item in items if not is_chosen(item)]
    items[:] = [item for item in items if is_chosen(item)]
    config.hook.pytest_deselected(items=dropped)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    teardowns = terminalreporter.getreports("")
    cases = sum(value for report in teardowns for name, value in report.user_properties if name == "cases")
    if cases:
        terminalreporter.write_line(f"{cases:,} comparisons of both codecs")


def load(name: str, config: pytest.Config) -> ModuleType:
    codec = importlib.import_module(MODULES[name])
    return with_exact_inputs(codec) if config.getoption("--exact") else codec


@pytest.fixture(scope="session")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """One implementation: the module that holds it."""
    return load(request.param, request.config)


@pytest.fixture(scope="session")
def both_codecs(request: pytest.FixtureRequest) -> tuple[ModuleType, ModuleType]:
    """The reference and the compiled codec, side by side."""
    return load("python", request.config), load("cython", request.config)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run the command in this process, with arguments, standard input and variables of the environment."""
    from command import Result  # noqa: PLC0415 (tests of the codecs do not need what the command needs)

    from phpmq.cli import main  # noqa: PLC0415

    def run_main(*arguments: str | Path, stdin: bytes = b"", **variables: str) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["phpmq", *map(str, arguments)])
            for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in ({"TERM": "xterm"} | variables).items():
                patch.setenv(name, value)
            buffer = io.BytesIO(stdin)
            buffer.name = "<stdin>"
            patch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
            code = main()
        output, errors = capsysbinary.readouterr()
        return Result(code, output, errors.decode())

    return run_main


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests of a run; it takes seconds to start."""
    from phpmq.spark import local_session  # noqa: PLC0415 (other tests do not need it)

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = local_session(settings)
    yield session
    session.stop()

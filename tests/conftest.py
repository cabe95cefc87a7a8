"""The implementations under test, and ``--backends`` to choose among them.

A test that takes ``codec`` runs once with each. Choosing deselects; nothing is skipped, so a run that
should have tested the compiled codec and could not fails instead of passing.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

MODULES = {"python": "phpmq._codec_py", "cython": "phpmq._codec_c"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backends",
        default="python,cython",
        help="the codecs to test, by their names with a comma between; a test of both runs only where both are named",
    )


def pytest_configure(config: pytest.Config) -> None:
    unknown = set(config.getoption("--backends").split(",")) - MODULES.keys()
    if unknown:
        raise pytest.UsageError(f"--backends takes python and cython, not {', '.join(sorted(unknown))}")


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

    dropped = [item for item in items if not is_chosen(item)]
    items[:] = [item for item in items if is_chosen(item)]
    config.hook.pytest_deselected(items=dropped)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    teardowns = terminalreporter.getreports("")
    cases = sum(value for report in teardowns for name, value in report.user_properties if name == "cases")
    if cases:
        terminalreporter.write_line(f"{cases:,} comparisons of both codecs")


@pytest.fixture(scope="session")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """One implementation: the module that holds it."""
    return importlib.import_module(MODULES[request.param])


@pytest.fixture(scope="session")
def both_codecs() -> tuple[ModuleType, ModuleType]:
    """The reference and the compiled codec, side by side."""
    return importlib.import_module(MODULES["python"]), importlib.import_module(MODULES["cython"])

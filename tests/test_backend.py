"""Which codec is chosen: every value of ``PHPMQ_BACKEND`` against an extension that is there, missing or refused.

The module decides while it is imported, so a test imports a fresh copy of it, with a stand-in for the extension.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from backends import backend_of

import phpmq
from phpmq import _backend, _codec_py

HEALTHY = f"""
__version__ = {phpmq.__version__!r}
__all__ = ["Send"]
class Send:
    def __init__(self, *fields):
        self.fields = fields
"""
OLD = HEALTHY.replace(phpmq.__version__, "0.0.1")
UNVERSIONED = "__all__ = []"
BROKEN = "raise ImportError('module phpmq._codec_c does not support loading in subinterpreters')"
FORBIDDEN = "raise AssertionError('nobody may import this')"
REFUSED = [
    pytest.param(OLD, rf"was built for phpmq 0\.0\.1, this is {phpmq.__version__}; install phpmq again", id="old"),
    pytest.param(UNVERSIONED, "cannot import name '__version__'", id="unversioned"),
    pytest.param("import phpmq.moved_away", r"No module named 'phpmq\.moved_away'", id="old, without a module"),
    pytest.param(BROKEN, "does not support loading in subinterpreters", id="broken"),
]


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the source of a stand-in for the extension can be put; without one there is no extension."""
    monkeypatch.setattr(phpmq, "__path__", [str(tmp_path)])
    # An import leaves these two behind; setting them first makes monkeypatch put back what was there.
    monkeypatch.setattr(phpmq, "_codec_c", None, raising=False)
    monkeypatch.setitem(sys.modules, "phpmq._codec_c", phpmq)
    del sys.modules["phpmq._codec_c"]
    return tmp_path / "_codec_c.py"


def choose(monkeypatch: pytest.MonkeyPatch, wanted: str | None) -> ModuleType:
    """A fresh copy of the module, imported with ``PHPMQ_BACKEND`` set to ``wanted``."""
    if wanted is None:
        monkeypatch.delenv("PHPMQ_BACKEND", raising=False)
    else:
        monkeypatch.setenv("PHPMQ_BACKEND", wanted)
    spec = spec_from_file_location("phpmq._backend", _backend.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("wanted", ["auto", "cython", "", None])
def test_the_extension_is_chosen(monkeypatch: pytest.MonkeyPatch, extension: Path, wanted: str | None) -> None:
    extension.write_text(HEALTHY)
    chosen = choose(monkeypatch, wanted)
    assert (chosen.BACKEND, chosen.REASON) == ("cython", "the extension is installed")
    assert chosen.Send.__module__ == "phpmq._codec_c"


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("wanted", ["auto", "", None])
def test_without_the_extension_auto_falls_back_silently(monkeypatch: pytest.MonkeyPatch, wanted: str | None) -> None:
    chosen = choose(monkeypatch, wanted)
    assert chosen.BACKEND == "python"
    assert chosen.REASON.startswith("the extension is not installed; PHPMQ_BUILD_EXT=require pip install ")
    assert chosen.Send is _codec_py.Send


@pytest.mark.parametrize(("source", "reason"), REFUSED)
def test_auto_falls_back_from_a_refused_extension_and_warns(
    monkeypatch: pytest.MonkeyPatch, extension: Path, source: str, reason: str
) -> None:
    extension.write_text(source)
    with pytest.warns(RuntimeWarning, match=f"phpmq runs in pure Python: .*{reason}"):
        chosen = choose(monkeypatch, "auto")
    assert chosen.BACKEND == "python"
    assert chosen.Send is _codec_py.Send


@pytest.mark.usefixtures("extension")
def test_cython_insists_on_an_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match=r"^PHPMQ_BACKEND=cython, but the extension is not installed; PHPMQ_"):
        choose(monkeypatch, "cython")


@pytest.mark.parametrize(("source", "reason"), REFUSED)
def test_cython_insists_on_a_sound_extension(
    monkeypatch: pytest.MonkeyPatch, extension: Path, source: str, reason: str
) -> None:
    extension.write_text(source)
    with pytest.raises(ImportError, match=reason):
        choose(monkeypatch, "cython")


def test_python_never_imports_the_extension(monkeypatch: pytest.MonkeyPatch, extension: Path) -> None:
    extension.write_text(FORBIDDEN)
    chosen = choose(monkeypatch, "python")
    assert (chosen.BACKEND, chosen.REASON) == ("python", "PHPMQ_BACKEND=python")
    assert chosen.Send is _codec_py.Send


@pytest.mark.parametrize("wanted", ["Python", "c", "yes", " "])
def test_an_unknown_value_is_refused(monkeypatch: pytest.MonkeyPatch, extension: Path, wanted: str) -> None:
    extension.write_text(FORBIDDEN)
    with pytest.raises(ValueError, match=f"^PHPMQ_BACKEND must be auto, cython or python, not '{wanted}'$"):
        choose(monkeypatch, wanted)


def test_rebuild_makes_a_message_of_the_backend_that_runs(monkeypatch: pytest.MonkeyPatch, extension: Path) -> None:
    extension.write_text(HEALTHY)
    chosen = choose(monkeypatch, "cython")
    message = chosen.rebuild("Send", ("queue", b"content", None))
    assert type(message) is chosen.Send
    assert message.fields == ("queue", b"content", None)


def run(backend: str, code: str) -> str:
    """What the code prints in an interpreter of its own, where that backend is chosen."""
    environment = {**os.environ, "PHPMQ_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.rstrip()


@pytest.fixture
def backend(codec: ModuleType) -> str:
    return backend_of(codec)


def test_the_real_package_runs_what_was_chosen(codec: ModuleType, backend: str) -> None:
    assert run(backend, "import phpmq; print(phpmq.BACKEND, phpmq.Send.__module__)") == f"{backend} {codec.__name__}"


def test_the_import_brings_in_nothing_optional(backend: str) -> None:
    imported = run(backend, "import sys, phpmq; print(*sys.modules)").split()
    assert "phpmq" in imported
    assert {name.partition(".")[0] for name in imported}.isdisjoint({"click", "rich", "pyarrow", "pyspark"})


IN_A_SUB_INTERPRETER = """
import phpmq
try:
    import _interpreters
    run = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    run = _interpreters.run_string
print(phpmq.BACKEND, flush=True)
code = "import warnings; warnings.simplefilter('ignore'); import phpmq; print(phpmq.BACKEND, flush=True)"
assert run(_interpreters.create(), code) is None
"""


@pytest.mark.usefixtures("both_codecs")
def test_a_sub_interpreter_gets_the_reference() -> None:
    assert run("auto", IN_A_SUB_INTERPRETER).split() == ["cython", "python"]

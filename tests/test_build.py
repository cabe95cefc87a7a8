"""Real builds: what every value of ``PHPMQ_BUILD_EXT`` makes, with a working and with a broken compiler.

Each build starts from a copy of the sources without build products, because a stale extension hides a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from shutil import copy2, copytree, ignore_patterns

import pytest

from phpmq import __version__

ROOT = Path(__file__).parents[1]
BINARIES = (".so", ".pyd")
PRODUCTS = (*BINARIES, ".c", ".pyc")
#: The first names a compiler that fails on Unix, the second keeps setuptools from looking for one on Windows.
BROKEN_COMPILER = {"CC": "false", "DISTUTILS_USE_SDK": "1"}
OTHER_VERSION = "99.0.0"
MISSING = (
    "the extension is not installed;"
    " PHPMQ_BUILD_EXT=require pip install --no-cache-dir --force-reinstall --no-deps --no-binary phpmq phpmq builds it"
)

Finished = subprocess.CompletedProcess[str]


def copy_sources(directory: Path) -> Path:
    for entry in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        copy2(ROOT / entry, directory)
    products = ignore_patterns("*.egg-info", "__pycache__", *(f"*{suffix}" for suffix in BINARIES))
    for entry in ("src", "tests"):
        copytree(ROOT / entry, directory / entry, ignore=products)
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The sources, except for an extension without content: where it cannot be compiled, none is needed."""
    copy_sources(tmp_path)
    (tmp_path / "src/phpmq/_codec_c.pyx").write_text("")
    return tmp_path


def run(*command: str | Path, **environment: str) -> Finished:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PHPMQ_", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, *command], env=clean | environment, check=False, capture_output=True, text=True
    )


def build(sources: Path, *options: str, **environment: str) -> Finished:
    return run("-m", "build", "--no-isolation", *options, sources, **environment)


def build_well(sources: Path, *options: str, **environment: str) -> Path:
    """The wheel of a build that has to succeed."""
    done = build(sources, *options, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = sources.glob("dist/*.whl")
    return wheel


def content(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def binaries(wheel: Path) -> list[str]:
    return [name for name in content(wheel) if name.endswith(BINARIES)]


def install(wheel: Path, site: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def import_from(site: Path, backend: str) -> Finished:
    code = "import phpmq; print(phpmq.BACKEND, phpmq._backend.REASON, phpmq.__file__, sep='\\n')"
    return run("-c", code, PYTHONPATH=str(site), PHPMQ_BACKEND=backend)


def choice(done: Finished, site: Path) -> list[str]:
    """The backend and the reason that a successful import printed."""
    assert done.returncode == 0, done.stderr
    *chosen, file = done.stdout.splitlines()
    assert site in Path(file).parents
    return chosen


def test_skip_makes_a_pure_wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = build_well(sources, "--wheel", PHPMQ_BUILD_EXT="skip", **BROKEN_COMPILER)
    assert wheel.name == f"phpmq-{__version__}-py3-none-any.whl"
    assert not binaries(wheel)
    site = install(wheel, tmp_path_factory.mktemp("site"))
    assert choice(import_from(site, "auto"), site) == ["python", MISSING]


def test_require_fails_without_a_compiler(sources: Path) -> None:
    done = build(sources, "--wheel", PHPMQ_BUILD_EXT="require", **BROKEN_COMPILER)
    assert done.returncode != 0
    assert re.search("^error: command .* (failed|returned)", done.stderr, re.MULTILINE | re.IGNORECASE)
    assert "If there is no C compiler, install one" in done.stderr
    assert not list(sources.glob("dist/*"))


@pytest.mark.parametrize("mode", ["auto", ""], ids=["auto", "unset"])
def test_auto_makes_a_pure_wheel_without_a_compiler(
    sources: Path, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    wheel = build_well(sources, "--wheel", PHPMQ_BUILD_EXT=mode, **BROKEN_COMPILER)
    assert wheel.name == f"phpmq-{__version__}-py3-none-any.whl"
    assert not binaries(wheel)
    site = install(wheel, tmp_path_factory.mktemp("site"))
    assert choice(import_from(site, "auto"), site) == ["python", MISSING]
    insisting = import_from(site, "cython")
    assert insisting.returncode != 0
    assert f"ImportError: PHPMQ_BACKEND=cython, but {MISSING}" in insisting.stderr


@pytest.mark.parametrize("mode", ["yes", "Auto", "0"])
def test_an_unknown_value_is_refused(sources: Path, mode: str) -> None:
    done = build(sources, "--wheel", PHPMQ_BUILD_EXT=mode)
    assert done.returncode != 0
    assert f"PHPMQ_BUILD_EXT must be auto, require or skip, not '{mode}'" in done.stdout + done.stderr
    assert not list(sources.glob("dist/*"))


def test_a_source_distribution_is_complete_even_of_a_pure_build(sources: Path) -> None:
    assert build(sources, "--sdist", PHPMQ_BUILD_EXT="skip").returncode == 0
    (sdist,) = sources.glob("dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = [path for part in ("src/phpmq", "tests") for path in (sources / part).rglob("*")]
    assert {path.relative_to(sources).as_posix() for path in files if path.suffix not in PRODUCTS} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert not [name for name in names if name.endswith(PRODUCTS)]


@pytest.fixture(scope="session")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the real extension, through the source distribution.

    It has a version of its own, so that its extension also serves as one that was built for another version.
    """
    sources = copy_sources(tmp_path_factory.mktemp("sources"))
    (sources / "src/phpmq/_version.py").write_text(f"__version__ = {OTHER_VERSION!r}\n")
    fast_to_build = f"{os.environ.get('CFLAGS', '')} -O0"
    return build_well(sources, PHPMQ_BUILD_EXT="require", CFLAGS=fast_to_build)


@pytest.mark.usefixtures("both_codecs")  # so that a run of the reference alone needs no compiler
@pytest.mark.xdist_group("compiled_wheel")
class TestCompiled:
    def test_the_tag_of_the_wheel_names_the_platform(self, compiled_wheel: Path) -> None:
        assert compiled_wheel.name.startswith(f"phpmq-{OTHER_VERSION}-cp")
        assert not compiled_wheel.name.endswith("-any.whl")
        assert len(binaries(compiled_wheel)) == 1

    def test_it_is_typed_and_holds_no_source_of_the_extension(self, compiled_wheel: Path) -> None:
        names = content(compiled_wheel)
        assert {"phpmq/py.typed", "phpmq/_codec_c.pyi"} <= set(names)
        assert not [name for name in names if name.endswith((".pyx", ".c"))]

    @pytest.mark.parametrize("backend", ["auto", "cython"])
    def test_it_runs_compiled(self, compiled_wheel: Path, tmp_path: Path, backend: str) -> None:
        site = install(compiled_wheel, tmp_path)
        assert choice(import_from(site, backend), site) == ["cython", "the extension is installed"]

    def test_an_extension_of_another_version_is_refused(self, compiled_wheel: Path, tmp_path: Path) -> None:
        site = install(compiled_wheel, tmp_path)
        (site / "phpmq/_version.py").write_text(f"__version__ = {__version__!r}\n")
        reason = f"the extension was built for phpmq {OTHER_VERSION}, this is {__version__}; install phpmq again"
        falling_back = import_from(site, "auto")
        assert choice(falling_back, site) == ["python", reason]
        assert f"RuntimeWarning: phpmq runs in pure Python: {reason}" in falling_back.stderr
        insisting = import_from(site, "cython")
        assert insisting.returncode != 0
        assert f"ImportError: PHPMQ_BACKEND=cython, but {reason}" in insisting.stderr

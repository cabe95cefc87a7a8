"""The fuzzer: its inputs, what it found once, and that it finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import fuzz
import pytest
from differential import ways
from laws import LAWS

Codecs = tuple[ModuleType, ModuleType]

SEND = b"H0100102P0100000000000000000000000000003FooP0200000000000000000000000000005Hello"
INPUT = fuzz.pack(35, 300, 7, SEND)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff" * 4, INPUT])
def test_any_bytes_are_an_input(data: bytes) -> None:
    case = fuzz.unpack(data)
    assert case.data == data[4:]
    assert case == fuzz.unpack(data)


def test_an_input_says_how_to_read_it() -> None:
    assert fuzz.unpack(INPUT).options == {"packet_header_size": 35, "max_frame_size": 300}
    assert fuzz.unpack(fuzz.pack(32, None, 0, SEND)).options == {"packet_header_size": 32, "max_frame_size": None}
    assert len({len(fuzz.unpack(fuzz.pack(32, None, seed, SEND)).chunks) for seed in range(256)}) == 5


@pytest.mark.parametrize("data", fuzz.corpus())
def test_laws_on_the_corpus(codec: ModuleType, data: bytes) -> None:
    case = fuzz.unpack(data)
    for law in LAWS:
        law(codec, case)


@pytest.mark.parametrize("data", fuzz.corpus())
def test_codecs_agree_on_the_corpus(both_codecs: Codecs, data: bytes) -> None:
    reference, compiled = both_codecs
    for way in ways(fuzz.unpack(data)):
        assert way(compiled) == way(reference)


def test_inputs_are_of_both_kinds(codec: ModuleType) -> None:
    """Good streams and faults of all kinds are among what is drawn."""
    random = Random(0)
    cases = [fuzz.unpack(fuzz.any_input(random)) for _ in range(500)]
    scans = [codec.scan(case.data, **case.options) for case in cases]
    faults = {scan.error.fault.name for scan in scans if scan.error}
    assert len(faults) >= 11
    assert sum(scan.error is None for scan in scans) > 50
    assert sum(scan.frames for scan in scans) > 100


@pytest.fixture
def planted(both_codecs: Codecs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the compiled codec: it loses the last byte of a content that begins with 0."""
    reference, compiled = both_codecs
    faulty = SimpleNamespace(**vars(compiled))

    def iter_messages(data: Any, **options: Any) -> Iterator[Any]:
        for item in compiled.iter_messages(data, **options):
            content = getattr(item, "content", b"")
            yield item.__replace__(content=content[:-1]) if content[:1] == b"0" else item

    faulty.iter_messages = iter_messages
    monkeypatch.setattr(fuzz, "codecs", lambda: (reference, faulty))
    monkeypatch.setattr(fuzz, "processes", ThreadPoolExecutor)


@pytest.mark.usefixtures("planted")
def test_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert fuzz.main(["--cases", "5000", "--workers", "1", "--seed", "1"]) == 1
    (path,) = tmp_path.iterdir()
    assert capsys.readouterr().err.endswith(f" {path.name} shows how\n")
    case = fuzz.unpack(path.read_bytes())
    assert len(case.data) < 200
    with pytest.raises(AssertionError):
        fuzz.main([str(path)])


#: The fuzzer in a process of its own, whose workers crash.
CRASH = """
import os, sys
sys.path.insert(0, {tests!r})
import fuzz
fuzz.check = lambda data, random=None: len(data) > 400 and os.abort()
if __name__ == "__main__":
    sys.exit(fuzz.main(["--workers", "1", "--seed", "1"]))
"""


@pytest.mark.usefixtures("both_codecs")
def test_a_crash_leaves_its_input(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    script.write_text(CRASH.format(tests=str(Path(fuzz.__file__).parent)))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    (path,) = tmp_path.glob("fuzz-*")
    assert done.returncode == 1
    assert "Fatal Python error: Aborted" in done.stderr
    assert done.stderr.endswith(f"a process died of one of these inputs: {path.name}\n")
    assert path.stat().st_size > 400


@pytest.mark.usefixtures("both_codecs")
def test_a_run_without_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--cases", "5000", "--workers", "1", "--seed", "1"]) == 0
    seed, progress = capsys.readouterr().err.splitlines()
    assert seed == "seed 1"
    assert progress.startswith("5,000 cases, ")

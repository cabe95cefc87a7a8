"""``python -m phpmq``."""

from __future__ import annotations

import runpy
import sys

import pytest
from command import FOO, run_process


def test_it_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["phpmq", "--version"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("phpmq", run_name="__main__")
    assert capsys.readouterr().out.startswith("phpmq ")


def test_it_gives_its_exit_code() -> None:
    module = [sys.executable, "-m", "phpmq"]
    assert run_process("decode", stdin=FOO + b"junk", command=module) == run_process("decode", stdin=FOO + b"junk")

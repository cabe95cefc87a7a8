"""When there is a progress bar and when there are colours, with imitated terminals; real ones are in test_cli.py."""

from __future__ import annotations

import io
import os
import sys
import tracemalloc
from typing import TextIO

import pytest

from phpmq.cli.terminal import NoBar, fit, painter, progress_bar, wants_colour

LARGE = 32 * 2**20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def imitate_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal, and the environment that of one."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return terminal


def shows_bar(total: int | None, *, over_output: bool) -> bool:
    with progress_bar(total, over_output=over_output) as bar:
        bar.advance(1)
        with bar.away():
            pass
    return not isinstance(bar, NoBar)


def test_a_bar_is_for_what_is_large_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = imitate_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert [shows_bar(total, over_output=False) for total in (None, 0, LARGE - 1, LARGE)] == [False, False, False, True]
    assert "%" in stderr.getvalue()


def test_a_bar_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shows_bar(LARGE, over_output=True)


def test_a_bar_keeps_away_from_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    imitate_terminal(monkeypatch)
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as pipe, open(os.devnull, "w") as nothing:
        outputs: list[tuple[TextIO, bool]] = [
            (pipe, False),
            (Terminal(), False),
            (nothing, True),
            (io.StringIO(), True),
        ]
        for stdout, shown in outputs:
            monkeypatch.setattr(sys, "stdout", stdout)
            assert shows_bar(LARGE, over_output=False) == shown
            assert shows_bar(LARGE, over_output=True)


@pytest.mark.parametrize(("stdout", "stays"), [(io.StringIO(), True), (Terminal(), False)])
def test_a_bar_makes_way_for_output_in_the_same_terminal(
    monkeypatch: pytest.MonkeyPatch, stdout: TextIO, stays: bool
) -> None:
    stderr = imitate_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", stdout)
    with progress_bar(LARGE, over_output=True) as bar:
        bar.advance(LARGE // 2)
        with bar.away():
            assert stderr.getvalue().endswith("\x1b[2K") != stays  # the line is erased


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, True),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "", "FORCE_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colours(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool) -> None:
    imitate_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_colour() is coloured
    assert wants_colour("always") is True
    assert wants_colour("never") is False
    assert painter(coloured)("text", fg="red") == ("\x1b[31mtext\x1b[0m" if coloured else "text")


@pytest.mark.parametrize(
    ("data", "width", "text"),
    [
        (b"", 5, ""),
        (b"Foo", 3, "Foo"),
        (b"Fool", 3, "Fo…"),
        ("日本語".encode(), 6, "日本語"),
        ("日本語".encode(), 5, "日本…"),
        ("e\u0301".encode() * 8, 8, "e\u0301" * 8),
        ("e\u0301".encode() * 100, 8, "e\u0301" * 7 + "…"),
        ("\U0001f600".encode() * 100, 3, "\U0001f600…"),
        (b"\xff" * 100, 9, r"\xff\xff…"),
        (b"Foo", 0, "…"),
        (b"Foo", -7, "…"),
        (b"", -7, ""),
        (b"\x80" * 100, 9, r"\x80\x80…"),
    ],
)
def test_text_that_fits(data: bytes, width: int, text: str) -> None:
    assert fit(data, width) == text


def test_what_does_not_fit_is_not_looked_at() -> None:
    data = b"\x80" * 10_000_000
    tracemalloc.start()
    try:
        assert fit(data, 9) == r"\x80\x80…"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()

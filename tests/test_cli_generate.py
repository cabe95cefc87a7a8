"""``phpmq generate``: captures of a size that was asked for, with damages that are told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from command import Run, in_terminal

from phpmq import Damage, iter_messages
from phpmq.generate import Touch, write_capture


def capture(size: int, **options: int) -> tuple[bytes, list[Touch]]:
    file = io.BytesIO()
    touches = write_capture(file, size, **options)
    return file.getvalue(), touches


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("0", 0),
        ("500", 500),
        ("500B", 500),
        ("10k", 10_000),
        ("10kB", 10_000),
        ("10KB", 10_000),
        ("10KiB", 10_240),
        ("10ki", 10_240),
        ("3MB", 3_000_000),
        ("3MiB", 3 * 2**20),
    ],
)
def test_sizes(run: Run, size: str, expected: int) -> None:
    assert run("generate", "--size", size) == (0, capture(expected)[0], "")


@pytest.mark.parametrize(
    ("size", "expected"), [("2GB", 2 * 10**9), ("2GiB", 2 * 2**30), ("1T", 10**12), ("1TiB", 2**40)]
)
def test_large_sizes(run: Run, monkeypatch: pytest.MonkeyPatch, size: str, expected: int) -> None:
    asked: list[int] = []

    def write_nothing(_file: object, size: int, **_: int) -> list[Touch]:
        asked.append(size)
        return []

    monkeypatch.setattr("phpmq.generate.write_capture", write_nothing)
    assert run("generate", "--size", size) == (0, b"", "")
    assert asked == [expected]


@pytest.mark.parametrize(
    "size", ["", "k", "-1", "1.5MB", "1 MB", "10iB", "10kk", "10q", "\u0661", "1\u212a", "9" * 5000]
)
def test_what_is_no_size(run: Run, tmp_path: Path, size: str) -> None:
    path = tmp_path / "capture"
    code, output, errors = run("generate", "-o", path, "--size", size)
    assert (code, output, errors.count("\n")) == (2, b"", 1)
    assert "is no size; write 500, 10k, 100MB or 2GiB" in errors
    assert "phpmq generate --help" in errors
    assert not path.exists()


def test_a_megabyte_is_the_default(run: Run) -> None:
    assert run("generate") == (0, capture(1_000_000)[0], "")


@pytest.mark.parametrize("size", [32, 35, 36])
def test_seeds_and_packet_header_sizes(run: Run, size: int) -> None:
    result = run("generate", "--size", "20k", "--seed", "7", "--packet-header-size", str(size))
    assert result == (0, capture(20_000, seed=7, packet_header_size=size)[0], "")


def test_output_and_ledger(run: Run, tmp_path: Path) -> None:
    path, ledger = tmp_path / "capture", tmp_path / "ledger"
    options = ["--size", "50k", "--seed", "3", "--damages", "20", "--ledger", ledger]
    assert run("generate", *options, "-o", path) == (0, b"", "")
    data, touches = capture(50_000, seed=3, damages=20)
    assert path.read_bytes() == data
    records = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    assert records == [
        {"kind": kind, "start": start, "stop": stop, "message": message} for kind, start, stop, message in touches
    ]
    assert {record["kind"] for record in records} >= {"marker", "digit", "head", "junk"}
    assert {record["message"] is None for record in records} == {True, False}
    damaged = sum(item.stop - item.start for item in iter_messages(data, on_fault="skip") if isinstance(item, Damage))
    assert damaged == sum(record["stop"] - record["start"] for record in records)
    assert run("generate", *options) == (0, data, "")


def test_a_ledger_without_damages_is_empty(run: Run, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert run("generate", "--size", "1k", "--ledger", ledger).code == 0
    assert ledger.read_bytes() == b""


def test_an_empty_capture_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(b"old")
    assert run("generate", "--size", "0", "-o", path) == (0, b"", "")
    assert path.read_bytes() == b""


def test_more_damages_than_frames(run: Run) -> None:
    data, touches = capture(1, damages=5)
    assert len(touches) == 1
    complaint = "phpmq: there is no more than 1 frame to damage\n"
    assert run("generate", "--size", "1", "--damages", "5") == (0, data, complaint)


@pytest.mark.parametrize("options", [["--damages", "-1"], ["--damages", "x"], ["--seed", "x"], ["FILE"]], ids=" ".join)
def test_wrong_arguments(run: Run, options: list[str]) -> None:
    code, output, errors = run("generate", *options)
    assert (code, output, errors.count("\n")) == (2, b"", 1)


def test_the_ledger_is_another_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    code, output, errors = run("generate", "-o", path, "--ledger", f"{tmp_path}/./capture")
    assert (code, output) == (2, b"")
    assert errors.startswith(f"phpmq: {path} cannot be the capture and its ledger at the same time")
    assert not path.exists()


@pytest.mark.parametrize("option", ["-o", "--ledger"])
def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path, option: str) -> None:
    path = tmp_path / "none" / "file"
    code, output, errors = run("generate", option, path)
    assert (code, output, errors.count("\n")) == (2, b"", 1)
    assert "No such file or directory" in errors


def test_help_teaches_by_example(run: Run) -> None:
    code, output, errors = run("generate", "--help")
    assert (code, errors) == (0, "")
    assert b"  phpmq generate --size 100MB -o capture.phpmq\n" in output
    assert b"1KiB is 1024" in output


def test_bytes_are_not_for_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    code, output, _ = in_terminal("generate")
    assert code == 2
    assert b"H01" not in output
    assert in_terminal("generate", "--size", "1k", "-o", path) == (0, b"", "")
    assert path.read_bytes() == capture(1000)[0]


def test_progress_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    code, output, errors = in_terminal("generate", "--size", "40MB", "-o", path, streams=["stdout", "stderr"])
    assert (code, errors) == (0, "")
    assert b"100%" in output
    assert path.stat().st_size >= 40_000_000
    assert in_terminal("generate", "--size", "1MB", "-o", path, streams=["stdout", "stderr"]) == (0, b"", "")


def test_the_ledger_on_standard_output(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "capture"
    code, output, errors = run("generate", "--damages", "3", "--ledger", "-", "-o", file)
    assert (code, errors) == (0, "")
    assert [sorted(json.loads(line)) for line in output.splitlines()] == [["kind", "message", "start", "stop"]] * 3
    code, output, errors = run("generate", "--ledger", "-")
    assert (code, output) == (2, b"")
    assert "cannot both be standard output" in errors

"""``phpmq ingest`` and ``phpmq report``: from captures to a page, without a word of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import COMMAND, Run, environment
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import phpmq
from phpmq.cli.pipeline import _reason
from phpmq.cli.terminal import working

MESSAGES: list[phpmq.Message] = [
    phpmq.Send("Foo", b"Hello", ttl=60),
    phpmq.Dispatch("Foo", b"Hello", "1", ttl=60),
    phpmq.Acknowledge("Foo", "1"),
    phpmq.Acknowledge("Foo", "1"),
    phpmq.Dispatch("Bar", b"", "2", ttl=None),
]
CAPTURE = phpmq.encode_many(MESSAGES)


def table(output: bytes) -> list[list[str]]:
    """The words of each line under the header."""
    return [line.split() for line in output.decode().splitlines()[2:]]


def test_from_captures_to_a_page(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    source, warehouse, page = tmp_path / "captures", tmp_path / "warehouse", tmp_path / "page.html"
    (source / "today").mkdir(parents=True)
    (source / "today" / "a").write_bytes(CAPTURE + b"junk" + CAPTURE[:20])
    arguments = ("ingest", source, "--recursive", "--to", warehouse, "--batch-size", "10k")
    result = run(*arguments)
    assert table(result.output) == [
        ["bytes", "of", "captures", f"{len(CAPTURE):,}"],
        ["messages", "5"],
        ["damaged", "ranges", "0"],
        ["bytes", "left", "24"],
    ]
    assert (result.code, result.errors) == (
        0,
        "phpmq: 1 capture ended within a frame, or in damage that may go on: --finished takes what is left as damage\n",
    )
    result = run(*arguments, "--finished")
    assert [line[-1] for line in table(result.output)] == ["24", "0", "1", "0"]
    assert (result.code, result.errors) == (0, "")
    result = run("report", warehouse, "-o", page)
    assert (result.code, result.errors) == (0, "")
    header = result.output.decode().splitlines()[0].split()
    assert header == [
        "queue",
        "sent",
        "dispatched",
        "acknowledged",
        "requeued",
        "dead-lettered",
        "outstanding",
        "redelivered",
    ]
    assert table(result.output) == [
        ["Foo", "1", "1", "1", "0", "0", "0", "0"],
        ["Bar", "0", "1", "0", "0", "0", "1", "0"],
        ["all", "2", "queues", "1", "2", "1", "0", "0", "1", "0"],
        ["1", "anomalies,", "1", "damaged", "ranges"],
    ]
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "acknowledged twice" in text


def test_options_reach_spark(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(phpmq.encode_many(MESSAGES, packet_header_size=36))
    result = run("ingest", tmp_path / "a", "--to", tmp_path / "w", "--packet-header-size", "36", "--conf", "spark.a=b")
    assert table(result.output)[1] == ["messages", "5"]
    result = run(
        "ingest",
        tmp_path / "a",
        "--to",
        tmp_path / "v",
        "--packet-header-size",
        "36",
        "--max-frame-size",
        "60",
        "--finished",
    )
    assert table(result.output)[1] == ["messages", "0"]


@pytest.fixture
def in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["ingest"], "Missing argument 'SOURCE...'. (phpmq ingest --help shows how)"),
        (["ingest", "a"], "Missing option '--to'. (phpmq ingest --help shows how)"),
        (
            ["ingest", "a", "--to", "w", "--conf", "x"],
            "--conf takes NAME=VALUE, not 'x' (phpmq ingest --help shows how)",
        ),
        (["ingest", "a", "--to", "w", "--batch-size", "x"], "Invalid value for '--batch-size'"),
        (["ingest", "a", "--to", "w"], "path does not exist: "),
        (["report", "w"], "w is no warehouse: it has no table messages"),
    ],
)
def test_wrong_arguments(
    spark: SparkSession, run: Run, in_empty_directory: None, arguments: list[str], error: str
) -> None:
    result = run(*arguments)
    assert (result.code, result.output) == (2, b"")
    assert result.errors.startswith("phpmq: ")
    assert error in result.errors
    assert result.errors.count("\n") == 1
    assert os.listdir() == []


def test_what_spark_has_met_is_one_line(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CAPTURE)
    assert run("ingest", tmp_path / "a", "--to", tmp_path / "w").code == 0
    (tmp_path / "a").write_bytes(CAPTURE[:-1])
    result = run("ingest", tmp_path / "a", "--to", tmp_path / "w")
    size = len(CAPTURE)
    why = f"{tmp_path}/a was truncated or replaced: {size} bytes were read, and it has {size - 1} now"
    assert result == (2, b"", f"phpmq: {why}\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[A] failed: Traceback\n  File x\nOSError: first\n\nDuring ...\npkg.ValueError: second\n SQLSTATE: 1",
            "second",
        ),
        ("[A] went wrong\nand more", "[A] went wrong"),
        ("", ""),
    ],
)
def test_the_reason_of_a_failure(text: str, reason: str) -> None:
    assert _reason(text) == reason


class Session:
    """What a command has of a session of its own."""

    stopped = 0

    def stop(self) -> None:
        Session.stopped += 1


@pytest.mark.parametrize("error", [None, PySparkException("it has failed"), RuntimeError("it has failed")])
def test_a_session_of_its_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    def ingest(spark: Session, *args: object, **kwargs: object) -> None:
        if error:
            raise error

    def local_session(settings: dict[str, str]) -> Session:
        os.write(2, b"noise of Java\n")
        assert settings["spark.master"] == "local[3]"
        assert settings["spark.a"] == "b=c"
        return Session()

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr("phpmq.spark.local_session", local_session)
    monkeypatch.setattr(sys.modules["phpmq.spark.ingest"], "ingest", ingest)
    (tmp_path / "a").write_bytes(b"")
    stopped = Session.stopped
    arguments = ("ingest", tmp_path / "a", "--to", tmp_path / "w", "--master", "local[3]", "--conf", "spark.a=b=c")
    result = run(*arguments)
    assert (result.code, result.errors) == ((2, "phpmq: it has failed\n") if error else (0, ""))
    assert Session.stopped == stopped + 1


@pytest.mark.parametrize(
    ("module", "arguments", "error"),
    [
        ("phpmq.spark", ("ingest", "a", "--to", "w"), "import of phpmq.spark halted; None in sys.modules"),
        ("phpmq.spark.report", ("report", "w"), 'pip install "phpmq[pipeline]"'),
    ],
)
def test_what_is_not_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch, module: str, arguments: tuple[str, ...], error: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = run(*arguments)
    assert (result.code, result.output) == (2, b"")
    assert error in result.errors


def test_a_page_that_has_no_place(run: Run, tmp_path: Path) -> None:
    result = run("report", tmp_path, "-o", tmp_path / "none" / "report.html")
    assert (result.code, result.output, result.errors) == (2, b"", f"phpmq: there is no directory {tmp_path}/none\n")


def test_without_java() -> None:
    variables = environment({"JAVA_HOME": "/nowhere"})
    process = subprocess.run(
        [*COMMAND, "ingest", __file__, "--to", "w"], env=variables, capture_output=True, check=False
    )
    assert (process.returncode, process.stdout) == (2, b"")
    assert process.stderr.startswith(
        b"phpmq: Spark needs Java 17 or later, and /nowhere/bin/java does not run: install"
    )
    assert process.stderr.count(b"\n") == 1


def test_work_is_shown_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with working("Nothing"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with working("Counting"):
        pass
    assert "Counting" in capsys.readouterr().err

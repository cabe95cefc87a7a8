"""The report, and the check against the baseline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import phpmq
from benchmarks import instructions
from benchmarks.check import worse
from benchmarks.report import main, table
from benchmarks.runs import Speed, ratios, read_runs


def told(operation: str, traffic: str, implementation: str, speed: int) -> dict[str, Any]:
    names = {"operation": operation, "traffic": traffic, "implementation": implementation}
    return {"extra_info": {**names, "messages_per_second": speed, "bytes_per_second": 100 * speed}, "stats": {}}


def started(statement: str, seconds: float) -> dict[str, Any]:
    return {"extra_info": {"operation": "import", "implementation": statement}, "stats": {"median": seconds}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    benchmarks = [
        told("encode", "60B", "cython", 3_000_000),
        told("encode", "60B", "msgpack", 1_000_000),
        told("encode", "60B", "python", 150_000),
        told("scan", "mixed", "cython", 9_000_000),
        told("scan", "mixed", "copy", 12_000_000),
        started("pass", 0.010),
        started("import json", 0.014),
        started("import phpmq", 0.015),
        {"extra_info": {}, "stats": {"median": 1}},
    ]
    machine = {
        "cpu": {"brand_raw": "A processor", "count": 2},
        "system": "Linux",
        "machine": "x86_64",
        "python_implementation": "CPython",
        "python_version": "3.11.7",
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"machine_info": machine, "benchmarks": benchmarks}))
    return path


def test_a_run_is_read(run: Path) -> None:
    found = read_runs([run])
    assert found.speeds["scan", "mixed"] == {
        "cython": Speed(9_000_000, 900_000_000),
        "copy": Speed(12_000_000, 1_200_000_000),
    }
    assert found.imports == pytest.approx({"import json": 0.004, "import phpmq": 0.005})


def test_the_best_of_runs_is_taken(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    benchmarks = [
        told("encode", "60B", "cython", 2_000_000),
        told("encode", "60B", "msgpack", 1_500_000),
        started("pass", 0.020),
        started("import phpmq", 0.024),
    ]
    other.write_text(json.dumps({"machine_info": {}, "benchmarks": benchmarks}))
    assert ratios(read_runs([run, other])) == {
        "encode 60B beside msgpack": 2.0,
        "encode 60B beside python": 20.0,
        "scan mixed beside copy": 0.75,
        "import beside json": 1.0,
    }


def test_ratios(run: Path) -> None:
    assert ratios(read_runs([run])) == {
        "encode 60B beside msgpack": 3.0,
        "encode 60B beside python": 20.0,
        "scan mixed beside copy": 0.75,
        "import beside json": 0.8,
    }


def test_the_table(run: Path) -> None:
    assert table(read_runs([run])).splitlines() == [
        "|  | contents | × msgpack | × the reference | × copying the bytes | messages/s | MB/s |",  # noqa: RUF001
        "| --- | --- | --: | --: | --: | --: | --: |",
        "| `scan` | mixed |  |  | 0.75 | 9,000,000 | 900 |",
        "| `encode` | 60 B | 3 | 20 |  | 3,000,000 | 300 |",
    ]


def test_the_report(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, chart = tmp_path / "README.md", tmp_path / "speed.svg"
    page.write_text("before\n<!-- speed: python -m benchmarks.report -->\nold\n<!-- /speed -->\nbehind\n")
    main([str(run), "--readme", str(page), "--chart", str(chart)])
    assert capsys.readouterr().out == ""
    main([str(run)])
    text = capsys.readouterr().out
    assert text.startswith(table(read_runs([run])))
    assert (
        "`import phpmq` takes 5.0 ms, 1.2 times `import json`.\nA processor, 2 cores, Linux; CPython 3.11.7, " in text
    )
    marks = "<!-- speed: python -m benchmarks.report -->\n", "<!-- /speed -->\n"
    assert page.read_text() == f"before\n{marks[0]}{text}{marks[1]}behind\n"
    assert "msgpack" in chart.read_text()


def test_a_page_without_marks_is_refused(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n")
    with pytest.raises(SystemExit, match="has to have one pair of the marks"):
        main([str(run), "--readme", str(page)])
    assert page.read_text() == "before\n"


BASELINE = {"instructions": {"scan": 400, "encode": 1000}, "ratios": {"encode beside msgpack": 2.0}}


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ({"instructions": {"scan": 420, "encode": 10}, "ratios": {"encode beside msgpack": 1.5}}, []),
        ({"instructions": {"scan": 420, "encode": 10}}, []),
        (
            {"instructions": {"scan": 421, "encode": 1000}},
            ["scan: 421 instructions for a message, 400 before"],
        ),
        (
            {"instructions": {"scan": 400}, "ratios": {"encode beside msgpack": 1.49}},
            [
                "encode: None instructions for a message, 1000 before",
                "encode beside msgpack: 1.49 times as fast, 2.0 before",
            ],
        ),
    ],
)
def test_what_is_worse(found: dict[str, Any], lines: list[str]) -> None:
    assert worse(found, BASELINE) == lines


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind counts")
@pytest.mark.skipif(phpmq.BACKEND != "cython", reason="what is counted is the compiled codec")
def test_counts_do_not_depend_on_bytecode_that_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ("scan", "60B", "cython")
    monkeypatch.setattr(instructions, "NAMES", [name])
    monkeypatch.setitem(instructions._ENVIRONMENT, "PYTHONPYCACHEPREFIX", str(tmp_path))
    first = instructions.count()[" ".join(name)]
    assert instructions.count() == {" ".join(name): pytest.approx(first, rel=0.02)}

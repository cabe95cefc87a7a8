"""What runs of pytest-benchmark say, from their files of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

#: What the compiled codec is compared with, in the order in which it is told, and what readers call it.
PEERS: Final = {
    "msgpack": "msgpack",
    "hiredis": "hiredis",
    "pyarrow.json": "pyarrow.json",
    "php": "the original in PHP",
    "handwritten": "a hand-written loop",
    "Python rows": "Python rows",
    "python": "the reference",
    "copy": "copying the bytes",
}


class Speed(NamedTuple):
    """In one second."""

    messages: int
    bytes: int


class Run(NamedTuple):
    machine: dict[str, Any]
    #: By operation and traffic, then by implementation.
    speeds: dict[tuple[str, str], dict[str, Speed]]
    #: Seconds that statements take with a new Python, beyond starting it.
    imports: dict[str, float]


def read_runs(paths: Iterable[Path]) -> Run:
    """The best of some runs of one machine: each figure is a median of one of them.

    On a machine that others use, too, one run has some figures that are far off.
    """
    run = Run({}, {}, {})
    for path in paths:
        found = json.loads(path.read_text())
        run.machine.update(found["machine_info"])
        imports: dict[str, float] = {}
        for benchmark in found["benchmarks"]:
            info = benchmark["extra_info"]
            if "messages_per_second" in info:
                speeds = run.speeds.setdefault((info["operation"], info["traffic"]), {})
                speed = Speed(info["messages_per_second"], info["bytes_per_second"])
                speeds[info["implementation"]] = max(speed, speeds.get(info["implementation"], speed))
            elif info.get("operation") == "import":
                imports[info["implementation"]] = benchmark["stats"]["median"]
        start = imports.pop("pass", 0)
        for statement, seconds in imports.items():
            run.imports[statement] = min(seconds - start, run.imports.get(statement, sys.maxsize))
    return run


def ratios(run: Run) -> dict[str, float]:
    """How many times as fast as its peers the compiled codec is."""
    found = {
        f"{operation} {traffic} beside {peer}": speeds["cython"].messages / speeds[peer].messages
        for (operation, traffic), speeds in run.speeds.items()
        for peer in PEERS
        if peer in speeds and "cython" in speeds
    }
    if run.imports:
        found["import beside json"] = run.imports["import json"] / run.imports["import phpmq"]
    return {name: float(f"{ratio:.3g}") for name, ratio in found.items()}

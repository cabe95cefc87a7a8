"""Runs as a table and a chart.

    pytest benchmarks --benchmark-json run.json
    python -m benchmarks.report run.json                                             # prints the table
    python -m benchmarks.report run*.json --readme README.md --chart docs/speed.svg  # puts both into their places

Of several runs it takes the best figures.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import altair

from benchmarks.runs import PEERS, Run, read_runs

#: What the table and the chart show; all else that is measured compares phpmq with itself.
_SHOWN: Final = {
    "scan": "`scan`",
    "iter_messages": "`iter_messages`",
    "decoder_64KiB": "`Decoder`, chunks of 64 KiB",
    "decoder_1400B": "`Decoder`, chunks of 1,400 B",
    "decode": "`decode`",
    "encode": "`encode`",
    "encode_many": "`encode_many`",
    "encode_into": "`encode_into`",
    "columns": "columns of Arrow",
    "encode_batch": "columns to frames",
}
_TRAFFIC: Final = {"60B": "60 B", "2KiB": "2 KiB", "64KiB": "64 KiB", "mixed": "mixed"}
_NAMES: Final = {"cython": "phpmq", **PEERS}
_TIMES: Final = "×"  # noqa: RUF001
_BEGIN, _END = "<!-- speed: python -m benchmarks.report -->\n", "<!-- /speed -->\n"


def table(run: Run) -> str:
    """A row for each operation and traffic: how many times as fast as each peer, then how fast."""
    peers = [peer for peer in PEERS if any(peer in speeds for speeds in run.speeds.values())]
    heads = ["", "contents", *(f"{_TIMES} {PEERS[peer]}" for peer in peers), "messages/s", "MB/s"]
    lines = [heads, ["---", "---", *["--:"] * (len(heads) - 2)]]
    for operation, title in _SHOWN.items():
        for traffic, contents in _TRAFFIC.items():
            speeds = run.speeds.get((operation, traffic), {})
            if "cython" not in speeds:
                continue
            own = speeds["cython"]
            beside = [_ratio(own.messages / speeds[peer].messages) if peer in speeds else "" for peer in peers]
            lines.append([title, contents, *beside, f"{own.messages:,}", f"{own.bytes / 1e6:,.0f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _ratio(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"  # noqa: PLR2004 (no exponents)


def machine(run: Run) -> str:
    """What it was measured on, and with what."""
    cpu, python = run.machine["cpu"], run.machine
    versions = [f"phpmq {version('phpmq')}"]
    for name in ("msgpack", "hiredis", "pyarrow"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return (
        f"{cpu.get('brand_raw', python['machine'])}, {cpu.get('count', '?')} cores, {python['system']};"
        f" {python['python_implementation']} {python['python_version']}, {', '.join(versions)};"
        " medians, the best of all runs.\n"
    )


def imports(run: Run) -> str:
    if not run.imports:
        return ""
    own, peer = run.imports["import phpmq"], run.imports["import json"]
    return f"`import phpmq` takes {own * 1000:.1f} ms, {own / peer:.1f} times `import json`.\n"


def chart(run: Run) -> Any:
    """Messages per second, as dots, as a logarithm has no zero for bars to begin at."""
    rows = [
        {
            "operation": _SHOWN[operation].replace("`", ""),
            "contents": _TRAFFIC[traffic],
            "who": _NAMES[implementation],
            "speed": speed.messages,
        }
        for (operation, traffic), speeds in run.speeds.items()
        if operation in _SHOWN and traffic in ("60B", "mixed")
        for implementation, speed in speeds.items()
    ]
    order = [title.replace("`", "") for title in _SHOWN.values()]
    names = [name for name in _NAMES.values() if any(row["who"] == name for row in rows)]
    dots = altair.Chart(altair.InlineData(rows)).mark_point(filled=True, size=80, opacity=0.9)
    encoded = dots.encode(
        x=altair.X(
            "speed:Q",
            scale=altair.Scale(type="log"),
            title="messages per second",
            axis=altair.Axis(format="~s", values=[10**power for power in range(9)]),
        ),
        y=altair.Y("operation:N", sort=order, title=None, axis=altair.Axis(grid=True)),
        color=altair.Color("who:N", sort=names, title=None, legend=altair.Legend(orient="bottom", columns=5)),
        shape=altair.Shape("who:N", sort=names, legend=None),
    )
    return encoded.properties(width=330, height=220).facet(altair.Column("contents:N", title=None))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Show runs as a table.")
    parser.add_argument("run", type=Path, nargs="+", help="by pytest benchmarks --benchmark-json")
    parser.add_argument(
        "--readme", type=Path, help="put the table into this file, between the marks, and do not print it"
    )
    parser.add_argument("--chart", type=Path, help="draw a chart into this file (.svg or .png)")
    options = parser.parse_args(arguments)
    run = read_runs(options.run)
    text = f"{table(run)}\n{imports(run)}{machine(run)}"
    if options.readme is None:
        print(text, end="")
    else:
        page = options.readme.read_text(encoding="utf-8")
        page, count = re.subn(f"{_BEGIN}.*?{_END}", lambda _: f"{_BEGIN}{text}{_END}", page, flags=re.DOTALL)
        if count != 1:
            sys.exit(f"{options.readme} has to have one pair of the marks {_BEGIN.strip()} and {_END.strip()}")
        options.readme.write_text(page, encoding="utf-8")
    if options.chart is not None:
        chart(run).save(options.chart)


if __name__ == "__main__":
    main(sys.argv[1:])

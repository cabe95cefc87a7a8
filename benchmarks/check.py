"""Whether anything got slower: instructions for a message, and ratios to peers within one run.

    python -m benchmarks.check                     # the instructions
    python -m benchmarks.check run.json            # and the ratios of `pytest benchmarks --benchmark-json run.json`
    python -m benchmarks.check --record run*.json  # take both as the new baseline, the best of several runs

Seconds are worth nothing on machines that others use, too. The baseline is for one version of Python, one compiler and
one architecture; where there is none yet, it is recorded.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any, Final

import phpmq
from benchmarks.instructions import count
from benchmarks.runs import ratios, read_runs

BASELINE: Final = Path(__file__).with_name("baseline.json")
#: How many more instructions, and how much less of a ratio, are still no change. Counts hardly differ from run to run.
_MORE_INSTRUCTIONS, _LESS_RATIO = 0.05, 0.25


def platform_key() -> str:
    """What instructions and ratios depend on beside the code.

    Raises:
        RuntimeError: there is no compiled codec.
    """
    if phpmq.BACKEND != "cython":
        raise RuntimeError(f"the compiled codec is what is checked, and this is {phpmq.BACKEND}")
    from phpmq import _codec_c  # noqa: PLC0415

    # A compiler leaves its name in what it makes; that of Python itself may be another one.
    compilers = re.findall(rb"GCC: \([^)]*\) [0-9.]+|clang version [0-9.]+", Path(_codec_c.__file__).read_bytes())
    compiler = sorted(set(compilers))[0].decode() if compilers else platform.python_compiler()
    version = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.python_implementation()} {version}, {compiler}, {platform.machine()}"


def worse(found: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """A line for each figure that is worse than the baseline allows, or missing."""
    lines = []
    for name, before in baseline["instructions"].items():
        now = found["instructions"].get(name)
        if now is None or now > before * (1 + _MORE_INSTRUCTIONS):
            lines.append(f"{name}: {now} instructions for a message, {before} before")
    for name, before in baseline["ratios"].items() if "ratios" in found else ():
        now = found["ratios"].get(name)
        if now is None or now < before * (1 - _LESS_RATIO):
            lines.append(f"{name}: {now} times as fast, {before} before")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description="Check that nothing got slower.")
    parser.add_argument("run", nargs="*", type=Path, help="by pytest benchmarks --benchmark-json")
    parser.add_argument("--record", action="store_true", help="take the figures as the baseline")
    options = parser.parse_args(arguments)
    try:
        key = platform_key()
        found: dict[str, Any] = {"instructions": count()}
    except RuntimeError as error:
        parser.error(str(error))
    if options.run:
        found["ratios"] = ratios(read_runs(options.run))
    baselines = json.loads(BASELINE.read_text())
    if options.record or key not in baselines:
        baselines[key] = {"ratios": {}, **baselines.get(key, {}), **found}
        BASELINE.write_text(json.dumps(baselines, indent=1, sort_keys=True) + "\n")
        print(f"recorded for {key}")
        return 0
    lines = worse(found, baselines[key])
    print("\n".join(lines) or f"nothing is slower: {', '.join(f'{len(found[of])} {of}' for of in found)}, {key}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

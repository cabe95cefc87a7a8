"""Whether threads that read at the same time are quicker than one: the calls on whole inputs let go of the GIL.

A group is one operation by one and by two threads, of which each reads all of the same input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import phpmq
from benchmarks.traffic import make_traffic
from phpmq._backend import codec
from phpmq.records import COLUMNS

WIRE = make_traffic("60B", 100_000).wire


def columns(wire: bytes) -> None:
    for _ in codec._decode_columns(wire, list(COLUMNS), max_rows=2**16, max_bytes=2**24):
        pass


OPERATIONS: dict[str, Callable[[bytes], object]] = {"scan": phpmq.scan, "columns": columns}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_threads(benchmark: BenchmarkFixture, operation: str, threads: int) -> None:
    read = OPERATIONS[operation]

    def together() -> None:
        others = [threading.Thread(target=read, args=(WIRE,)) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        read(WIRE)
        for thread in others:
            thread.join()

    benchmark.group = f"{operation} by threads"
    benchmark(together)
    if benchmark.stats:  # none where measuring is disabled
        benchmark.extra_info["bytes_per_second"] = round(threads * len(WIRE) / benchmark.stats.stats.median)

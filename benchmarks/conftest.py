"""What a benchmark says of itself beside its times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.traffic import Measure, Traffic


@pytest.fixture
def measure(benchmark: BenchmarkFixture) -> Measure:
    """Measures a function that goes through some traffic `repeat` times.

    Benchmarks of one operation on one kind of traffic are a group.
    """

    def measure(
        operation: str, traffic: Traffic, implementation: str, function: Callable[[], object], repeat: int = 1
    ) -> None:
        benchmark.group = f"{operation} {traffic.name}"
        benchmark.extra_info.update(operation=operation, traffic=traffic.name, implementation=implementation)
        benchmark(function)
        if benchmark.stats:  # none where measuring is disabled
            seconds = benchmark.stats.stats.median / repeat
            benchmark.extra_info["messages_per_second"] = round(len(traffic.messages) / seconds)
            benchmark.extra_info["bytes_per_second"] = round(len(traffic.wire) / seconds)

    return measure

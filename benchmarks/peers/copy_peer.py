"""Copying the same bytes, which is the physical limit."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers import Take
from benchmarks.traffic import Traffic


def scan(traffic: Traffic, take: Take) -> Callable[[], object]:
    wire, buffer = memoryview(traffic.wire), bytearray(len(traffic.wire))

    def copy() -> None:
        buffer[:] = wire

    return copy

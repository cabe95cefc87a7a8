"""Reading and writing messages, with both codecs and their peers.

A group is one operation on one kind of traffic. Compare within a group of one run: from run to run the same machine can
differ by a factor of two.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any

import pytest

from benchmarks.peers import CODECS, OPERATIONS, load
from benchmarks.traffic import MESSAGES, Measure, fields_of, make_traffic, row_of

CASES = [
    (operation, traffic, implementation)
    for operation, implementations in OPERATIONS.items()
    for traffic in MESSAGES
    for implementation in implementations
    if traffic != "mixed" or implementation not in ("handwritten", "php")  # which are for Dispatches only
]
traffic_of = cache(make_traffic)


def loaded(implementation: str) -> Any:
    try:
        return load(implementation)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("operation", "traffic", "implementation"), CASES, ids=map("-".join, CASES))
def test_messages(measure: Measure, operation: str, traffic: str, implementation: str) -> None:
    messages = traffic_of(traffic)
    function = getattr(loaded(implementation), operation)(messages, deque(maxlen=0).extend)
    measure(operation, messages, implementation, function)


@pytest.mark.parametrize(("operation", "traffic", "implementation"), CASES, ids=map("-".join, CASES))
def test_what_is_measured_is_right(operation: str, traffic: str, implementation: str) -> None:
    taken: list[Any] = []
    messages, peer = traffic_of(traffic), loaded(implementation)
    getattr(peer, operation)(messages, taken.extend)()
    if implementation == "php":  # which gives nothing to us, and is checked before it is measured
        return
    if operation == "scan":
        assert taken == ([len(messages.messages), len(messages.wire), None] if implementation in CODECS else [])
    elif operation == "encode_into":
        assert taken == list(map(len, messages.frames))
    elif operation.startswith("encode"):
        assert b"".join(taken) == peer.wire(messages)
    else:
        assert [told(item, traffic) for item in taken] == [list(map(as_bytes, row)) for row in messages.rows()]


def told(item: Any, traffic: str) -> list[bytes]:
    if not isinstance(item, (tuple, list)):
        item = row_of(item) if traffic == "mixed" else fields_of(item)
    return list(map(as_bytes, item))


def as_bytes(field: str | bytes | int) -> bytes:
    return field if isinstance(field, bytes) else str(field).encode()

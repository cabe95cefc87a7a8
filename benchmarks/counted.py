"""The process whose instructions are counted: it does all operations once, and then one of them several times more."""

from __future__ import annotations

import gc
import sys
from collections import deque

from benchmarks.peers import OPERATIONS, load
from benchmarks.traffic import make_traffic

#: Few, as counting is slow; but so often that what happens only once (memory is asked for, a table grows) is little.
MESSAGES = 128
TIMES = {"cython": 100, "python": 10}
#: The operation, the traffic and the codec. The reference is slow, and the same whatever the traffic.
NAMES = [
    (operation, traffic, codec)
    for operation in OPERATIONS
    for traffic, codec in (("60B", "cython"), ("mixed", "cython"), ("60B", "python"))
]


def main(*name: str) -> None:
    functions = {}
    for operation, traffic, codec in NAMES:
        function = getattr(load(codec), operation)(make_traffic(traffic, MESSAGES), deque[object](maxlen=0).extend)
        functions[operation, traffic, codec] = function
        function()
    gc.disable()  # it would come at another moment for each name
    if name:
        for _ in range(TIMES[name[-1]]):
            functions[name]()  # type: ignore[index]


if __name__ == "__main__":
    main(*sys.argv[1:])

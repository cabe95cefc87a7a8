"""The original, which is written in PHP: its own headers and messages, in a process of its own.

It takes part where the environment variable ``PHPMQ_ORIGINAL`` names a checkout of php-mq/protocol; ``PHP`` names the
interpreter (``php`` unless told). What is measured has one line each way in it, some 20 microseconds for all frames.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import Take
from benchmarks.traffic import Traffic

if "PHPMQ_ORIGINAL" not in os.environ:
    raise ImportError("PHPMQ_ORIGINAL names no checkout of php-mq/protocol")

_SCRIPT = Path(__file__).with_name("original.php")


def iter_messages(traffic: Traffic, take: Take) -> Callable[[], object]:
    return _asking(b"decode\n", traffic)


def encode(traffic: Traffic, take: Take) -> Callable[[], object]:
    return _asking(b"encode\n", traffic)


def _asking(line: bytes, traffic: Traffic) -> Callable[[], object]:
    command = [os.environ.get("PHP", "php"), str(_SCRIPT), os.environ["PHPMQ_ORIGINAL"]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.kill)
    told, answers = process.stdin, process.stdout
    assert told is not None
    assert answers is not None

    def ask(line: bytes) -> bytes:
        told.write(line)
        told.flush()
        return answers.readline().strip()

    told.write(b"%d\n%b" % (len(traffic.wire), traffic.wire))
    assert ask(b"check\n") == b"same"
    assert ask(line) == b"%d" % len(traffic.messages)
    return lambda: ask(line)

"""Damaged streams without end, through both codecs.

    python tests/fuzz.py --seconds 120      # or --cases 10_000_000, and --workers and --seed
    python tests/fuzz.py FILE...            # inputs that failed before

Each case goes through the compiled codec by some of its laws, drawn anew, and some cases go through both codecs, which
have to agree. The first input that breaks anything is made small and written to a file, and ends the run; where a
process dies, its input is left as it is. Such files go to `fuzz_corpus` when the fault is mended: half of all cases are
made of what stands there and of recorded traffic.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import count
from multiprocessing import get_context, parent_process
from os import _exit, cpu_count
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from threading import Thread
from types import ModuleType
from typing import NamedTuple

from backends import MODULES
from buffers import with_exact_inputs
from differential import ways
from laws import LAWS
from mutations import Case, any_limit, any_stream, cut, damage
from wire import CAPTURES, read_capture, read_vectors

from phpmq.protocol import MESSAGE_HEADER_SIZE, PACKET_HEADER_SIZES

CORPUS = Path(__file__).with_name("fuzz_corpus")
LAWS_FOR_A_CASE = 2
CASES_FOR_AN_AGREEMENT = 100
#: How many cases a process takes at a time, and the seconds after which it hangs.
SHIFT, PATIENCE = 5_000, 300


# An input is bytes, for those who can mutate nothing else: four for the way to read a stream, and the stream.


def pack(size: int, limit: int | None, seed: int, stream: bytes) -> bytes:
    """An input: the packet header size, the limit if it is below 64 KiB, a seed for the chunks, and the stream."""
    stated = limit if limit and limit < 2**16 else 0
    return bytes([PACKET_HEADER_SIZES.index(size), *stated.to_bytes(2, "big"), seed]) + stream


def unpack(data: bytes) -> Case:
    """The case that any bytes are."""
    size, *limit, seed = data[:4].ljust(4, b"\0")
    stream, random = data[4:], Random(seed)
    stated = int.from_bytes(bytes(limit), "big")
    options = {
        "packet_header_size": PACKET_HEADER_SIZES[size % len(PACKET_HEADER_SIZES)],
        "max_frame_size": max(stated, MESSAGE_HEADER_SIZE) if stated else None,
    }
    return Case(cut(stream, [random.randrange(len(stream) + 1) for _ in range(random.randrange(5))]), options)


def any_input(random: Random) -> bytes:
    if random.randrange(2):
        return mutated(random.choice(corpus()), random)
    size = random.choice(PACKET_HEADER_SIZES)
    return _damaged(any_stream(random, size), size, random)


def mutated(data: bytes, random: Random) -> bytes:
    """An input that is like another one."""
    case = unpack(data)
    size = case.options["packet_header_size"]
    pieces = [piece for piece in re.split(rb"(H\d{7}|P\d{%d})" % (size - 1), case.data) if piece]
    return _damaged(pieces or [b""], size, random)


def _damaged(pieces: list[bytes], size: int, random: Random) -> bytes:
    limit = any_limit(random, pieces)
    damage(random, pieces)
    return pack(size, limit, random.randrange(256), b"".join(pieces))


@cache
def corpus() -> list[bytes]:
    """Inputs: what failed once, recorded traffic, and golden messages."""
    found = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    captures = [pack(32, None, 0, read_capture(name)) for name in CAPTURES]
    return found + captures + [pack(vector.size, None, 0, vector.wire) for vector in read_vectors() if vector.wire]


# What has to hold


@cache
def codecs() -> tuple[ModuleType, ModuleType]:
    """The reference and the compiled codec, which may not be there."""
    return import_module(MODULES["python"]), with_exact_inputs(import_module(MODULES["cython"]))


def check(data: bytes, random: Random | None = None) -> None:
    """Everything that has to hold, or what is drawn of it.

    Raises:
        Exception: something does not hold.
    """
    case = unpack(data)
    reference, compiled = codecs()
    for law in random.sample(LAWS, LAWS_FOR_A_CASE) if random else LAWS:
        law(compiled, case)
    if not (random and random.randrange(CASES_FOR_AN_AGREEMENT)):
        for way in ways(case):
            assert way(compiled) == way(reference)


def fails(data: bytes) -> bool:
    try:
        check(data)
    except Exception:
        return True
    return False


def smallest(data: bytes) -> bytes:
    """An input that fails, with nothing in it that can be left out in one piece."""
    size = len(data) // 2
    while size:
        for start in range(4, len(data), size):
            shorter = data[:start] + data[start + size :]
            if fails(shorter):
                data = shorter
                break
        else:
            size //= 2
    return data


class Shift(NamedTuple):
    """What a process did: its cases and their bytes, and the input that failed."""

    cases: int
    size: int
    failed: bytes | None


def work(seed: int) -> Shift:
    if parent_process():
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
    random, size = Random(seed), 0
    with NamedTemporaryFile(dir=".", prefix="fuzz-", buffering=0) as file:  # which stays where the process dies
        for number in range(SHIFT):
            data = any_input(random)
            size += len(data)
            file.seek(0)
            file.write(data)
            file.truncate()
            try:
                check(data, random)
            except Exception:
                return Shift(number + 1, size, data)
    return Shift(SHIFT, size, None)


def processes(workers: int) -> Executor:
    return ProcessPoolExecutor(workers, get_context("spawn"), begin)  # a fork has only half of faulthandler


def begin() -> None:
    """Let a process say where it crashes, and end with its parent."""

    def follow() -> None:
        if parent := parent_process():
            parent.join()
        _exit(1)

    faulthandler.enable()
    Thread(target=follow, daemon=True).start()


def run(cases: float, seconds: float, workers: int, seed: int) -> bytes | None:
    """Work until one of the limits is reached; the input that failed, if one did."""
    seeds, start, told = count(seed), time.monotonic(), time.monotonic()
    done, size = 0, 0
    with processes(workers) as pool:
        running: set[Future[Shift]] = set()
        while True:
            more = done + len(running) * SHIFT < cases and time.monotonic() - start < seconds
            running |= {pool.submit(work, next(seeds))} if more and len(running) < workers else set()
            if not running:
                break
            if more and len(running) < workers:
                continue
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for shift in [future.result() for future in ended]:
                done, size = done + shift.cases, size + shift.size
                if shift.failed is not None:
                    return shift.failed
            if time.monotonic() - told > 10 or not running:
                told = time.monotonic()
                rate = done / (told - start)
                print(f"{done:,} cases, {size:,} bytes, {rate:,.0f} cases/s", file=sys.stderr)
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz.py", description="Look for input that breaks a codec.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="check these inputs, and no others")
    parser.add_argument("--cases", type=int, default=float("inf"), help="end after so many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--workers", type=int, default=cpu_count(), help="processes (default: one for each processor)")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the first process (default: the time)")
    options = parser.parse_args(arguments)
    for file in options.files:
        check(file.read_bytes())
    if options.files:
        return 0
    print(f"seed {options.seed}", file=sys.stderr)
    try:
        failed = run(options.cases, options.seconds, options.workers, options.seed)
    except BrokenProcessPool:
        print("a process died of one of these inputs:", *sorted(Path().glob("fuzz-*")), file=sys.stderr)
        return 1
    if failed is None:
        return 0
    failed = smallest(failed) if fails(failed) else failed
    path = Path(f"fuzz-{sha256(failed).hexdigest()[:12]}")
    path.write_bytes(failed)
    print(f"failed: {failed!r}\npython {sys.argv[0]} {path} shows how", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

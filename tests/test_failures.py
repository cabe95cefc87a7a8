"""What a codec does where it gets no memory, or is interrupted: it says so, and goes on as if it had not been asked."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from inspect import isgenerator
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

import pytest
from backends import backend_of
from wire import parts

from phpmq.errors import Fault
from phpmq.records import Damage

TESTS = Path(__file__).parent


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="only CPython's own tests can fail an allocation")
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)], ids=["ordinary", "long"])
def test_every_allocation_fails_once(codec: ModuleType, is_long: bool) -> None:
    backend = backend_of(codec)
    # the reference takes ten times as many allocations, and as long for each
    step = 1 if is_long or backend == "cython" else 7
    command = [sys.executable, str(TESTS / "failures.py"), backend, str(step)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    # the operation in hand, if the process has crashed, is the last one named
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    failures = [int(line.split()[-2]) for line in done.stdout.splitlines()]
    assert len(failures) > 100
    assert sum(failures) > 5_000


#: A good frame whose packets are not in the usual order, which takes the longer way.
FRAME = b"".join(parts(4, [(3, b"7"), (1, b"Foo")]))
on_posix = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="only POSIX has timers that signal")


def is_interrupted(call: Callable[[], Any], after: float) -> bool:
    """Whether a signal that comes after so much processor time ends a call by an exception."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, after)
        call()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return False


def assert_prompt(make: Callable[[], Callable[[], Any]]) -> Callable[[], Any]:
    """That a signal at a tenth of what a call takes ends it before the half; gives the call that was interrupted."""
    call = make()
    start = process_time()
    call()
    whole = process_time() - start
    for _ in range(5):
        call = make()
        start = process_time()
        if is_interrupted(call, whole / 10) and process_time() - start < whole / 2:
            return call
    raise AssertionError(f"nothing came in time of a call that takes {whole:.3f} s")


def size_for(codec: ModuleType, size: int) -> int:
    """So many bytes for the compiled codec, which looks for signals each 16 MiB; fewer for the slow reference."""
    return size // 64 if codec.__name__.endswith("py") else size


@on_posix
def test_scan_can_be_interrupted(codec: ModuleType) -> None:
    data = FRAME * (size_for(codec, 2**28) // len(FRAME))
    assert_prompt(lambda: lambda: codec.scan(data))


def junk_of(codec: ModuleType) -> bytes:
    return b"H" * size_for(codec, 2**27)


def found_in(codec: ModuleType, junk: bytes) -> list[Any]:
    damage = Damage(0, len(junk), Fault.BAD_DIGITS, 1, junk[: 2**16])
    return [damage, codec.Acknowledge("Foo", "7")]


@on_posix
def test_a_search_can_be_interrupted(codec: ModuleType) -> None:
    junk = junk_of(codec)
    data = junk + FRAME
    items: list[Any] = []

    def make() -> Callable[[], Any]:
        items[:] = [codec.iter_messages(data, on_fault="skip")]
        return partial(next, items[0])

    assert_prompt(make)
    if not isgenerator(items[0]):  # these are at their end when something was raised
        assert list(items[0]) == found_in(codec, junk)


@on_posix
@pytest.mark.parametrize("name", ["Decoder", "FrameDecoder", "_Scanner"])
def test_a_decoder_goes_on_where_it_was_interrupted(codec: ModuleType, name: str) -> None:
    junk = junk_of(codec)
    decoders: list[Any] = []

    def make() -> Callable[[], Any]:
        decoders[:] = [getattr(codec, name)(on_fault="skip")]
        decoders[0].feed(junk)
        return lambda: next(decoders[0], None)

    assert_prompt(make)
    [decoder] = decoders
    assert (decoder.offset, decoder.buffered) == (0, len(junk))
    decoder.feed(FRAME)
    decoder.close()
    damage, *rest = decoder
    assert damage == found_in(codec, junk)[0]
    assert len(rest) == (0 if name == "_Scanner" else 1)
    assert decoder.offset == len(junk + FRAME)


@on_posix
def test_a_scanner_counts_each_message_once_when_it_was_interrupted(codec: ModuleType) -> None:
    count = size_for(codec, 2**28) // len(FRAME)
    data = FRAME * count
    scanners: list[Any] = []

    def make() -> Callable[[], Any]:
        scanners[:] = [codec._Scanner()]
        scanners[0].feed(data)
        return lambda: next(scanners[0], None)

    assert_prompt(make)
    assert 0 < scanners[0].offset < count * len(FRAME)
    assert next(scanners[0], None) is None
    assert scanners[0].counts == {codec.Acknowledge: (count, count * len(FRAME))}


@on_posix
def test_columns_go_on_where_they_were_interrupted(codec: ModuleType) -> None:
    junk = junk_of(codec)
    decoders: list[Any] = []

    def make() -> Callable[[], Any]:
        options = {"on_fault": "skip", "max_rows": 10, "max_bytes": 2**20}
        decoders[:] = [codec._decode_columns(junk + FRAME, ["size"], **options)]
        return partial(next, decoders[0])

    assert_prompt(make)
    [(rows, [(nulls, [bits, sizes])])] = decoders[0]
    assert (rows, nulls, bits) == (2, 0, None)
    assert memoryview(sizes).cast("B").cast("q").tolist() == [len(junk), len(FRAME)]

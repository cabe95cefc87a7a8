"""Captures that come as a stream: pipes, what is read once, and what goes wrong while it is read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from batches import WIDE, rows_of
from wire import message_wire

import phpmq.capture
from phpmq.capture import Capture, decode, decode_chunks
from phpmq.errors import ProtocolError

FOO = message_wire("Consume", {"queue": "Foo", "count": 5})


@pytest.fixture(autouse=True)
def _codec(codec: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phpmq.capture, "codec", codec)


def offsets(batches: Iterator[Any]) -> Iterator[int]:
    for _, rows, columns in batches:
        yield from (row["offset"] for row in rows_of((rows, columns), ["offset"]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(FOO * 3,))
    writer.start()
    with Capture(path) as capture:
        assert (capture.name, capture.size, capture.data) == (str(path), None, None)
        assert list(offsets(decode(capture, ["offset"], start=76, stop=None, **WIDE))) == [76, 152]
        with pytest.raises(ValueError, match="can be read once, and was"):
            capture.chunks()
    writer.join()


def broken(*chunks: bytes, error: BaseException) -> Iterator[bytes]:
    yield from chunks
    raise error


def test_what_was_read_before_an_error_is_given(codec: ModuleType) -> None:
    """A reader that goes on behind damage tells what it holds back, too; one that does not has no use for it."""
    for on_fault, expected in ("raise", [0, 76]), ("skip", [0, 76, 152]):
        chunks = broken(FOO, FOO, FOO[:40], error=OSError("the wire is cut"))
        found: list[int] = []
        with pytest.raises(OSError, match="the wire is cut"):
            found.extend(offsets(decode_chunks(chunks, ["offset"], start=0, stop=None, on_fault=on_fault, **WIDE)))
        assert found == expected


def test_what_was_read_before_an_interrupt_is_given() -> None:
    found: list[int] = []
    chunks = broken(FOO, FOO, FOO[:40], error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        found.extend(offsets(decode_chunks(chunks, ["offset"], start=0, stop=None, **WIDE)))
    assert found == [0, 76]


def test_a_fault_is_no_error_of_reading() -> None:
    chunks = broken(FOO, b"x", FOO, error=AssertionError("it reads on"))
    found: list[int] = []
    with pytest.raises(ProtocolError, match="NOT_A_MESSAGE at offset 76"):
        found.extend(offsets(decode_chunks(chunks, ["offset"], start=0, stop=None, **WIDE)))
    assert found == [0]


def test_nothing_is_read_behind_the_stop() -> None:
    chunks = broken(FOO, FOO[:40], FOO[40:] + FOO, error=AssertionError("it reads on"))
    assert list(offsets(decode_chunks(chunks, ["offset"], start=0, stop=77, **WIDE))) == [0, 76]


def test_a_start_behind_the_end() -> None:
    assert list(Capture([FOO, FOO]).chunks(152)) == []
    with pytest.raises(ValueError, match="start is 153, behind the end at 152"):
        list(Capture([FOO, FOO]).chunks(153))


def test_negative_offsets() -> None:
    for source in (FOO, [FOO]):
        with pytest.raises(ValueError, match="start must not be negative, but is -5"):
            Capture(source).chunks(-5)
    with pytest.raises(ValueError, match="offset must not be negative, but is -1"):
        Capture(FOO).find_frame(-1)


def test_chunks_that_are_not_bytes() -> None:
    assert list(Capture([bytearray(FOO), memoryview(FOO)]).chunks()) == [FOO, FOO]
    for chunk, text in (("text", "not str; open it in binary mode"), (None, "not NoneType")):
        capture = Capture([FOO, chunk])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=text):
            list(capture.chunks())

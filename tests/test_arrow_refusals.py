"""What `phpmq.arrow` refuses before it reads, and what it lets go then."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from wire import message_wire

from phpmq.arrow import read_batches, read_table
from phpmq.capture import Capture
from phpmq.errors import ProtocolError

FOO = message_wire("Consume", {"queue": "Foo", "count": 5})


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "phpmq.arrow")
    with pytest.raises(ImportError, match=r'pip install "phpmq\[arrow\]"'):
        importlib.import_module("phpmq.arrow")


@pytest.mark.parametrize("threads", [1, 2])
def test_start_behind_the_end(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(FOO)
    for source in (FOO, path):
        assert read_table(source, start=76, threads=threads).num_rows == 0
        with pytest.raises(ValueError, match="start is 77, behind the end at 76"):
            read_batches(source, start=77, threads=threads)


def test_start_behind_the_end_of_a_stream() -> None:
    assert read_table([FOO[:70], FOO[70:]], start=76).num_rows == 0
    with pytest.raises(ValueError, match="start is 77, behind the end at 76"):
        read_table([FOO[:70], FOO[70:]], start=77)


def test_a_capture_stays_open() -> None:
    with Capture(FOO) as capture:
        with pytest.raises(ValueError, match="packet_header_size"):
            read_batches(capture, packet_header_size=33)
        assert read_table(capture).num_rows == 1
        assert read_table(capture).num_rows == 1


def test_a_reader_that_is_closed_at_once_lets_go() -> None:
    for threads in (1, 2):
        data = bytearray(FOO)
        with read_batches(data, threads=threads):
            pass
        data.clear()  # which takes that nobody looks at it


def test_notes_name_files_only(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(b"x")
    for source, notes in ((path, [f"in {path}"]), (b"x", [])):
        with pytest.raises(ProtocolError) as raised:
            read_table(source)
        if sys.version_info >= (3, 11):
            assert getattr(raised.value, "__notes__", []) == notes

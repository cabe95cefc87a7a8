"""What `phpmq.arrow` refuses before it reads, and what it lets go then."""

from __future__ import annotations

import gzip
import importlib
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from wire import message_wire

from phpmq.arrow import encode_batch, read_batches, read_table
from phpmq.capture import Capture, CompressedDataError
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": "4"}, "threads must be an integer, not str"),
        ({"start": None}, "start must be an integer, not NoneType"),
        ({"max_batch_rows": True}, "max_batch_rows must be an integer, not bool"),
        ({"columns": 5}, "columns must be a sequence of names, not int"),
        ({"columns": "queue"}, "columns must be a sequence of names, not str"),
        ({"max_frame_size": "1MB"}, "max_frame_size must be an integer, not str"),
        ({"packet_header_size": "AUTO"}, "packet_header_size must be an integer, not str"),
    ],
    ids=str,
)
def test_wrong_types_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        read_batches(FOO, **options)


def test_text_is_no_source(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(FOO)
    with path.open() as file, pytest.raises(TypeError, match="not str; open it in binary mode"):
        read_table(file)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"source must give chunks of bytes, not (Posix|Windows)Path"):
        read_table([path])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="source must be a path, a buffer, a binary file or chunks, not int"):
        read_table(5)  # type: ignore[arg-type]


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "capture.gz"
    path.write_bytes(gzip.compress(FOO)[:-1])
    with pytest.raises(CompressedDataError, match="it ends too early") as raised:
        read_table(path)
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == [f"in {path}"]


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (pa.table({"type": ["consume"]}), TypeError, "batch must be a record batch, not Table; a table has several"),
        (None, TypeError, "batch must be a record batch, not NoneType"),
        (
            pa.record_batch([pa.array(["a"])] * 3, ["type", "queue", "queue"]),
            ValueError,
            "there are several columns 'queue'",
        ),
        (pa.record_batch({"type": ["consume"], "queue": ["a"], "count": [2.5]}), ValueError, "the column 'count': "),
        (
            pa.record_batch({"type": ["consume"], "queue": ["a"], "count": [-1]}),
            ValueError,
            "row 0: ttl and count must not be negative",
        ),
    ],
    ids=["table", "None", "twice", "2.5", "-1"],
)
def test_batches_that_are_none(batch: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        encode_batch(batch)

"""Captures to columns of Arrow and back, from a file that the system has in memory.

The groups named `columns` are what a reader chooses between: phpmq, the same messages from JSON lines by pyarrow on all
cores, or batches made of Python rows; copying the file is the physical limit. The others show what single columns,
threads, and exact ranges cost.
"""

from __future__ import annotations

import base64
import importlib
import json
import mmap
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.json
import pytest

import phpmq
from benchmarks.peers import CODECS
from benchmarks.traffic import MESSAGES, Measure, Traffic, make_traffic
from phpmq.arrow import SCHEMA, encode_batch, read_batches, read_table
from phpmq.capture import Capture
from phpmq.records import WORDS

#: Bytes of a capture, at least.
CAPTURE_SIZE = 64 * 2**20


class File(NamedTuple):
    traffic: Traffic
    repeat: int
    path: Path


@pytest.fixture(scope="module", params=MESSAGES)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> File:
    """A capture that has some traffic so many times."""
    traffic = make_traffic(request.param)
    size = len(traffic.wire) if request.config.getoption("benchmark_disable") else CAPTURE_SIZE
    repeat = -(-size // len(traffic.wire))
    path = tmp_path_factory.mktemp("columns") / "capture.phpmq"
    path.write_bytes(traffic.wire * repeat)
    return File(traffic, repeat, path)


@pytest.fixture(params=CODECS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    codec = importlib.import_module(CODECS[request.param])
    monkeypatch.setattr("phpmq.arrow.codec", codec)
    monkeypatch.setattr("phpmq.capture.codec", codec)
    return str(request.param)


def rows_of(messages: Iterable[phpmq.Message], frames: list[bytes]) -> list[dict[str, Any]]:
    rows, offset = [], 0
    for message, frame in zip(messages, frames, strict=True):
        fields = {name: getattr(message, name) for name in message.__match_args__}
        rows.append({"offset": offset, "size": len(frame), "type": WORDS[type(message).__name__], **fields})
        offset += len(frame)
    return rows


def reading(source: Path, **options: Any) -> Callable[[], object]:
    return lambda: deque(read_batches(source, **options), maxlen=0)


def test_columns(measure: Measure, file: File, backend: str) -> None:
    measure("columns", file.traffic, backend, reading(file.path), file.repeat)


def test_copy(measure: Measure, file: File) -> None:
    with file.path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        buffer = bytearray(mapped)

        def copy() -> None:
            buffer[:] = mapped

        measure("columns", file.traffic, "copy", copy, file.repeat)


def test_json(measure: Measure, file: File) -> None:
    """The contents stay in base64."""
    rows = rows_of(file.traffic.messages, file.traffic.frames)
    for row in rows:
        row["content"] = base64.b64encode(row.get("content", b"")).decode()
    path = file.path.with_name("messages.jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) * file.repeat)
    fields = [field.with_type(pa.string()) if field.name == "content" else field for field in SCHEMA]
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(fields))

    def read() -> pa.Table:
        return pyarrow.json.read_json(path, parse_options=options)

    assert read()["message_id"].to_pylist() == [row.get("message_id") for row in rows] * file.repeat
    measure("columns", file.traffic, "pyarrow.json", read, file.repeat)
    path.unlink()


def test_python_rows(measure: Measure, file: File) -> None:
    def build() -> pa.RecordBatch:
        rows = rows_of(phpmq.iter_messages(file.traffic.wire), file.traffic.frames)
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    assert build().to_pylist() == read_table(file.traffic.wire).to_pylist()
    measure("columns", file.traffic, "Python rows", build)


def test_encode_batch(measure: Measure, file: File, backend: str) -> None:
    batches = list(read_batches(file.traffic.wire))
    assert b"".join(map(encode_batch, batches)) == file.traffic.wire
    measure("encode_batch", file.traffic, backend, lambda: deque(map(encode_batch, batches), maxlen=0))


@pytest.mark.parametrize("column", ["offset", "queue"])
def test_one_column(measure: Measure, file: File, backend: str, column: str) -> None:
    measure(f"column {column}", file.traffic, backend, reading(file.path, columns=[column]), file.repeat)


def test_threads(measure: Measure, file: File) -> None:
    measure("columns by 2 threads", file.traffic, phpmq.BACKEND, reading(file.path, threads=2), file.repeat)


@pytest.mark.parametrize("exact", [False, True], ids=["guessed", "exact"])
def test_ranges(measure: Measure, file: File, backend: str, exact: bool) -> None:
    with Capture(file.path) as capture:
        name = f"{'exact' if exact else 'guessed'} ranges"
        measure(name, file.traffic, backend, lambda: capture.ranges(1024 * 1024, exact=exact), file.repeat)

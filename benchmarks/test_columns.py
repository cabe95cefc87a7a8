"""Captures to tables, over Dispatch frames with contents of 60 bytes, as a file that the system has in memory.

The groups are what a reader chooses between: all columns or one, with threads or without; then the same messages from
JSON lines by pyarrow on all cores, and a table made of Python rows. `copy` is the physical limit.
"""

from __future__ import annotations

import json
import mmap
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from test_throughput import FIELDS, MODULES, WIRE, measure

import phpmq
from phpmq.arrow import SCHEMA, encode_batch, read_batches, read_table
from phpmq.capture import Capture

REPEAT = 64
NAMES = ("type", "queue", "content", "message_id", "ttl")


@pytest.fixture(params=["python", "cython"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    codec: ModuleType = pytest.importorskip(MODULES[request.param])
    monkeypatch.setattr("phpmq.arrow.codec", codec)
    monkeypatch.setattr("phpmq.capture.codec", codec)
    return str(request.param)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "capture.phpmq"
    path.write_bytes(WIRE * REPEAT)
    return path


@pytest.fixture(scope="module")
def json_path(path: Path) -> Path:
    lines = [
        json.dumps(dict(zip(NAMES, ("dispatch", queue, content.decode(), message_id, ttl), strict=True)))
        for queue, content, message_id, ttl in FIELDS
    ]
    path = path.with_name("messages.jsonl")
    path.write_text("\n".join(lines * REPEAT) + "\n")
    return path


def read(path: Path, **options: Any) -> None:
    deque(read_batches(path, **options), maxlen=0)


@pytest.mark.parametrize("columns", [None, ["offset"], ["queue"]], ids=["all", "offset", "queue"])
def test_read_batches(benchmark: BenchmarkFixture, backend: str, path: Path, columns: list[str] | None) -> None:
    measure(benchmark, f"columns {backend}", lambda: read(path, columns=columns), REPEAT)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(benchmark: BenchmarkFixture, path: Path, threads: int) -> None:
    measure(benchmark, "columns threads", lambda: read(path, threads=threads), REPEAT)


def test_copy(benchmark: BenchmarkFixture, path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        buffer = bytearray(mapped)

        def copy() -> None:
            buffer[:] = mapped

        measure(benchmark, "columns peers", copy, REPEAT)


def test_json(benchmark: BenchmarkFixture, json_path: Path) -> None:
    schema = pa.schema([(name, pa.int64() if name == "ttl" else pa.string()) for name in NAMES])
    options = pyarrow.json.ParseOptions(explicit_schema=schema)
    measure(benchmark, "columns peers", lambda: pyarrow.json.read_json(json_path, parse_options=options), REPEAT)


def test_python_rows(benchmark: BenchmarkFixture) -> None:
    def build() -> pa.RecordBatch:
        rows, offset, size = [], 0, len(WIRE) // len(FIELDS)
        for message in phpmq.iter_messages(WIRE):
            assert isinstance(message, phpmq.Dispatch)
            fields = {name: getattr(message, name) for name in message.__match_args__}
            rows.append({"offset": offset, "size": size, "type": "dispatch", **fields})
            offset += size
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    assert build().to_pylist() == read_table(WIRE).to_pylist()
    measure(benchmark, "columns peers", build)


def test_encode_batch(benchmark: BenchmarkFixture, backend: str) -> None:
    [batch] = read_batches(WIRE)
    measure(benchmark, f"encode_batch {backend}", lambda: encode_batch(batch))


@pytest.mark.parametrize("exact", [False, True], ids=["guessed", "exact"])
def test_ranges(benchmark: BenchmarkFixture, backend: str, path: Path, exact: bool) -> None:
    with Capture(path) as capture:
        measure(benchmark, f"ranges {backend}", lambda: capture.ranges(1024 * 1024, exact=exact), REPEAT)

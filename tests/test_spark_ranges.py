"""Planning and reading pieces, without Spark: every row once, whatever the capture holds and wherever it is cut."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from columns import (
    BAD_BOTH,
    BAD_ID,
    BAD_QUEUE,
    BROKEN,
    COLUMNS,
    FOO,
    FORMS,
    HELLO,
    MIXED,
    ODD,
    UNKNOWN,
    WIRES,
    Row,
    expected,
    row,
    row_size,
)
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from mutations import Case
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType
from strategies import cases
from test_arrow_ranges import CAPTURES
from wire import message_wire, packet_header

import phpmq
from phpmq.generate import generate_messages, write_capture
from phpmq.spark.options import READ, parse_options
from phpmq.spark.ranges import Extent, plan
from phpmq.spark.reader import SCHEMA
from phpmq.spark.source import PhpmqDataSource

MIB = 2**20
NAMES = ("path", *COLUMNS)
TYPES: dict[str, DataType] = dict.fromkeys(NAMES, LongType()) | {
    **dict.fromkeys(("path", "type", "queue", "message_id", "fault"), StringType()),
    **dict.fromkeys(("content", "raw"), BinaryType()),
}
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
modes = pytest.mark.parametrize("mode", MODES)
splittings = pytest.mark.parametrize("splitting", ["guessed", "exact", "none"])
captures = pytest.mark.parametrize("name", CAPTURES)
#: What names the remedy for a wrong guess.
REMEDY = re.compile(r"splitting\W+exact")


NO_OPTIONS: dict[str, Any] = {}


def struct(*names: str, never_null: Iterable[str] = ()) -> StructType:
    return StructType([StructField(name, TYPES[name], name not in never_null) for name in names])


def shares_of(path: object, schema: StructType = SCHEMA, **options: object) -> list[list[Row]]:
    """The rows of each share, read as Spark reads them, from readers that went where tasks run."""
    texts = {name: str(value) for name, value in options.items()}
    source = PhpmqDataSource({"path": str(path), **texts})
    reader = source.reader(schema)
    arrow_schema = to_arrow_schema(schema)
    shares = []
    for share in reader.partitions():
        rows: list[Row] = []
        for batch in cast(Iterable[pa.RecordBatch], reader.read(share)):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema, check_metadata=True)
            assert batch.num_rows > 0
            rows += batch.to_pylist()
        shares.append(rows)
    return shares


def rows_of(path: object, schema: StructType = SCHEMA, **options: object) -> list[Row]:
    return [values for rows in shares_of(path, schema, **options) for values in rows]


def right_rows(path: object, data: bytes, mode: str = "PERMISSIVE", **how: Any) -> list[Row]:
    """What a file with these bytes is to be read to."""
    rows = expected(data, on_fault="skip", **how).rows
    return [{"path": str(path)} | values for values in rows if mode == "PERMISSIVE" or values["type"] is not None]


def keyed(rows: Iterable[Row]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(values.values()) for values in rows)


def fill(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def traffic(size: int, **options: Any) -> bytes:
    file = io.BytesIO()
    write_capture(file, size, **options)
    return file.getvalue()


def older(content: bytes) -> bytes:
    """A form whose content comes last."""
    return message_wire("Send", {"queue": "Foo", "content": content})


# --- the schema, and what is in it ---


def test_the_schema() -> None:
    assert struct(*NAMES) == SCHEMA
    assert PhpmqDataSource({"path": __file__}).schema() == SCHEMA


def test_everything_that_a_capture_can_hold(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.phpmq", MIXED)
    rows = rows_of(path)
    assert rows == right_rows(path, MIXED)
    assert {values["fault"] for values in rows} >= {None, "NOT_UTF8", "TRUNCATED"}
    assert sum(values["type"] is not None for values in rows) > len(WIRES)


def test_every_form(tmp_path: Path) -> None:
    """What was written, by hand."""
    path = fill(tmp_path / "a.phpmq", b"".join(WIRES))
    starts = [0, *accumulate(map(len, WIRES))]
    words = {"Send": "send", "Consume": "consume", "Dispatch": "dispatch", "Acknowledge": "acknowledge"}
    words |= {"Requeue": "requeue", "DeadLetter": "dead_letter", "Receipt": "receipt"}
    assert rows_of(path) == [
        {"path": str(path)} | row(offset=start, size=len(wire), type=words[name], **fields)
        for start, wire, (name, fields) in zip(starts, WIRES, FORMS, strict=False)
    ]


@modes
def test_any_two_columns(tmp_path: Path, mode: str) -> None:
    """In both orders; as many rows as ever, and what is in the columns does not depend on the others."""
    data = b"".join([*WIRES, BAD_QUEUE, FOO, BAD_BOTH]) if mode == "FAILFAST" else MIXED
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data, mode)
    some = [names for pair in combinations(NAMES, 2) for names in (pair, pair[::-1])]
    for names in [*((name,) for name in NAMES), *some, NAMES[::-1]]:
        for options in NO_OPTIONS, {"maxPartitionBytes": 40000}:
            rows = rows_of(path, struct(*names), mode=mode, **options)
            assert rows == [{name: values[name] for name in names} for values in right]


@given(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), st.sampled_from(["PERMISSIVE", "DROPMALFORMED"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_columns(tmp_path: Path, names: list[str], mode: str) -> None:
    path = fill(tmp_path / "a.phpmq", MIXED)
    right = right_rows(path, MIXED, mode)
    assert rows_of(path, struct(*names), mode=mode) == [{name: values[name] for name in names} for values in right]


def test_columns_that_are_never_null(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.phpmq", MIXED)
    schema = struct("size", "queue", "path", "offset", never_null=("size", "path", "offset"))
    assert rows_of(path, schema) == [
        {name: values[name] for name in schema.names} for values in right_rows(path, MIXED)
    ]


def test_an_empty_file_and_an_empty_directory(tmp_path: Path) -> None:
    path = fill(tmp_path / "empty.phpmq", b"")
    (tmp_path / "none").mkdir()
    for place in (path, tmp_path, tmp_path / "none"):
        for options in NO_OPTIONS, {"splitting": "exact"}, {"packetHeaderSize": "auto"}, {"mode": "FAILFAST"}:
            assert rows_of(place, **options) == []


def test_what_spark_makes_of_no_shares(tmp_path: Path) -> None:
    reader = PhpmqDataSource({"path": str(tmp_path)}).reader(SCHEMA)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("size", [32, 35, 36])
def test_packet_header_sizes(tmp_path: Path, size: int) -> None:
    for damages, told in ((0, size), (3, size), (0, "auto")):
        data = traffic(50_000, packet_header_size=size, damages=damages)
        path = fill(tmp_path / "a.phpmq", data)
        right = right_rows(path, data, packet_header_size=size)
        assert rows_of(path, packetHeaderSize=told) == right
        assert rows_of(path, packetHeaderSize=told, maxPartitionBytes=7000) == right
        assert rows_of(path, packetHeaderSize=told, maxPartitionBytes=7000, splitting="exact") == right


@pytest.mark.parametrize("size", [32, 35, 36])
def test_one_damage_does_not_hide_the_packet_header_size(tmp_path: Path, size: int) -> None:
    frame = message_wire("Consume", {"queue": "Foo", "count": 5}, size)
    data = frame * 500 + b"junk" + frame * 500
    path = fill(tmp_path / "a.phpmq", data)
    assert rows_of(path, packetHeaderSize="auto") == right_rows(path, data, packet_header_size=size)


def test_the_packet_header_size_is_detected_in_every_file(tmp_path: Path) -> None:
    data = {}
    for number, size in enumerate((32, 35, 36, 35)):
        path = fill(
            tmp_path / f"{number}.phpmq", gzip.compress(data_ := traffic(3000, packet_header_size=size, seed=number))
        )
        data[path] = data_, size
        path = fill(tmp_path / f"{number}.plain", data_)
        data[path] = data_, size
    right = [
        values for path, (text, size) in data.items() for values in right_rows(path, text, packet_header_size=size)
    ]
    assert rows_of(tmp_path, packetHeaderSize="auto", mode="FAILFAST") == right


def test_a_packet_header_size_that_cannot_be_detected(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.phpmq", b"junk" + FOO)
    assert rows_of(path, packetHeaderSize="auto") == right_rows(path, b"junk" + FOO)
    assert rows_of(path, packetHeaderSize="auto", mode="DROPMALFORMED") == right_rows(path, b"junk" + FOO)[1:]
    with pytest.raises(ValueError, match=rf"^{path}: .*packet header"):
        rows_of(path, packetHeaderSize="auto", mode="FAILFAST")


def test_the_largest_frame(tmp_path: Path) -> None:
    data = FOO + older(b"x" * 500) + FOO
    path = fill(tmp_path / "a.phpmq", data)
    for size in (len(data) - 2 * len(FOO), len(data) - 2 * len(FOO) - 1):
        right = right_rows(path, data, max_frame_size=size)
        for splitting in ("guessed", "exact"):
            rows = rows_of(path, maxFrameSize=size, splitting=splitting, maxPartitionBytes=10_000)
            assert rows == right
    assert {values["fault"] for values in right} == {None, "TOO_LARGE"}


def test_batches_are_no_larger_than_they_may_be(tmp_path: Path) -> None:
    data = traffic(60_000)
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    for limit in (1, 500, 5000, 100_000):
        reader = PhpmqDataSource({"path": str(path), "maxBatchBytes": str(limit)}).reader(SCHEMA)
        batches = [batch.to_pylist() for share in reader.partitions() for batch in reader.read(share)]
        assert [values for rows in batches for values in rows] == right
        sizes = [[row_size(values) for values in rows] for rows in batches]
        assert all(sum(rows) <= limit or len(rows) == 1 for rows in sizes)
        assert all(sum(rows) + following[0] > limit for rows, following in pairwise(sizes))


# --- damage ---


@pytest.mark.parametrize("seed", range(6))
def test_damages_that_are_known(tmp_path: Path, seed: int) -> None:
    """The truth is what was written, and what was done to it."""
    file = io.BytesIO()
    touches = write_capture(file, 60_000, seed=seed, damages=8)
    path = fill(tmp_path / "a.phpmq", file.getvalue())
    spoilt = {touch.message for touch in touches} - {None}
    frames = len(list(phpmq.iter_messages(traffic(60_000, seed=seed))))
    messages = generate_messages(seed)
    good = [next(messages) for _ in range(frames)]
    good = [message for number, message in enumerate(good) if number not in spoilt]
    for options in ({}, {"maxPartitionBytes": 9000}, {"maxPartitionBytes": 1000, "splitting": "exact"}):
        rows = rows_of(path, **options)
        found = [values for values in rows if values["type"]]
        assert len(found) == len(good)
        for values, message in zip(found, good, strict=True):
            for name in ("queue", "content", "message_id", "ttl", "count"):
                assert values[name] == getattr(message, name, None)
        damaged = {place for values in rows if not values["type"] for place in range(values["offset"], end_of(values))}
        assert damaged == {place for touch in touches for place in range(touch.start, touch.stop)}
        assert rows_of(path, mode="DROPMALFORMED", **options) == found
        with pytest.raises(ValueError, match=rf"^{path}: .* offset [0-9]+"):
            rows_of(path, mode="FAILFAST", **options)


def end_of(values: Row) -> int:
    return int(values["offset"] + values["size"])


@pytest.mark.parametrize(
    ("damage", "fault", "at"),
    [
        (ODD, "BAD_INTEGER", 75),
        (BROKEN, "BAD_DIGITS", 38),
        (UNKNOWN, "UNKNOWN_MESSAGE_TYPE", 3),
        (b"junk" + FOO, "NOT_A_MESSAGE", 0),
        (HELLO[:50], "TRUNCATED", 0),
    ],
    ids=["odd", "broken", "unknown", "junk", "cut"],
)
def test_failfast_names_path_offset_and_fault(tmp_path: Path, damage: bytes, fault: str, at: int) -> None:
    good = FOO * 3 + HELLO * 2
    path = fill(tmp_path / "a b%20.phpmq", good + damage)
    for options in ({}, {"maxPartitionBytes": 10**6, "splitting": "exact"}, {"splitting": "none"}):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            rows_of(path, mode="FAILFAST", **options)
        text = str(raised.value)
        assert text.startswith(f"{path}: ")
        assert fault in text
        assert f"offset {len(good) + at}" in text
        assert f"ends at offset {len(good)}" in text
        assert "\n" not in text


def test_failfast_gives_what_is_good_before(tmp_path: Path) -> None:
    path = fill(tmp_path / "a.phpmq", FOO * 3 + b"junk" + FOO)
    reader = PhpmqDataSource({"path": str(path), "mode": "FAILFAST"}).reader(SCHEMA)
    (share,) = reader.partitions()
    batches = cast(Any, reader.read(share))
    assert next(batches).to_pylist() == right_rows(path, FOO * 3)
    with pytest.raises(ValueError, match=rf"^{path}: .*offset {3 * 76}"):
        next(batches)


@modes
def test_texts_that_are_not_utf8_stay_in_every_mode(tmp_path: Path, mode: str) -> None:
    data = FOO + BAD_QUEUE + HELLO + BAD_ID + BAD_BOTH
    path = fill(tmp_path / "a.phpmq", data)
    rows = rows_of(path, mode=mode)
    assert rows == right_rows(path, data)
    assert [values["fault"] for values in rows] == [None, "NOT_UTF8", None, "NOT_UTF8", "NOT_UTF8"]
    assert [values["raw"] for values in rows] == [None, BAD_QUEUE, None, BAD_ID, BAD_BOTH]


# --- planning ---


def sparse(path: Path, size: int) -> Extent:
    """A large file that takes no room."""
    path.touch()
    os.truncate(path, size)
    return Extent(str(path), 0, size, True)


def planned(extents: Iterable[Extent], **options: object) -> list[int]:
    """How many bytes of the extents each share is about."""
    given = {name: str(value) for name, value in options.items()}
    values = parse_options({"splitting": "guessed"} | given, READ, "reading")
    covered: dict[str, list[tuple[int, int]]] = {}
    sizes = []
    extents = list(extents)
    for pieces in plan(extents, values):
        assert pieces
        size = 0
        for extent, after, until in pieces:
            start = extent.start if after is None else after
            stop = extent.stop if until is None else until
            covered.setdefault(extent.path, []).append((start, stop))
            size += stop - start
        sizes.append(size)
    for extent in extents:  # nothing is planned twice, nothing is left out
        parts = covered.pop(extent.path, [])
        assert [start for start, _ in parts] == [extent.start, *(stop for _, stop in parts[:-1])][: len(parts)]
        assert extent.start == extent.stop or parts[-1][1] == extent.stop
    assert covered == {}
    return sizes


@pytest.mark.parametrize(
    ("sizes", "limit", "count"),
    [
        ([1], "128m", 1),
        ([100 * MIB], "128m", 1),
        ([1000 * MIB], "128m", 8),
        ([10_000 * MIB], "64m", 157),
        ([200 * MIB] * 5, "128m", 8),
        ([3 * 1024 * MIB, 1, 70 * MIB, 500], "128m", 25),
        ([10_000] * 1000, "128m", 8),  # it takes as long as 1 GB
        ([10_000] * 100, "128m", 1),
        ([64 * MIB] * 2, "65m", 2),
        ([0, 0, 0], "128m", 0),
        ([], "128m", 0),
    ],
)
def test_shares_are_few_and_even(tmp_path: Path, sizes: list[int], limit: str, count: int) -> None:
    extents = [sparse(tmp_path / str(number), size) for number, size in enumerate(sizes)]
    shares = planned(extents, maxPartitionBytes=limit)
    assert len(shares) == count
    most = int(limit[:-1]) * MIB
    assert all(share <= most for share in shares)
    if sizes and min(sizes) > 50 * MIB:
        assert max(shares) - min(shares) <= 2 * MIB
    elif shares:
        assert max(shares) <= 1.2 * min(shares) + 2 * MIB


@given(
    st.lists(st.integers(0, 400 * MIB) | st.integers(0, 10_000), max_size=12),
    st.integers(8 * MIB, 200 * MIB),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_files_are_shared_out_evenly(tmp_path: Path, sizes: list[int], limit: int) -> None:
    extents = [sparse(tmp_path / str(number), size) for number, size in enumerate(sizes)]
    shares = planned(extents, maxPartitionBytes=limit)
    total = sum(sizes) + MIB * sum(size > 0 for size in sizes)
    assert len(shares) <= -(-total // limit)
    assert sum(shares) == sum(sizes)
    assert all(share <= limit for share in shares)
    assert len(shares) >= -(-sum(sizes) // limit)


@pytest.mark.parametrize(
    ("splitting", "head"),
    [("none", b"H01"), ("guessed", b"\x1f\x8b"), ("exact", b"BZh"), ("guessed", b"\x28\xb5\x2f\xfd")],
)
def test_files_that_are_not_cut_are_spread(tmp_path: Path, splitting: str, head: bytes) -> None:
    """They are put together only as far as a share may be large."""
    extents = []
    for number, size in enumerate([100 * MIB] * 10 + [20 * MIB] * 10 + [500 * MIB]):
        extents.append(sparse(tmp_path / str(number), size))
        with open(tmp_path / str(number), "r+b") as file:
            file.write(head)
    shares = planned(extents, maxPartitionBytes="128m", splitting=splitting)
    assert sum(shares) == 1700 * MIB
    assert max(shares) == 500 * MIB
    assert sorted(shares)[-2] <= 128 * MIB
    assert len(shares) <= 14


def test_one_large_compressed_file_is_one_piece(tmp_path: Path) -> None:
    data = traffic(300_000)
    path = fill(tmp_path / "a.phpmq", gzip.compress(data))
    for splitting in ("guessed", "exact", "none"):
        shares = shares_of(path, maxPartitionBytes=1000, splitting=splitting)
        assert len(shares) == 1
        assert shares[0] == right_rows(path, data)


def test_small_files_are_packed(tmp_path: Path) -> None:
    data = [traffic(3000, seed=seed) for seed in range(30)]
    paths = [fill(tmp_path / f"part-{number}.phpmq", text) for number, text in enumerate(data)]
    shares = shares_of(tmp_path, maxPartitionBytes="11m")
    assert len(shares) == 3
    assert [values for rows in shares for values in rows] == [
        values for path, text in zip(paths, data, strict=True) for values in right_rows(path, text)
    ]
    counts = [len({values["path"] for values in rows}) for rows in shares]
    assert max(counts) - min(counts) <= 2


def test_exact_shares_are_few_and_even(tmp_path: Path) -> None:
    data = traffic(4 * MIB)
    path = fill(tmp_path / "a.phpmq", data)
    for splitting in ("guessed", "exact"):
        shares = shares_of(path, struct("offset", "size"), maxPartitionBytes="512k", splitting=splitting)
        sizes = [sum(values["size"] for values in rows) for rows in shares if rows]
        assert sum(sizes) == len(data)
        assert 8 <= len(sizes) <= 11
        assert max(sizes) <= 512 * 1024 + 70_000


# --- cuts ---


def cut_anyhow(size: int) -> Iterable[dict[str, Any]]:
    """Many numbers of shares, up to a cut at every byte where there are few."""
    yield {"splitting": "none", "maxPartitionBytes": 1}
    for splitting in ("guessed", "exact"):
        for share in sorted(
            {*(1 if size < 1000 else 7,), 13, 77, 501, size // 3, size // 2, size - 1, size, 10 * size}
        ):
            if share > 0:
                yield {"splitting": splitting, "maxPartitionBytes": share}


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("damages", [0, 4])
@pytest.mark.parametrize("size", [900, 6000])
def test_every_number_of_shares(tmp_path: Path, size: int, damages: int, mode: str) -> None:
    data = traffic(size, seed=size, damages=damages)
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data, mode)
    schema = struct("path", "offset", "size", "type", "fault", "content", "raw")
    right = [{name: values[name] for name in schema.names} for values in right]
    for options in cut_anyhow(len(data)):
        assert rows_of(path, schema, mode=mode, **options) == right


def test_a_cut_at_every_byte(tmp_path: Path) -> None:
    """Of everything that a capture can hold, where no content holds a frame."""
    path = fill(tmp_path / "a.phpmq", MIXED)
    right = right_rows(path, MIXED)
    for splitting in ("guessed", "exact"):
        assert rows_of(path, splitting=splitting, maxPartitionBytes=1) == right
    for parts in range(2, 25):
        for splitting in ("guessed", "exact"):
            assert rows_of(path, splitting=splitting, maxPartitionBytes=-(-len(MIXED) // parts)) == right


@captures
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_exact_splitting_is_always_right(tmp_path: Path, name: str, mode: str) -> None:
    data = CAPTURES[name]
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data, mode)
    for options in cut_anyhow(len(data)):
        if options["splitting"] != "guessed":
            assert rows_of(path, mode=mode, **options) == right


def guesses(path: Path, right: list[Row], **options: Any) -> bool:
    """Whether guessing gave the rows; if not, it said what to do."""
    try:
        rows = rows_of(path, splitting="guessed", **options)
    except ValueError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017
        assert REMEDY.search(str(error))  # noqa: PT017
        return False
    assert rows == right
    return True


@captures
@modes
def test_guesses_are_right_or_say_so(tmp_path: Path, name: str, mode: str) -> None:
    data = CAPTURES[name]
    if mode == "FAILFAST":  # only what is good has rows in this mode
        data = data[: expected(data).offset]
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data, mode)
    told = [guesses(path, right, mode=mode, maxPartitionBytes=size) for size in range(13, len(data), 61)]
    assert guesses(path, right, mode=mode, maxPartitionBytes="128m")
    if name in ("headers", "heads", "damage without frames", "all"):  # no content holds a frame
        assert all(told)
    elif name in ("nested", "nothing but nested", "own tail", "older forms"):
        assert not all(told)


def test_wrong_guesses_that_end_at_the_same_place(tmp_path: Path) -> None:
    """A frame whose content comes last and is frames: whoever begins in it reads on as if nothing were."""
    data = FOO * 20 + older(FOO * 30) + FOO * 20
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    told = [guesses(path, right, maxPartitionBytes=size) for size in range(76, len(data), 76)]
    assert True in told
    assert False in told


def test_a_content_that_ends_in_a_header_which_swallows_the_rest(tmp_path: Path) -> None:
    tail = b"P05%029d60" % 2
    rest = FOO * 30
    head = b"H0100103" + packet_header(1, 0) + packet_header(2, len(rest) - 34)
    data = FOO * 10 + message_wire("Send", {"queue": "q", "content": head, "ttl": 60}) + rest[:-34] + tail + FOO
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    told = [guesses(path, right, maxPartitionBytes=size) for size in range(100, len(data), 50)]
    assert set(told) <= {True, False}
    for size in (100, 500, 1000):
        assert rows_of(path, splitting="exact", maxPartitionBytes=size) == right


def test_a_wrong_guess_names_the_remedy(tmp_path: Path) -> None:
    data = b"".join(message_wire("Send", {"queue": "q", "content": FOO * 50, "ttl": 1}) for _ in range(20))
    path = fill(tmp_path / "a.phpmq", data)
    with pytest.raises(ValueError, match=rf"^{path}: .*its contents hold frames.*\(\"splitting\", \"exact\"\)$"):
        rows_of(path, maxPartitionBytes=10_000)
    rows = rows_of(path, maxPartitionBytes=10_000, splitting="exact")
    assert rows == right_rows(path, data)


def test_frames_that_span_several_shares(tmp_path: Path) -> None:
    big = message_wire("Send", {"queue": "big", "content": bytes(300_000), "ttl": 1})
    data = FOO * 100 + big + FOO + big + big + HELLO * 100 + big[:-7]
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    for splitting in ("guessed", "exact"):
        for size in (5000, 50_000, 200_000):
            shares = shares_of(path, splitting=splitting, maxPartitionBytes=size)
            assert [values for rows in shares for values in rows] == right
            assert sum(bool(rows) for rows in shares) >= 3


def test_damage_that_spans_several_shares(tmp_path: Path) -> None:
    data = FOO * 10 + b"junk" * 20_000 + FOO + b"H01" * 30_000 + HELLO + bytes(50_000)
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    for splitting in ("guessed", "exact"):
        for size in (1000, 30_000, 100_000):
            assert rows_of(path, splitting=splitting, maxPartitionBytes=size) == right


@given(cases(), st.integers(1, 2000), st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_stream(tmp_path: Path, case: Case, size: int, data: st.DataObject) -> None:
    assume(not case.data.startswith((b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")))
    path = fill(tmp_path / "a.phpmq", case.data)
    header, limit = case.options["packet_header_size"], case.options["max_frame_size"]
    how: dict[str, Any] = {"packetHeaderSize": header} | ({} if limit is None else {"maxFrameSize": limit})
    right = right_rows(path, case.data, packet_header_size=header, max_frame_size=limit or 64 * MIB)
    size = max(size, len(case.data) // 300)
    assert rows_of(path, splitting="exact", maxPartitionBytes=size, **how) == right
    assert rows_of(path, splitting="none", maxPartitionBytes=size, **how) == right
    guesses(path, right, maxPartitionBytes=size, **how)


@given(st.integers(0, 10**6), st.integers(0, 10), st.integers(20, 3000))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damaged_capture(tmp_path: Path, seed: int, damages: int, size: int) -> None:
    """No content here holds a frame, so a guess is never wrong."""
    data = traffic(8000, seed=seed, damages=damages)
    path = fill(tmp_path / "a.phpmq", data)
    right = right_rows(path, data)
    for splitting in ("guessed", "exact"):
        assert rows_of(path, splitting=splitting, maxPartitionBytes=size) == right


def test_shares_do_not_depend_on_each_other(tmp_path: Path) -> None:
    """Tasks run in any order, each with a reader of its own, and again if they fail."""
    data = traffic(40_000, damages=5)
    path = fill(tmp_path / "a.phpmq", data)
    source = {"path": str(path), "maxPartitionBytes": "1500"}
    shares = list(PhpmqDataSource(source).reader(SCHEMA).partitions())
    Random(3).shuffle(shares)
    rows = []
    for share in shares:
        reader = PhpmqDataSource(source).reader(SCHEMA)
        once = [values for batch in reader.read(share) for values in batch.to_pylist()]
        assert [values for batch in reader.read(share) for values in batch.to_pylist()] == once
        rows += once
    assert keyed(rows) == keyed(right_rows(path, data))


# --- compressed files ---

Compress = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    module = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    return bytes(module.compress(data))


compressions = pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, zstd], ids=["gzip", "bzip2", "zstd"])


def split_off(path: Path, rows: list[Row]) -> list[Row]:
    """The rows before the one that says where decompression ended, which is verified."""
    *before, last = rows
    end = end_of(before[-1]) if before else 0
    assert last == {"path": str(path)} | row(offset=end, size=0, fault="COMPRESSED_DATA", fault_offset=end)
    return before


@compressions
@splittings
def test_compressed_files(tmp_path: Path, compress: Compress, splitting: str) -> None:
    data = traffic(40_000, damages=4)
    path = fill(tmp_path / "a.phpmq", compress(data))
    (rows,) = shares_of(path, splitting=splitting, maxPartitionBytes=1000)
    assert rows == right_rows(path, data)
    assert rows_of(path, mode="DROPMALFORMED") == right_rows(path, data, "DROPMALFORMED")


@compressions
@modes
def test_an_empty_compressed_file(tmp_path: Path, compress: Compress, mode: str) -> None:
    path = fill(tmp_path / "a.phpmq", compress(b""))
    for size in ("32", "auto"):
        assert rows_of(path, mode=mode, packetHeaderSize=size) == []


@compressions
def test_several_members(tmp_path: Path, compress: Compress) -> None:
    data = FOO * 3 + HELLO
    path = fill(tmp_path / "a.phpmq", b"".join(compress(data[place : place + 50]) for place in range(0, len(data), 50)))
    assert rows_of(path, mode="FAILFAST") == right_rows(path, data)


@compressions
def test_a_compressed_file_without_its_end(tmp_path: Path, compress: Compress) -> None:
    data = traffic(400_000, seed=5)
    packed = compress(data)
    right = expected(data).rows
    for size in (len(packed) - 1, len(packed) - 5, len(packed) // 2, 20, 5, 4):
        path = fill(tmp_path / "a.phpmq", packed[:size])
        rows = rows_of(path)
        before = split_off(path, rows)
        whole = [values for values in before if values["type"]]
        assert whole == right_rows(path, data)[: len(whole)]
        assert [values["fault"] for values in before[len(whole) :]] in ([], ["TRUNCATED"])
        assert all(values["offset"] == end_of(whole[-1]) for values in before[len(whole) :] if whole)
        assert rows_of(path, mode="DROPMALFORMED") == whole
        with pytest.raises(ValueError, match=rf"^{path}: .*(too early|damaged|offset)"):
            rows_of(path, mode="FAILFAST")
        for names in [("path",), ("path", "raw"), ("queue",), ("fault",), ("size", "offset"), ("fault_offset",)]:
            for mode, all_rows in (("PERMISSIVE", rows), ("DROPMALFORMED", whole)):
                picked = [{name: values[name] for name in names} for values in all_rows]
                assert rows_of(path, struct(*names), mode=mode) == picked
    assert len(right) > 100


@compressions
def test_the_more_there_is_of_a_compressed_file_the_more_is_read(tmp_path: Path, compress: Compress) -> None:
    data = traffic(2 * MIB, seed=6)
    packed = compress(data)
    path = tmp_path / "a.phpmq"
    counts = []
    for part in (1, 3, 5, 7, 8):
        fill(path, packed[: len(packed) * part // 8])
        counts.append(len(rows_of(path, struct("offset"), mode="DROPMALFORMED")))
    assert counts == sorted(counts)
    assert 0 < counts[2] < counts[4] == len(expected(data).rows)


@compressions
def test_a_compressed_file_with_its_last_bytes_spoilt(tmp_path: Path, compress: Compress) -> None:
    """Checksums are at the end of each format, if there are any."""
    data = FOO * 5 + HELLO
    packed = bytearray(compress(data))
    packed[-5] ^= 0xFF
    path = fill(tmp_path / "a.phpmq", bytes(packed))
    if compress is zstd:  # its last bytes are data, and there is no checksum
        return
    before = split_off(path, rows_of(path))
    assert before == right_rows(path, data)[: len(before)]
    assert rows_of(path, mode="DROPMALFORMED") == before
    with pytest.raises(ValueError, match=f"^{path}: damaged (gzip|bzip2) data"):
        rows_of(path, mode="FAILFAST")


def test_a_bad_checksum_of_gzip(tmp_path: Path) -> None:
    """All that is in front of it was decompressed."""
    data = FOO * 5 + HELLO
    packed = gzip.compress(data)
    path = fill(tmp_path / "a.phpmq", packed[:-8] + bytes(4) + packed[-4:])
    assert split_off(path, rows_of(path)) == right_rows(path, data)
    assert rows_of(path, mode="DROPMALFORMED") == right_rows(path, data)
    with pytest.raises(ValueError, match=rf"^{path}: damaged gzip data: .*; .* ends at offset {len(data)}"):
        rows_of(path, mode="FAILFAST")


@compressions
def test_what_follows_a_compressed_file(tmp_path: Path, compress: Compress) -> None:
    data = FOO * 5
    path = fill(tmp_path / "a.phpmq", compress(data) + b"junk, and not of any format")
    assert split_off(path, rows_of(path)) == right_rows(path, data)
    with pytest.raises(ValueError, match=f"^{path}: damaged"):
        rows_of(path, mode="FAILFAST")


@compressions
@pytest.mark.parametrize("size", [35, 36])
def test_the_packet_header_size_of_what_is_left(tmp_path: Path, compress: Compress, size: int) -> None:
    """What could be decompressed is read, so it also tells the size."""
    data = message_wire("Consume", {"queue": "Foo", "count": 5}, size) * 3
    path = fill(tmp_path / "a.phpmq", compress(data) + b"junk, and not of any format")
    right = right_rows(path, data, packet_header_size=size)
    assert split_off(path, rows_of(path, packetHeaderSize=str(size))) == right
    assert split_off(path, rows_of(path, packetHeaderSize="auto")) == right


@compressions
def test_a_compressed_file_without_its_head(tmp_path: Path, compress: Compress) -> None:
    """Nothing tells any more that it is compressed: it is junk."""
    packed = compress(traffic(5000))[10:]
    path = fill(tmp_path / "a.phpmq.gz", packed)
    rows = rows_of(path)
    assert rows == right_rows(path, packed)
    assert {values["type"] for values in rows} == {None}
    assert rows_of(path, mode="DROPMALFORMED") == []
    with pytest.raises(ValueError, match=f"^{path}: "):
        rows_of(path, mode="FAILFAST")


def test_only_the_content_tells_what_is_compressed(tmp_path: Path) -> None:
    paths = [
        fill(tmp_path / "a.phpmq.gz", FOO * 4),
        fill(tmp_path / "b.phpmq", gzip.compress(FOO * 4)),
        fill(tmp_path / "c.gz", bz2.compress(FOO * 4)),
    ]
    assert rows_of(tmp_path, mode="FAILFAST") == [values for path in paths for values in right_rows(path, FOO * 4)]


@modes
def test_damage_within_a_compressed_file(tmp_path: Path, mode: str) -> None:
    data = FOO + b"junk" + HELLO
    path = fill(tmp_path / "a.phpmq", gzip.compress(data))
    if mode == "FAILFAST":
        with pytest.raises(ValueError, match=rf"^{path}: .*offset {len(FOO)}"):
            rows_of(path, mode=mode)
    else:
        assert rows_of(path, mode=mode) == right_rows(path, data, mode)


def test_a_damaged_file_among_others(tmp_path: Path) -> None:
    one = fill(tmp_path / "1", gzip.compress(FOO))
    two = fill(tmp_path / "2", gzip.compress(FOO * 9)[:-3])
    three = fill(tmp_path / "3", HELLO)
    rows = rows_of(tmp_path)
    assert [values for values in rows if values["path"] == str(one)] == right_rows(one, FOO)
    assert split_off(two, [values for values in rows if values["path"] == str(two)]) == right_rows(two, FOO * 9)
    assert [values for values in rows if values["path"] == str(three)] == right_rows(three, HELLO)
    assert len(rows_of(tmp_path, mode="DROPMALFORMED")) == 11


# --- files that change after they were listed ---


def planned_reader(path: Path, **options: str) -> tuple[Any, list[Any]]:
    reader = PhpmqDataSource({"path": str(path), **options}).reader(SCHEMA)
    return reader, list(reader.partitions())


def read_shares(reader: Any, shares: Iterable[Any]) -> list[Row]:
    return [values for share in shares for batch in reader.read(share) for values in batch.to_pylist()]


@splittings
def test_a_file_that_vanishes(tmp_path: Path, splitting: str) -> None:
    path = fill(tmp_path / "a", FOO * 9)
    other = fill(tmp_path / "b", HELLO)
    options = {"splitting": splitting, "maxPartitionBytes": "100"}
    reader, shares = planned_reader(tmp_path, **options)
    patient, more = planned_reader(tmp_path, ignoreMissingFiles="true", **options)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"^{path} has vanished since it was listed$"):
        read_shares(reader, shares)
    assert read_shares(patient, more) == right_rows(other, HELLO)


def test_ignoring_missing_files_does_not_ignore_missing_paths(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"path does not exist: {tmp_path}/nothing"):
        PhpmqDataSource({"path": f"{tmp_path}/nothing", "ignoreMissingFiles": "true"}).schema()


@splittings
@pytest.mark.parametrize("left", [0, 76, 200])
def test_a_file_that_was_cut(tmp_path: Path, splitting: str, left: int) -> None:
    path = tmp_path / "a"
    for size in ("100", "1m"):
        for ignore in ("true", "false"):
            fill(path, FOO * 9)
            reader, shares = planned_reader(
                path, splitting=splitting, maxPartitionBytes=size, ignoreMissingFiles=ignore
            )
            fill(path, (FOO * 9)[:left])
            told = rf"^{path} had at least \d+ bytes when it was listed, and has {left} now$"
            with pytest.raises(ValueError, match=told):
                read_shares(reader, shares)


@splittings
@pytest.mark.parametrize("cut", [0, 1, 30, 75])
def test_a_file_that_grew(tmp_path: Path, splitting: str, cut: int) -> None:
    """What was there when it was listed is read; a frame that was incomplete then may be whole by now."""
    path = tmp_path / "a"
    for size in (40, 90, 300, 10_000):
        whole = FOO * 9 + b"junk" + HELLO * 3 + FOO
        fill(path, whole[: len(whole) - cut])
        reader, shares = planned_reader(path, splitting=splitting, maxPartitionBytes=str(size))
        fill(path, whole + FOO * 5)
        rows = read_shares(reader, shares)
        assert rows in (right_rows(path, whole), right_rows(path, whole[: len(whole) - cut]))


@splittings
def test_a_file_that_grows_between_two_tasks(tmp_path: Path, splitting: str) -> None:
    """No row is lost and none is twice, whichever task comes first."""
    path = tmp_path / "a"
    whole = FOO * 3 + message_wire("Send", {"queue": "q", "content": bytes(300), "ttl": 1})
    for cut in (5, 100, 250):
        before = whole[: len(whole) - cut]
        for backwards in (False, True):
            for turn in range(1, 8):
                fill(path, before)
                reader, shares = planned_reader(path, splitting=splitting, maxPartitionBytes="77")
                shares = shares[::-1] if backwards else shares
                rows = read_shares(reader, shares[:turn])
                fill(path, whole + FOO)
                rows += read_shares(reader, shares[turn:])
                rows.sort(key=lambda values: int(values["offset"]))
                assert rows in (right_rows(path, before), right_rows(path, whole))


def test_a_file_that_became_another_one(tmp_path: Path) -> None:
    """Where a share was to begin is verified, so this is seen, as long as there are boundaries that differ."""
    path = fill(tmp_path / "a", FOO * 9)
    reader, shares = planned_reader(path, splitting="exact", maxPartitionBytes="100")
    fill(path, HELLO * 9)
    with pytest.raises(ValueError, match=f"^{path}: .*the file has changed"):
        read_shares(reader, shares)


# --- paths ---


@pytest.mark.parametrize("name", ["a b%20.phpmq", "[a]{b}*?.phpmq", "Größe\n€.phpmq"])
def test_strange_names_in_the_column(tmp_path: Path, name: str) -> None:
    path = fill(tmp_path / name, FOO)
    assert rows_of(path) == rows_of(tmp_path) == rows_of(f"file://{path}") == right_rows(path, FOO)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """A column of Spark cannot hold it, so that is either said, with the name, or shown in another way."""
    name = b"caf\xe9.phpmq".decode("utf-8", "surrogateescape")
    fill(tmp_path / name, FOO)
    try:
        rows = rows_of(tmp_path)
    except ValueError as error:
        assert "caf" in str(error)  # noqa: PT017
        assert "codec can't encode" not in str(error)  # noqa: PT017
    else:
        assert [values["offset"] for values in rows] == [0]
    assert rows_of(tmp_path, struct("offset")) == [{"offset": 0}]


def test_lists_of_paths(tmp_path: Path) -> None:
    paths = [fill(tmp_path / name, FOO * count) for count, name in enumerate(("z", "a b", "m"), 1)]
    reader = PhpmqDataSource({"paths": json.dumps(list(map(str, paths)))}).reader(SCHEMA)
    rows = read_shares(reader, reader.partitions())
    assert rows == [values for count, path in enumerate(paths, 1) for values in right_rows(path, FOO * count)]


@splittings
def test_urls(splitting: str) -> None:
    system, root = MemoryFileSystem(), f"/{uuid4().hex}"
    data = traffic(20_000, damages=3)
    system.pipe_file(f"{root}/a.phpmq", data)
    system.pipe_file(f"{root}/b.gz", gzip.compress(data))
    system.pipe_file(f"{root}/c.gz", gzip.compress(data)[:-1])
    url = f"memory://{root}"
    try:
        for size in ("1000", "128m"):
            rows = rows_of(url, splitting=splitting, maxPartitionBytes=size)
            assert [values for values in rows if values["path"].endswith("a.phpmq")] == right_rows(
                f"{url}/a.phpmq", data
            )
            assert [values for values in rows if values["path"].endswith("b.gz")] == right_rows(f"{url}/b.gz", data)
            *_, last = [values for values in rows if values["path"].endswith("c.gz")]
            assert (last["fault"], last["size"]) == ("COMPRESSED_DATA", 0)
        reader, shares = planned_reader(url, maxPartitionBytes="1000")  # type: ignore[arg-type]
        system.rm(f"{root}/a.phpmq")
        with pytest.raises(FileNotFoundError, match=r"a\.phpmq has vanished since it was listed"):
            read_shares(reader, shares)
    finally:
        system.rm(root, recursive=True)

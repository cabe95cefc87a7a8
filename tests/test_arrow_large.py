"""What int32 offsets cannot hold: frames and batches at and over 2 GiB."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire import message_header, message_wire, packet_header

from phpmq.arrow import read_batches

FOO = message_wire("Consume", {"queue": "Foo", "count": 5})
LARGEST = 2**31 - 1
#: A Send in the older form up to its content.
HEADERS = 8 + 32 + 32


def sparse(path: Path, content: int) -> Path:
    """A Send with so many zero bytes, which take no room on most file systems, and a frame behind it."""
    with path.open("wb") as file:
        file.write(message_header(1, 2) + packet_header(1, 0) + packet_header(2, content))
        file.seek(content, 1)
        file.write(FOO)
    return path


def test_a_frame_that_no_column_can_hold(tmp_path: Path) -> None:
    """It is over the limit, whatever the limit is."""
    path = sparse(tmp_path / "large", LARGEST - HEADERS + 1)
    for limit in (None, 2**63 - 1):
        [batch] = read_batches(path, max_frame_size=limit, on_fault="skip", columns=["offset", "size", "fault"], stop=1)
        assert batch.to_pylist() == [{"offset": 0, "size": LARGEST + 1, "fault": "TOO_LARGE"}]


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
def test_the_largest_frame(tmp_path: Path, threads: int) -> None:
    path = sparse(tmp_path / "large", LARGEST - HEADERS)
    reader = read_batches(path, max_frame_size=None, max_batch_bytes=LARGEST, threads=threads)
    first, second = ([len(row.as_buffer()) for row in batch["content"] if row.is_valid] for batch in reader)
    assert (first, second) == ([LARGEST - HEADERS], [])
    assert reader.offset == LARGEST + len(FOO)


@pytest.mark.long
def test_more_than_a_batch_can_hold(tmp_path: Path) -> None:
    """1,100 contents of 2 MiB."""
    size = 2 * 1024 * 1024
    path = tmp_path / "many"
    with path.open("wb") as file:
        for _ in range(1100):
            file.write(message_header(1, 2) + packet_header(1, 0) + packet_header(2, size))
            file.seek(size, 1)
        file.write(FOO)
    batches = [
        (batch.num_rows, batch.nbytes) for batch in read_batches(path, max_batch_bytes=LARGEST, columns=["content"])
    ]
    assert [rows for rows, _ in batches] == [1023, 78]
    assert all(nbytes <= LARGEST + 1024 for _, nbytes in batches)

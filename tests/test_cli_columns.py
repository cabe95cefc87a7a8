"""``phpmq decode --format parquet`` and ``--format arrow``: the columns of messages, in a file."""

from __future__ import annotations

import array
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from command import (
    BROKEN,
    COMMAND,
    COMPRESS,
    FOO,
    HELLO,
    ODD,
    Run,
    environment,
    in_terminal,
    on_posix,
    run_process,
    write,
)
from pyarrow import ipc, parquet
from wire import message_wire, packet_header, parts

from phpmq.arrow import SCHEMA, read_batches, read_table
from phpmq.cli.columns import Columns

FORMATS = ("parquet", "arrow")
LOST = b"".join(parts(4, [(1, b"\xff"), (3, b"d7")]))
OTHER = message_wire("Dispatch", {"queue": "Bar", "content": b"\xff\0", "message_id": "d7", "ttl": 5})


def read(form: str, file: Path | bytes) -> pa.Table:
    source = pa.BufferReader(file) if isinstance(file, bytes) else str(file)
    if form == "parquet":
        return parquet.read_table(source)
    with pa.memory_map(source) if isinstance(source, str) else source as opened:
        return ipc.open_file(opened).read_all()


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table["offset"].to_pylist()
    return found


formats = pytest.mark.parametrize("form", FORMATS)


@formats
def test_the_columns_of_all_inputs(run: Run, tmp_path: Path, form: str) -> None:
    data = HELLO + OTHER + LOST + FOO
    one = write(tmp_path / "one", data)
    two = write(tmp_path / "two", COMPRESS["zstd"](FOO * 3))
    file = tmp_path / "columns"
    assert run("decode", "--format", form, "-o", file, one, two) == (0, b"", "")
    table = read(form, file)
    assert table.schema.names == ["path", *SCHEMA.names]
    assert table["path"].to_pylist() == [str(one)] * 4 + [str(two)] * 3
    columns = table.drop_columns("path")
    assert columns.schema.equals(SCHEMA, check_metadata=False)
    assert columns[:4].equals(read_table(data))
    assert columns[4:].equals(read_table(FOO * 3))


@formats
def test_standard_output(form: str) -> None:
    code, output, errors = run_process("decode", "--format", form, stdin=HELLO + FOO)
    assert (code, errors) == (0, "")
    assert read(form, output)["path"].to_pylist() == ["<stdin>"] * 2
    code, output, _ = run_process("decode", "--format", form, "-o", "-", stdin=b"")
    assert (code, read(form, output).num_rows) == (0, 0)


@formats
def test_not_to_a_terminal(form: str) -> None:
    code, output, errors = in_terminal("decode", "--format", form, "-", stdin=FOO)
    assert (code, output) == (2, b"")
    assert "not for a terminal" in errors


@formats
def test_damage(run: Run, tmp_path: Path, form: str) -> None:
    data = HELLO + BROKEN + FOO + ODD
    path, file = write(tmp_path / "broken", data), tmp_path / "columns"
    code, _, errors = run("decode", "--format", form, "--on-fault", "skip", "-o", file, path)
    assert (code, errors) == (1, "")
    assert read(form, file).drop_columns("path").equals(read_table(data, on_fault="skip"))


@formats
def test_a_fault(run: Run, tmp_path: Path, form: str) -> None:
    """What is good before it is in the file, which is whole; the other inputs are read."""
    broken = write(tmp_path / "broken", HELLO + FOO + BROKEN)
    good, file = write(tmp_path / "good", FOO), tmp_path / "columns"
    code, _, errors = run("decode", "--format", form, "-o", file, broken, good)
    assert code == 1
    assert errors == (
        f"phpmq: {broken}: frame 3: BAD_DIGITS at offset 236: expected a digit 0-9 in a header field, found b'x'\n"
    )
    assert offsets(read(form, file)) == [0, 122, 0]


@formats
def test_a_cut_archive(run: Run, tmp_path: Path, form: str) -> None:
    path, file = write(tmp_path / "cut.gz", COMPRESS["gzip"](FOO + HELLO)[:-4]), tmp_path / "columns"
    code, _, errors = run("decode", "--format", form, "-o", file, path)
    assert (code, errors.splitlines()) == (1, [f"phpmq: {path}: damaged gzip data: it ends too early"])
    assert offsets(read(form, file)) == [0, 76]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--type", "send"], [0, 198]),
        (["--type", "send", "--type", "dispatch"], [0, 198, 320]),
        (["--queue", "Bar"], [198, 320]),
        (["--queue", "Foo", "--queue", "Bar"], [0, 122, 198, 320]),
        (["--queue", "Foo", "--type", "send"], [0, 198]),
        (["--queue", "none"], [198]),
        (["--limit", "2"], [0, 122]),
        (["--limit", "99"], [0, 122, 198, 320]),
        (["--offset", "122"], [122, 198, 320]),
        (["--offset", "122", "--limit", "1"], [122]),
        (["--max-frame-size", "120"], [0, 122, 198]),
    ],
    ids=str,
)
def test_some_messages(run: Run, tmp_path: Path, options: list[str], expected: list[int]) -> None:
    """There is a damage at 198, and damages are always among them."""
    path = write(tmp_path / "data", HELLO + FOO + b"x" * 122 + OTHER)
    file = tmp_path / "columns"
    run("decode", "--format", "parquet", "--on-fault", "skip", *options, "-o", file, path)
    assert offsets(read("parquet", file)) == expected


def test_no_messages(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "columns"
    assert run("decode", "--format", "arrow", "--queue", "none", "-o", file, write(tmp_path / "data", HELLO)).code == 0
    assert read("arrow", file).num_rows == 0


def test_limits_are_for_all_inputs(run: Run, tmp_path: Path) -> None:
    paths = [write(tmp_path / name, FOO * 2) for name in "abc"]
    file = tmp_path / "columns"
    assert run("decode", "--format", "arrow", "--limit", "3", "-o", file, *paths).code == 0
    assert read("arrow", file)["path"].to_pylist() == [str(paths[0])] * 2 + [str(paths[1])]


def test_packet_header_sizes(run: Run, tmp_path: Path) -> None:
    old = message_wire("Consume", {"queue": "Foo", "count": 5}, 36)
    path, file = write(tmp_path / "old", old), tmp_path / "columns"
    for size in ("36", "auto"):
        assert run("decode", "--format", "parquet", "--packet-header-size", size, "-o", file, path).code == 0
        assert read("parquet", file)["size"].to_pylist() == [84]


def test_offsets_of_faults_count_from_the_start(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "data", FOO + HELLO + BROKEN)
    code, _, errors = run("decode", "--format", "arrow", "--offset", "76", "-o", tmp_path / "columns", path)
    assert (code, errors.split(": ")[2:4]) == (1, ["frame 2 from offset 76", "BAD_DIGITS at offset 236"])


def test_no_file_where_nothing_can_be_read(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "columns"
    assert run("decode", "--format", "parquet", "-o", file, tmp_path / "none").code == 2
    assert not file.exists()


def test_names_that_no_column_can_hold(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a\nb", FOO)
    file = tmp_path / "columns"
    assert run("decode", "--format", "parquet", "-o", file, path).code == 0
    assert read("parquet", file)["path"].to_pylist() == [f"{tmp_path}/a\\nb"]
    code, _, errors = run("decode", "--format", "parquet", "--queue", "\udcff", "-o", file, path)
    assert code == 2
    assert errors == "phpmq: --queue: columns have no name that is not UTF-8 (phpmq decode --help shows how)\n"


def test_without_pyarrow(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("phpmq.arrow", "phpmq.cli.columns"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("phpmq.cli.columns", raising=False)
    code, output, errors = run("decode", "--format", "parquet", "-o", tmp_path / "columns", write(tmp_path / "a", FOO))
    assert (code, output) == (2, b"")
    assert 'pip install "phpmq[arrow]"' in errors
    assert errors.count("\n") == 1


@on_posix
def test_an_interrupt_leaves_what_has_come(tmp_path: Path) -> None:
    file = tmp_path / "columns"
    with subprocess.Popen(
        [*COMMAND, "decode", "--format", "parquet", "-o", file], stdin=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin
        process.stdin.write(FOO * 3 + FOO[:40])
        process.stdin.flush()
        while unread(process.stdin):
            time.sleep(0.05)
        time.sleep(0.2)  # it has read them, and waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    assert offsets(read("parquet", file)) == [0, 76, 152]


def unread(pipe: IO[bytes]) -> int:
    """How many bytes nobody has taken out of a pipe yet."""
    fcntl, termios = map(pytest.importorskip, ("fcntl", "termios"))
    size = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


class Interrupted:
    """An output that is interrupted whenever it is written to."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        signal.raise_signal(signal.SIGINT)
        self.data += data

    def flush(self) -> None:
        """Do nothing."""


@formats
def test_an_interrupt_while_writing_is_put_off(form: str) -> None:
    output = Interrupted()
    columns = Columns(form, output)
    batch = next(read_batches(FOO * 2))
    columns.write("x", batch)
    with pytest.raises(KeyboardInterrupt):
        columns.close(even_if_empty=True)
    with pytest.raises(KeyboardInterrupt):
        columns.close(even_if_empty=True)
    assert offsets(read(form, output.data)) == [0, 76]


def test_a_limit_ends_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "columns"
    command = [*COMMAND, "decode", "--format", "arrow", "--limit", "2", "-o", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment()) as process:
        assert process.stdin
        process.stdin.write(FOO * 3)
        process.stdin.flush()
        assert process.wait() == 0
    assert offsets(read("arrow", file)) == [0, 76]


@formats
def test_a_file_stays_where_there_is_nothing_to_write(run: Run, tmp_path: Path, form: str) -> None:
    file = write(tmp_path / "columns", b"what was there")
    path = write(tmp_path / "data", b"\x89PNG")
    for options in ([], ["--packet-header-size", "auto"]):
        assert run("decode", "--format", form, *options, "-o", file, path).code == 1
        assert file.read_bytes() == b"what was there"
    assert run("decode", "--format", form, "-o", file, write(path, b"")).code == 0
    assert read(form, file).num_rows == 0


def test_a_frame_that_no_column_can_hold(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "data", b"H0100102" + packet_header(1, 0) + packet_header(2, 2**31))
    code, _, errors = run("decode", "--format", "arrow", "--max-frame-size", str(2**40), "-o", tmp_path / "x", path)
    assert code == 1
    assert "TOO_LARGE at offset 43" in errors


@formats
def test_many_small_inputs_make_few_groups(run: Run, tmp_path: Path, form: str) -> None:
    paths = [write(tmp_path / f"{number:02}", FOO * (number % 3)) for number in range(30)]
    file = tmp_path / "columns"
    assert run("decode", "--format", form, "-o", file, *paths).code == 0
    assert read(form, file).num_rows == 30
    if form == "parquet":
        assert parquet.read_metadata(file).num_row_groups == 1
    else:
        with pa.memory_map(str(file)) as opened:
            assert ipc.open_file(opened).num_record_batches == 1


def test_groups_of_rows_are_bounded_by_bytes(run: Run, tmp_path: Path) -> None:
    big = message_wire("Send", {"queue": "Foo", "content": bytes(5_000_000)})
    path, file = write(tmp_path / "big", big * 20), tmp_path / "columns"
    assert run("decode", "--format", "parquet", "-o", file, path).code == 0
    metadata: Any = parquet.read_metadata(file)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [6, 6, 6, 2]

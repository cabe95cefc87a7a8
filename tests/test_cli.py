"""The ``phpmq`` command as a whole: files, patterns and compression, exit codes, and how it behaves as a process. In
this process where only its answer counts, as a real process where pipes, signals, terminals and missing packages do."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from command import (
    ADVERSARIAL_CONTENTS,
    BAD_INTEGER,
    CAPTURES,
    COMMAND,
    COMMANDS,
    COMPRESS,
    FOO,
    FOO_RECORD,
    HELLO,
    ODD,
    Run,
    environment,
    in_terminal,
    on_posix,
    run_process,
    words,
    write,
)
from wire import VECTORS, message_wire, parts

import phpmq
from phpmq.cli import main

#: What each command reads, and the first bytes that it then writes.
INPUTS = {
    "decode": (FOO, FOO_RECORD),
    "encode": (FOO_RECORD, FOO),
    "check": (FOO, b"         frames  bytes\n"),
    "inspect": (FOO, b"         0  H 01 002 02 "),
    "convert": (FOO, FOO),
}
SENDS = [message_wire("Send", {"queue": "Foo", "content": b"%d" % number}) for number in range(3)]


def contents(output: bytes) -> list[int]:
    """The numbers of the ``SENDS`` that were decoded."""
    return [int(json.loads(line)["content"]) for line in output.splitlines()]


# Files and standard input


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_a_path_or_standard_input(run: Run, tmp_path: Path, command: str) -> None:
    given, start = INPUTS[command]
    result = run(command, stdin=given)
    assert (result.code, result.errors) == (0, "")
    assert result.output.startswith(start)
    assert run(command, "-", stdin=given) == result
    assert run(command, write(tmp_path / "x", given)) == result


@pytest.mark.parametrize("command", COMMANDS)
def test_empty_input_is_fine(run: Run, tmp_path: Path, command: str) -> None:
    code, output, errors = run(command)
    assert (code, errors) == (0, "")
    assert words(output) == (["frames bytes", "all 0 0", "damaged 0 0"] if command == "check" else [])
    assert run(command, write(tmp_path / "empty", b"")) == (code, output, errors)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_file_it_does_not_wait_for_a_terminal(command: str) -> None:
    code, output, errors = in_terminal(command, streams=["stdin"])
    assert (code, output) == (2, b"")
    assert "FILE" in errors
    assert errors.count("\n") == 1


def test_without_a_file_and_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["phpmq", "decode"])
        patch.setattr(sys, "stdin", Mock(isatty=lambda: True))
        assert main() == 2
    assert capsys.readouterr() == (
        "",
        "phpmq: name a FILE, or - to read from this terminal (phpmq decode --help shows how)\n",
    )


def test_files_are_read_in_the_order_given(run: Run, tmp_path: Path) -> None:
    paths = [write(tmp_path / str(number), wire) for number, wire in enumerate(SENDS)]
    for order in ([0, 1, 2], [2, 0, 1], [1, 1]):
        assert contents(run("decode", *(paths[number] for number in order)).output) == order
    assert contents(run("decode", paths[2], "-", paths[0], stdin=SENDS[1]).output) == [2, 1, 0]


def test_each_file_is_a_stream_of_its_own(run: Run, tmp_path: Path) -> None:
    cut, bad, good = (
        write(tmp_path / name, data)
        for name, data in [("cut", FOO + HELLO[:50]), ("bad", HELLO[50:] + FOO), ("good", FOO * 3 + ODD)]
    )
    code, output, errors = run("decode", cut, bad, good)
    assert (code, output) == (1, FOO_RECORD * 4)
    told = errors.splitlines()
    assert len(told) == 3
    assert told[0].startswith(f"phpmq: {cut}: frame 2: TRUNCATED at offset 76: ")
    assert told[1].startswith(f"phpmq: {bad}: frame 1: NOT_A_MESSAGE at offset 0: ")
    assert told[2] == f"phpmq: {good}: frame 4: BAD_INTEGER at offset 303: {BAD_INTEGER}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["good", "good"], 0),
        (["good", "bad", "good"], 1),
        (["good", "missing", "good"], 2),
        (["bad", "missing", "good"], 2),
        (["missing", "bad", "good"], 2),
        (["folder", "good"], 2),
    ],
)
def test_exit_codes_of_several_files(run: Run, tmp_path: Path, command: str, names: list[str], code: int) -> None:
    given, start = INPUTS[command]
    write(tmp_path / "good", given)
    write(tmp_path / "bad", b"junk")
    (tmp_path / "folder").mkdir()
    options = [] if command == "encode" else ["--on-fault", "raise"]
    result = run(command, *options, *(tmp_path / name for name in names))
    good = names.count("good")
    assert result.code == code
    if command == "check":
        assert words(result.output)[-2] == f"all {good} {76 * good}"
    else:
        assert result.output.count(start) == good
    told = result.errors.splitlines()
    assert [line.split(": ")[0] for line in told] == ["phpmq"] * len(told)
    assert [name for name in names if name != "good"] == [
        name for line in told for name in ("bad", "missing", "folder") if f"{tmp_path / name}" in line
    ]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this system has no file that fails at its first byte")
def test_reading_that_fails_ends_that_file_only(run: Run, tmp_path: Path) -> None:
    code, output, errors = run("decode", "/proc/self/mem", write(tmp_path / "x", FOO))
    assert (code, output) == (2, FOO_RECORD)
    assert errors.startswith("phpmq: /proc/self/mem: ")
    assert "Input/output error" in errors
    assert errors.count("\n") == 1


# Patterns


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, wire in zip(("b.phpmq", "a.phpmq", "deep/er/c.phpmq"), SENDS, strict=True):
        write(tmp_path / name, wire)
    write(tmp_path / "notes.txt", b"junk")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.phpmq"], [1, 0]),
        (["?.phpmq"], [1, 0]),
        (["[b-z].phpmq"], [0]),
        (["**/*.phpmq"], [1, 0, 2]),
        (["deep/**/c.phpmq"], [2]),
        (["deep/*/*"], [2]),
        (["*.phpmq", "a.phpmq", "deep/*/c.*"], [1, 0, 1, 2]),
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.usefixtures("folder")
def test_patterns(run: Run, patterns: list[str], expected: list[int], absolute: bool) -> None:
    base = f"{Path.cwd()}/" if absolute else ""
    code, output, errors = run("decode", *(base + pattern for pattern in patterns))
    assert (code, contents(output), errors) == (0, expected, "")


def test_a_file_with_the_very_name_of_a_pattern_is_that_file(run: Run, folder: Path) -> None:
    write(folder / "[a].phpmq", SENDS[2])
    assert contents(run("decode", "[a].phpmq").output) == [2]
    write(folder / "*.phpmq", SENDS[2])
    assert contents(run("decode", "*.phpmq").output) == [2]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("pattern", ["*.none", "[c-z].phpmq", "none/**", "\x1b*"])
@pytest.mark.usefixtures("folder")
def test_a_pattern_that_matches_nothing(run: Run, command: str, pattern: str) -> None:
    code, output, errors = run(command, pattern)
    assert (code, output) == (2, b"")
    assert "matches no file" in errors
    assert errors.startswith("phpmq: ")
    assert errors.count("\n") == 1
    assert errors[:-1].isprintable()


# Compression


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("command", COMMANDS)
def test_compressed_input(run: Run, tmp_path: Path, command: str, compression: str) -> None:
    compress = COMPRESS[compression]
    given, _ = INPUTS[command]
    expected = run(command, stdin=given * 300)
    assert expected.code == 0
    assert run(command, stdin=compress(given * 300)) == expected
    assert run(command, stdin=b"".join(compress(given * count) for count in (100, 0, 199, 1))) == expected
    assert run(command, write(tmp_path / "plain.txt", compress(given * 300))) == expected


@pytest.mark.parametrize("compression", COMPRESS)
def test_frames_may_lie_across_the_members_of_a_compressed_file(run: Run, compression: str) -> None:
    compress = COMPRESS[compression]
    wire = b"".join(SENDS)
    assert contents(run("decode", stdin=b"".join(compress(bytes([byte])) for byte in wire)).output) == [0, 1, 2]


@pytest.mark.parametrize("compression", COMPRESS)
def test_nothing_compressed_is_nothing(run: Run, compression: str) -> None:
    assert run("decode", stdin=COMPRESS[compression](b"")) == (0, b"", "")


@pytest.mark.parametrize("name", ["x.gz", "x.bz2", "x.zst"])
def test_the_name_says_nothing_about_compression(run: Run, tmp_path: Path, name: str) -> None:
    assert run("decode", write(tmp_path / name, FOO)) == (0, FOO_RECORD, "")


@pytest.mark.parametrize("start", [b"\x1f", b"B", b"BZ", b"(", b"\x28\xb5", b"\x28\xb5\x2f"])
def test_bytes_too_few_to_be_compressed_are_damage(run: Run, start: bytes) -> None:
    code, output, errors = run("decode", stdin=start)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: frame 1: NOT_A_MESSAGE at offset 0: ")


def flipped(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "harm",
    [
        lambda member: member[:12],
        lambda member: member[:6],
        lambda member: flipped(member[:12], 0)[:4] + b"\xff" * 20,
        lambda member: b"junk",
        lambda member: FOO,
    ],
    ids=["cut", "cut early", "no header", "junk", "not compressed"],
)
def test_what_stands_before_compressed_damage_is_processed(
    run: Run, tmp_path: Path, command: str, compression: str, harm: Callable[[bytes], bytes]
) -> None:
    compress = COMPRESS[compression]
    given, _ = INPUTS[command]
    path = write(tmp_path / "x", compress(given * 2) + harm(compress(given * 50)))
    whole = run(command, write(tmp_path / "whole", given * 2))
    code, output, errors = run(command, path)
    assert (code, output) == (1, whole.output)
    assert errors.startswith(f"phpmq: {path}: damaged {compression} data: ")
    assert errors.count("\n") == 1


def test_compressed_data_that_is_cut_in_a_frame_is_told_once(run: Run) -> None:
    content = random.Random(1).randbytes(200_000)
    wire = FOO + message_wire("Send", {"queue": "Foo", "content": content}) + FOO
    for compress in COMPRESS.values():
        data = compress(wire)
        code, output, errors = run("decode", stdin=data[: len(data) // 2])
        assert (code, errors.count("\n")) == (1, 1)
        assert output in (b"", FOO_RECORD)
        assert " damaged " in errors


@pytest.mark.parametrize("compression", ["gzip", "bzip2"])
def test_a_wrong_checksum_is_damage_even_behind_good_frames(run: Run, compression: str) -> None:
    data = COMPRESS[compression](FOO * 50_000)
    code, output, errors = run("decode", stdin=flipped(data, -6))
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"phpmq: <stdin>: damaged {compression} data: ")
    assert output.startswith(FOO_RECORD * 10_000)


def test_damaged_compression_ends_its_file_only(run: Run, tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", COMPRESS["gzip"](FOO)[:-1]), write(tmp_path / "good", FOO)
    code, output, errors = run("decode", bad, good)
    assert (code, output) == (1, FOO_RECORD * 2)
    assert errors.startswith(f"phpmq: {bad}: damaged gzip data: ")


def test_offsets_are_those_of_what_was_decompressed(run: Run) -> None:
    code, output, errors = run("decode", "--offset", "76", stdin=COMPRESS["gzip"](FOO + HELLO + ODD))
    assert (code, output.count(b"\n")) == (1, 1)
    assert errors.startswith("phpmq: <stdin>: frame 2 from offset 76: BAD_INTEGER at offset 273: ")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="zstd is in the standard library")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library has it")
def test_zstd_without_its_package(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, plain = write(tmp_path / "packed", COMPRESS["zstd"](FOO)), write(tmp_path / "plain", FOO)
    monkeypatch.setitem(sys.modules, "backports", None)
    error = f'phpmq: {packed}: this is zstd data, and to read it takes: pip install "phpmq[capture]"\n'
    assert run("decode", packed, plain) == (2, FOO_RECORD, error)


# The size of packet headers


@pytest.mark.parametrize("size", [32, 35, 36])
@pytest.mark.parametrize("option", ["the size", "auto"])
def test_packet_header_sizes(run: Run, size: int, option: str) -> None:
    wire = message_wire("Consume", {"queue": "Foo", "count": 5}, size)
    option = option.replace("the size", str(size))
    assert run("decode", "--packet-header-size", option, stdin=wire * 2) == (0, FOO_RECORD * 2, "")
    code, output, errors = run("inspect", "--packet-header-size", option, stdin=wire * 2)
    assert (code, errors) == (0, "")
    assert words(output)[0] == f"0 H 01 002 02 Consume: 2 packets, {len(wire)} bytes"


def test_sizes_are_guessed_for_each_file(run: Run, tmp_path: Path) -> None:
    paths = [
        write(tmp_path / str(size), message_wire("Consume", {"queue": "Foo", "count": 5}, size) * 2)
        for size in (36, 32, 35)
    ]
    paths.insert(1, write(tmp_path / "empty", b""))
    assert run("decode", "--packet-header-size", "auto", *paths) == (0, FOO_RECORD * 6, "")


def test_a_size_is_guessed_from_the_first_mib(run: Run) -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": bytes(3000)}, 35)
    code, output, errors = run("check", "--json", "--packet-header-size", "auto", stdin=wire * 1000 + b"junk")
    assert (code, errors) == (1, "")
    last = json.loads(output.splitlines()[-1])
    assert (last["packet_header_size"], last["frames"], last["damages"]) == (35, 1000, 1)


def test_a_size_is_guessed_from_a_slow_pipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phpmq.cli.inputs._CHUNK_SIZE", 5)
    wire = message_wire("Consume", {"queue": "Foo", "count": 5}, 36)
    assert run("decode", "--packet-header-size", "auto", stdin=wire * 3) == (0, FOO_RECORD * 3, "")


@pytest.mark.parametrize("command", ["decode", "check", "inspect", "convert"])
@pytest.mark.parametrize(("data", "word"), [(b"junk", "none"), (FOO[:40], "none"), (b"H0199900", "ambiguous")])
def test_a_size_that_cannot_be_guessed(run: Run, tmp_path: Path, command: str, data: bytes, word: str) -> None:
    option = "--from" if command == "convert" else "--packet-header-size"
    bad, good = write(tmp_path / "bad", data), write(tmp_path / "good", FOO)
    code, output, errors = run(command, option, "auto", bad, good)
    assert code == 1
    assert errors.startswith(f"phpmq: {bad}: ")
    assert word in errors.removeprefix(f"phpmq: {bad}: ")
    assert errors.count("\n") == 1
    assert INPUTS[command][1] in output
    if command != "check":
        assert run(command, option, "auto", stdin=data)[:2] == (1, b"")


@pytest.mark.parametrize("command", ["decode", "check", "inspect", "convert"])
def test_the_limit_of_a_frame(run: Run, command: str) -> None:
    assert run(command, "--max-frame-size", "76", "-", stdin=FOO).code == 0
    code, output, errors = run(command, "--max-frame-size", "75", "-", stdin=FOO)
    assert code == 1
    assert "TOO_LARGE" in output.decode() + errors
    assert run(command, "--on-fault", "raise", "--max-frame-size", "75", "-", stdin=FOO).errors.startswith(
        "phpmq: <stdin>: frame 1: TOO_LARGE at offset 46: "
    )


# Output


@pytest.mark.parametrize("command", ["decode", "encode", "convert"])
@pytest.mark.parametrize("option", ["-o", "--output"])
def test_output_into_a_file(run: Run, tmp_path: Path, command: str, option: str) -> None:
    given, expected = INPUTS[command]
    path = write(tmp_path / "out", b"x" * 10_000)
    assert run(command, option, path, stdin=given * 2) == (0, b"", "")
    assert path.read_bytes() == expected * 2


@pytest.mark.parametrize("command", ["decode", "encode", "convert"])
def test_output_into_a_file_up_to_a_fault(run: Run, tmp_path: Path, command: str) -> None:
    given, expected = INPUTS[command]
    path = tmp_path / "out"
    code, output, errors = run(command, "-o", path, stdin=given * 2 + b"junk\n")
    assert (code, output, errors.count("\n")) == (1, b"", 1)
    assert path.read_bytes() == expected * 2


@pytest.mark.parametrize("command", ["decode", "encode", "convert"])
@pytest.mark.parametrize("alias", ["same", "dotted", "symlink", "hardlink", "pattern"])
def test_output_into_an_input_is_refused(run: Run, tmp_path: Path, command: str, alias: str) -> None:
    path, other = write(tmp_path / "x.phpmq", INPUTS[command][0]), write(tmp_path / "other", INPUTS[command][0])
    target, given = path, str(path)
    if alias == "dotted":
        target = tmp_path / "y" / ".." / "x.phpmq"
        (tmp_path / "y").mkdir()
    elif alias == "symlink":
        target = tmp_path / "link"
        target.symlink_to(path)
    elif alias == "hardlink":
        target = tmp_path / "link"
        os.link(path, target)
    elif alias == "pattern":
        given = str(tmp_path / "*.phpmq")
    code, output, errors = run(command, "-o", target, other, given)
    assert (code, output, errors.count("\n")) == (2, b"", 1)
    assert path.read_bytes() == other.read_bytes() == INPUTS[command][0]


def test_output_into_the_file_that_is_standard_input_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", FOO)
    with path.open("rb") as file:
        process = subprocess.run(
            [*COMMAND, "convert", "-o", path], stdin=file, capture_output=True, env=environment(), check=False
        )
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (2, b"", 1)
    assert path.read_bytes() == FOO


@pytest.mark.parametrize("arguments", [["decode"], ["decode", "--format", "csv"], ["encode"], ["convert"]])
def test_output_is_emptied_by_what_is_written_only(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    out = write(tmp_path / "out", b"keep")
    assert run(*arguments, tmp_path / "missing", "-o", out).code == 2
    assert out.read_bytes() == b"keep"
    if "csv" not in arguments:  # which has a header even so
        assert run(*arguments, "-o", out, stdin=b"junk").code == 1
        assert out.read_bytes() == b"keep"
        assert run(*arguments, "-o", out).code == 0
        assert out.read_bytes() == b""


@pytest.mark.parametrize("command", ["decode", "encode", "convert"])
def test_output_into_standard_output_by_its_sign(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given, _ = INPUTS[command]
    assert run(command, "-o", "-", stdin=given) == run(command, stdin=given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("by", ["name", "standard input"])
def test_an_input_that_is_standard_output_is_refused(tmp_path: Path, command: str, by: str) -> None:
    given, _ = INPUTS[command]
    path = write(tmp_path / "x", given)
    with path.open("rb") as stdin, path.open("ab") as stdout:
        process = subprocess.run(
            [*COMMAND, command, *([path] if by == "name" else [])],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=30,
            check=False,
        )
    assert (process.returncode, process.stderr.count(b"\n")) == (2, 1)
    assert path.read_bytes() == given


def test_an_input_that_this_process_writes_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, written = write(tmp_path / "read", FOO), tmp_path / "written"
    for path, code in ((written, 0), (read, 2)):
        with path.open("a") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["phpmq", "convert", str(read)])
            patch.setattr(sys, "stdout", stdout)
            assert main() == code
    assert (read.read_bytes(), written.read_bytes()) == (FOO, FOO)
    complaint = f"phpmq: {read} is read, and is standard output at the same time"
    assert capsys.readouterr().err.startswith(complaint)


def test_the_null_device_may_be_both(tmp_path: Path) -> None:
    with open(os.devnull, "r+b") as null:
        process = subprocess.run([*COMMAND, "convert"], stdin=null, stdout=null, stderr=subprocess.PIPE, check=False)
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_pattern_gives_paths_only(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "-", FOO)
    assert run("decode", "*") == (0, FOO_RECORD, "")


def test_output_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "out"):
        code, output, errors = run("decode", "-o", path, stdin=FOO)
        assert (code, output, errors.count("\n")) == (2, b"", 1)
        assert str(path) in errors


@pytest.mark.parametrize("command", COMMANDS)
def test_output_comes_as_input_arrives(command: str) -> None:
    given, start = INPUTS[command]
    options = ["--json"] if command == "check" else []
    if command == "check":  # it has nothing to say about good frames until the end
        given, start = b"junk" + FOO, b'{"path": "<stdin>", "damage": '
    with subprocess.Popen([*COMMAND, command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(given)
            process.stdin.flush()
            assert process.stdout.read(len(start)) == start
            if command == "inspect":
                assert process.stdout.readline().endswith(b" bytes\n")
                for _ in range(4):
                    assert process.stdout.readline()
                start = b"        76  H 01 002 02 "
            elif command == "check":
                assert process.stdout.readline().endswith(b"}}\n")
        process.stdin.close()
        process.stdout.read()
    assert process.returncode == (1 if command == "check" else 0)


# Signals, pipes and disks


@on_posix
@pytest.mark.parametrize(
    "command", [*(c for c in COMMANDS if c != "check"), "decode --format csv", "decode --format table", "check --json"]
)
def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path, command: str) -> None:
    arguments = command.split()
    given = (b"x" + FOO) if arguments[0] == "check" else INPUTS[arguments[0]][0]
    path = write(tmp_path / "big", given * 20_000)
    with subprocess.Popen([*COMMAND, *arguments, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(9)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


@on_posix
@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "check"])
def test_ctrl_c_ends_it_in_order(command: str) -> None:
    # a job in the background of a shell inherits that the signal is ignored, and so would the command
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[2]}"
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND[:2], heeding, command], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(INPUTS[command][0])
        process.stdin.flush()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGINT


@on_posix
def test_ctrl_c_gives_the_balance_of_an_endless_pipe() -> None:
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[2]}"
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND[:2], heeding, "check"], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(FOO * 3 + b"junk" + FOO)
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"damaged at 228, 4 bytes: ")
        process.send_signal(signal.SIGINT)
        assert words(process.stdout.read()) == ["frames bytes", "consume 4 304", "all 4 304", "damaged 1 4"]
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGINT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", [*COMMANDS, "decode --format csv", "decode --format table", "check --json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_one_line(tmp_path: Path, command: str, unbuffered: str) -> None:
    arguments = command.split()
    for given in (INPUTS[arguments[0]][0], INPUTS[arguments[0]][0] * 3000):
        with open("/dev/full", "wb") as full:
            process = subprocess.run(
                [*COMMAND, *arguments, write(tmp_path / "x", given)],
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment({"PYTHONUNBUFFERED": unbuffered}),
                check=False,
                text=True,
            )
        assert process.returncode == 2
        assert process.stderr.startswith("phpmq: ")
        assert "No space left on device" in process.stderr
        assert process.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_file(run: Run) -> None:
    for frames in (1, 3000):  # at the end, and in the middle of an input
        code, output, errors = run("convert", "-o", "/dev/full", stdin=FOO * frames)
        assert (code, output, errors) == (2, b"", "phpmq: [Errno 28] No space left on device\n")


@on_posix
@pytest.mark.parametrize("command", COMMANDS)
def test_standard_output_closed_from_the_start(tmp_path: Path, command: str) -> None:
    path = write(tmp_path / "x", INPUTS[command][0])
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    code, _, errors = run_process(command, path, command=closing)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("phpmq: ")
    assert path.read_bytes() == INPUTS[command][0]


def test_standard_output_that_takes_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sip(io.RawIOBase):
        taken = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.taken += bytes(data)[:7]
            return min(len(bytes(data)), 7)

    sip = Sip()
    stdout = io.TextIOWrapper(sip, write_through=True)  # type: ignore[type-var]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["phpmq", "convert", str(CAPTURES[0])])
        patch.setattr(sys, "stdout", stdout)
        assert main() == 0
    assert sip.taken == CAPTURES[0].read_bytes()


def test_standard_input_that_is_none(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for files in ([], ["-"]):
        monkeypatch.setattr(sys, "argv", ["phpmq", "decode", *files])
        assert main() == 2
        assert capsysbinary.readouterr() == (b"", b"phpmq: standard input is closed (phpmq decode --help shows how)\n")
    monkeypatch.setattr(sys, "argv", ["phpmq", "convert", str(CAPTURES[0])])
    assert main() == 0
    assert capsysbinary.readouterr() == (CAPTURES[0].read_bytes(), b"")


@on_posix
@pytest.mark.parametrize(("error", "name"), [(KeyboardInterrupt, "SIGINT"), (BrokenPipeError, "SIGPIPE")])
@pytest.mark.parametrize("system", ["posix", "nt"])
def test_what_it_dies_of(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], name: str, system: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    killed: list[object] = []
    imitation = SimpleNamespace(name=system, getpid=lambda: "self", kill=lambda *arguments: killed.append(arguments))
    monkeypatch.setattr("phpmq.cli.os", imitation)
    monkeypatch.setattr("phpmq.cli.signal.signal", lambda *arguments: killed.append(arguments))
    monkeypatch.setattr("phpmq.cli.commands._size_of", fail)
    assert run("decode", stdin=FOO) == (1, b"", "")
    number = signal.Signals[name]
    assert killed == ([(number, signal.SIG_DFL), ("self", number)] if system == "posix" else [])


def test_a_pipe_that_breaks_at_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    die = Mock(return_value=1)
    monkeypatch.setattr("phpmq.cli._die_of", die)
    monkeypatch.setattr("phpmq.cli.command_line.main", Mock(side_effect=BrokenPipeError))
    assert run("--version").code == 1
    die.assert_called_once_with("SIGPIPE")


def test_standard_output_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main() == 2
    assert capsys.readouterr().err == "phpmq: standard output is closed\n"


# Terminals


@pytest.mark.parametrize("command", ["decode", "decode --format csv", "decode --format table", "check", "inspect"])
def test_bytes_for_people_never_steer_a_terminal(command: str) -> None:
    wire = b"".join(
        message_wire("Send", {"queue": content.decode("utf-8", "surrogateescape"), "content": content}) + content
        for content in ADVERSARIAL_CONTENTS
        if len(content) < 1000
    )
    options = ["--on-fault", "skip"]
    code, output, errors = in_terminal(*command.split(), *options, stdin=wire, variables={"NO_COLOR": "1"})
    assert code == 1
    allowed = "\n\t" if "csv" in command else "\n"
    assert not {char for char in output.decode() if not char.isprintable()} - set(allowed)
    assert not {char for char in errors if not char.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
@pytest.mark.parametrize("command", ["check", "inspect"])
def test_colours_on_a_terminal(command: str, variables: dict[str, str], coloured: bool) -> None:
    code, output, errors = in_terminal(command, stdin=b"junk" + FOO, variables=variables)
    assert (code, b"\x1b[" in output, errors) == (1, coloured, "")


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": ""}, False)]
)
@pytest.mark.parametrize("command", ["check", "inspect"])
def test_colours_in_a_pipe(run: Run, command: str, variables: dict[str, str], coloured: bool) -> None:
    code, output, errors = run(command, stdin=b"junk" + FOO, **variables)
    assert (code, b"\x1b[" in output, errors) == (1, coloured, "")


MIB = 2**20


@pytest.mark.parametrize("command", ["check", "convert"])
def test_progress_of_a_large_file(tmp_path: Path, command: str) -> None:
    path = write(tmp_path / "large", message_wire("Send", {"queue": "Foo", "content": b"x" * (32 * MIB)}))
    code, output, errors = in_terminal(command, path, streams=["stderr"])
    assert code == 0
    assert errors != ""
    assert output == (path.read_bytes() if command == "convert" else run_process(command, path).output)
    assert run_process(command, path).errors == ""
    with path.open("r+b") as file:
        file.truncate(1000)
    _, _, errors = in_terminal(command, "--on-fault", "skip", path, streams=["stderr"])
    assert errors.count("\n") == (command == "convert")  # what it leaves out


def test_progress_beside_a_terminal_is_shown_by_check_only(tmp_path: Path) -> None:
    path = write(tmp_path / "large", message_wire("Send", {"queue": "Foo", "content": b"x" * (33 * MIB)}))
    alone = in_terminal("check", path, streams=["stdout"])
    both = in_terminal("check", path, streams=["stdout", "stderr"])
    assert (alone.code, alone.errors, both.code) == (0, "", 0)
    assert len(both.output) > len(alone.output)
    arguments = "inspect", path, "--color", "never"
    assert in_terminal(*arguments, streams=["stdout", "stderr"]).output == in_terminal(*arguments).output


# Usage


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing command."),
        (["publish"], "No such command 'publish'."),
        *(([command, "no such file"], "No such file or directory") for command in COMMANDS),
        (["decode", "a\n\x1b[31m"], r"a\n\x1b[31m"),
        (["decode", str(VECTORS)], "Is a directory"),
        (["decode", "--packet-header-size", "33", "-"], "'33' is not one of '32', '35', '36', 'auto'."),
        (["decode", "--max-frame-size", "7", "-"], "7 is not in the range"),
        (["decode", "--on-fault", "ignore", "-"], "'ignore' is not one of 'raise', 'skip'."),
        (["decode", "--format", "xml", "-"], "'xml' is not one of 'jsonl', 'csv', 'table', 'parquet', 'arrow'."),
        (["decode", "--type", "publish", "-"], "'publish' is not one of 'send', 'consume', "),
        (["decode", "--limit", "0", "-"], "0 is not in the range"),
        (["decode", "--offset", "-1", "-"], "-1 is not in the range"),
        (["inspect", "--limit", "0", "-"], "0 is not in the range"),
        (["inspect", "--color", "red", "-"], "'red' is not one of 'auto', 'always', 'never'."),
        (["check", "--colour", "-"], "--colour"),
        (["check", "-o", "x", "-"], "-o"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, arguments: list[str], complaint: str) -> None:
    code, output, errors = run(*arguments)
    assert (code, output) == (2, b"")
    assert errors.startswith("phpmq: ")
    assert complaint in errors
    assert errors.endswith("\n")
    assert errors[:-1].isprintable()


def test_the_name_of_a_file_steers_no_terminal(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "\x1b[31m\nx", FOO + b"junk")
    shown = f"{tmp_path}/" + r"\x1b[31m\nx"
    for command in ("decode", "check", "inspect", "convert"):
        code, output, errors = run(command, "--on-fault", "raise", path, path)
        assert code == 1
        assert errors.startswith(f"phpmq: {shown}: frame 2: NOT_A_MESSAGE at offset 76: ")
        assert errors.replace("\n", "").isprintable()
        assert errors.count("\n") == 2
        if command in ("check", "inspect"):
            assert shown in output.decode()
            assert output.decode().replace("\n", "").isprintable()


@pytest.mark.parametrize("arguments", [[], *([command] for command in COMMANDS)], ids=" ".join)
def test_help_shows_examples(run: Run, arguments: list[str]) -> None:
    for option in ("--help", "-h"):
        code, output, errors = run(*arguments, option)
        assert (code, errors) == (0, "")
        assert f"  phpmq {' '.join(arguments)}" in output.decode()


def test_help_names_all_commands(run: Run) -> None:
    listed = run("--help").output.decode().split("Commands:")[1].split("\n")
    assert sorted(line.split()[0] for line in listed if line.strip()) == sorted(
        [*COMMANDS, "generate", "ingest", "report"]
    )


def test_the_version_names_the_codec_and_the_reason(run: Run) -> None:
    from phpmq._backend import REASON  # noqa: PLC0415

    expected = f"phpmq {phpmq.__version__}, {phpmq.BACKEND} codec ({REASON})\n"
    assert run("--version") == (0, expected.encode(), "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="this system has no bash")
def test_completion_in_bash() -> None:
    code, output, errors = run_process(variables={"_PHPMQ_COMPLETE": "bash_source"})
    assert (code, errors) == (0, "")
    assert b"_PHPMQ_COMPLETE=bash_complete" in output


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("phpmq ", {*COMMANDS, "generate", "ingest", "report"}),
        ("phpmq de", {"decode"}),
        ("phpmq decode --format ", {"jsonl", "csv", "table", "parquet", "arrow"}),
        ("phpmq decode --type re", {"requeue", "receipt"}),
        ("phpmq convert --from 3", {"32", "35", "36"}),
        ("phpmq inspect --col", {"--color"}),
    ],
)
def test_what_completion_offers(line: str, expected: set[str]) -> None:
    variables = {"_PHPMQ_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code, output, errors = run_process(variables=variables)
    assert (code, errors) == (0, "")
    assert {offer.partition(",")[2] for offer in output.decode().splitlines()} == expected


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_its_extra_it_says_how_to_get_it(package: str) -> None:
    blocked = f"import sys; sys.modules[{package!r}] = None; from phpmq.cli import main; sys.exit(main())"
    code, output, errors = run_process("--version", command=[sys.executable, "-c", blocked])
    assert (code, output) == (2, b"")
    assert errors == 'phpmq: this command needs click and rich: pip install "phpmq[cli]"\n'


def test_importing_it_without_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.partition("phpmq.cli")[:2] == ("", "phpmq.cli")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit, match=r"^2$"):
        import phpmq.cli  # noqa: F401, PLC0415
    assert 'pip install "phpmq[cli]"' in capsys.readouterr().err


# Memory


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the peak of one process")
@pytest.mark.parametrize(
    "command",
    [
        "decode",
        "decode --format csv",
        "decode --format table",
        "decode --offset 1007500",
        "encode",
        "check",
        "check --json",
        "inspect",
        "inspect --listing",
        "convert",
        "convert --from auto",
        "convert --from-listing",
        *(f"check {compression}" for compression in COMPRESS),
    ],
)
def test_memory_stays_flat(tmp_path: Path, command: str) -> None:
    content = b"x" * 10_000
    part = message_wire("Send", {"queue": "Foo", "content": content}) * 100
    arguments = command.split()
    compress = COMPRESS.get(arguments[-1], bytes)
    if command.endswith("--from-listing"):
        part = b"".join(line + b"\n" for line in parts(1, [(1, b"Foo"), (2, content)])) * 100
    elif command == "encode":
        part = b'{"type": "send", "queue": "Foo", "content": "%b"}\n' % content * 100
    program = (
        "import re, sys; from phpmq.cli import main; code = main();"
        "print(re.search('VmHWM[^0-9]*([0-9]+)', open('/proc/self/status').read())[1], file=sys.stderr);"
        "sys.exit(code)"
    )
    peaks = []
    for count in (2, 20):
        path = write(tmp_path / "input", compress(part * count))
        arguments = [argument for argument in arguments if argument not in COMPRESS]
        code, _, errors = run_process(*arguments, path, command=[sys.executable, "-c", program])
        assert code == 0
        peaks.append(int(errors))
    assert peaks[1] - peaks[0] < 8 * 1024, "KiB more for 20 MB than for 2 MB"

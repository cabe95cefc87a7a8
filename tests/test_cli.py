"""The ``phpmq`` command: in this process where only its answer counts, as a real process where pipes, signals,
terminals and missing packages do."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import phpmq
from phpmq import Acknowledge, Consume, DeadLetter, Dispatch, Message, Receipt, Requeue, Send

VECTORS = Path(__file__).parent / "vectors"
CAPTURES = [VECTORS / "original_client_to_server.phpmq", VECTORS / "original_server_to_client.phpmq"]
FOO = Consume("Foo", 5)
COMMAND = [sys.executable, "-c", "import sys; from phpmq.cli import main; sys.exit(main())"]
MESSAGES_AND_RECORDS: list[tuple[Message, str]] = [
    (Send("Foo", b"Hi"), '{"type": "send", "queue": "Foo", "content": "Hi"}'),
    (Send("", b"", 0), '{"type": "send", "queue": "", "content": "", "ttl": 0}'),
    (FOO, '{"type": "consume", "queue": "Foo", "count": 5}'),
    (
        Dispatch("Grüße", b"\xff\0", "é", 2**63 - 1),
        '{"type": "dispatch", "queue": "Grüße", "content_base64": "/wA=", "message_id": "é", "ttl": '
        "9223372036854775807}",
    ),
    (Dispatch("Foo", b"0", "a"), '{"type": "dispatch", "queue": "Foo", "content": "0", "message_id": "a"}'),
    (Acknowledge("\udcff\0", "a"), '{"type": "acknowledge", "queue_base64": "/wA=", "message_id": "a"}'),
    (Requeue("Foo", "\udcff", 7), '{"type": "requeue", "queue": "Foo", "message_id_base64": "/w==", "ttl": 7}'),
    (DeadLetter("Foo", "a"), '{"type": "dead_letter", "queue": "Foo", "message_id": "a"}'),
    (Receipt("Foo", "a"), '{"type": "receipt", "queue": "Foo", "message_id": "a"}'),
]
ADVERSARIAL_CONTENTS = [
    b"",
    b"0",
    b"a\nb",
    b"a\r\nb",
    b"\r",
    b"\x1a",
    b"\0" * 3,
    b"\x1b[31mred",
    b"\x7f",
    "\x9b31m \x85 \u2028 \u202e \ufeff \ufffe".encode(),
    "\U0001f600 Grüße".encode(),
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 does not have
    b"\xc0\x80",
    bytes(range(256)),
    b'"}\n{"type": "send"}\n',
    phpmq.encode(FOO),
    b"x" * 200_000,
]


class Result(NamedTuple):
    code: int
    output: bytes
    errors: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Run]:
    """Run the command in this process, with arguments and standard input."""
    from phpmq.cli import main  # noqa: PLC0415 (a test of what its import does comes first)

    def run_main(*arguments: str | Path, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["phpmq", *map(str, arguments)])
        buffer = io.BytesIO(stdin)
        buffer.name = "<stdin>"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
        code = main()
        output, errors = capsysbinary.readouterr()
        return Result(code, output, errors.decode())

    handler = signal.getsignal(signal.SIGPIPE)
    yield run_main
    signal.signal(signal.SIGPIPE, handler)


def run_process(*arguments: str, stdin: bytes = b"", command: list[str] = COMMAND) -> Result:
    process = subprocess.run([*command, *arguments], input=stdin, capture_output=True, check=False)
    return Result(process.returncode, process.stdout, process.stderr.decode())


# decode and encode


@pytest.mark.parametrize(("message", "record"), MESSAGES_AND_RECORDS)
def test_a_message_and_its_record(run: Run, message: Message, record: str) -> None:
    line = record.encode() + b"\n"
    assert run("decode", "-", stdin=phpmq.encode(message)) == (0, line, "")
    assert run("encode", stdin=line) == (0, phpmq.encode(message), "")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_captures_survive_the_round_trip(run: Run, capture: Path) -> None:
    decoded = run("decode", capture)
    assert (decoded.code, decoded.errors) == (0, "")
    assert run("encode", "-", stdin=decoded.output) == (0, capture.read_bytes(), "")


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_contents_survive_the_round_trip_through_pipes(content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    wire = phpmq.encode_many([Dispatch(text, content, text), Send("Foo", content, 1)])
    decoded = run_process("decode", "-", stdin=wire)
    lines = decoded.output.decode().split("\n")
    assert (decoded.code, decoded.errors, len(lines), lines[-1]) == (0, "", 3, "")
    assert all(line.isprintable() for line in lines)
    assert run_process("encode", stdin=decoded.output) == (0, wire, "")


@pytest.mark.parametrize("size", ["32", "35", "36"])
def test_packet_header_sizes(run: Run, tmp_path: Path, size: str) -> None:
    wire = phpmq.encode(FOO, packet_header_size=int(size))
    decoded = run("decode", "--packet-header-size", size, "-", stdin=wire)
    assert decoded == (0, b'{"type": "consume", "queue": "Foo", "count": 5}\n', "")
    assert run("encode", "--packet-header-size", size, stdin=decoded.output).output == wire
    assert run("check", "--packet-header-size", size, "-", stdin=wire).code == 0


def test_empty_input_is_fine(run: Run) -> None:
    assert run("decode", "-") == (0, b"", "")
    assert run("encode") == (0, b"", "")
    assert run("check", "-").code == 0


def test_encode_reads_a_file_with_windows_line_ends_and_no_last_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"count": 5, "queue": "Foo", "type": "consume"}\r\n{"type":"consume","queue":"Foo","count":5}')
    assert run("encode", path) == (0, phpmq.encode(FOO) * 2, "")


def test_decode_gives_messages_as_they_arrive() -> None:
    with subprocess.Popen([*COMMAND, "decode", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            process.stdin.write(phpmq.encode(FOO))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["count"] == FOO.count
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_encode_gives_bytes_as_records_arrive() -> None:
    with subprocess.Popen([*COMMAND, "encode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type": "consume", "queue": "Foo", "count": 5}\n')
        process.stdin.flush()
        wire = phpmq.encode(FOO)
        assert process.stdout.read(len(wire)) == wire
        process.stdin.close()
    assert process.returncode == 0


# Damaged bytes


def test_decode_gives_what_is_good_and_names_the_frame_that_is_not(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.phpmq"
    wire = phpmq.encode(FOO)
    path.write_bytes(wire * 2 + wire[:-1] + b"x")
    code, output, errors = run("decode", path)
    assert (code, output.count(b"\n")) == (1, 2)
    assert errors.startswith(f"phpmq: {path}: frame 3: BAD_INTEGER at offset {3 * len(wire) - 1}: expected ")
    assert errors.count("\n") == 1


def test_decode_names_the_missing_end(run: Run) -> None:
    code, output, errors = run("decode", "-", stdin=(phpmq.encode(FOO) * 2)[:-1])
    assert (code, output.count(b"\n")) == (1, 1)
    assert errors.startswith("phpmq: <stdin>: frame 2: TRUNCATED at offset 76: ")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"H0100202\nP0100000000000000000000000000003\nFoo\n", "looks like a listing"),
        (b"H0100202\r\nP0100000000000000000000000000003\r\n", "looks like a listing"),
        (b"HTTP/1.1 400 Bad Request\r\n", "looks like HTTP"),
        (b"GET / HTTP/1.1\r\n", "looks like HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "looks like TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "looks like SSH"),
        (phpmq.encode(FOO, packet_header_size=36), "packet_header_size=36"),
    ],
)
def test_decode_passes_the_hint_on(run: Run, data: bytes, hint: str) -> None:
    code, output, errors = run("decode", "-", stdin=data)
    assert (code, output) == (1, b"")
    assert hint in errors


def test_decode_with_skip_writes_damage_in_its_place(run: Run) -> None:
    wire = phpmq.encode(FOO)
    code, output, errors = run("decode", "--on-fault", "skip", "-", stdin=b"junk" + wire + b"\xff" + wire)
    assert (code, errors) == (1, "")
    assert [json.loads(line) for line in output.splitlines()] == [
        {"damage": {"start": 0, "stop": 4, "fault": "NOT_A_MESSAGE", "offset": 0, "data": "junk"}},
        {"type": "consume", "queue": "Foo", "count": 5},
        {"damage": {"start": 80, "stop": 81, "fault": "NOT_A_MESSAGE", "offset": 80, "data_base64": "/w=="}},
        {"type": "consume", "queue": "Foo", "count": 5},
    ]


def test_decode_with_skip_is_content_with_good_input(run: Run) -> None:
    assert run("decode", "--on-fault", "skip", CAPTURES[1]).code == 0


@pytest.mark.parametrize("command", ["decode", "check"])
def test_the_limit(run: Run, command: str) -> None:
    wire = phpmq.encode(FOO)
    assert run(command, "--max-frame-size", str(len(wire)), "-", stdin=wire).code == 0
    code, output, errors = run(command, "--max-frame-size", str(len(wire) - 1), "-", stdin=wire)
    assert code == 1
    assert "TOO_LARGE at offset 46" in output.decode() + errors


# Wrong records

CONSUME = '{"type": "consume", "queue": "Foo", "count": 5}'


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ("", "not JSON: Expecting value at column 1"),
        ("{", "not JSON: "),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "recursion"),
        ('{"damage": {}}', "a damage record, which holds no message"),
        ("{}", "type must be one of send, consume, dispatch, acknowledge, requeue, dead_letter, receipt, not None"),
        ('{"type": "publish"}', "not 'publish'"),
        ('{"type": ["send"]}', "not ['send']"),
        ('{"type": "\\u001b[31m"}', r"not '\x1b[31m'"),
        ('{"type": "send", "queue": "Foo"}', "there must be either content or content_base64"),
        ('{"type": "receipt", "queue": "", "queue_base64": "", "message_id": ""}', "either queue or queue_base64"),
        ('{"type": "receipt", "queue": "", "message_id": 7}', "message_id must be a string"),
        ('{"type": "receipt", "queue": null, "message_id": ""}', "queue must be a string"),
        ('{"type": "receipt", "queue": "", "message_id_base64": 7}', "message_id_base64 must be a string"),
        ('{"type": "receipt", "queue": "\\ud800", "message_id": ""}', "surrogates not allowed"),
        ('{"type": "receipt", "queue": "\\udcff", "message_id": ""}', "surrogates not allowed"),
        ('{"type": "send", "queue": "", "content": "", "message_id": ""}', "a send record has no field 'message_id'"),
        ('{"type": "consume", "queue": "Foo", "count_base64": "NQ=="}', "count is missing"),
        ('{"type": "consume", "queue": "Foo"}', "count is missing"),
        ('{"type": "requeue", "queue": "", "message_id": ""}', "ttl is missing"),
        ('{"type": "send", "queue": "", "content": "", "ttl": null}', "ttl is missing or null"),
        ('{"type": "send", "queue": "", "content": "", "ttl": "7"}', "ttl"),
        ('{"type": "send", "queue": "", "content": "", "ttl": 7.0}', "ttl"),
        ('{"type": "send", "queue": "", "content": "", "ttl": true}', "ttl"),
        ('{"type": "send", "queue": "", "content": "", "ttl": -1}', "ttl"),
        ('{"type": "send", "queue": "", "content": "", "ttl": 9223372036854775808}', "ttl"),
        ('{"type": "consume", "queue": "Foo", "count": NaN}', "count"),
        ('{"type": "consume", "queue": "Foo", "count": 5, "count": 5}', "the field 'count' occurs twice"),
        (f"{CONSUME} {CONSUME}", "not JSON: Extra data at column 49"),
        *(
            (f'{{"type": "send", "queue": "", "content_base64": "{text}"}}', "content_base64 is not canonical base64")
            for text in ("Zg", "Zg=", "Zh==", "Z===", "Zg==Zg==", "Z g=", "Zg==\\n", "-_8=", "\\u00e9", "\\ud800")
        ),
    ],
)
def test_encode_refuses_a_wrong_record(run: Run, record: str, complaint: str) -> None:
    code, output, errors = run("encode", stdin=f"{CONSUME}\n{record}\n{CONSUME}\n".encode())
    assert (code, output) == (1, phpmq.encode(FOO))
    assert errors.startswith("phpmq: <stdin>: line 2: ")
    assert complaint in errors
    assert errors.count("\n") == 1


def test_encode_refuses_what_is_not_utf_8(run: Run) -> None:
    code, output, errors = run("encode", stdin=b'{"type": "\xff"}')
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: line 1: 'utf-8' codec can't decode")


# check


def test_check_of_good_frames(run: Run) -> None:
    code, output, errors = run("check", CAPTURES[0])
    assert (code, errors) == (0, "")
    assert output.decode() == (
        "             frames  bytes\n"
        "send              5    448\n"
        "consume           1     76\n"
        "acknowledge       5    535\n"
        "all              11   1059\n"
        "damaged           0      0\n"
    )


def test_check_of_damaged_ranges(run: Run) -> None:
    wire = phpmq.encode(FOO)
    code, output, errors = run("check", "-", stdin=b"junk" + wire + wire[:-1] + b"x" + wire + wire[:9])
    assert (code, errors) == (1, "")
    assert [" ".join(line.split()) for line in output.decode().splitlines()] == [
        "damaged at 0, 4 bytes: NOT_A_MESSAGE at offset 0",
        "damaged at 80, 76 bytes: BAD_INTEGER at offset 155",
        "damaged at 232, 9 bytes: TRUNCATED at offset 232",
        "frames bytes",
        "consume 2 152",
        "all 2 152",
        "damaged 3 89",
    ]


def test_check_colours_on_a_terminal_only(tmp_path: Path) -> None:
    assert b"\x1b" not in run_process("check", "-", stdin=b"junk").output
    assert b"\x1b[1;31mdamaged" in in_terminal("check", "-", stdin=b"junk").output


# The command as a process


def in_terminal(*arguments: str, stdin: bytes) -> Result:
    """Run it with a terminal as standard output."""
    ours, theirs = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    process = subprocess.run(
        [*COMMAND, *arguments], input=stdin, stdout=theirs, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.write(theirs, b"the end")  # a terminal has none of its own
    os.close(theirs)
    output = b""
    while not output.endswith(b"the end"):
        output += os.read(ours, 4096)
    os.close(ours)
    return Result(process.returncode, output.removesuffix(b"the end"), process.stderr.decode())


def test_encode_writes_no_bytes_to_a_terminal() -> None:
    code, output, errors = in_terminal("encode", stdin=CONSUME.encode())
    assert (code, output) == (2, b"")
    assert "not for a terminal" in errors


def test_encode_into_a_terminal_in_this_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout.buffer, "isatty", lambda: True)
    assert run("encode", stdin=CONSUME.encode())[:2] == (2, b"")


@pytest.mark.parametrize("command", ["decode", "encode"])
def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path, command: str) -> None:
    wire, lines = phpmq.encode(FOO) * 50_000, f"{CONSUME}\n" * 50_000
    path = tmp_path / "big"
    path.write_bytes(wire if command == "decode" else lines.encode())
    with subprocess.Popen([*COMMAND, command, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(9)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_ctrl_c_ends_it_in_order() -> None:
    # a job in the background of a shell inherits that the signal is ignored, and so would the command
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[-1]}"
    command = [*COMMAND[:-1], heeding, "decode", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(phpmq.encode(FOO))
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read().strip() == b""
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["decode", "check"])
def test_a_full_disk_is_told_in_one_line(command: str) -> None:
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [*COMMAND, command, CAPTURES[0]], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert (process.returncode, process.stderr) == (2, "phpmq: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (OSError(5, "Input/output error"), 2)])
def test_reading_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    def fail(*_: Any) -> bytes:
        raise error

    monkeypatch.setattr("phpmq.cli._feed", fail)
    stdout = sys.stdout
    result = run("decode", CAPTURES[0])
    if sys.stdout is not stdout:
        sys.stdout.close()
        sys.stdout = stdout
    assert result.code == code


def test_a_system_without_sigpipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(signal, "SIGPIPE")
        assert run("--version").code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing command."),
        (["publish"], "No such command 'publish'."),
        (["decode"], "Missing argument 'FILE'."),
        (["decode", "no such file"], "'no such file': No such file or directory"),
        (["decode", "a\n\x1b[31m"], r"'a\n\x1b[31m': No such file or directory"),
        (["decode", str(VECTORS)], "Is a directory"),
        (["encode", "no such file"], "No such file or directory"),
        (["check", "no such file"], "No such file or directory"),
        (["decode", "--packet-header-size", "33", "-"], "'33' is not one of '32', '35', '36'."),
        (["decode", "--max-frame-size", "7", "-"], "7 is not in the range"),
        (["decode", "--on-fault", "ignore", "-"], "'ignore' is not one of 'raise', 'skip'."),
        (["decode", "-", "-"], "Got unexpected extra argument (-)"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, arguments: list[str], complaint: str) -> None:
    code, output, errors = run(*arguments)
    assert (code, output) == (2, b"")
    assert errors.startswith("phpmq: ")
    assert complaint in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["decode"], ["encode"], ["check"]])
def test_help_shows_examples(run: Run, arguments: list[str]) -> None:
    for option in ("--help", "-h"):
        code, output, errors = run(*arguments, option)
        assert (code, errors) == (0, "")
        assert f"  phpmq {' '.join(arguments)}" in output.decode()


def test_the_version_names_the_codec_and_the_reason(run: Run) -> None:
    from phpmq._backend import REASON  # noqa: PLC0415

    expected = f"phpmq {phpmq.__version__}, {phpmq.BACKEND} codec ({REASON})\n"
    assert run("--version") == (0, expected.encode(), "")


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_its_extra_it_says_how_to_get_it(package: str) -> None:
    blocked = f"import sys; sys.modules[{package!r}] = None; from phpmq.cli import main; sys.exit(main())"
    code, output, errors = run_process("--version", command=[sys.executable, "-c", blocked])
    assert (code, output) == (2, b"")
    assert errors == 'phpmq: this command needs click and rich: pip install "phpmq[cli]"\n'


def test_importing_it_without_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "phpmq.cli", raising=False)
    with pytest.raises(SystemExit, match=r"^2$"):
        import phpmq.cli  # noqa: F401, PLC0415
    assert 'pip install "phpmq[cli]"' in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the peak of one process")
@pytest.mark.parametrize("command", ["decode", "encode", "check"])
def test_memory_stays_flat(tmp_path: Path, command: str) -> None:
    message, record = Send("Foo", b"x" * 1000), f'{{"type": "send", "queue": "Foo", "content": "{"x" * 1000}"}}\n'
    part = (record.encode() if command == "encode" else phpmq.encode(message)) * 1000
    program = (
        "import re, sys; from phpmq.cli import main; code = main();"
        "print(re.search('VmHWM[^0-9]*([0-9]+)', open('/proc/self/status').read())[1], file=sys.stderr);"
        "sys.exit(code)"
    )
    peaks = []
    for parts in (1, 25):
        path = tmp_path / "input"
        path.write_bytes(part * parts)
        peaks.append(int(run_process(command, str(path), command=[sys.executable, "-c", program]).errors))
    assert peaks[1] - peaks[0] < 8 * 1024, "KiB more for 25 MB than for 1 MB"

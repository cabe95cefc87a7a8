"""``phpmq encode``: JSON lines to bytes, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import BROKEN, FOO, FOO_RECORD, HELLO, ODD, Run, in_terminal, write
from wire import message_wire

RECORD = FOO_RECORD.decode().strip()


def test_encode_reads_a_file_with_windows_line_ends_and_no_last_one(run: Run, tmp_path: Path) -> None:
    path = write(
        tmp_path / "records.jsonl",
        b'{"count": 5, "queue": "Foo", "type": "consume"}\r\n{"type":"consume","queue":"Foo","count":5}',
    )
    assert run("encode", path) == (0, FOO * 2, "")


@pytest.mark.parametrize(
    ("record", "wire"),
    [
        (
            '{"type": "send", "queue_base64": "Rm9v", "content_base64": "SGVsbG8gV29ybGQ=", "ttl": 3600}',
            HELLO,
        ),
        (r'{"type": "send", "queue": "\u0046oo", "content": "Hello\u0020World", "ttl": 3600}', HELLO),
        (
            r'{"type": "send", "queue": "\ud83d\ude00", "content": ""}',
            message_wire("Send", {"queue": "\U0001f600", "content": b""}),
        ),
        (
            '{"type": "receipt", "queue_base64": "", "message_id_base64": "/w=="}',
            message_wire("Receipt", {"queue": "", "message_id": "\udcff"}),
        ),
    ],
)
def test_other_spellings_of_a_record(run: Run, record: str, wire: bytes) -> None:
    assert run("encode", stdin=record.encode()) == (0, wire, "")


@pytest.mark.parametrize("size", [32, 35, 36])
def test_packet_header_sizes(run: Run, size: int) -> None:
    wire = message_wire("Consume", {"queue": "Foo", "count": 5}, size)
    assert run("encode", "--packet-header-size", str(size), stdin=FOO_RECORD) == (0, wire, "")


def test_a_size_to_write_cannot_be_guessed(run: Run) -> None:
    code, output, errors = run("encode", "--packet-header-size", "auto", stdin=FOO_RECORD)
    assert (code, output, errors.count("\n")) == (2, b"", 1)
    assert "'auto' is not one of '32', '35', '36'" in errors


def test_several_files(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", FOO_RECORD), write(tmp_path / "2", FOO_RECORD.strip())
    assert run("encode", first, "-", second, stdin=FOO_RECORD * 2) == (0, FOO * 4, "")


def test_a_wrong_record_ends_its_file_only(run: Run, tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", FOO_RECORD * 2 + b"{}\n" + FOO_RECORD), write(tmp_path / "good", FOO_RECORD)
    code, output, errors = run("encode", bad, good, bad)
    assert (code, output) == (1, FOO * 5)
    assert errors.count(f"phpmq: {bad}: line 3: type must be one of ") == errors.count("\n") == 2


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
        (f"{RECORD} {RECORD}", "not JSON: Extra data at column 49"),
        *(
            (f'{{"type": "send", "queue": "", "content_base64": "{text}"}}', "content_base64 is not canonical base64")
            for text in ("Zg", "Zg=", "Zh==", "Z===", "Zg==Zg==", "Z g=", "Zg==\\n", "-_8=", "\\u00e9", "\\ud800")
        ),
    ],
)
def test_encode_refuses_a_wrong_record(run: Run, record: str, complaint: str) -> None:
    code, output, errors = run("encode", stdin=f"{RECORD}\n{record}\n{RECORD}\n".encode())
    assert (code, output) == (1, FOO)
    assert errors.startswith("phpmq: <stdin>: line 2: ")
    assert complaint in errors
    assert errors.count("\n") == 1
    assert errors[:-1].isprintable()


def test_encode_refuses_what_is_not_utf_8(run: Run) -> None:
    code, output, errors = run("encode", stdin=b'{"type": "\xff"}')
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: line 1: 'utf-8' codec can't decode")


# Damage records


@pytest.mark.parametrize(
    ("wire", "note"),
    [
        (FOO + HELLO, ""),
        (b"junk" + FOO + HELLO, "phpmq: <stdin>: 1 damage record dropped\n"),
        (FOO + b"\xff" + HELLO + ODD, "phpmq: <stdin>: 2 damage records dropped\n"),
    ],
)
def test_damage_records_are_dropped_on_demand(run: Run, wire: bytes, note: str) -> None:
    decoded = run("decode", "--on-fault", "skip", stdin=wire)
    assert run("encode", "--drop-damage", stdin=decoded.output) == (0, FOO + HELLO, note)


def test_damage_records_are_counted_for_each_file(run: Run, tmp_path: Path) -> None:
    damage = b'{"damage": {"start": 0, "stop": 1, "fault": "NOT_A_MESSAGE", "offset": 0, "data": "x"}}\n'
    first, second, third = (
        write(tmp_path / str(number), FOO_RECORD + damage * number + FOO_RECORD) for number in (1, 0, 2)
    )
    assert run("encode", "--drop-damage", first, second, third) == (
        0,
        FOO * 6,
        f"phpmq: {first}: 1 damage record dropped\nphpmq: {third}: 2 damage records dropped\n",
    )


def test_damage_records_are_refused_otherwise(run: Run) -> None:
    decoded = run("decode", "--on-fault", "skip", stdin=FOO + BROKEN + FOO)
    code, output, errors = run("encode", stdin=decoded.output)
    assert (code, output) == (1, FOO)
    assert errors.startswith("phpmq: <stdin>: line 2: a damage record, which holds no message")
    assert "--drop-damage" in errors
    assert errors.count("\n") == 1


# Terminals


def test_encode_writes_no_bytes_to_a_terminal_but_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    code, output, errors = in_terminal("encode", stdin=FOO_RECORD)
    assert (code, output) == (2, b"")
    assert "not for a terminal" in errors
    assert errors.count("\n") == 1
    assert in_terminal("encode", "--output", path, stdin=FOO_RECORD) == (0, b"", "")
    assert path.read_bytes() == FOO


@pytest.mark.parametrize(("command", "stdin"), [("encode", FOO_RECORD), ("convert", FOO)])
def test_bytes_into_a_terminal_in_this_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, stdin: bytes
) -> None:
    monkeypatch.setattr(sys.stdout.buffer, "isatty", lambda: True)
    assert run(command, stdin=stdin)[:2] == (2, b"")

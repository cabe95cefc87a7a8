"""``phpmq decode``: messages as JSON lines, as CSV and as a table, all of them or some."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from command import (
    ADVERSARIAL_CONTENTS,
    BAD_DIGITS,
    BAD_INTEGER,
    BROKEN,
    CAPTURES,
    COMMAND,
    FOO,
    FOO_RECORD,
    HELLO,
    ODD,
    REORDERED,
    Run,
    in_terminal,
    run_process,
    words,
    write,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import Told
from rich.cells import cell_len
from strategies import messages
from wire import message_wire, parts

import phpmq
from phpmq import Acknowledge, Consume, DeadLetter, Dispatch, Message, Receipt, Requeue, Send

MESSAGES_AND_RECORDS: list[tuple[Message, str]] = [
    (Send("Foo", b"Hi"), '{"type": "send", "queue": "Foo", "content": "Hi"}'),
    (Send("", b"", 0), '{"type": "send", "queue": "", "content": "", "ttl": 0}'),
    (Consume("Foo", 5), '{"type": "consume", "queue": "Foo", "count": 5}'),
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
#: One message of every type, in the order of the catalogue, and the words for the types.
ALL = phpmq.encode_many(
    [
        Send("a", b"1"),
        Consume("b", 2),
        Dispatch("a", b"3", "i"),
        Acknowledge("b", "i"),
        Requeue("a", "i", 5),
        DeadLetter("b", "i"),
        Receipt("c", "i"),
    ]
)
TYPES = ["send", "consume", "dispatch", "acknowledge", "requeue", "dead_letter", "receipt"]


def records(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.decode().splitlines()]


def types(output: bytes) -> list[str]:
    return [record.get("type", "damage") for record in records(output)]


# JSON lines


@pytest.mark.parametrize(("message", "record"), MESSAGES_AND_RECORDS)
def test_a_message_and_its_record(run: Run, message: Message, record: str) -> None:
    line = record.encode() + b"\n"
    assert run("decode", "-", stdin=phpmq.encode(message)) == (0, line, "")
    assert run("decode", "--format", "jsonl", stdin=phpmq.encode(message)) == (0, line, "")
    assert run("encode", stdin=line) == (0, phpmq.encode(message), "")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_captures_survive_the_round_trip(run: Run, capture: Path) -> None:
    decoded = run("decode", capture)
    assert (decoded.code, decoded.errors) == (0, "")
    assert run("encode", "-", stdin=decoded.output) == (0, capture.read_bytes(), "")


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_contents_survive_the_round_trip(run: Run, content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    wire = phpmq.encode_many([Dispatch(text, content, text), Send("Foo", content, 1)])
    decoded = run("decode", stdin=wire)
    lines = decoded.output.decode().split("\n")
    assert (decoded.code, decoded.errors, len(lines), lines[-1]) == (0, "", 3, "")
    assert all(line.isprintable() for line in lines)
    assert run("encode", stdin=decoded.output) == (0, wire, "")


@given(st.lists(messages, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_messages_survive_json_lines_and_csv(run: Run, told: list[Told]) -> None:
    wire = b"".join(message_wire(*message) for message in told)
    decoded = run("decode", stdin=wire)
    assert (decoded.code, decoded.errors) == (0, "")
    assert run("encode", stdin=decoded.output) == (0, wire, "")
    tabular = run("decode", "--format", "csv", stdin=wire)
    assert (tabular.code, tabular.errors) == (0, "")
    assert [fields(row) for row in rows(tabular.output)] == [message.fields for message in told]


# The order of packets


@pytest.mark.parametrize(
    ("wire", "note"),
    [
        (FOO + HELLO, ""),
        (
            FOO + REORDERED,
            "1 message has its packets in another order than encode writes, the first at offset 76",
        ),
        (
            REORDERED + FOO + REORDERED,
            "2 messages have their packets in another order than encode writes, the first at offset 0",
        ),
    ],
)
def test_another_order_of_packets_is_noted(run: Run, wire: bytes, note: str) -> None:
    code, output, errors = run("decode", stdin=wire)
    assert (code, errors) == (0, f"phpmq: <stdin>: {note}\n" if note else "")
    assert len(records(output)) == len(list(phpmq.iter_messages(wire)))


def test_the_order_is_noted_for_each_file_and_beside_damage(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", REORDERED), write(tmp_path / "2", b"junk" + REORDERED * 2)
    code, output, errors = run("decode", "--on-fault", "skip", first, second)
    assert (code, types(output)) == (1, ["send", "damage", "send", "send"])
    assert errors == (
        f"phpmq: {first}: 1 message has its packets in another order than encode writes, the first at offset 0\n"
        f"phpmq: {second}: 2 messages have their packets in another order than encode writes, the first at offset 4\n"
    )


@pytest.mark.parametrize(
    "options", [["--format", "csv"], ["--format", "table"], ["--type", "consume"], ["--queue", "Bar"], ["--limit", "1"]]
)
def test_no_note_of_an_order_that_nobody_sees(run: Run, options: list[str]) -> None:
    code, _, errors = run("decode", *options, stdin=FOO + REORDERED)
    assert (code, errors) == (0, "")


# CSV

HEADER = (
    "path,offset,size,type,queue,queue_base64,content,content_base64,message_id,message_id_base64,ttl,count,"
    "fault,fault_offset,data,data_base64\n"
)


def rows(output: bytes) -> list[dict[str, str]]:
    """The rows as a reader of CSV gets them."""
    text = output.decode()
    assert text.startswith(HEADER)
    csv.field_size_limit(2**24)
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def fields(row: dict[str, str]) -> dict[str, Any]:
    """The fields of the message in a row."""
    found: dict[str, Any] = {}
    values = phpmq.__dict__["".join(word.capitalize() for word in row["type"].split("_"))].__match_args__
    for name in values:
        if name in ("ttl", "count"):
            found |= {name: int(row[name])} if row[name] else {}
        else:
            assert not (row[name] and row[f"{name}_base64"])
            data = b64decode(row[f"{name}_base64"]) or row[name].encode()
            found[name] = data if name == "content" else data.decode("utf-8", "surrogateescape")
    return found


def test_csv_byte_by_byte(run: Run, tmp_path: Path) -> None:
    wire = (
        phpmq.encode_many([Send("Foo", b"Hello World", 3600), Send("", b""), Consume('a"b,c', 5)])
        + phpmq.encode_many([Dispatch("Foo", b"two\nlines\tand a tab", "id", 0), Acknowledge("\udcff", "\u2028")])
        + phpmq.encode_many([Requeue("Foo", "i", 7), DeadLetter("Foo", "i"), Receipt("Grüße", "i")])
    )
    path = write(tmp_path / "x.phpmq", wire)
    code, output, errors = run("decode", "--format", "csv", path)
    expected = [
        '0,122,"send","Foo",,"Hello World",,,,3600,,,,,',
        '122,72,"send","",,"",,,,,,,,,',
        '194,78,"consume","a""b,c",,,,,,,5,,,,',
        f'272,{8 + 4 * 32 + 3 + 19 + 2 + 1},"dispatch","Foo",,"two\nlines\tand a tab",,"id",,0,,,,,',
        '433,76,"acknowledge",,"/w==",,,,"4oCo",,,,,,',
        '509,109,"requeue","Foo",,,,"i",,7,,,,,',
        '618,76,"dead_letter","Foo",,,,"i",,,,,,,',
        '694,80,"receipt","Grüße",,,,"i",,,,,,,',
    ]
    assert (code, errors) == (0, "")
    assert output.decode() == HEADER + "".join(f'"{path}",{line}\n' for line in expected)
    assert {line.count(",") for line in expected if '"a""b,c"' not in line} == {14}  # and the path makes 15


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_csv_gives_every_content_back_and_steers_no_terminal(run: Run, content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    wire = phpmq.encode_many([Dispatch(text, content, text, 1), Send("Foo", b"")])
    code, output, errors = run("decode", "--format", "csv", stdin=wire)
    assert (code, errors) == (0, "")
    assert output.decode().replace("\n", "").replace("\t", "").isprintable()
    first, second = rows(output)
    assert fields(first) == {"queue": text, "content": content, "message_id": text, "ttl": 1}
    assert (first["offset"], second["offset"]) == ("0", first["size"])


def test_csv_has_its_header_once_for_several_files(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", FOO * 2), write(tmp_path / "2", FOO)
    line = '76,"consume","Foo",,,,,,,5,,,,\n'
    expected = HEADER + f'"{first}",0,{line}"{first}",76,{line}"<stdin>",0,{line}"{second}",0,{line}'
    assert run("decode", "--format", "csv", first, "-", second, stdin=FOO) == (0, expected.encode(), "")


def test_damage_in_csv(run: Run) -> None:
    code, output, errors = run("decode", "--format", "csv", "--on-fault", "skip", stdin=FOO + ODD + FOO + b"\xff")
    assert (code, errors) == (1, "")
    assert output.decode() == HEADER + (
        '"<stdin>",0,76,"consume","Foo",,,,,,,5,,,,\n'
        f'"<stdin>",76,76,"damage",,,,,,,,,"BAD_INTEGER",151,"{ODD.decode()}",\n'
        '"<stdin>",152,76,"consume","Foo",,,,,,,5,,,,\n'
        '"<stdin>",228,1,"damage",,,,,,,,,"NOT_A_MESSAGE",228,,"/w=="\n'
    )


def test_the_size_of_a_long_damage_in_csv_is_that_of_all_its_bytes(run: Run) -> None:
    code, output, errors = run("decode", "--format", "csv", "--on-fault", "skip", stdin=b"x" * 70_000 + FOO)
    assert (code, errors) == (1, "")
    damage, good = rows(output)
    assert (damage["offset"], damage["size"], damage["data"]) == ("0", "70000", "x" * 65536)
    assert good["offset"] == "70000"


# Tables


def test_the_columns_of_a_table(run: Run) -> None:
    wire = phpmq.encode_many(
        [Send("Foo", b"Hello\nWorld \\ \x1b\xff\xc2\x85", 3600), Consume("Foo", 5), Dispatch("Bar", b"x", "a1", 3300)]
    )
    code, output, errors = run("decode", "--format", "table", stdin=wire, COLUMNS="120")
    assert (code, errors) == (0, "")
    assert words(output) == [
        "offset type queue message id ttl count content",
        r"0 send Foo 3600 Hello\nWorld \\ \x1b\xff\u0085",
        "129 consume Foo 5",
        "205 dispatch Bar a1 3300 x",
    ]
    assert output.decode().replace("\n", "").isprintable()


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("letter", ["x", "語", "\x1b", "e\u0301", "\U0001f600"])
def test_no_line_of_a_table_is_wider_than_the_terminal(run: Run, columns: int, letter: str) -> None:
    text = letter * 300
    wire = FOO + phpmq.encode_many([Dispatch(text, text.encode(), text, 2**63 - 1), Send("Foo", text.encode())])
    code, output, errors = run("decode", "--format", "table", stdin=wire, COLUMNS=str(columns))
    assert (code, errors) == (0, "")
    lines = output.decode().splitlines()
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= columns
    assert lines[3].rstrip().endswith("…")
    assert cell_len(lines[3]) >= columns - 6  # as much of it as fits


def test_a_table_of_several_files_names_them(run: Run, tmp_path: Path) -> None:
    paths = [write(tmp_path / name, FOO) for name in ("a", "b")]
    header, *lines = words(run("decode", "--format", "table", *paths).output)
    assert header == "offset type queue message id ttl count content"
    assert lines == [f"{paths[0]}:", "0 consume Foo 5", f"{paths[1]}:", "0 consume Foo 5"]


def test_a_table_is_as_wide_as_the_terminal_and_80_in_a_pipe() -> None:
    wire = phpmq.encode(Send("Foo", b"x" * 300))
    arguments = "decode", "--format", "table"
    _, piped, _ = run_process(*arguments, stdin=wire)
    _, wide, _ = in_terminal(*arguments, stdin=wire, columns=130)
    assert len(piped.decode().splitlines()[1].rstrip()) == 80
    (line,) = [line for line in wide.decode().splitlines() if "xxx" in line]
    assert line.rstrip().endswith("x…")
    assert cell_len(line.rstrip()) == 130


def test_damage_in_a_table(run: Run) -> None:
    code, output, errors = run(
        "decode", "--format", "table", "--on-fault", "skip", stdin=FOO + b"\x1b" + FOO, COLUMNS="120"
    )
    lines = words(output)
    assert (code, errors, len(lines)) == (1, "", 4)
    assert lines[2].startswith("76 damage ")
    assert lines[2].isprintable()
    assert lines[3] == "77 consume Foo 5"


# Some of the records


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], TYPES),
        *((["--type", word], [word]) for word in TYPES),
        (["--type", "send", "--type", "receipt"], ["send", "receipt"]),
        (["--queue", "a"], ["send", "dispatch", "requeue"]),
        (["--queue", "c", "--queue", "a"], ["send", "dispatch", "requeue", "receipt"]),
        (["--queue", "b", "--type", "send"], []),
        (["--queue", "b", "--type", "send", "--type", "consume"], ["consume"]),
        (["--limit", "1"], ["send"]),
        (["--limit", "100"], TYPES),
        (["--limit", "2", "--queue", "a"], ["send", "dispatch"]),
        (["--limit", "2", "--type", "acknowledge", "--type", "receipt"], ["acknowledge", "receipt"]),
    ],
)
def test_filters_and_limit(run: Run, options: list[str], expected: list[str]) -> None:
    code, output, errors = run("decode", *options, stdin=ALL)
    assert (code, types(output), errors) == (0, expected, "")
    code, output, errors = run("decode", "--format", "csv", *options, stdin=ALL)
    assert (code, [row["type"] for row in rows(output)], errors) == (0, expected, "")


def test_a_filter_by_a_queue_whose_name_is_no_text(run: Run) -> None:
    wire = phpmq.encode_many([Consume("Foo", 1), Consume("\udcff", 2), Consume("ÿ", 3)])
    _, output, _ = run("decode", "--queue", "\udcff", stdin=wire)
    assert [record["count"] for record in records(output)] == [2]


def test_damage_passes_all_filters(run: Run) -> None:
    options = ["--on-fault", "skip", "--type", "send", "--queue", "nowhere"]
    code, output, errors = run("decode", *options, stdin=FOO + b"junk" + HELLO + ODD)
    assert (code, types(output), errors) == (1, ["damage", "damage"], "")


def test_a_fault_behind_what_is_filtered_counts_all_frames(run: Run) -> None:
    code, output, errors = run("decode", "--type", "send", stdin=FOO + HELLO + ODD)
    assert (code, types(output)) == (1, ["send"])
    assert errors == f"phpmq: <stdin>: frame 3: BAD_INTEGER at offset 273: {BAD_INTEGER}\n"


@pytest.mark.parametrize("on_fault", ["raise", "skip"])
def test_what_follows_the_limit_is_not_judged(run: Run, tmp_path: Path, on_fault: str) -> None:
    good, bad = write(tmp_path / "good", FOO * 2), write(tmp_path / "bad", FOO + b"junk")
    options = ["decode", "--on-fault", on_fault, "--limit"]
    assert run(*options, "3", good, bad) == (0, FOO_RECORD * 3, "")
    assert run(*options, "4", good, bad).code == 1
    assert run(*options, "2", good, bad) == (0, FOO_RECORD * 2, "")


def test_the_limit_counts_damage_too(run: Run) -> None:
    code, output, errors = run("decode", "--on-fault", "skip", "--limit", "2", stdin=b"junk" + FOO * 3)
    assert (code, types(output), errors) == (1, ["damage", "consume"], "")


def test_the_limit_leaves_a_pipe_that_has_no_end() -> None:
    with subprocess.Popen(
        [*COMMAND, "decode", "--limit", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(FOO * 2)
        process.stdin.flush()
        assert process.stdout.read() == FOO_RECORD * 2
        assert process.wait() == 0


# Beginning somewhere


@pytest.mark.parametrize(("offset", "count"), [(0, 3), (76, 2), (152, 1), (228, 0), (229, 0), (10**6, 0), (2**62, 0)])
def test_offset(run: Run, tmp_path: Path, offset: int, count: int) -> None:
    path = write(tmp_path / "x", FOO * 3)
    assert run("decode", "--offset", str(offset), path) == (0, FOO_RECORD * count, "")
    assert run("decode", "--offset", str(offset), stdin=FOO * 3) == (0, FOO_RECORD * count, "")


def test_offsets_stay_those_of_the_file(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x", FOO * 2 + HELLO + ODD)
    code, output, errors = run("decode", "--offset", "76", "--format", "csv", path)
    assert (code, [row["offset"] for row in rows(output)]) == (1, ["76", "152"])
    assert errors == f"phpmq: {path}: frame 3 from offset 76: BAD_INTEGER at offset 349: {BAD_INTEGER}\n"
    code, output, errors = run("decode", "--offset", "274", "--on-fault", "skip", path)
    (record,) = records(output)
    assert (code, errors) == (1, "")
    assert record == {
        "damage": {"start": 274, "stop": 350, "fault": "BAD_INTEGER", "offset": 349, "data": ODD.decode()}
    }
    _, _, errors = run("decode", "--offset", "152", stdin=FOO * 2 + REORDERED)
    assert errors.endswith("the first at offset 152\n")


def test_a_frame_has_to_start_at_the_offset(run: Run) -> None:
    code, output, errors = run("decode", "--offset", "1", stdin=FOO * 2)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: frame 1 from offset 1: NOT_A_MESSAGE at offset 1: expected ")


def test_offset_applies_to_each_file(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", FOO * 2), write(tmp_path / "2", HELLO[:76] + FOO)
    assert run("decode", "--offset", "76", first, second) == (0, FOO_RECORD * 2, "")


# Damaged bytes


def test_decode_gives_what_is_good_and_names_the_frame_that_is_not(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.phpmq", FOO * 2 + ODD + FOO)
    expected = f"phpmq: {path}: frame 3: BAD_INTEGER at offset 227: {BAD_INTEGER}\n"
    assert run("decode", path) == (1, FOO_RECORD * 2, expected)
    assert run("decode", "--on-fault", "raise", path) == (1, FOO_RECORD * 2, expected)
    write(path, FOO + BROKEN)
    expected = f"phpmq: {path}: frame 2: BAD_DIGITS at offset 114: {BAD_DIGITS}'\n"
    assert run("decode", path) == (1, FOO_RECORD, expected)


def test_decode_names_the_missing_end(run: Run) -> None:
    code, output, errors = run("decode", "-", stdin=(FOO * 2)[:-1])
    assert (code, output) == (1, FOO_RECORD)
    assert errors.startswith("phpmq: <stdin>: frame 2: TRUNCATED at offset 76: ")
    assert errors.endswith("at least 1 byte is missing\n")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (
            b"H0100202\nP0100000000000000000000000000003\nFoo\n",
            "this looks like a listing); phpmq convert --from-listing reads one",
        ),
        (
            b"H0100202\r\nP0100000000000000000000000000003\r\n",
            "this looks like a listing); phpmq convert --from-listing reads one",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", "looks like HTTP"),
        (b"GET / HTTP/1.1\r\n", "looks like HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "looks like TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "looks like SSH"),
        (message_wire("Consume", {"queue": "Foo", "count": 5}, 36), "packet_header_size=36"),
    ],
)
def test_decode_passes_the_hint_on(run: Run, data: bytes, hint: str) -> None:
    code, output, errors = run("decode", "-", stdin=data)
    assert (code, output) == (1, b"")
    assert hint in errors
    assert errors.count("\n") == 1


def test_decode_with_skip_writes_damage_in_its_place(run: Run) -> None:
    code, output, errors = run("decode", "--on-fault", "skip", "-", stdin=b"junk" + FOO + b"\xff" + FOO)
    assert (code, errors) == (1, "")
    assert records(output) == [
        {"damage": {"start": 0, "stop": 4, "fault": "NOT_A_MESSAGE", "offset": 0, "data": "junk"}},
        {"type": "consume", "queue": "Foo", "count": 5},
        {"damage": {"start": 80, "stop": 81, "fault": "NOT_A_MESSAGE", "offset": 80, "data_base64": "/w=="}},
        {"type": "consume", "queue": "Foo", "count": 5},
    ]


def test_decode_with_skip_is_content_with_good_input(run: Run) -> None:
    assert run("decode", "--on-fault", "skip", CAPTURES[1]) == run("decode", CAPTURES[1])


@pytest.mark.parametrize("layout", ["jsonl", "csv", "table"])
@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_damage_steers_no_terminal(run: Run, layout: str, content: bytes) -> None:
    broken = b"".join(parts(9, [(1, content)]))
    code, output, errors = run("decode", "--on-fault", "skip", "--format", layout, stdin=FOO + broken + content + FOO)
    assert (code, errors) == (1, "")
    assert output.decode().replace("\n", "").replace("\t" if layout == "csv" else "", "").isprintable()

"""``phpmq check``: the balance of one file or several, for people and for programs, and what is damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import (
    ADVERSARIAL_CONTENTS,
    BAD_DIGITS,
    BAD_INTEGER,
    BROKEN,
    CAPTURES,
    COMPRESS,
    FOO,
    HELLO,
    NOT_A_MESSAGE,
    ODD,
    UNKNOWN,
    Run,
    in_terminal,
    run_process,
    words,
    write,
)
from wire import message_wire, parts

import phpmq

DAMAGED = b"junk" + FOO + ODD + FOO + FOO[:9]
#: What is damaged there, as text.
RANGES = [
    f"damaged at 0, 4 bytes: NOT_A_MESSAGE at offset 0: {NOT_A_MESSAGE}",
    f"damaged at 80, 76 bytes: BAD_INTEGER at offset 155: {BAD_INTEGER}",
    "damaged at 232, 9 bytes: TRUNCATED at offset 232: expected the rest of the frame",
]
#: The same as JSON.
DAMAGES = [
    {"start": 0, "stop": 4, "fault": "NOT_A_MESSAGE", "offset": 0, "data": "junk"},
    {"start": 80, "stop": 156, "fault": "BAD_INTEGER", "offset": 155, "data": ODD.decode()},
    {"start": 232, "stop": 241, "fault": "TRUNCATED", "offset": 232, "data": "H0100202P"},
]


def objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.decode().splitlines()]


def balance(path: str | Path, types: dict[str, tuple[int, int]], damages: int = 0, damaged: int = 0) -> dict[str, Any]:
    return {
        "path": str(path),
        "packet_header_size": 32,
        "frames": sum(frames for frames, _ in types.values()),
        "bytes": sum(size for _, size in types.values()),
        "types": {word: {"frames": frames, "bytes": size} for word, (frames, size) in types.items()},
        "damages": damages,
        "damaged_bytes": damaged,
    }


# For people


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
    code, output, errors = run("check", "-", stdin=DAMAGED)
    assert (code, errors) == (1, "")
    assert words(output) == [*RANGES, "frames bytes", "consume 2 152", "all 2 152", "damaged 3 89"]


def test_every_type_has_its_line_in_the_order_of_the_catalogue(run: Run) -> None:
    wire = b"".join(
        message_wire(name, {"queue": "", "message_id": ""} | fields)
        for name, fields in [("DeadLetter", {}), ("Receipt", {}), ("Requeue", {"ttl": 0}), ("Acknowledge", {})]
    )
    wire += message_wire("Dispatch", {"queue": "", "message_id": "", "content": b""})
    code, output, errors = run("check", stdin=wire + FOO + HELLO)
    assert (code, errors) == (0, "")
    assert words(output) == [
        "frames bytes",
        "send 1 122",
        "consume 1 76",
        "dispatch 1 104",
        "acknowledge 1 72",
        "requeue 1 105",
        "dead_letter 1 72",
        "receipt 1 72",
        "all 7 623",
        "damaged 0 0",
    ]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (BROKEN, "damaged at 76, 76 bytes: BAD_DIGITS at offset 114: " + BAD_DIGITS + "3FooP0400000000'"),
        (b"\x1b[31m\n\xff" + b"x" * 20, r"found b'\x1b[31m\n\xffxxxxxxxxx'"),
        (
            UNKNOWN,
            "damaged at 76, 76 bytes: UNKNOWN_MESSAGE_TYPE at offset 79: expected a message type from 001 to 006",
        ),
        (b"x" * 100_000, "damaged at 76, 100000 bytes: NOT_A_MESSAGE at offset 76: "),
    ],
)
def test_the_line_of_a_damage(run: Run, damage: bytes, text: str) -> None:
    code, output, errors = run("check", stdin=FOO + damage + FOO)
    (line,) = [line for line in words(output) if line.startswith("damaged at ")]
    assert (code, errors) == (1, "")
    assert text in line


def test_several_files_and_their_total(run: Run, tmp_path: Path) -> None:
    damaged = write(tmp_path / "damaged", DAMAGED)
    code, output, errors = run("check", CAPTURES[0], damaged, "-", stdin=b"")
    assert (code, errors) == (1, "")
    assert [line for line in words(output) if line] == [
        f"{CAPTURES[0]}:",
        "frames bytes",
        "send 5 448",
        "consume 1 76",
        "acknowledge 5 535",
        "all 11 1059",
        "damaged 0 0",
        f"{damaged}:",
        *RANGES,
        "frames bytes",
        "consume 2 152",
        "all 2 152",
        "damaged 3 89",
        "<stdin>:",
        "frames bytes",
        "all 0 0",
        "damaged 0 0",
        "total:",
        "frames bytes",
        "send 5 448",
        "consume 3 228",
        "acknowledge 5 535",
        "all 13 1211",
        "damaged 3 89",
    ]


def test_a_file_that_cannot_be_read_leaves_the_total_of_the_others(run: Run, tmp_path: Path) -> None:
    good = write(tmp_path / "good", FOO)
    code, output, errors = run("check", tmp_path / "missing", good, good)
    assert (code, errors.count("\n")) == (2, 1)
    assert words(output)[-4:] == ["frames bytes", "consume 2 152", "all 2 152", "damaged 0 0"]


def test_with_raise_it_stops_at_the_fault(run: Run) -> None:
    code, output, errors = run("check", "--on-fault", "raise", stdin=FOO * 2 + ODD + FOO)
    assert (code, errors) == (1, f"phpmq: <stdin>: frame 3: BAD_INTEGER at offset 227: {BAD_INTEGER}\n")
    assert words(output)[:3] == ["frames bytes", "consume 2 152", "all 2 152"]


def test_with_raise_the_next_file_has_its_turn(run: Run, tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", FOO + b"junk" + FOO), write(tmp_path / "good", FOO)
    code, output, errors = run("check", "--on-fault", "raise", bad, good)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"phpmq: {bad}: frame 2: NOT_A_MESSAGE at offset 76: ")
    lines = words(output)
    assert [line for line in lines if line.startswith("all ")] == ["all 1 76", "all 1 76", "all 2 152"]


def test_with_raise_good_frames_are_good(run: Run) -> None:
    assert run("check", "--on-fault", "raise", CAPTURES[1]) == run("check", CAPTURES[1])


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_damage_steers_no_terminal(run: Run, content: bytes) -> None:
    wire = b"x" + content + b"".join(parts(9, [(1, content)]))
    for options in ([], ["--json"]):
        code, output, errors = run("check", *options, stdin=wire)
        assert (code, errors) == (1, "")
        assert output.decode().replace("\n", "").isprintable()


def test_check_colours_on_a_terminal_only() -> None:
    assert b"\x1b" not in run_process("check", "-", stdin=b"junk").output
    red = rb"\x1b\[([\d;]+;)?31m(\x1b\[[\d;]+m)*damaged  "
    assert re.search(red, in_terminal("check", "-", stdin=b"junk").output)
    assert not re.search(red, in_terminal("check", "-", stdin=FOO).output)


# For programs


def test_check_as_json(run: Run) -> None:
    code, output, errors = run("check", "--json", CAPTURES[0])
    types = {"send": (5, 448), "consume": (1, 76), "acknowledge": (5, 535)}
    assert (code, errors) == (0, "")
    assert objects(output) == [balance(CAPTURES[0], types)]
    assert list(objects(output)[0]["types"]) == list(types)


def test_damage_as_json(run: Run) -> None:
    code, output, errors = run("check", "--json", stdin=DAMAGED)
    assert (code, errors) == (1, "")
    assert objects(output) == [
        *({"path": "<stdin>", "damage": damage} for damage in DAMAGES),
        balance("<stdin>", {"consume": (2, 152)}, damages=3, damaged=89),
    ]


def test_damage_that_is_no_text_as_json(run: Run) -> None:
    _, output, _ = run("check", "--json", stdin=b"\xff")
    damage = {"start": 0, "stop": 1, "fault": "NOT_A_MESSAGE", "offset": 0, "data_base64": "/w=="}
    assert objects(output) == [{"path": "<stdin>", "damage": damage}, balance("<stdin>", {}, damages=1, damaged=1)]


def test_several_files_as_json(run: Run, tmp_path: Path) -> None:
    bad, good, empty = (
        write(tmp_path / name, data) for name, data in [("bad", FOO + b"junk"), ("good", HELLO), ("empty", b"")]
    )
    code, output, errors = run("check", "--json", bad, good, empty)
    damage = {"start": 76, "stop": 80, "fault": "NOT_A_MESSAGE", "offset": 76, "data": "junk"}
    assert (code, errors) == (1, "")
    assert objects(output) == [
        {"path": str(bad), "damage": damage},
        balance(bad, {"consume": (1, 76)}, damages=1, damaged=4),
        balance(good, {"send": (1, 122)}),
        balance(empty, {}),
    ]


def test_a_long_damage_as_json_counts_all_its_bytes(run: Run) -> None:
    _, output, _ = run("check", "--json", stdin=b"x" * 70_000 + FOO)
    damage, end = objects(output)
    assert (damage["damage"]["stop"], len(damage["damage"]["data"])) == (70_000, 65_536)
    assert (end["damages"], end["damaged_bytes"], end["bytes"]) == (1, 70_000, 76)


# Sizes


@pytest.mark.parametrize("size", [32, 35, 36])
@pytest.mark.parametrize("option", ["the size", "auto"])
def test_check_tells_the_packet_header_size(run: Run, size: int, option: str) -> None:
    wire = message_wire("Consume", {"queue": "Foo", "count": 5}, size)
    option = option.replace("the size", str(size))
    code, output, errors = run("check", "--json", "--packet-header-size", option, stdin=wire * 2)
    (end,) = objects(output)
    assert (code, errors) == (0, "")
    assert (end["packet_header_size"], end["frames"], end["bytes"]) == (size, 2, 2 * len(wire))


def test_check_agrees_with_a_scan_of_many_messages(run: Run) -> None:
    wire = (FOO + HELLO) * 5_000
    code, output, _ = run("check", "--json", stdin=wire)
    (end,) = objects(output)
    assert (code, end["frames"], end["bytes"]) == (0, phpmq.scan(wire).frames, len(wire))
    assert end["types"] == {
        "send": {"frames": 5_000, "bytes": 610_000},
        "consume": {"frames": 5_000, "bytes": 380_000},
    }


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"GET / HTTP/1.1\r\n", " (this looks like HTTP)"),
        (b"HTTP/1.1 400 Bad Request\r\n", " (this looks like HTTP)"),
        (b"\x16\x03\x01\x02", " (this looks like TLS)"),
        (FOO[:8] + b"\n" + FOO[8:], " (line breaks are not on the wire; this looks like a listing)"),
        (message_wire("Consume", {"queue": "Foo", "count": 5}, 36), " (the frame is whole with packet_header_size=36)"),
        (b"junk", ""),
        (BROKEN, ""),
    ],
)
def test_damage_that_looks_like_a_known_mistake(run: Run, data: bytes, hint: str) -> None:
    for command, first in (("check", 0), ("inspect", 1)):
        code, output, errors = run(command, stdin=data)
        assert (code, errors) == (1, "")
        line = output.decode().splitlines()[first]
        assert line.endswith(f"'{hint}")
    size_of_its_own = message_wire("Consume", {"queue": "Foo", "count": 5}, 36)[:-1] + b"x"
    assert "whole" not in run("check", "--packet-header-size", "36", stdin=size_of_its_own).output.decode()


@pytest.mark.parametrize(
    ("arguments", "data", "error"),
    [
        (["--on-fault", "skip"], COMPRESS["gzip"](FOO) + b"junk", "damaged gzip data: "),
        (["--on-fault", "raise"], FOO + b"junk", "frame 2: NOT_A_MESSAGE at offset 76: "),
    ],
    ids=["compression", "fault"],
)
def test_json_says_what_ended_a_file(run: Run, arguments: list[str], data: bytes, error: str) -> None:
    code, output, errors = run("check", "--json", *arguments, stdin=data)
    record = json.loads(output)
    assert code == 1
    assert (record["frames"], record["error"].startswith(error)) == (1, True)
    assert errors == f"phpmq: <stdin>: {record['error']}\n"
    assert "error" not in json.loads(run("check", "--json", stdin=FOO).output)

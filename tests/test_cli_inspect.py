"""``phpmq inspect``: headers and contents line by line, for people, and as a listing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command import (
    ADVERSARIAL_CONTENTS,
    BAD_DIGITS,
    BAD_INTEGER,
    BROKEN,
    CAPTURES,
    FOO,
    HELLO,
    NOT_A_MESSAGE,
    ODD,
    REORDERED,
    UNKNOWN,
    Run,
    in_terminal,
    run_process,
    words,
    write,
)
from rich.cells import cell_len
from wire import message_header, message_wire, packet_header, parts

HELLO_LINES = """\
         0  H 01 001 03                              Send: 3 packets, 122 bytes
         8    P 01 00000000000000000000000000003     queue name: 3 bytes
        40      Foo
        43    P 02 00000000000000000000000000011     content: 11 bytes
        75      Hello World
        86    P 05 00000000000000000000000000004     time to live: 4 bytes
       118      3600
"""
FOO_WORDS = [
    "0 H 01 002 02 Consume: 2 packets, 76 bytes",
    "8 P 01 00000000000000000000000000003 queue name: 3 bytes",
    "40 Foo",
    "43 P 04 00000000000000000000000000001 consume count: 1 byte",
    "75 5",
]
STYLE = re.compile(r"(\x1b\[[\d;]*m)")


def moved(lines: list[str], by: int) -> list[str]:
    """The same lines at other offsets."""
    return [re.sub(r"^\d+", lambda match: str(int(match[0]) + by), line) for line in lines]


# Frames


def test_a_frame_byte_by_byte(run: Run) -> None:
    assert run("inspect", stdin=HELLO) == (0, HELLO_LINES.encode(), "")


def test_frames_that_follow_each_other(run: Run) -> None:
    code, output, errors = run("inspect", "-", stdin=FOO * 3)
    assert (code, errors) == (0, "")
    assert words(output) == FOO_WORDS + moved(FOO_WORDS, 76) + moved(FOO_WORDS, 152)


@pytest.mark.parametrize(
    ("type_", "packets", "name"),
    [
        (1, (1, 2), "Send"),
        (1, (1, 2, 5), "Send"),
        (2, (1, 4), "Consume"),
        (3, (1, 2, 3), "Dispatch"),
        (3, (1, 2, 3, 5), "Dispatch"),
        (4, (1, 3), "Acknowledge"),
        (5, (1, 3, 5), "Requeue"),
        (5, (1, 3), "Receipt"),
        (6, (1, 3), "DeadLetter"),
    ],
)
@pytest.mark.parametrize("size", [32, 35, 36])
def test_names(run: Run, type_: int, packets: tuple[int, ...], name: str, size: int) -> None:
    packet_names = {1: "queue name", 2: "content", 3: "message id", 4: "consume count", 5: "time to live"}
    wire = b"".join(parts(type_, [(packet, b"10") for packet in packets], size))
    expected = [f"0 H 01 {type_:03} {len(packets):02} {name}: {len(packets)} packets, {len(wire)} bytes"]
    for index, packet in enumerate(packets):
        offset = 8 + index * (size + 2)
        expected += [f"{offset} P {packet:02} {2:0{size - 3}} {packet_names[packet]}: 2 bytes", f"{offset + size} 10"]
    for option in (str(size), "auto"):
        code, output, errors = run("inspect", "--packet-header-size", option, stdin=wire)
        assert (code, words(output), errors) == (0, expected, "")


def test_another_order_of_packets(run: Run) -> None:
    code, output, errors = run("inspect", stdin=REORDERED)
    assert (code, errors) == (0, "")
    assert words(output) == [
        "0 H 01 001 02 Send: 2 packets, 77 bytes",
        "8 P 02 00000000000000000000000000002 content: 2 bytes",
        "40 Hi",
        "42 P 01 00000000000000000000000000003 queue name: 3 bytes",
        "74 Foo",
    ]


def test_an_empty_content_has_its_line(run: Run) -> None:
    code, output, errors = run("inspect", stdin=message_wire("Send", {"queue": "", "content": b""}))
    assert (code, errors) == (0, "")
    assert [line.rstrip() for line in output.decode().split("\n")] == [
        "         0  H 01 001 02                              Send: 2 packets, 72 bytes",
        "         8    P 01 00000000000000000000000000000     queue name: 0 bytes",
        "        40",
        "        40    P 02 00000000000000000000000000000     content: 0 bytes",
        "        72",
        "",
    ]


def test_captures_are_sound(run: Run) -> None:
    code, output, errors = run("inspect", *CAPTURES)
    lines = words(output)
    assert (code, errors) == (0, "")
    assert [line for line in lines if line and not line[0].isdigit()] == [f"{path}:" for path in CAPTURES]
    names = re.findall(r"^\d+ H [\d ]+ (\w+): ", "\n".join(lines), re.MULTILINE)
    assert names == ["Send"] * 5 + ["Consume"] + ["Acknowledge"] * 5 + ["Dispatch"] * 5
    assert r"bin\x00\x01\xff\r\n\tend" in output.decode()


# Contents


@pytest.mark.parametrize(
    ("content", "escaped"),
    [
        (b"plain text, \"quoted\" 'twice'", "plain text, \"quoted\" 'twice'"),
        ("Grüße \U0001f600 語".encode(), "Grüße \U0001f600 語"),
        (b"\\ \\n", r"\\ \\n"),
        (b"\n\r\t", r"\n\r\t"),
        (b"\0\x1b[31m\x7f", r"\x00\x1b[31m\x7f"),
        ("\x85\x9b".encode(), r"\u0085\u009b"),
        (b"\x85\x9b\xff", r"\x85\x9b\xff"),
        ("\u2028\u202e\ufeff\ufffe".encode(), r"\u2028\u202e\ufeff\ufffe"),
        ("\U000e0001\U0010ffff".encode(), r"\U000e0001\U0010ffff"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"\xc0\x80", r"\xc0\x80"),
        ("ü".encode() + "ü".encode()[:1], r"ü\xc3"),
        (b"a  b [bold]c[/bold] :smile: 10.0 ", "a  b [bold]c[/bold] :smile: 10.0 "),
    ],
)
def test_contents_are_escaped(run: Run, content: bytes, escaped: str) -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": content})
    for options in ([], ["--full"], ["--color", "never"]):
        code, output, errors = run("inspect", *options, stdin=wire)
        assert (code, errors) == (0, "")
        assert output.decode().endswith(f"\n        75      {escaped}\n")
    _, output, _ = run("inspect", "--color", "always", stdin=wire)
    assert STYLE.sub("", output.decode()).endswith(f"\n        75      {escaped}\n")


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
@pytest.mark.parametrize("full", [[], ["--full"]])
def test_nothing_steers_the_terminal(run: Run, content: bytes, full: list[str]) -> None:
    frame = b"".join(parts(42, [(kind, content) for kind in range(5)]))
    code, output, errors = run("inspect", *full, stdin=frame + b"x" + content + frame)
    lines = output.decode().split("\n")
    assert (code, errors) == (1, "")
    assert all(line.isprintable() for line in lines)
    if not full:
        assert max(cell_len(line) for line in lines if line[10:16].isspace()) <= 80


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("letter", ["x", "語", "\x1b"])
def test_contents_are_cut_at_the_width_of_the_terminal(run: Run, columns: int, letter: str) -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": (letter * 300).encode()})
    _, output, _ = run("inspect", stdin=wire, COLUMNS=str(columns))
    line = output.decode().splitlines()[-1]
    assert line.startswith("        75      " + (r"\x1b" if letter == "\x1b" else letter))
    assert line.endswith("…")
    assert columns - 4 <= cell_len(line) <= columns
    _, output, _ = run("inspect", "--full", stdin=wire, COLUMNS=str(columns))
    assert output.decode().splitlines()[-1] == "        75      " + letter.replace("\x1b", r"\x1b") * 300


@pytest.mark.parametrize(("length", "cut"), [(64, False), (65, True)])
def test_only_what_does_not_fit_is_cut(run: Run, length: int, cut: bool) -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": b"x" * length})
    _, output, _ = run("inspect", stdin=wire)
    assert output.decode().splitlines()[-1] == "        75      " + ("x" * 63 + "…" if cut else "x" * length)


def test_a_pipe_has_80_columns_and_a_terminal_its_own() -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": b"x" * 300})
    piped = run_process("inspect", stdin=wire)
    wide = in_terminal("inspect", stdin=wire, columns=100)
    assert (piped.output.count(b"x"), wide.output.count(b"x")) == (63, 83)


# What is wrong with whole frames


@pytest.mark.parametrize(
    ("wire", "before", "objection"),
    [
        (ODD, "75 x", f"75 ! BAD_INTEGER: {BAD_INTEGER}"),
        (
            FOO[:43] + packet_header(4, 0),
            "75",
            "75 ! BAD_INTEGER: expected a canonical decimal integer from 0 to 2**63-1",
        ),
        (
            UNKNOWN,
            "0 H 01 042 02 unknown message: 2 packets, 76 bytes",
            "3 ! UNKNOWN_MESSAGE_TYPE: expected a message type from 001 to 006, found b'042",
        ),
        (
            message_header(2, 1) + FOO[8:43],
            "0 H 01 002 01 unknown message: 1 packet, 43 bytes",
            "6 ! PACKET_COUNT_MISMATCH: expected a packet count that this message type has, found b'01",
        ),
        (
            message_header(999, 0),
            "0 H 01 999 00 unknown message: 0 packets, 8 bytes",
            "3 ! UNKNOWN_MESSAGE_TYPE: expected a message type from 001 to 006, found b'999",
        ),
        (
            FOO.replace(b"P04", b"P77"),
            "43 P 77 00000000000000000000000000001 unknown packet: 1 byte",
            "44 ! UNEXPECTED_PACKET: expected a packet type that this message has, found b'77",
        ),
        (
            FOO.replace(b"P04", b"P01"),
            "43 P 01 00000000000000000000000000001 queue name: 1 byte",
            "44 ! DUPLICATE_PACKET: expected each packet type once, found b'01",
        ),
    ],
)
def test_objections_stand_behind_their_bytes(run: Run, wire: bytes, before: str, objection: str) -> None:
    code, output, errors = run("inspect", stdin=HELLO + wire + HELLO)
    lines = words(output)
    (at,) = [index for index, line in enumerate(lines) if "!" in line]
    assert (code, errors) == (1, "")
    assert lines[at - 1 : at] == moved([before], 122)
    assert lines[at].startswith(moved([objection], 122)[0])
    hello = words(HELLO_LINES)
    assert (lines[:7], lines[-7:]) == (hello, moved(hello, 122 + len(wire)))
    assert len(lines) == 14 + 1 + 1 + 2 * int(wire[6:8])


def test_unknown_frames_are_shown_like_others(run: Run) -> None:
    code, output, errors = run("inspect", stdin=UNKNOWN)
    lines = words(output)
    assert (code, errors) == (1, "")
    assert lines[1].startswith("3 ! ")
    assert [lines[0], *lines[2:]] == [
        "0 H 01 042 02 unknown message: 2 packets, 76 bytes",
        "8 P 01 00000000000000000000000000003 queue name: 3 bytes",
        "40 Foo",
        "43 P 77 00000000000000000000000000001 unknown packet: 1 byte",
        "75 ?",
    ]


# Damage


def test_damage_byte_by_byte(run: Run) -> None:
    code, output, errors = run("inspect", stdin=b"junk" + HELLO)
    lines = output.decode().split("\n")
    assert (code, errors) == (1, "")
    assert lines[:2] == ["         0  damage: 4 bytes", f"         0    ! NOT_A_MESSAGE: {NOT_A_MESSAGE}"]
    assert words(lines[2]) == ["0 junk"]
    assert words("\n".join(lines[3:])) == moved(words(HELLO_LINES), 4)


def test_damaged_ranges(run: Run) -> None:
    code, output, errors = run("inspect", "--full", stdin=FOO + BROKEN + b"\0\xff" + FOO + FOO[:9])
    assert (code, errors) == (1, "")
    assert words(output) == [
        *FOO_WORDS,
        "76 damage: 78 bytes",
        f"114 ! BAD_DIGITS: {BAD_DIGITS}3FooP0400000000'",
        rf"76 {BROKEN.decode()}\x00\xff",
        *moved(FOO_WORDS, 154),
        "230 damage: 9 bytes",
        "230 ! TRUNCATED: expected the rest of the frame",
        "230 H0100202P",
    ]


def test_damaged_bytes_are_cut_like_contents(run: Run) -> None:
    code, output, errors = run("inspect", stdin=b"\x1b" * 1000 + FOO)
    lines = output.decode().splitlines()
    assert (code, errors) == (1, "")
    assert lines[0] == "         0  damage: 1000 bytes"
    assert lines[2].split()[0] == "0"
    assert r"\x1b\x1b\x1b" in lines[2]
    assert lines[2].endswith("…")
    assert 76 <= len(lines[2]) <= 80
    assert words(output)[3:] == moved(FOO_WORDS, 1000)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (ODD, f"BAD_INTEGER at offset 151: {BAD_INTEGER}"),
        (BROKEN, f"BAD_DIGITS at offset 114: {BAD_DIGITS}'"),
        (UNKNOWN, "UNKNOWN_MESSAGE_TYPE at offset 79: expected a message type from 001 to 006, found b'042'"),
    ],
)
def test_with_raise_it_ends_at_the_first_fault(run: Run, bad: bytes, error: str) -> None:
    code, output, errors = run("inspect", "--on-fault", "raise", stdin=FOO + bad + FOO)
    lines = words(output)
    assert (code, errors) == (1, f"phpmq: <stdin>: frame 2: {error}\n")
    assert lines[:5] == FOO_WORDS
    assert any(line.startswith("119 P ") for line in lines) is (bad != BROKEN)
    assert not [line for line in lines if line.startswith("152 ")]


def test_with_raise_the_next_file_has_its_turn(run: Run, tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", ODD), write(tmp_path / "good", FOO)
    code, output, errors = run("inspect", "--on-fault", "raise", bad, good)
    assert (code, errors.count("\n")) == (1, 1)
    assert words(output)[-6:] == [f"{good}:", *FOO_WORDS]


# Some of the frames


@pytest.mark.parametrize(("limit", "code"), [("1", 0), ("2", 1), ("3", 1)])
def test_the_limit_counts_frames_and_damage(run: Run, limit: str, code: int) -> None:
    result = run("inspect", "--limit", limit, stdin=FOO + b"junk" + FOO + b"junk")
    damage = ["76 damage: 4 bytes", f"76 ! NOT_A_MESSAGE: {NOT_A_MESSAGE}", "76 junk"]
    assert (result.code, result.errors) == (code, "")
    assert words(result.output) == [*FOO_WORDS, *damage, *moved(FOO_WORDS, 80)][: {"1": 5, "2": 8, "3": 13}[limit]]


def test_the_limit_is_for_all_files_together(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", FOO), write(tmp_path / "2", FOO * 2)
    code, output, errors = run("inspect", "--limit", "2", first, second)
    assert (code, errors) == (0, "")
    assert [line for line in words(output) if line] == [f"{first}:", *FOO_WORDS, f"{second}:", *FOO_WORDS]


def test_offset(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x", FOO * 2 + HELLO)
    _, output, _ = run("inspect", "--offset", "152", path)
    assert words(output) == moved(words(HELLO_LINES), 152)
    _, output, _ = run("inspect", "--offset", "76", "--limit", "1", stdin=FOO * 2 + HELLO)
    assert words(output) == moved(FOO_WORDS, 76)
    assert run("inspect", "--offset", "10000", path) == (0, b"", "")
    code, output, errors = run("inspect", "--offset", "1", path)
    assert (code, words(output)[0], errors) == (1, "1 damage: 75 bytes", "")


# Colours


def styles(line: str) -> list[str]:
    """The style that each character of a line is in."""
    style, found = "", []
    for part in STYLE.split(line):
        if STYLE.fullmatch(part):
            style = "" if part in ("\x1b[0m", "\x1b[m") else style + part
        else:
            found += [style] * len(part)
    return found


def test_each_kind_of_field_has_its_colour(run: Run) -> None:
    code, output, errors = run("inspect", "--color", "always", stdin=HELLO)
    assert (code, errors) == (0, "")
    assert STYLE.sub("", output.decode()) == HELLO_LINES
    message, queue, _, content, *_ = map(styles, output.decode().splitlines())
    version, type_, count = (message[column] for column in (15, 19, 22))
    packet_type, length = (queue[column] for column in (17, 47))
    assert len({version, type_, count, ""}) == 4
    assert len({packet_type, length, ""}) == 3
    assert (content[14], content[17], content[47]) == (queue[14], packet_type, length)


@pytest.mark.parametrize(
    ("options", "variables", "coloured"),
    [
        (["--color", "auto"], {}, False),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_in_a_pipe(run: Run, options: list[str], variables: dict[str, str], coloured: bool) -> None:
    code, output, errors = run("inspect", *options, stdin=HELLO, **variables)
    assert (code, b"\x1b[" in output, errors) == (0, coloured, "")
    assert STYLE.sub("", output.decode()) == HELLO_LINES


@pytest.mark.parametrize(("when", "coloured"), [("auto", True), ("never", False)])
def test_colours_on_a_terminal(when: str, coloured: bool) -> None:
    code, output, errors = in_terminal("inspect", "--color", when, stdin=HELLO)
    assert (code, b"\x1b[" in output, errors) == (0, coloured, "")
    assert STYLE.sub("", output.decode()) == HELLO_LINES


# Listings

HELLO_LISTING = (
    b"H0100103\n"
    b"P0100000000000000000000000000003\nFoo\n"
    b"P0200000000000000000000000000011\nHello World\n"
    b"P0500000000000000000000000000004\n3600\n"
)


def test_a_listing(run: Run) -> None:
    assert run("inspect", "--listing", stdin=HELLO * 2) == (0, HELLO_LISTING * 2, "")


@pytest.mark.parametrize("size", [32, 35, 36])
@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
def test_a_listing_has_the_bytes_of_the_wire(run: Run, content: bytes, size: int) -> None:
    frame = [message_header(1, 2), packet_header(2, len(content), size), content, packet_header(1, 0, size), b""]
    result = run("inspect", "--listing", "--packet-header-size", str(size), stdin=b"".join(frame))
    assert result == (0, b"".join(part + b"\n" for part in frame), "")


def test_several_files_make_one_listing(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "x", HELLO)
    assert run("inspect", "--listing", path, path, path).output == HELLO_LISTING * 3


def test_a_listing_leaves_damage_out(run: Run) -> None:
    code, output, errors = run("inspect", "--listing", stdin=b"junk" + HELLO + BROKEN + HELLO + FOO[:9])
    assert (code, output) == (1, HELLO_LISTING * 2)
    assert errors == (
        f"phpmq: <stdin>: damaged at 0, 4 bytes: NOT_A_MESSAGE at offset 0: {NOT_A_MESSAGE}\n"
        f"phpmq: <stdin>: damaged at 126, 76 bytes: BAD_DIGITS at offset 164: {BAD_DIGITS}3FooP0400000000'\n"
        "phpmq: <stdin>: damaged at 324, 9 bytes: TRUNCATED at offset 324: expected the rest of the frame\n"
    )


def test_a_listing_has_unknown_frames_too(run: Run) -> None:
    _, output, errors = run("inspect", "--listing", stdin=UNKNOWN)
    assert output == (b"H0104202\nP0100000000000000000000000000003\nFoo\nP7700000000000000000000000000001\n?\n")
    assert "damaged" not in errors


def test_offset_and_limit_of_a_listing(run: Run) -> None:
    result = run("inspect", "--listing", "--offset", "76", "--limit", "1", stdin=FOO + HELLO + FOO)
    assert result == (0, HELLO_LISTING, "")


@pytest.mark.parametrize("columns", [1, 5, 18, 24])
def test_a_window_that_is_too_narrow_ends_nothing(run: Run, columns: int) -> None:
    code, output, errors = run("inspect", stdin=HELLO + b"junk" + ODD, COLUMNS=str(columns))
    assert (code, errors) == (1, "")
    assert [line.split()[0] for line in output.decode().splitlines()][:7] == ["0", "8", "40", "43", "75", "86", "118"]


def test_a_narrow_window_shortens_what_is_not_content(run: Run) -> None:
    assert run("inspect", stdin=HELLO, COLUMNS="40") == (
        0,
        """\
         0  H 01 001 03  Send: 3 packet…
         8    P 01 …3  queue name: 3 by…
        40      Foo
        43    P 02 …11  content: 11 byt…
        75      Hello World
        86    P 05 …4  time to live: 4 …
       118      3600
""".encode(),
        "",
    )


def test_a_listing_is_escaped_where_output_is_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = message_wire("Send", {"queue": "Foo", "content": b"a\n\x1b[31m"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("inspect", "--listing", stdin=wire).output.splitlines()[-1] == rb"a\n\x1b[31m"


def test_a_listing_on_a_terminal_is_escaped() -> None:
    wire = message_wire("Send", {"queue": "Grüße", "content": b"\x1b[31m\n\\"})
    code, output, errors = in_terminal("inspect", "--listing", stdin=wire)
    assert (code, errors) == (0, "")
    assert STYLE.sub("", output.decode()).splitlines() == [
        "H0100102",
        "P0100000000000000000000000000007",
        "Grüße",
        "P0200000000000000000000000000007",
        r"\x1b[31m\n\\",
    ]

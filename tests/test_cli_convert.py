"""``phpmq convert``: other packet header sizes, and listings to bytes and back."""

from __future__ import annotations

import re
import subprocess
from itertools import cycle
from pathlib import Path

import pytest
from command import (
    ADVERSARIAL_CONTENTS,
    BAD_DIGITS,
    BROKEN,
    CAPTURES,
    COMMAND,
    FOO,
    HELLO,
    NOT_A_MESSAGE,
    ODD,
    REORDERED,
    UNKNOWN,
    Run,
    in_terminal,
    write,
)
from wire import VECTORS, message_header, packet_header, parts, read_vectors

SIZES = (32, 35, 36)
#: Frames as type and packets: known and unknown ones, in any order, repeated, empty.
FRAMES: list[tuple[int, list[tuple[int, bytes]]]] = [
    (2, [(1, b"Foo"), (4, b"5")]),
    (1, [(5, b"3600"), (2, b"Hello World"), (1, b"Foo")]),
    (1, [(1, b""), (2, b"")]),
    (0, []),
    (999, [(99, b"?"), (0, b""), (99, b"?")]),
    (4, [(1, b"Foo"), (1, b"Foo"), (3, b"x")]),
    (2, [(1, b"Foo"), (4, b"no number")]),
    (3, [(kind, content) for kind, content in enumerate(ADVERSARIAL_CONTENTS)]),
    (6, [(7, b"x")] * 99),
]


def stream(size: int) -> bytes:
    return b"".join(b"".join(parts(*frame, size)) for frame in FRAMES)


# Sizes


@pytest.mark.parametrize("given", SIZES)
@pytest.mark.parametrize("wanted", SIZES)
@pytest.mark.parametrize("auto", [False, True])
def test_sizes(run: Run, given: int, wanted: int, auto: bool) -> None:
    options = ["--from", "auto" if auto else str(given), "--to", str(wanted)]
    assert run("convert", *options, stdin=stream(given)) == (0, stream(wanted), "")


def test_32_is_the_default(run: Run) -> None:
    assert run("convert", stdin=stream(32)) == (0, stream(32), "")
    assert run("convert", "--from", "36", "-", stdin=stream(36)) == (0, stream(32), "")
    assert run("convert", "--to", "35", "-", stdin=stream(32)) == (0, stream(35), "")


@pytest.mark.parametrize("size", [32, 35])  # it never wrote 36
def test_what_the_original_wrote(run: Run, size: int) -> None:
    vectors = [vector for vector in read_vectors() if vector.wire and not vector.refused]
    given = {(vector.message, str(vector.fields)): vector.wire for vector in vectors if vector.size == size}
    wanted = {(vector.message, str(vector.fields)): vector.wire for vector in vectors if vector.size == 32}
    both = given.keys() & wanted.keys()
    assert len(both) > 10
    wires = b"".join(given[key] for key in both), b"".join(wanted[key] for key in both)
    assert run("convert", "--from", str(size), stdin=wires[0]) == (0, wires[1], "")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("size", SIZES)
def test_captures_there_and_back(run: Run, capture: Path, size: int) -> None:
    code, there, errors = run("convert", "--to", str(size), capture)
    packets = (len(there) - capture.stat().st_size) / (size - 32) if size > 32 else None
    assert (code, errors) == (0, "")
    assert packets in (None, {1059: 5 * 2 + 2 + 5 * 2, 768: 5 * 3}[capture.stat().st_size])
    assert run("convert", "--from", str(size), stdin=there) == (0, capture.read_bytes(), "")


def test_several_files_with_sizes_of_their_own(run: Run, tmp_path: Path) -> None:
    paths = [write(tmp_path / str(size), stream(size)) for size in SIZES]
    assert run("convert", "--from", "auto", "--to", "36", *paths) == (0, stream(36) * 3, "")


def test_wrong_sizes(run: Run) -> None:
    for options in (["--to", "auto"], ["--to", "33"], ["--from", "33"], ["--to", ""]):
        code, output, errors = run("convert", *options, stdin=FOO)
        assert (code, output, errors.count("\n")) == (2, b"", 1)


# Damage


@pytest.mark.parametrize("options", [[], ["--on-fault", "raise"]])
def test_what_stands_before_a_fault_is_written(run: Run, options: list[str]) -> None:
    code, output, errors = run("convert", *options, stdin=ODD + UNKNOWN + BROKEN + FOO)
    assert (code, output) == (1, ODD + UNKNOWN)
    assert errors == f"phpmq: <stdin>: frame 3: BAD_DIGITS at offset 190: {BAD_DIGITS}'\n"


def test_with_skip_damage_is_left_out(run: Run) -> None:
    wire = b"junk" + ODD + BROKEN + REORDERED + FOO[:9]
    code, output, errors = run("convert", "--on-fault", "skip", stdin=wire)
    assert (code, output) == (1, ODD + REORDERED)
    assert errors == (
        f"phpmq: <stdin>: damaged at 0, 4 bytes: NOT_A_MESSAGE at offset 0: {NOT_A_MESSAGE}\n"
        f"phpmq: <stdin>: damaged at 80, 76 bytes: BAD_DIGITS at offset 118: {BAD_DIGITS}3FooP0400000000'\n"
        "phpmq: <stdin>: damaged at 233, 9 bytes: TRUNCATED at offset 233: expected the rest of the frame\n"
    )


def test_the_limit(run: Run) -> None:
    assert run("convert", "--max-frame-size", "76", stdin=FOO) == (0, FOO, "")
    code, output, errors = run("convert", "--max-frame-size", "75", stdin=FOO)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: frame 1: TOO_LARGE at offset 46: ")


# Listings

MIXED = "mixed"
BREAKS = {"LF": b"\n", "CRLF": b"\r\n", MIXED: b""}


def listing(parts: list[bytes], breaks: str = "LF") -> bytes:
    """Each part with a line break behind it, of one kind or of both in turn."""
    ends = cycle([b"\r\n", b"\n", b"\n"] if breaks == MIXED else [BREAKS[breaks]])
    return b"".join(part + next(ends) for part in parts)


def read_examples() -> list[tuple[str, list[bytes]]]:
    """The examples in the documents of the original, line by line, with the document's name."""
    examples = []
    for path in sorted((VECTORS / "documents").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"```\w*\n(H.*?)\n```", text[text.index("## Full message examples") :], re.DOTALL)
        examples += [(path.stem, example.encode().split(b"\n")) for example in found]
    return examples


EXAMPLES = read_examples()


def test_that_all_examples_are_there() -> None:
    assert len(EXAMPLES) == 4 + 6 + 6 + 4
    assert {len(lines[1]) for name, lines in EXAMPLES if name == "specification_without_ttl"} == {36}
    assert {len(lines[1]) for name, lines in EXAMPLES if name != "specification_without_ttl"} == {32}


@pytest.mark.parametrize(("name", "lines"), EXAMPLES)
@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("last", [True, False])
def test_the_examples_of_the_documents(run: Run, name: str, lines: list[bytes], breaks: str, last: bool) -> None:
    text = listing(lines, breaks)
    text = text if last else text.rstrip()
    size = len(lines[1])
    wire = run("convert", "--from-listing", "--to", str(size), stdin=text)
    assert wire == (0, b"".join(lines), "")
    assert run("convert", "--from-listing", "--from", str(size), "--to", str(size), stdin=text) == wire
    shown = run("inspect", "--listing", "--packet-header-size", str(size), stdin=wire.output)
    assert shown == (0, listing(lines), "")


def test_all_examples_of_a_document_at_once(run: Run) -> None:
    old = [lines for name, lines in EXAMPLES if name == "specification_without_ttl"]
    new = [lines for name, lines in EXAMPLES if name == "readme_without_ttl"]
    text = b"\n\r\n" + b"\n".join(map(listing, old)) + b"\n\n"
    assert [len(lines) for lines in old] == [len(lines) for lines in new]
    assert run("convert", "--from-listing", stdin=text) == (0, b"".join(b"".join(lines) for lines in new), "")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("breaks", BREAKS)
def test_listings_of_all_frames(run: Run, size: int, breaks: str) -> None:
    text = b"".join(listing(parts(*frame, size), breaks) for frame in FRAMES)
    assert run("convert", "--from-listing", "--to", str(size), stdin=text) == (0, stream(size), "")
    assert run("convert", "--from-listing", "--from", str(size), stdin=text) == (0, stream(32), "")


@pytest.mark.parametrize("content", ADVERSARIAL_CONTENTS, ids=range(len(ADVERSARIAL_CONTENTS)))
@pytest.mark.parametrize("breaks", BREAKS)
def test_contents_of_listings_are_never_searched(run: Run, content: bytes, breaks: str) -> None:
    frame = parts(1, [(1, content), (2, content + b"\n")])
    text = listing(frame, breaks) + listing(parts(1, [(1, b""), (2, b"\r\n" + content)]), breaks)
    wire = b"".join(frame) + b"".join(parts(1, [(1, b""), (2, b"\r\n" + content)]))
    assert run("convert", "--from-listing", stdin=text) == (0, wire, "")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_captures_survive_the_way_through_a_listing(run: Run, capture: Path, tmp_path: Path) -> None:
    shown = run("inspect", "--listing", capture)
    back = run("convert", "--from-listing", stdin=shown.output)
    assert (shown.code, shown.errors, back) == (0, "", (0, capture.read_bytes(), ""))
    path = write(tmp_path / "listing.txt", shown.output)
    assert run("convert", "--from-listing", path, path).output == capture.read_bytes() * 2


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\n\n\r\n"])
def test_a_listing_of_nothing(run: Run, text: bytes) -> None:
    assert run("convert", "--from-listing", stdin=text) == (0, b"", "")


def test_listings_with_sizes_of_their_own(run: Run, tmp_path: Path) -> None:
    paths = [write(tmp_path / str(size), listing(parts(*FRAMES[0], size))) for size in SIZES]
    assert run("convert", "--from-listing", *paths) == (0, FOO * 3, "")


FOO_PARTS = parts(*FRAMES[0])


@pytest.mark.parametrize(
    ("lines", "number", "complaint"),
    [
        ([b"junk"], 1, "NOT_A_MESSAGE expected a message header, which starts with 'H', found b'junk"),
        ([b"H0200202", *FOO_PARTS[1:]], 1, "UNSUPPORTED_VERSION expected protocol version 01, found b'02"),
        ([b"H01x0202", *FOO_PARTS[1:]], 1, "BAD_DIGITS expected a digit 0-9 in a header field, found b'x"),
        ([FOO_PARTS[0], b"Q" + FOO_PARTS[1][1:]], 2, "NOT_A_PACKET expected a packet header, which starts with 'P'"),
        ([*FOO_PARTS[:3], b"P04" + b"0" * 28 + b"x", b"5"], 4, "BAD_DIGITS expected a digit 0-9 in a header field"),
        ([*FOO_PARTS[:3], *FOO_PARTS], 4, "NOT_A_PACKET expected a packet header, which starts with 'P', found b'H"),
        ([*FOO_PARTS[:2], b"Foox", *FOO_PARTS[3:]], 3, "expected a line break behind a content of 3 bytes, found b'x"),
        ([*FOO_PARTS[:2], b"F", *FOO_PARTS[3:]], 3, "expected a line break behind a content of 3 bytes, found b'"),
        ([FOO_PARTS[0] + FOO_PARTS[1], *FOO_PARTS[2:]], 1, "expected a line break behind a header"),
        ([*FOO_PARTS[:3], FOO_PARTS[3] + FOO_PARTS[4]], 4, "expected a line break behind a header"),
        ([b"".join(FOO_PARTS)], 1, "expected a line break behind a header"),
    ],
)
@pytest.mark.parametrize("breaks", BREAKS)
def test_faults_of_a_listing_name_the_line(
    run: Run, lines: list[bytes], number: int, complaint: str, breaks: str
) -> None:
    before = parts(1, [(2, b"one\ntwo\n\n"), (1, b"Foo")])
    text = b"\n" + listing(before, breaks) + b"\r\n"
    lines_before = text.count(b"\n")
    for options in ([], ["--from", "32"]):
        code, output, errors = run("convert", "--from-listing", *options, stdin=text + listing(lines, breaks))
        assert (code, output) == (1, b"".join(before))
        assert errors.startswith(f"phpmq: <stdin>: line {lines_before + number}: ")
        fault, _, rest = complaint.partition(" expected ")
        where = rf"{fault}( at [^:]*)?: expected " if rest else ""
        assert re.search(f"line \\d+: {where}{re.escape(rest or complaint)}", errors)
        assert errors.count("\n") == 1


@pytest.mark.parametrize("end", range(1, len(FOO_PARTS)))
def test_a_listing_that_is_cut_off(run: Run, end: int) -> None:
    for text in (listing(FOO_PARTS[:end]), listing(FOO_PARTS[:end]).rstrip(), listing(FOO_PARTS[:end])[:-2]):
        code, output, errors = run("convert", "--from-listing", stdin=listing(parts(*FRAMES[1])) + text)
        assert (code, output) == (1, b"".join(parts(*FRAMES[1])))
        assert re.match(r"phpmq: <stdin>: line \d+: TRUNCATED", errors)
        assert errors.count("\n") == 1


def test_a_listing_goes_on_behind_a_fault(run: Run) -> None:
    broken = [*FOO_PARTS[:3], b"P04" + b"0" * 28 + b"x", b"5"]
    text = b"junk\n\nmore junk\n" + listing(FOO_PARTS) + listing(broken) + listing(parts(42, [(77, b"?")])) + b"junk"
    code, output, errors = run("convert", "--from-listing", "--on-fault", "skip", stdin=text)
    assert (code, output) == (1, FOO + b"".join(parts(42, [(77, b"?")])))
    assert [
        re.sub(r"( at [^:]*)?:.*", "", error.removeprefix("phpmq: <stdin>: ")) for error in errors.splitlines()
    ] == (["line 1", "line 12", "line 17"])
    code, output, errors = run("convert", "--from-listing", stdin=text)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: line 1: NOT_A_MESSAGE")


def test_lines_of_eight_bytes_that_are_no_headers(run: Run) -> None:
    text = b"junkjunk\nH01\nJ0100102\nH0100x02\n" + listing(FOO_PARTS)
    code, output, errors = run("convert", "--from-listing", "--on-fault", "skip", stdin=text)
    assert (code, output) == (1, FOO)
    assert errors.startswith("phpmq: <stdin>: line 1: NOT_A_MESSAGE: expected ")
    code, output, errors = run("convert", "--from-listing", stdin=b"H01\n" + listing(FOO_PARTS))
    assert (code, output, errors) == (1, b"", "phpmq: <stdin>: line 1: expected a header of 8 bytes, found b'H01'\n")


def test_frames_of_a_listing_come_as_they_are_typed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "convert", "--from-listing"], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(listing(FOO_PARTS))
            process.stdin.flush()
            assert process.stdout.read(len(FOO)) == FOO
        process.stdin.close()
    assert process.returncode == 0


def test_the_limit_of_a_frame_in_a_listing(run: Run) -> None:
    text = listing(FOO_PARTS)
    assert run("convert", "--from-listing", "--max-frame-size", "76", stdin=text) == (0, FOO, "")
    code, output, errors = run("convert", "--from-listing", "--max-frame-size", "75", stdin=text)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: line 4: TOO_LARGE")


def test_a_length_without_its_content_takes_no_memory(run: Run) -> None:
    text = message_header(1, 2) + b"\n" + packet_header(2, 2**62) + b"\nabc\n"
    code, output, errors = run("convert", "--from-listing", stdin=text)
    assert (code, output) == (1, b"")
    assert errors.startswith("phpmq: <stdin>: line 2: TOO_LARGE")


def test_a_listing_on_the_wire_is_no_listing_any_more(run: Run) -> None:
    code, output, errors = run("convert", stdin=listing(FOO_PARTS))
    assert (code, output) == (1, b"")
    assert "looks like a listing" in errors


def test_convert_writes_no_bytes_to_a_terminal_but_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    code, output, errors = in_terminal("convert", stdin=HELLO)
    assert (code, output) == (2, b"")
    assert "not for a terminal" in errors
    assert in_terminal("convert", "-o", path, stdin=HELLO) == (0, b"", "")
    assert path.read_bytes() == HELLO

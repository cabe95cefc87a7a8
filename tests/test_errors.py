"""The texts of errors, and that errors survive a pickle, a copy and a comparison."""

from __future__ import annotations

import copy
import pickle

import pytest

from phpmq import Fault, IncompleteMessage, ProtocolError
from phpmq.errors import foreign_hint, header_size_hint, number_text

BAD_DIGITS = ProtocolError(Fault.BAD_DIGITS, 39, b"x")
HINTED = ProtocolError(Fault.NOT_A_PACKET, 8, b"\nP01", "this looks like a listing")
INCOMPLETE = IncompleteMessage(70, b"H01", 5)
HINTED_INCOMPLETE = IncompleteMessage(0, b"H0100402", 64, "the frame is whole with packet_header_size=36")
EVERY_KIND = [BAD_DIGITS, HINTED, INCOMPLETE, HINTED_INCOMPLETE]


def test_the_faults_in_the_order_that_decides_between_them_and_what_was_expected() -> None:
    assert [(fault.name, fault.value) for fault in Fault] == [
        ("NOT_A_MESSAGE", "a message header, which starts with 'H'"),
        ("BAD_DIGITS", "a digit 0-9 in a header field"),
        ("UNSUPPORTED_VERSION", "protocol version 01"),
        ("UNKNOWN_MESSAGE_TYPE", "a message type from 001 to 006"),
        ("PACKET_COUNT_MISMATCH", "a packet count that this message type has"),
        ("NOT_A_PACKET", "a packet header, which starts with 'P'"),
        ("UNEXPECTED_PACKET", "a packet type that this message has"),
        ("DUPLICATE_PACKET", "each packet type once"),
        ("TOO_LARGE", "a length that keeps the frame within max_frame_size"),
        ("BAD_INTEGER", "a canonical decimal integer from 0 to 2**63-1"),
        ("TRUNCATED", "the rest of the frame"),
        ("TRAILING_DATA", "nothing after the one frame"),
    ]


def test_one_base_that_is_a_value_error() -> None:
    assert issubclass(IncompleteMessage, ProtocolError)
    assert issubclass(ProtocolError, ValueError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BAD_DIGITS, "BAD_DIGITS at offset 39: expected a digit 0-9 in a header field, found b'x'"),
        (
            HINTED,
            "NOT_A_PACKET at offset 8: expected a packet header, which starts with 'P', found b'\\nP01'"
            " (this looks like a listing)",
        ),
        (INCOMPLETE, "TRUNCATED at offset 70: the input ends inside this frame, at least 5 bytes are missing"),
        (
            HINTED_INCOMPLETE,
            "TRUNCATED at offset 0: the input ends inside this frame, at least 64 bytes are missing"
            " (the frame is whole with packet_header_size=36)",
        ),
    ],
)
def test_texts(error: ProtocolError, text: str) -> None:
    assert str(error) == text


def test_one_missing_byte_is_singular() -> None:
    assert str(IncompleteMessage(0, b"H010010", 1)).endswith(", at least 1 byte is missing")


@pytest.mark.parametrize("fault", Fault)
def test_a_text_is_one_line_whatever_was_found(fault: Fault) -> None:
    text = str(ProtocolError(fault, 2**63 - 1, b"\r\n\x00\x85\xff'\"\\"))
    assert text.splitlines() == [text]
    assert text.startswith(f"{fault.name} at offset 9223372036854775807: expected {fault.value}, found b")


def test_reprs() -> None:
    assert repr(HINTED) == (f"ProtocolError({Fault.NOT_A_PACKET!r}, 8, {HINTED.found!r}, 'this looks like a listing')")
    assert repr(INCOMPLETE) == "IncompleteMessage(70, b'H01', 5, '')"


def test_attributes() -> None:
    assert (BAD_DIGITS.fault, BAD_DIGITS.offset, BAD_DIGITS.found, BAD_DIGITS.hint) == (Fault.BAD_DIGITS, 39, b"x", "")
    assert (INCOMPLETE.fault, INCOMPLETE.offset, INCOMPLETE.found) == (Fault.TRUNCATED, 70, b"H01")
    assert (INCOMPLETE.missing, INCOMPLETE.hint) == (5, "")
    assert HINTED_INCOMPLETE.hint == "the frame is whole with packet_header_size=36"
    assert ProtocolError(Fault.TOO_LARGE, 11).found == b""


@pytest.mark.parametrize("error", EVERY_KIND, ids=repr)
def test_copies_are_equal_and_complete(error: ProtocolError) -> None:
    pickles = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [copy.copy(error), copy.deepcopy(error), *pickles]:
        assert twin is not error
        assert type(twin) is type(error)
        assert twin == error
        assert hash(twin) == hash(error)
        assert (str(twin), vars(twin)) == (str(error), vars(error))


@pytest.mark.parametrize(
    "other",
    [
        ProtocolError(Fault.BAD_INTEGER, 39, b"x"),
        ProtocolError(Fault.BAD_DIGITS, 40, b"x"),
        ProtocolError(Fault.BAD_DIGITS, 39, b"y"),
        ProtocolError(Fault.BAD_DIGITS, 39, b"x", "hint"),
        IncompleteMessage(39, b"x", 1),
        ValueError(Fault.BAD_DIGITS, 39, b"x", ""),
    ],
    ids=repr,
)
def test_errors_that_differ_are_unequal(other: Exception) -> None:
    assert other != BAD_DIGITS
    assert hash(other) != hash(BAD_DIGITS)


def test_how_much_is_missing_makes_a_difference() -> None:
    assert IncompleteMessage(70, b"H01", 4) != INCOMPLETE


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        (b"HTTP/1.1", "this looks like HTTP"),
        (b"GET / HT", "this looks like HTTP"),
        (b"HEAD / H", "this looks like HTTP"),
        (b"POST /qu", "this looks like HTTP"),
        (b"PUT /que", "this looks like HTTP"),
        (b"OPTIONS ", "this looks like HTTP"),
        (b"SSH-2.0-", "this looks like SSH"),
        (b"\x15\x03\x01\x00", "this looks like TLS"),
        (b"\x16\x03\x01\x02", "this looks like TLS"),
        (b"\nP010000", "line breaks are not on the wire; this looks like a listing"),
        (b"\r\nP01000", "line breaks are not on the wire; this looks like a listing"),
        (b"", ""),
        (b"H0100103", ""),
        (b"P0100000", ""),
        (b"GETAWAY", ""),
        (b"\x16", ""),
    ],
)
def test_foreign_hints(header: bytes, hint: str) -> None:
    assert foreign_hint(header) == hint


def test_the_hint_for_another_header_size() -> None:
    assert header_size_hint(35) == "the frame is whole with packet_header_size=35"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (-5, "-5"), (2**128 - 1, str(2**128 - 1)), (2**128, "a number of 129 bits")]
)
def test_numbers(number: int, text: str) -> None:
    assert number_text(number) == text

"""Wrong arguments: both codecs refuse the same ones, at the call, with the same class, and say which one is wrong."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import pytest

STRIDED = memoryview(bytes(8))[::2]

#: Good arguments, by message.
FIELDS: dict[str, dict[str, Any]] = {
    "Send": {"queue": "q", "content": b"", "ttl": None},
    "Consume": {"queue": "q", "count": 1},
    "Dispatch": {"queue": "q", "content": b"", "message_id": "m", "ttl": None},
    "Acknowledge": {"queue": "q", "message_id": "m"},
    "Requeue": {"queue": "q", "message_id": "m", "ttl": 0},
    "DeadLetter": {"queue": "q", "message_id": "m"},
    "Receipt": {"queue": "q", "message_id": "m"},
}
#: Values, and what refuses them.
Wrong = list[tuple[type[Exception], Any]]
NOT_TEXT: Wrong = [(TypeError, b"x"), (TypeError, None), (TypeError, 1)]
NOT_BYTES: Wrong = [(TypeError, "x"), (TypeError, None), (TypeError, 1), (TypeError, [1]), (TypeError, STRIDED)]
NOT_INTEGERS: Wrong = [(TypeError, True), (TypeError, "1"), (TypeError, b"1"), (TypeError, 1.0), (ValueError, -1)]

WRONG_FIELDS: Mapping[str, Wrong] = {
    "queue": [*NOT_TEXT, *((ValueError, text) for text in ("\ud800", "x\udc7f", "\udd00x", "\udfff"))],
    "message_id": [*NOT_TEXT, (ValueError, "\ud800")],
    "content": NOT_BYTES,
    "count": [*NOT_INTEGERS, (TypeError, None), (ValueError, 2**63), (ValueError, 10**30)],
    "ttl": [*NOT_INTEGERS, (ValueError, 2**63), (ValueError, 10**30)],
}
WRONG_OPTIONS: Mapping[str, Wrong] = {
    "packet_header_size": [
        *((TypeError, value) for value in (None, True, "32", 32.0)),
        *((ValueError, value) for value in (-32, 0, 31, 33, 34, 37, 2**70)),
    ],
    "max_frame_size": [
        *((TypeError, value) for value in (False, "9", 9.0, b"9")),
        *((ValueError, value) for value in (-1, 0, 7, 2**63, 2**70)),
    ],
    "on_fault": [
        *((TypeError, value) for value in (None, b"skip", 1)),
        *((ValueError, value) for value in ("", "Skip", "ignore", "skip\0")),
    ],
}
#: Calls that read, with good arguments, and the options that they take.
READERS: Mapping[str, tuple[str, ...]] = {
    "decode": ("packet_header_size", "max_frame_size"),
    "scan": ("packet_header_size", "max_frame_size"),
    "iter_messages": ("packet_header_size", "max_frame_size", "on_fault"),
    "iter_frames": ("packet_header_size", "max_frame_size", "on_fault"),
}
GOOD = b"H0100402P0100000000000000000000000000000P0300000000000000000000000000000"


def refused(error: type[Exception], word: str, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """The call raises just this class, not a subclass, with a text that holds this word."""
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    assert caught.type is error, f"{args} {kwargs}"
    assert word in str(caught.value)


@pytest.mark.parametrize(("name", "good"), FIELDS.items(), ids=FIELDS)
def test_message_fields(codec: ModuleType, name: str, good: dict[str, Any]) -> None:
    make = getattr(codec, name)
    message = make(**good)
    for field in good:
        wrong = list(WRONG_FIELDS[field])
        if name == "Requeue" and field == "ttl":
            wrong.append((TypeError, None))
        for error, value in wrong:
            refused(error, f"{field} ", make, **{**good, field: value})
            refused(error, f"{field} ", make, *{**good, field: value}.values())
            refused(error, f"{field} ", message.__replace__, **{field: value})


@pytest.mark.parametrize(("name", "good"), FIELDS.items(), ids=FIELDS)
def test_message_arity(codec: ModuleType, name: str, good: dict[str, Any]) -> None:
    make = getattr(codec, name)
    values = list(good.values())
    required = [field for field in good if not (field == "ttl" and good["ttl"] is None)]
    for field in required:
        refused(TypeError, "", make, **{other: value for other, value in good.items() if other != field})
    refused(TypeError, "", make, *values, None)
    refused(TypeError, "unknown", make, **good, unknown=1)
    refused(TypeError, "queue", make, *values, queue="q")
    refused(TypeError, "unknown", make(**good).__replace__, unknown=1)
    refused(TypeError, "", make(**good).__replace__, "q")


def test_message_fields_are_checked_in_order(codec: ModuleType) -> None:
    refused(TypeError, "queue", codec.Dispatch, b"", "", b"", True)
    refused(TypeError, "content", codec.Dispatch, "", "", b"", True)
    refused(TypeError, "message_id", codec.Dispatch, "", b"", b"", True)
    refused(ValueError, "queue", codec.Consume, "\ud800", None)


def test_texts_that_help(codec: ModuleType) -> None:
    refused(TypeError, "decode", codec.Acknowledge, b"q", "m")
    refused(TypeError, ".encode()", codec.Send, "q", "content")
    refused(TypeError, "data must be a C-contiguous bytes-like object, not str", codec.decode, "x")


HUGE = 10**5000

#: Calls with one wrong argument, how their text names it, and what the text ends with: its class, or itself.
TOLD: list[tuple[str, str, Callable[[ModuleType], object]]] = [
    ("data", "int", lambda codec: codec.decode(5)),
    ("data", "int", lambda codec: codec.scan(5)),
    ("data", "int", lambda codec: codec.iter_messages(5)),
    ("data", "int", lambda codec: codec.iter_frames(5)),
    ("data", "int", lambda codec: codec.detect_packet_header_size(5)),
    ("data", "int", lambda codec: codec.Decoder().feed(5)),
    ("data", "int", lambda codec: codec._decode_columns(5, [], max_rows=1, max_bytes=1)),
    ("data", "int", lambda codec: codec._find_frame(5, 0)),
    ("data", "memoryview", lambda codec: codec.decode(STRIDED)),
    ("queue", "NoneType", lambda codec: codec.Acknowledge(None, "")),
    ("queue", "it", lambda codec: codec.Acknowledge(b"", "")),
    ("message_id", "int", lambda codec: codec.Acknowledge("", 5)),
    ("content", "NoneType", lambda codec: codec.Send("", None)),
    ("content", "memoryview", lambda codec: codec.Send("", STRIDED)),
    ("content", "str; .encode() it", lambda codec: codec.Send("", "")),
    ("ttl", "float", lambda codec: codec.Send("", b"", 1.0)),
    ("ttl", "-1", lambda codec: codec.Requeue("", "", -1)),
    ("count", "9223372036854775808", lambda codec: codec.Consume("", 2**63)),
    ("packet_header_size", "NoneType", lambda codec: codec.decode(GOOD, packet_header_size=None)),
    ("packet_header_size", "33", lambda codec: codec.decode(GOOD, packet_header_size=33)),
    ("max_frame_size", "str", lambda codec: codec.decode(GOOD, max_frame_size="8")),
    ("max_frame_size", "7", lambda codec: codec.decode(GOOD, max_frame_size=7)),
    ("on_fault", "int", lambda codec: codec.iter_messages(GOOD, on_fault=5)),
    ("on_fault", "'ignore'", lambda codec: codec.iter_messages(GOOD, on_fault="ignore")),
    ("message", "NoneType", lambda codec: codec.encode(None)),
    ("message", "NoneType", lambda codec: codec.encode_into(None, bytearray(100))),
    ("messages[1]", "int", lambda codec: codec.encode_many([codec.Consume("", 1), 5])),
    ("buffer", "bytes", lambda codec: codec.encode_into(codec.Consume("", 1), bytes(100))),
    ("buffer", "int", lambda codec: codec.encode_into(codec.Consume("", 1), 100)),
    ("offset", "float", lambda codec: codec.encode_into(codec.Consume("", 1), bytearray(100), 1.0)),
    ("type", "NoneType", lambda codec: codec.encode_frame(None, [])),
    ("type", "1000", lambda codec: codec.encode_frame(1000, [])),
    ("packets[1].type", "NoneType", lambda codec: codec.encode_frame(1, [(1, b""), (None, b"")])),
    ("packets[0].type", "100", lambda codec: codec.encode_frame(1, [(100, b"")])),
    ("packets[0].content", "NoneType", lambda codec: codec.encode_frame(1, [(1, None)])),
    # Python writes no number of more than 4,300 digits.
    ("ttl", "of 16610 bits", lambda codec: codec.Requeue("", "", HUGE)),
    ("count", "of 16610 bits", lambda codec: codec.Consume("", HUGE)),
    ("packet_header_size", "of 16610 bits", lambda codec: codec.decode(GOOD, packet_header_size=HUGE)),
    ("max_frame_size", "of 16610 bits", lambda codec: codec.decode(GOOD, max_frame_size=HUGE)),
    ("type", "of 16610 bits", lambda codec: codec.encode_frame(HUGE, [])),
    ("packets[0].type", "of 16610 bits", lambda codec: codec.encode_frame(1, [(HUGE, b"")])),
    ("packets[0]", "a Packet or a (type, content) pair", lambda codec: codec.encode_frame(1, [(HUGE, b"", 1)])),
]


@pytest.mark.parametrize(("start", "end", "call"), TOLD)
def test_a_text_begins_with_the_argument_and_ends_with_what_it_is(
    codec: ModuleType, start: str, end: str, call: Callable[[ModuleType], object]
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call(codec)
    text = str(caught.value)
    assert text.startswith(f"{start} must be ")
    assert text.endswith(f" {end}")


@pytest.mark.parametrize(("name", "good"), FIELDS.items(), ids=FIELDS)
def test_messages_are_sealed(codec: ModuleType, name: str, good: dict[str, Any]) -> None:
    make = getattr(codec, name)
    message = make(**good)
    for field in (*good, "unknown"):
        refused(AttributeError, field, setattr, message, field, "")
        refused(AttributeError, field, delattr, message, field)
    refused(TypeError, "", vars, message)
    refused(TypeError, "", operator.lt, message, message)
    refused(TypeError, name, type, "Heir", (make,), {})


@pytest.mark.parametrize(("name", "good"), FIELDS.items(), ids=FIELDS)
def test_messages_are_made_once(codec: ModuleType, name: str, good: dict[str, Any]) -> None:
    """No way around the constructor gives an empty message to the wire, and none changes one that there is."""
    make = getattr(codec, name)
    with pytest.raises(TypeError):
        codec.encode(make.__new__(make))
    message = make(**good)
    with suppress(TypeError):
        message.__init__(**{**good, "queue": "other"})
    assert message == make(**good)


@pytest.mark.parametrize("name", ["Decoder", "FrameDecoder"])
def test_decoders_are_sealed(codec: ModuleType, name: str) -> None:
    decoder = getattr(codec, name)()
    for function in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(TypeError, name, function, decoder)
    for attribute in ("offset", "buffered", "unknown"):
        refused(AttributeError, "", setattr, decoder, attribute, 1)
    refused(TypeError, name, type, "Heir", (type(decoder),), {})


def option_calls(codec: ModuleType) -> Iterator[tuple[Callable[..., object], str]]:
    """Every call that takes options, ready but for them, and each option that it takes."""
    for name, options in READERS.items():
        for option in options:
            yield partial(getattr(codec, name), GOOD), option
    for name in ("Decoder", "FrameDecoder"):
        for option in WRONG_OPTIONS:
            yield getattr(codec, name), option
    message = codec.Acknowledge("", "")
    for call in (
        partial(codec.encode, message),
        partial(codec.encode_many, [message]),
        partial(codec.encode_into, message, bytearray(100)),
        partial(codec.encode_frame, 1, []),
    ):
        yield call, "packet_header_size"


def test_options(codec: ModuleType) -> None:
    for call, option in option_calls(codec):
        for error, value in WRONG_OPTIONS[option]:
            refused(error, option, call, **{option: value})
        refused(TypeError, "unknown", call, unknown=1)


def test_options_are_checked_in_order(codec: ModuleType) -> None:
    wrong = {"packet_header_size": 31, "max_frame_size": True, "on_fault": ""}
    for name, options in READERS.items():
        read = getattr(codec, name)
        mine = {option: wrong[option] for option in options}
        refused(TypeError, "data", read, "", **mine)
        refused(ValueError, "packet_header_size", read, GOOD, **mine)
        refused(TypeError, "max_frame_size", read, GOOD, **{**mine, "packet_header_size": 32})
    for make in (codec.Decoder, codec.FrameDecoder):
        refused(ValueError, "packet_header_size", make, **wrong)
        refused(TypeError, "max_frame_size", make, **{**wrong, "packet_header_size": 32})


def test_options_are_keywords(codec: ModuleType) -> None:
    for name in READERS:
        refused(TypeError, "", getattr(codec, name), GOOD, 32)
    for make in (codec.Decoder, codec.FrameDecoder):
        refused(TypeError, "", make, 32)
    refused(TypeError, "", codec.encode, codec.Acknowledge("", ""), 32)
    refused(TypeError, "", codec.encode_many, [], 32)
    refused(TypeError, "", codec.encode_frame, 1, [], 32)
    refused(TypeError, "", codec.encode_into, codec.Acknowledge("", ""), bytearray(100), 0, 32)


def test_data(codec: ModuleType) -> None:
    feeds = [codec.Decoder().feed, codec.FrameDecoder().feed]
    for read in (*(getattr(codec, name) for name in READERS), codec.detect_packet_header_size, *feeds):
        for error, value in NOT_BYTES:
            refused(error, "data", read, value)
        refused(TypeError, "", read)


def test_feed_after_close(codec: ModuleType) -> None:
    for make in (codec.Decoder, codec.FrameDecoder):
        decoder = make()
        decoder.close()
        decoder.feed(b"")
        refused(ValueError, "close", decoder.feed, b"x")
        refused(TypeError, "data", decoder.feed, "x")
        decoder.reset()
        decoder.feed(b"x")


def test_what_is_encoded(codec: ModuleType) -> None:
    message = codec.Acknowledge("", "")
    frame = next(codec.iter_frames(GOOD))
    for value in (None, b"H0100402", ("Acknowledge", "", ""), codec.Acknowledge, frame):
        refused(TypeError, type(value).__name__, codec.encode, value)
        refused(TypeError, type(value).__name__, codec.encode_into, value, bytearray(100))
        refused(TypeError, "messages[1]", codec.encode_many, [message, value])
    refused(TypeError, "", codec.encode_many, None)
    refused(TypeError, "", codec.encode_many, message)


def test_messages_of_the_other_codec_are_refused(both_codecs: tuple[ModuleType, ModuleType]) -> None:
    for codec, other in (both_codecs, both_codecs[::-1]):
        refused(TypeError, "Acknowledge", codec.encode, other.Acknowledge("", ""))
        assert codec.Acknowledge("", "") != other.Acknowledge("", "")


def test_encode_into(codec: ModuleType) -> None:
    message, buffer = codec.Acknowledge("", ""), bytearray(len(GOOD) + 2)
    encode_into = partial(codec.encode_into, message)
    for wrong in (None, "x", bytes(100), memoryview(bytes(100)), memoryview(bytearray(200))[::2]):
        refused(TypeError, "buffer", encode_into, wrong)
    for error, offset in ((TypeError, True), (TypeError, None), (TypeError, "0"), (TypeError, 0.0)):
        refused(error, "offset", encode_into, buffer, offset)
    for offset in (-1, -len(GOOD), 3, len(GOOD) + 2, len(GOOD) + 3, 2**63 - 1, 2**63, 2**70, -(2**70)):
        refused(ValueError, "", encode_into, buffer, offset)
    refused(ValueError, "offset", encode_into, buffer, HUGE)
    refused(ValueError, "", encode_into, bytearray(len(GOOD) - 1))
    refused(ValueError, "", encode_into, bytearray())
    assert buffer == bytearray(len(GOOD) + 2)
    assert encode_into(buffer, 2) == len(GOOD)
    assert buffer == b"\0\0" + GOOD
    assert encode_into(buffer) == len(GOOD)
    assert buffer == GOOD + GOOD[-2:]


def test_encode_frame(codec: ModuleType) -> None:
    encode_frame = codec.encode_frame
    wrong: Wrong = [*NOT_INTEGERS, (TypeError, None), (ValueError, 1000), (ValueError, 2**70)]
    for error, value in wrong:
        refused(error, "type", encode_frame, value, [])
        refused(error, "packets[1].type", encode_frame, 1, [(1, b""), (value, b"")])
    refused(ValueError, "packets[0].type", encode_frame, 1, [(100, b"")])
    for error, value in NOT_BYTES:
        refused(error, "packets[2].content", encode_frame, 1, [(1, b""), (1, b""), (1, value)])
    for packet in (1, None, (), (1,), (1, b"", b"")):
        refused(TypeError, "packets[0]", encode_frame, 1, [packet])
    for packets in (None, 1):
        refused(TypeError, "", encode_frame, 1, packets)
    refused(ValueError, "packets", encode_frame, 1, [(1, b"")] * 100)
    assert len(encode_frame(999, [(99, b"")] * 99)) == 8 + 99 * 32


def test_detection(codec: ModuleType) -> None:
    refused(ValueError, "none", codec.detect_packet_header_size, b"")
    refused(ValueError, "none", codec.detect_packet_header_size, b"x")
    refused(ValueError, "ambiguous", codec.detect_packet_header_size, b"H0100000")

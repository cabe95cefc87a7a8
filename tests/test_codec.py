"""What the bytes mean: messages, frames and faults (docs/protocol.md, sections 1 to 4), read from whole buffers.

Streams of chunks stand in test_codec_stream.py, the values themselves in test_codec_messages.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from types import ModuleType
from typing import Any

import pytest
from buffers import BUFFERS, label
from wire import packet_header, parts

from phpmq.errors import Fault, IncompleteMessage, ProtocolError
from phpmq.records import Damage, Frame, Packet

MIB = 2**20


def wire(type: int, *packets: tuple[int, bytes], size: int = 32) -> bytes:
    return b"".join(parts(type, packets, size))


ACKNOWLEDGE = wire(4, (1, b"Foo"), (3, b"7"))
SIZE = len(ACKNOWLEDGE)
FORMS = {
    "Send": wire(1, (1, b"Foo"), (2, b"x"), (5, b"60")),
    "older Send": wire(1, (1, b"Foo"), (2, b"x")),
    "Consume": wire(2, (1, b"Foo"), (4, b"5")),
    "Dispatch": wire(3, (1, b"Foo"), (2, b"x"), (3, b"7"), (5, b"60")),
    "older Dispatch": wire(3, (1, b"Foo"), (2, b"x"), (3, b"7")),
    "Acknowledge": ACKNOWLEDGE,
    "Requeue": wire(5, (1, b"Foo"), (3, b"7"), (5, b"60")),
    "Receipt": wire(5, (1, b"Foo"), (3, b"7")),
    "DeadLetter": wire(6, (1, b"Foo"), (3, b"7")),
}


def messages(codec: ModuleType) -> list[Any]:
    """What ``FORMS`` hold."""
    return [
        codec.Send("Foo", b"x", 60),
        codec.Send("Foo", b"x"),
        codec.Consume("Foo", 5),
        codec.Dispatch("Foo", b"x", "7", 60),
        codec.Dispatch("Foo", b"x", "7"),
        codec.Acknowledge("Foo", "7"),
        codec.Requeue("Foo", "7", 60),
        codec.Receipt("Foo", "7"),
        codec.DeadLetter("Foo", "7"),
    ]


def stream(codec: ModuleType, layer: str, data: bytes, chunk: int, **options: Any) -> Iterator[Any]:
    """The items of a decoder that is fed in chunks."""
    decoder = getattr(codec, {"messages": "Decoder", "frames": "FrameDecoder"}[layer])(**options)
    for start in range(0, len(data), chunk):
        decoder.feed(data[start : start + chunk])
        yield from decoder
    decoder.close()
    yield from decoder


def ways(codec: ModuleType, layer: str, data: bytes, **options: Any) -> list[Iterator[Any]]:
    """All ways to read the same items."""
    return [
        getattr(codec, f"iter_{layer}")(data, **options),
        getattr(codec, f"iter_{layer}")(bytearray(data), **options),
        stream(codec, layer, data, len(data) or 1, **options),
        stream(codec, layer, data, len(data) // 1000 + 1, **options),
    ]


def fails(items: Iterator[Any]) -> tuple[list[Any], ProtocolError]:
    """The items before a fault, and the fault."""
    seen = []
    try:
        for item in items:
            seen.append(item)
    except ProtocolError as error:
        return seen, error
    raise AssertionError(f"no fault after {seen}")


# Good bytes


def test_all_forms(codec: ModuleType) -> None:
    data = b"".join(FORMS.values())
    for items in ways(codec, "messages", data):
        assert list(items) == messages(codec)
    for frame, message in zip(FORMS.values(), messages(codec), strict=True):
        assert codec.decode(frame) == message
    assert codec.scan(data) == (len(FORMS), len(data), None)


@pytest.mark.parametrize("size", [35, 36])
def test_other_packet_header_sizes(codec: ModuleType, size: int) -> None:
    data = wire(2, (1, b"Foo"), (4, b"5"), size=size)
    for items in ways(codec, "messages", data * 2, packet_header_size=size):
        assert list(items) == [codec.Consume("Foo", 5)] * 2
    assert codec.scan(data, packet_header_size=size) == (1, len(data), None)


@pytest.mark.parametrize("size", [32, 35, 36])
def test_packets_in_any_order(codec: ModuleType, size: int) -> None:
    message = codec.Dispatch("Foo", b"x", "7", 60)
    for packets in permutations([(1, b"Foo"), (2, b"x"), (3, b"7"), (5, b"60")]):
        data = wire(3, *packets, size=size)
        assert codec.decode(data, packet_header_size=size) == message
        assert codec.scan(data * 2, packet_header_size=size) == (2, 2 * len(data), None)
        assert list(stream(codec, "messages", data, 7, packet_header_size=size)) == [message]


@pytest.mark.parametrize(
    "content", [b"", b"0", b"\0\0", ACKNOWLEDGE, ACKNOWLEDGE[:-1], b"H01" * 9, b"x" * 200_000], ids=label
)
def test_contents_are_not_looked_at(codec: ModuleType, content: bytes) -> None:
    data = wire(1, (1, content), (2, content)) + ACKNOWLEDGE
    expected = [codec.Send(content.decode(), content), codec.Acknowledge("Foo", "7")]
    for items in ways(codec, "messages", data)[:3]:
        assert list(items) == expected
    assert codec.scan(data) == (2, len(data), None)


def test_text_that_is_not_utf8(codec: ModuleType) -> None:
    data = wire(4, (1, b"\xff\0"), (3, b"\xc3")) + ACKNOWLEDGE
    first, second = codec.iter_messages(data)
    assert (first.queue, first.message_id) == ("\udcff\0", "\udcc3")
    assert codec.encode_many([first, second]) == data


@pytest.mark.parametrize("digits", [b"0", b"9", b"10", b"9223372036854775807"])
def test_integers(codec: ModuleType, digits: bytes) -> None:
    data = wire(2, (1, b""), (4, digits)) + wire(5, (1, b""), (3, b""), (5, digits))
    for items in ways(codec, "messages", data):
        assert list(items) == [codec.Consume("", int(digits)), codec.Requeue("", "", int(digits))]


def test_frames(codec: ModuleType) -> None:
    data = b"H0199900" + wire(0, (99, b"x"), (2, b""), (2, b"yz")) + ACKNOWLEDGE
    for items in ways(codec, "frames", data):
        frames = list(items)
        assert frames == [
            Frame(999, (), 0, 8),
            Frame(0, (Packet(99, b"x"), Packet(2, b""), Packet(2, b"yz")), 8, 107),
            Frame(4, (Packet(1, b"Foo"), Packet(3, b"7")), 115, SIZE),
        ]
        for frame in frames:
            assert data[frame.offset : frame.offset + frame.size] == codec.encode_frame(frame.type, frame.packets)


def test_frames_of_every_length(codec: ModuleType) -> None:
    # 64 KiB is where the reference changes from one path to the other
    for length in [*range(65_300, 65_600, 7), 200_000]:
        frame = wire(1, (1, b""), (2, bytes(length)))
        data = ACKNOWLEDGE + frame + ACKNOWLEDGE
        assert [item.size for item in codec.iter_frames(data)] == list(map(len, (ACKNOWLEDGE, frame, ACKNOWLEDGE)))
        assert [len(item.content) for item in codec.iter_messages(frame)] == [length]
        assert codec.scan(data) == (3, len(data), None)


def test_nothing(codec: ModuleType) -> None:
    for layer in ("messages", "frames"):
        for options in ({}, {"on_fault": "skip"}):
            for items in ways(codec, layer, b"", **options):
                assert list(items) == []
    assert codec.scan(b"") == (0, 0, None)
    with pytest.raises(IncompleteMessage) as caught:
        codec.decode(b"")
    assert (caught.value.offset, caught.value.missing, caught.value.found) == (0, 8, b"")


# Which fault

TWO = b"H0100402"
QUEUE = packet_header(1, 3) + b"Foo"
COUNT = b"H0100202" + QUEUE
ODD = [b"x", b" ", b"+", b"-", b"_", b"e", b"\n", b"\0", b"/", b":", b"\xb2", b"\xff", "\u0663".encode()[:1]]

#: Bytes of which the last one proves the fault, where it is, and the bytes that are shown.
FRAME_FAULTS: list[tuple[bytes, Fault, int, bytes]] = [
    *((start, Fault.NOT_A_MESSAGE, 0, start) for start in (b"h", b"P", b"0", b"\0", b"\xff")),
    *((b"H0100402"[:at] + odd, Fault.BAD_DIGITS, at, odd) for at in range(1, 8) for odd in ODD),
    *((b"H" + version, Fault.UNSUPPORTED_VERSION, 1, version) for version in (b"00", b"02", b"10", b"99")),
    *((TWO + start, Fault.NOT_A_PACKET, 8, start) for start in (b"p", b"H", b"0", b"\n")),
    *((TWO + packet_header(1, 3)[:at] + odd, Fault.BAD_DIGITS, 8 + at, odd) for at in range(1, 32) for odd in ODD),
    (TWO + b"P01" + b"9" * 28 + b"x", Fault.BAD_DIGITS, 39, b"x"),
    *((TWO + QUEUE + start, Fault.NOT_A_PACKET, 43, start) for start in (b"H", b"1")),
    (TWO + QUEUE + b"P03x", Fault.BAD_DIGITS, 46, b"x"),
    *(
        (TWO + b"P01%029d" % length, Fault.TOO_LARGE, 11, b"%029d" % length)
        for length in (2**26 - 39, 2**63 - 1, 2**63, 2**64, 2**64 + 5, 10**28, 10**29 - 1)
    ),
    (TWO + QUEUE + b"P03" + b"9" * 29, Fault.TOO_LARGE, 46, b"9" * 29),
    (ACKNOWLEDGE + b"x", Fault.NOT_A_MESSAGE, 76, b"x"),
    (ACKNOWLEDGE + b"H02", Fault.UNSUPPORTED_VERSION, 77, b"02"),
]
MESSAGE_FAULTS: list[tuple[bytes, Fault, int, bytes]] = [
    *((b"H01" + kind, Fault.UNKNOWN_MESSAGE_TYPE, 3, kind) for kind in (b"000", b"007", b"009", b"100", b"999")),
    *(
        (b"H01%03d%02d" % (kind, count), Fault.PACKET_COUNT_MISMATCH, 6, b"%02d" % count)
        for kind, good in [(1, (2, 3)), (2, (2,)), (3, (3, 4)), (4, (2,)), (5, (2, 3)), (6, (2,))]
        for count in (0, 1, 2, 3, 4, 5, 99)
        if count not in good
    ),
    *(
        (b"H01%03d%02dP%02d" % (kind, count, packet), Fault.UNEXPECTED_PACKET, 9, b"%02d" % packet)
        for kind, count, form in [(1, 3, (1, 2, 5)), (1, 2, (1, 2)), (2, 2, (1, 4)), (5, 2, (1, 3)), (5, 3, (1, 3, 5))]
        for packet in (0, 1, 2, 3, 4, 5, 6, 99)
        if packet not in form
    ),
    (TWO + QUEUE + b"P01", Fault.DUPLICATE_PACKET, 44, b"01"),
    (TWO + QUEUE + b"P09", Fault.UNEXPECTED_PACKET, 44, b"09"),
    (b"H0100304" + packet_header(5, 1) + b"0" + QUEUE + b"P05", Fault.DUPLICATE_PACKET, 77, b"05"),
    *((COUNT + packet_header(4, length), Fault.BAD_INTEGER, 75, b"") for length in (0, 20, 21, 10**6)),
    *(
        (COUNT + packet_header(4, len(digits)) + digits, Fault.BAD_INTEGER, 75, digits)
        for digits in (b"-5", b"+5", b"007", b"00", b"1e3", b" 5", b"5 ", b"5\n", b"1_0", b"x", b"\xb2", b"\xd9\xa3")
    ),
    *(
        (COUNT + packet_header(4, 19) + b"%d" % value, Fault.BAD_INTEGER, 75, b"%d" % value)
        for value in (2**63, 10**19 - 1)
    ),
    (b"H0100103" + packet_header(5, 1) + b"x", Fault.BAD_INTEGER, 40, b"x"),
    (ACKNOWLEDGE + b"H01007", Fault.UNKNOWN_MESSAGE_TYPE, 79, b"007"),
]
FAULTS = {"frames": FRAME_FAULTS, "messages": FRAME_FAULTS + MESSAGE_FAULTS}


@pytest.mark.parametrize(
    ("layer", "fault"), sorted({(layer, row[1]) for layer, rows in FAULTS.items() for row in rows}, key=str)
)
def test_faults(codec: ModuleType, layer: str, fault: Fault) -> None:
    read = getattr(codec, f"iter_{layer}")
    for data, _, offset, found in [row for row in FAULTS[layer] if row[1] is fault]:
        good = data.count(ACKNOWLEDGE)
        for items in ways(codec, layer, data):
            seen, error = fails(items)
            assert (type(error), error.fault, error.offset, error.found) == (ProtocolError, fault, offset, found)
            assert len(seen) == good
        # one byte less proves nothing, ...
        if data[:-1] not in (b"", ACKNOWLEDGE):
            _, error = fails(read(data[:-1]))
            assert (type(error), error.offset) == (IncompleteMessage, good * SIZE)
        # ... and what follows changes nothing
        for tail in (b"x", b"\n", b"P", b"9" * 40, ACKNOWLEDGE, ACKNOWLEDGE * 20):
            _, error = fails(read(data + tail))
            assert (error.fault, error.offset) == (fault, offset)


def test_scan_and_decode_see_the_same_fault(codec: ModuleType) -> None:
    for data, fault, offset, found in FAULTS["messages"]:
        good = data.count(ACKNOWLEDGE)
        frames, end, error = codec.scan(data)
        assert (frames, end) == (good, good * SIZE)
        assert (error.fault, error.offset, error.found) == (fault, offset, found)
        with pytest.raises(ProtocolError) as caught:
            codec.decode(data)
        expected = (Fault.TRAILING_DATA, SIZE) if good else (fault, offset)
        assert (caught.value.fault, caught.value.offset) == expected


@pytest.mark.parametrize("size", [35, 36])
def test_faults_in_other_sizes(codec: ModuleType, size: int) -> None:
    options = {"packet_header_size": size}
    for data, fault, offset in [
        (TWO + b"P01" + b"9" * (size - 3), Fault.TOO_LARGE, 11),
        (TWO + b"P01" + b"9" * (size - 4) + b"x", Fault.BAD_DIGITS, 7 + size),
        (TWO + packet_header(1, 3, size) + b"FooH", Fault.NOT_A_PACKET, 11 + size),
        (b"H0100202" + packet_header(4, 2, size) + b"05", Fault.BAD_INTEGER, 8 + size),
    ]:
        for items in ways(codec, "messages", data, **options):
            _, error = fails(items)
            assert (error.fault, error.offset) == (fault, offset)


def test_integers_are_judged_before_the_next_packet(codec: ModuleType) -> None:
    data = b"H0100202" + packet_header(4, 2) + b"05" + b"H"
    assert fails(codec.iter_messages(data))[1].fault is Fault.BAD_INTEGER
    # and a length that is too large before the length of an integer
    data = b"H0100202" + packet_header(4, 10**20)
    assert fails(codec.iter_messages(data))[1].fault is Fault.TOO_LARGE


@pytest.mark.parametrize(("data", "shown"), [(b"x" * 100, 40), (TWO + b"x" * 100, 40), (ACKNOWLEDGE + b"x" * 100, 40)])
def test_what_is_shown(codec: ModuleType, data: bytes, shown: int) -> None:
    assert fails(codec.iter_messages(data))[1].found == b"x" * shown
    assert fails(codec.iter_messages(COUNT + packet_header(4, 20) + bytes(100)))[1].found == bytes(20)
    assert fails(codec.iter_messages(COUNT + packet_header(4, 99) + bytes(100)))[1].found == bytes(40)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"H1x", b"x"),
        (b"H02", b"02"),
        (b"H01009", b"009"),
        (b"H0100405", b"05"),
        (TWO + packet_header(1, 3)[:20] + b"x", b"x"),
        (TWO + b"P05", b"05"),
        (TWO + QUEUE + b"P01", b"01"),
        (TWO + b"P01" + b"9" * 29, b"9" * 29),
        (COUNT + packet_header(4, 2) + b"05", b"05"),
    ],
)
def test_no_more_than_the_offending_field_is_shown(codec: ModuleType, data: bytes, found: bytes) -> None:
    for tail in (b"", b"1", b"1" * 99):
        assert fails(codec.iter_messages(data + tail))[1].found == found


# Limits


@pytest.mark.parametrize("layer", ["messages", "frames"])
@pytest.mark.parametrize("size", [32, 35, 36])
def test_the_limit_counts_a_frame_up_to_the_packet_in_hand(codec: ModuleType, layer: str, size: int) -> None:
    data = wire(4, (1, b"Foo"), (3, b"1234"), size=size)
    options = {"packet_header_size": size}
    for limit, offset in [(len(data) - 1, 8 + size + 3 + 3), (8 + size + 3, 8 + size + 3 + 3), (8 + size + 2, 11)]:
        for items in ways(codec, layer, data * 2, max_frame_size=limit, **options):
            seen, error = fails(items)
            assert (seen, error.fault, error.offset) == ([], Fault.TOO_LARGE, offset)
    for items in ways(codec, layer, data * 2, max_frame_size=len(data), **options):
        assert len(list(items)) == 2


def test_limits(codec: ModuleType) -> None:
    empty = wire(0)
    assert len(list(codec.iter_frames(empty * 3, max_frame_size=8))) == 3
    # the default is 64 MiB: what is left of it for a content here is 64 MiB - 40
    default: list[dict[str, Any]] = [{}, {"max_frame_size": 64 * MIB}]
    for limit in default:
        assert fails(codec.iter_messages(TWO + packet_header(1, 64 * MIB - 39), **limit))[1].fault is Fault.TOO_LARGE
        assert fails(codec.iter_messages(TWO + packet_header(1, 64 * MIB - 40), **limit))[1].fault is Fault.TRUNCATED
    largest: list[dict[str, Any]] = [{"max_frame_size": None}, {"max_frame_size": 2**63 - 1}]
    for limit in largest:
        assert fails(codec.iter_messages(TWO + packet_header(1, 2**63 - 40), **limit))[1].fault is Fault.TOO_LARGE
        assert fails(codec.iter_messages(TWO + packet_header(1, 2**63 - 41), **limit))[1].fault is Fault.TRUNCATED
        assert codec.scan(ACKNOWLEDGE, **limit).frames == 1
    assert codec.scan(ACKNOWLEDGE, max_frame_size=SIZE - 1).error.fault is Fault.TOO_LARGE
    with pytest.raises(ProtocolError, match="TOO_LARGE at offset 46"):
        codec.decode(ACKNOWLEDGE, max_frame_size=SIZE - 1)


def test_frames_before_one_that_is_too_large(codec: ModuleType) -> None:
    data = ACKNOWLEDGE + wire(1, (1, b""), (2, bytes(2 * MIB))) + ACKNOWLEDGE
    seen, error = fails(codec.iter_messages(data, max_frame_size=MIB))
    assert (seen, error.fault, error.offset) == ([codec.Acknowledge("Foo", "7")], Fault.TOO_LARGE, 76 + 8 + 32 + 3)


# The end


def test_what_is_missing(codec: ModuleType) -> None:
    frame = wire(3, (1, b"Foo"), (2, b"0123456789"), (3, b""), (5, b"60"))
    message_header_cut = [(1, 7), (2, 6), (7, 1)]
    packet_header_cut = [(9, 31 + 96), (39, 1 + 96), (44, 31 + 64), (74, 1 + 64), (86, 31 + 32), (118, 31), (148, 1)]
    content_cut = [(40, 3 + 96), (42, 1 + 96), (75, 10 + 64), (84, 1 + 64), (149, 2), (150, 1)]
    packet_not_begun = [(8, 128), (43, 96), (85, 64), (117, 32)]
    for have, missing in message_header_cut + packet_header_cut + content_cut + packet_not_begun:
        for items in ways(codec, "messages", ACKNOWLEDGE + frame[:have]):
            seen, error = fails(items)
            assert isinstance(error, IncompleteMessage)
            assert (len(seen), error.offset, error.missing) == (1, 76, missing)
            assert error.found == frame[: min(have, 40)]
        with pytest.raises(IncompleteMessage) as caught:
            codec.decode(frame[:have])
        assert (caught.value.offset, caught.value.missing) == (0, missing)


@pytest.mark.parametrize("size", [35, 36])
def test_what_is_missing_in_other_sizes(codec: ModuleType, size: int) -> None:
    for have, missing in [(8, 2 * size), (9, 2 * size - 1), (8 + size, 3 + size), (8 + size + 3, size)]:
        data = wire(4, (1, b"Foo"), (3, b"7"), size=size)[:have]
        assert codec.scan(data, packet_header_size=size).error.missing == missing


# Hints


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"\x15\x03\x01\x00\x02", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"\nH0100402", "line breaks are not on the wire"),
        (b"H0100402\nP0100000000000000000000000000003\nFoo", "line breaks are not on the wire"),
        (b"H0100402\r\nP0100000000000000000000000000003\r\nFoo", "line breaks are not on the wire"),
        (wire(4, (1, b"Foo"), (3, b"7"), size=35), "packet_header_size=35"),
        (wire(4, (1, b"Foo"), (3, b"7"), size=36), "packet_header_size=36"),
        (wire(9, (1, b"Foo"), (3, b"7"), size=36), "packet_header_size=36"),
        (ACKNOWLEDGE + wire(4, (1, b"Foo"), (3, b"7"), size=36) + b"x", "packet_header_size=36"),
        (wire(4, (1, b"Foo"), (3, b"7"), size=36)[:-1], ""),
        (b"H0100402" + packet_header(1, 3) + b"FooGET /", "HTTP"),
        (b"hello", ""),
        (TWO, ""),
    ],
)
def test_hints(codec: ModuleType, data: bytes, hint: str) -> None:
    def check(error: Any) -> None:
        assert hint in error.hint
        assert bool(error.hint) is bool(hint)

    check(codec.scan(data).error)
    for items in ways(codec, "messages", data)[:3]:
        check(fails(items)[1])
    if not data.startswith(ACKNOWLEDGE):
        with pytest.raises(ProtocolError) as caught:
            codec.decode(data)
        check(caught.value)


def test_a_hint_where_bytes_are_missing(codec: ModuleType) -> None:
    # with 32 bytes a header the queue name has 4 bytes, and what it begins with is a header that announces too much
    data = wire(4, (1, packet_header(3, 10**6).ljust(40_000)), (3, b""), size=36)
    _, error = fails(codec.iter_messages(data))
    assert (type(error), error.hint) == (IncompleteMessage, "the frame is whole with packet_header_size=36")


def test_hints_keep_to_the_limit_and_to_the_default_size(codec: ModuleType) -> None:
    data = wire(4, (1, b"Foo"), (3, bytes(90)), size=36)
    assert fails(codec.iter_messages(data, max_frame_size=len(data)))[1].hint != ""
    assert fails(codec.iter_messages(data, max_frame_size=len(data) - 1))[1].hint == ""
    assert fails(codec.iter_messages(data, packet_header_size=35))[1].hint == ""


# One frame


@pytest.mark.parametrize(
    ("tail", "hint"),
    [
        (b"x", ""),
        (b"\n", "line breaks"),
        (ACKNOWLEDGE, ""),
        (b"GET /", "HTTP"),
        (ACKNOWLEDGE[:10], ""),
        (b"x" * 99, ""),
    ],
)
def test_decode_takes_one_frame(codec: ModuleType, tail: bytes, hint: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode(ACKNOWLEDGE + tail)
    error = caught.value
    assert (error.fault, error.offset, error.found) == (Fault.TRAILING_DATA, SIZE, tail[:40])
    assert hint in error.hint
    assert bool(error.hint) is bool(hint)


def test_decode_takes_the_fault_of_the_frame_first(codec: ModuleType) -> None:
    data = wire(4, (1, b""), (3, b""), size=36)
    with pytest.raises(ProtocolError, match=r"NOT_A_PACKET at offset 40.*packet_header_size=36"):
        codec.decode(data + ACKNOWLEDGE)


# Detection


@pytest.mark.parametrize("size", [32, 35, 36])
def test_detection(codec: ModuleType, size: int) -> None:
    frame = wire(77, (1, b"Foo"), (99, bytes(100)), size=size)
    big = wire(1, (2, bytes(MIB)), size=size)
    for data in (frame, frame * 3, frame + frame[:-1], frame + b"H", frame + big, bytearray(frame), memoryview(frame)):
        assert codec.detect_packet_header_size(data) == size
    # only the first MiB counts
    assert codec.detect_packet_header_size(frame + big + b"x") == size


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "none"),
        (b"x", "none"),
        (ACKNOWLEDGE[:-1], "none"),
        (ACKNOWLEDGE + b"x", "none"),
        (wire(1, (2, bytes(MIB))), "none"),
        (b"H0100000", "ambiguous.* 32 and 35 and 36"),
        # one content of 40,000 bytes, or one of 4 and many frames
        (b"H0100101" + packet_header(1, 40_000, 36) + b"H0100000" * 5000, "ambiguous.* 32 and 36"),
    ],
)
def test_detection_fails(codec: ModuleType, data: bytes, word: str) -> None:
    with pytest.raises(ValueError, match=word) as caught:
        codec.detect_packet_header_size(data)
    assert caught.type is ValueError


# Recovery


UNKNOWN = wire(9, (1, b"Foo"))


def damage(data: bytes, fault: Fault, offset: int, start: int = 0) -> Damage:
    return Damage(start, start + len(data), fault, start + offset, data[: 64 * 1024])


@pytest.mark.parametrize(
    ("data", "fault", "offset"),
    [
        (UNKNOWN, Fault.UNKNOWN_MESSAGE_TYPE, 3),
        (wire(1, (1, b"Foo")), Fault.PACKET_COUNT_MISMATCH, 6),
        (wire(4, (1, b"Foo"), (2, b"7")), Fault.UNEXPECTED_PACKET, 44),
        (wire(4, (1, b"Foo"), (1, b"7")), Fault.DUPLICATE_PACKET, 44),
        (wire(2, (4, b"007"), (1, ACKNOWLEDGE)), Fault.BAD_INTEGER, 40),
        (wire(2, (4, b""), (1, b"")), Fault.BAD_INTEGER, 40),
        (wire(9, (1, ACKNOWLEDGE + bytes(100_000))), Fault.UNKNOWN_MESSAGE_TYPE, 3),
    ],
)
def test_a_frame_that_only_the_messages_refuse_is_the_damage(
    codec: ModuleType, data: bytes, fault: Fault, offset: int
) -> None:
    good = codec.Acknowledge("Foo", "7")
    whole = damage(data, fault, offset, 76)
    for items in ways(codec, "messages", ACKNOWLEDGE + data + ACKNOWLEDGE, on_fault="skip")[:3]:
        assert list(items) == [good, whole, good]
    for items in ways(codec, "messages", ACKNOWLEDGE + data, on_fault="skip")[:3]:
        assert list(items) == [good, whole]
    assert [type(item) for item in codec.iter_frames(data, on_fault="skip")] == [Frame]
    frames, end, error = codec.scan(ACKNOWLEDGE + data + ACKNOWLEDGE)
    assert (frames, end, error.fault, error.offset) == (1, SIZE, fault, SIZE + offset)


def test_a_frame_that_something_else_follows_is_not_trusted(codec: ModuleType) -> None:
    # the frame inside it surfaces
    data = wire(9, (1, ACKNOWLEDGE)) + b"x"
    for items in ways(codec, "messages", data, on_fault="skip"):
        assert list(items) == [
            damage(data[:40], Fault.UNKNOWN_MESSAGE_TYPE, 3),
            codec.Acknowledge("Foo", "7"),
            damage(b"x", Fault.NOT_A_MESSAGE, 0, 116),
        ]


def test_a_frame_over_the_limit_is_not_trusted(codec: ModuleType) -> None:
    data = wire(9, (1, ACKNOWLEDGE)) + ACKNOWLEDGE
    for items in ways(codec, "messages", data, on_fault="skip", max_frame_size=76):
        assert [type(item).__name__ for item in items] == ["Damage", "Acknowledge", "Acknowledge"]


JUNK: list[tuple[bytes, Fault, int]] = [
    (b"x", Fault.NOT_A_MESSAGE, 0),
    (b"H", Fault.BAD_DIGITS, 1),
    (b"H0", Fault.BAD_DIGITS, 2),
    (b"H01", Fault.BAD_DIGITS, 3),
    (b"H01" * 50, Fault.BAD_DIGITS, 3),
    (b"xxHHH01H01009HH0", Fault.NOT_A_MESSAGE, 0),
    (TWO, Fault.NOT_A_PACKET, 8),
    (TWO * 20, Fault.NOT_A_PACKET, 8),
    (TWO + QUEUE, Fault.NOT_A_PACKET, 43),
    (TWO + packet_header(1, 10**28), Fault.TOO_LARGE, 11),
    (b"H02", Fault.UNSUPPORTED_VERSION, 1),
    (bytes(100_000), Fault.NOT_A_MESSAGE, 0),
    (b"H" * 70_000, Fault.BAD_DIGITS, 1),
]


@pytest.mark.parametrize("layer", ["messages", "frames"])
@pytest.mark.parametrize(("junk", "fault", "offset"), JUNK, ids=label)
def test_junk_between_frames(codec: ModuleType, layer: str, junk: bytes, fault: Fault, offset: int) -> None:
    for items in ways(codec, layer, junk + ACKNOWLEDGE + junk + ACKNOWLEDGE, on_fault="skip"):
        first, good, second, last = items
        assert first == damage(junk, fault, offset)
        assert second == damage(junk, fault, offset, len(junk) + 76)
        assert type(good) is type(last) is (codec.Acknowledge if layer == "messages" else Frame)


@pytest.mark.parametrize("layer", ["messages", "frames"])
@pytest.mark.parametrize("cut", [1, 2, 3, 8, 20, 40, 42, 43, 75])
def test_a_cut_frame_is_damage_too(codec: ModuleType, layer: str, cut: int) -> None:
    tail = ACKNOWLEDGE[:cut]
    for items in ways(codec, layer, ACKNOWLEDGE + tail, on_fault="skip"):
        assert list(items)[1:] == [damage(tail, Fault.TRUNCATED, 0, 76)]


def test_what_a_cut_frame_holds_surfaces(codec: ModuleType) -> None:
    # rejected at the end of the input, not before
    data = b"x" + TWO + packet_header(1, 500) + ACKNOWLEDGE + b"H0100402P01"
    for items in ways(codec, "messages", data, on_fault="skip"):
        assert list(items) == [
            damage(data[:41], Fault.NOT_A_MESSAGE, 0),
            codec.Acknowledge("Foo", "7"),
            damage(b"H0100402P01", Fault.TRUNCATED, 0, 117),
        ]


def test_only_good_frames_end_a_damage(codec: ModuleType) -> None:
    data = b"x" + UNKNOWN + ACKNOWLEDGE
    for items in ways(codec, "messages", data, on_fault="skip"):
        assert list(items) == [damage(b"x" + UNKNOWN, Fault.NOT_A_MESSAGE, 0), codec.Acknowledge("Foo", "7")]
    for items in ways(codec, "frames", data, on_fault="skip"):
        assert [type(item) for item in items] == [Damage, Frame, Frame]


def test_all_is_accounted_for(codec: ModuleType) -> None:
    data = b"".join(junk + frame for (junk, _, _), frame in zip(JUNK, list(FORMS.values()) * 2, strict=False)) + UNKNOWN
    for items in ways(codec, "frames", data, on_fault="skip"):
        end = 0
        for item in items:
            start, stop = item[:2] if isinstance(item, Damage) else (item.offset, item.offset + item.size)
            assert start == end
            end = stop
            if isinstance(item, Damage):
                assert item.data == data[start : min(stop, start + 64 * 1024)]
        assert end == len(data)


# Buffers and arguments


#: Of a length that is a multiple of four, so that wider items can hold them.
FOUR = ACKNOWLEDGE * 4


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS)
def test_buffers(codec: ModuleType, make: Callable[[bytes], Any]) -> None:
    four = [codec.Acknowledge("Foo", "7")] * 4
    assert list(codec.iter_messages(make(FOUR))) == four
    assert list(codec.iter_messages(make(FOUR[:-4] + b"H010"), on_fault="skip"))[:3] == four[:3]
    assert [frame.size for frame in codec.iter_frames(make(FOUR))] == [76] * 4
    assert codec.scan(make(FOUR)) == (4, len(FOUR), None)
    assert codec.decode(make(ACKNOWLEDGE)) == four[0]
    assert codec.detect_packet_header_size(make(FOUR)) == 32
    assert fails(codec.iter_messages(make(FOUR[:-4])))[1].fault is Fault.TRUNCATED


def test_buffers_are_given_back(codec: ModuleType) -> None:
    def grow(buffer: bytearray) -> None:
        buffer += b"x"

    buffer = bytearray(ACKNOWLEDGE * 2)
    items = codec.iter_messages(buffer)
    next(items)
    with pytest.raises(BufferError):
        grow(buffer)
    assert len(list(items)) == 1
    grow(buffer)
    _, error = fails(codec.iter_messages(buffer))
    grow(buffer)
    with pytest.raises(ProtocolError) as caught:
        codec.decode(buffer)
    grow(buffer)
    codec.scan(buffer)
    grow(buffer)
    dropped = codec.iter_messages(buffer)
    del dropped
    grow(buffer)
    # the exceptions, with their tracebacks, were there all the time
    assert error.fault is Fault.NOT_A_MESSAGE
    assert caught.value.fault is Fault.TRAILING_DATA


def test_iterators_end(codec: ModuleType) -> None:
    for layer in ("messages", "frames"):
        items = getattr(codec, f"iter_{layer}")(ACKNOWLEDGE + b"x")
        assert iter(items) is items
        assert len(fails(items)[0]) == 1
        assert list(items) == []


READERS = ("decode", "scan", "iter_messages", "iter_frames")


@pytest.mark.parametrize("name", [*READERS, "detect_packet_header_size"])
@pytest.mark.parametrize("wrong", ["text", None, 5, [1], memoryview(b"abcd")[::2]])
def test_wrong_data(codec: ModuleType, name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match="C-contiguous"):
        getattr(codec, name)(wrong)


WRONG_OPTIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    *(({"packet_header_size": wrong}, TypeError) for wrong in (None, True, 32.0, "32")),
    *(({"packet_header_size": wrong}, ValueError) for wrong in (0, 31, 33, 34, 37, -32, 10**30)),
    *(({"max_frame_size": wrong}, TypeError) for wrong in (True, 8.0, "8")),
    *(({"max_frame_size": wrong}, ValueError) for wrong in (7, 0, -1, 2**63)),
]
WRONG_MODES: list[tuple[dict[str, Any], type[Exception]]] = [
    *(({"on_fault": wrong}, TypeError) for wrong in (None, True, b"skip")),
    *(({"on_fault": wrong}, ValueError) for wrong in ("", "ignore", "SKIP")),
]


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [(name, *row) for name in READERS for row in WRONG_OPTIONS]
    + [(name, *row) for name in READERS[2:] for row in WRONG_MODES],
)
def test_wrong_options(codec: ModuleType, name: str, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))) as caught:
        getattr(codec, name)(b"", **options)
    assert caught.type is error


def test_arguments_are_checked_in_order(codec: ModuleType) -> None:
    wrong: dict[str, Any] = {"packet_header_size": 0, "max_frame_size": 0, "on_fault": ""}
    with pytest.raises(TypeError, match="data"):
        codec.iter_messages("", **wrong)
    for name in list(wrong):
        with pytest.raises(ValueError, match=name):
            codec.iter_messages(b"", **wrong)
        wrong = {key: value for key, value in wrong.items() if key != name}


@pytest.mark.parametrize("size", [32, 35, 36])
@pytest.mark.parametrize("before", [0, 1, 3], ids="behind {} good frames".format)
def test_lengths_of_equal_bytes(codec: ModuleType, size: int, before: int) -> None:
    """No byte but a digit is one, where a whole word of a header is of it, whatever the lengths before were."""
    good = wire(6, (1, b""), (3, b"7" * 8), size=size) * before
    for value in set(range(256)) - set(b"0123456789"):
        for packet in (8, 8 + size):
            frame = bytearray(wire(6, (1, b""), (3, b""), size=size))
            frame[packet + size - 8 : packet + size] = bytes([value]) * 8
            at = len(good) + packet + size - 8
            for layer in ("messages", "frames"):
                items = ways(codec, layer, good + frame, packet_header_size=size)
                for found in items:
                    with pytest.raises(ProtocolError) as raised:
                        list(found)
                    assert (raised.value.fault, raised.value.offset) == (Fault.BAD_DIGITS, at)
            scan = codec.scan(good + frame, packet_header_size=size)
            assert (scan.frames, scan.error.offset) == (before, at)

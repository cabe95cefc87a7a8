"""Columns: what the codecs fill Arrow's buffers with, where batches end, where frames are found, and the way back."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import tracemalloc
from types import ModuleType
from typing import Any

import pytest
from batches import WIDE, at_once, decoded, expected_rows, in_batches, rows_of, size_of
from wire import message_wire, packet_header, parts, read_capture, read_vectors

from phpmq.errors import Fault, IncompleteMessage, ProtocolError
from phpmq.records import COLUMNS

ALL = list(COLUMNS)
OPTIONS: dict[str, Any] = {"packet_header_size": 32, "max_frame_size": 2**26}

SEND = message_wire("Send", {"queue": "Foo", "content": b"Hello World", "ttl": 3600})
OLD_SEND = message_wire("Send", {"queue": "", "content": b""})
CONSUME = message_wire("Consume", {"queue": "Foo", "count": 5})
DISPATCH = message_wire("Dispatch", {"queue": "Grüße", "content": b"\0\xff", "message_id": "d7", "ttl": 0})
OLD_DISPATCH = message_wire("Dispatch", {"queue": "Foo", "content": b"x" * 1000, "message_id": ""})
ACKNOWLEDGE = message_wire("Acknowledge", {"queue": "Foo", "message_id": "d7e7f68761d34838494b233148b5486c"})
REQUEUE = message_wire("Requeue", {"queue": "Foo", "message_id": "d7", "ttl": 2**63 - 1})
RECEIPT = message_wire("Receipt", {"queue": "Foo", "message_id": "d7"})
DEAD_LETTER = message_wire("DeadLetter", {"queue": "Foo", "message_id": "d7"})
EVERY_FORM = (SEND, OLD_SEND, CONSUME, DISPATCH, OLD_DISPATCH, ACKNOWLEDGE, REQUEUE, RECEIPT, DEAD_LETTER)

#: Its id, which is not UTF-8, stands before its queue name, which is not either.
LOST = b"".join(parts(4, [(3, b"\xc3"), (1, b"\xff")]))
MIX = b"".join((*EVERY_FORM, b"junk", LOST, *EVERY_FORM, b"H0100103P0", SEND, SEND[:-1]))


def test_rows_of_every_form(codec: ModuleType) -> None:
    [(rows, end)] = at_once(codec, b"".join(EVERY_FORM), ALL, **WIDE)[:-1]
    assert [row["type"] for row in rows] == [
        *(b"send", b"send", b"consume", b"dispatch", b"dispatch"),
        *(b"acknowledge", b"requeue", b"receipt", b"dead_letter"),
    ]
    assert rows[0] == {
        "offset": 0,
        "size": 122,
        "type": b"send",
        "queue": b"Foo",
        "content": b"Hello World",
        "ttl": 3600,
    }
    assert rows[1] == {"offset": 122, "size": 72, "type": b"send", "queue": b"", "content": b""}
    assert rows[2] == {"offset": 194, "size": 76, "type": b"consume", "queue": b"Foo", "count": 5}
    assert {name: rows[3][name] for name in ("queue", "content", "message_id", "ttl")} == {
        "queue": "Grüße".encode(),
        "content": b"\0\xff",
        "message_id": b"d7",
        "ttl": 0,
    }
    assert rows[6]["ttl"] == 2**63 - 1
    assert end == sum(map(len, EVERY_FORM))


def test_rows_where_text_is_lost_and_of_damages(codec: ModuleType) -> None:
    [(rows, _)] = at_once(codec, SEND + b"junk" + LOST, ALL, on_fault="skip", **WIDE)[:-1]
    assert rows[1:] == [
        {"offset": 122, "size": 4, "fault": b"NOT_A_MESSAGE", "fault_offset": 122, "raw": b"junk"},
        {
            "offset": 126,
            "size": len(LOST),
            "type": b"acknowledge",
            "fault": b"NOT_UTF8",
            "fault_offset": 126 + 40,
            "raw": LOST,
        },
    ]


@pytest.mark.parametrize("columns", [ALL, ALL[::-1], [], *([name] for name in ALL), ["ttl", "queue"]], ids="-".join)
def test_any_columns_of_any_input(codec: ModuleType, columns: list[str]) -> None:
    rows = expected_rows(codec, MIX, **OPTIONS)
    expected = list(in_batches(rows, columns, **WIDE))
    outcome = at_once(codec, MIX, columns, on_fault="skip", **WIDE)
    if columns:
        assert [batch for batch, _ in outcome[:-1]] == expected
    assert outcome[-1] == len(MIX)
    for chunks in (
        [MIX],
        [MIX[at : at + 1] for at in range(len(MIX))],
        [MIX[at : at + 97] for at in range(0, len(MIX), 97)],
    ):
        fed = [entry for entry in decoded(codec, chunks, columns, on_fault="skip", **WIDE) if isinstance(entry, tuple)]
        assert fed == outcome[:-1]


@pytest.mark.parametrize("max_rows", [1, 2, 7, 100])
@pytest.mark.parametrize("columns", [ALL, ["content"], ["offset"]], ids="-".join)
def test_batches_end_at_the_limits(codec: ModuleType, max_rows: int, columns: list[str]) -> None:
    rows = expected_rows(codec, MIX, **OPTIONS)
    shown = [{name: row[name] for name in columns if name in row} for row in rows]
    three = sum(size_of(row, columns) for row in shown[:3])
    for max_bytes in (1, three - 1, three, three + 1, 2000, 2**31 - 1):
        limits = {"max_rows": max_rows, "max_bytes": max_bytes}
        outcome = at_once(codec, MIX, columns, on_fault="skip", **limits)
        assert [batch for batch, _ in outcome[:-1]] == list(in_batches(rows, columns, **limits))
        ends = [end for _, end in outcome[:-1]]
        assert ends == sorted(set(ends))
        assert ends[-1] == len(MIX)


def test_more_rows_than_there_is_room_for_at_first(codec: ModuleType) -> None:
    frames = [
        message_wire("Dispatch", {"queue": f"q{n % 3}", "content": b"%d" % n * (n % 90), "message_id": f"{n:032x}"})
        for n in range(5000)
    ]
    data = b"".join(frames)
    for limits in ({"max_rows": 5000, "max_bytes": 2**31 - 1}, {"max_rows": 1500, "max_bytes": 300_000}):
        batches = [batch for batch, _ in at_once(codec, data, ALL, **limits)[:-1]]
        assert batches == list(in_batches(expected_rows(codec, data, **OPTIONS), ALL, **limits))


def test_a_batch_stays_as_it_is(codec: ModuleType) -> None:
    """Though its memory may be used again when it is gone."""
    data = b"".join(message_wire("Send", {"queue": "Foo", "content": b"%06d" % n * 100}) for n in range(300))
    kept = list(codec._decode_columns(data, ["content"], max_rows=10, max_bytes=2**20))
    seen = []
    for number, batch in enumerate(codec._decode_columns(data, ["content"], max_rows=10, max_bytes=2**20)):
        seen.append(rows_of(batch, ["content"]))
        assert seen[-1] == rows_of(kept[number], ["content"])
    assert [row["content"] for rows in seen for row in rows] == [b"%06d" % n * 100 for n in range(300)]


@pytest.mark.parametrize("at", range(4))
def test_good_rows_come_before_the_fault(codec: ModuleType, at: int) -> None:
    good = b"".join(EVERY_FORM[:at])
    data = good + b"H0100103P07" + SEND
    with pytest.raises(ProtocolError) as raised:
        list(codec.iter_messages(data))
    outcome = at_once(codec, data, ["size"], **WIDE)
    assert outcome[-2] == ("ProtocolError", *raised.value.args)
    assert [row["size"] for rows, _ in outcome[:-2] for row in rows] == [len(frame) for frame in EVERY_FORM[:at]]
    assert outcome[-1] == len(good)


def test_a_cut_frame(codec: ModuleType) -> None:
    decoder = codec._decode_columns(None, ["offset"], **WIDE)
    decoder.feed(SEND + SEND[:-3])
    assert list(decoder) == []
    decoder.close()
    assert rows_of(next(decoder), ["offset"]) == [{"offset": 0}]
    for _ in range(2):
        with pytest.raises(IncompleteMessage) as raised:
            next(decoder)
        assert (raised.value.offset, raised.value.missing) == (122, 3)
    with pytest.raises(IncompleteMessage):
        decoder.feed(b"more")


def test_start_and_stop(codec: ModuleType) -> None:
    data = SEND * 4 + b"junk" + SEND * 2
    offsets = [0, 122, 244, 366, 488, 492, 614]
    for start in (0, 122, 488, 492, len(data)):
        for stop in (*range(0, len(data) + 2, 61), 122, 488, 489, 492, None):
            limits = {"start": start, "stop": stop, "on_fault": "skip", **WIDE}
            shown = [at for at in offsets if start <= at and (stop is None or at < stop)]
            boundaries = [at for at in [*offsets, len(data)] if at >= max(start, stop or 0)]
            outcome = at_once(codec, data, ["offset"], **limits)
            assert [row["offset"] for rows, _ in outcome[:-1] for row in rows] == shown
            assert outcome[-1] == (len(data) if stop is None else [*boundaries, len(data)][0])
            fed = decoded(codec, [data[start:][:70], data[start:][70:]], ["offset"], **limits)
            assert [entry[0] for entry in fed if isinstance(entry, tuple)] == [rows for rows, _ in outcome[:-1]]


def test_start_behind_the_end(codec: ModuleType) -> None:
    with pytest.raises(ValueError, match="start is 123, behind the end of the data at 122"):
        codec._decode_columns(SEND, ["offset"], start=123, **WIDE)


def test_wrong_options_are_refused_at_the_call(codec: ModuleType) -> None:
    for options in ({"packet_header_size": 33}, {"max_frame_size": 7}, {"on_fault": "ignore"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            codec._decode_columns(b"", ["offset"], **options, **WIDE)
    with pytest.raises(TypeError):
        codec._decode_columns("text", ["offset"], **WIDE)


def test_numbers_that_make_no_sense_are_refused(codec: ModuleType) -> None:
    for wrong in ({"start": -1}, {"max_rows": 0}, {"max_rows": -1}, {"max_bytes": 0}):
        for data in (SEND, None):
            with pytest.raises(ValueError, match=r"^start must not be negative, .* must be positive$"):
                codec._decode_columns(data, ["offset"], **WIDE | wrong)


def test_nothing_comes_after_the_end(codec: ModuleType) -> None:
    for data, error in ((SEND, StopIteration), (SEND + b"x", ProtocolError)):
        decoder = codec._decode_columns(data, ["offset"], **WIDE)
        next(decoder)
        for _ in range(3):
            with pytest.raises(error):
                next(decoder)
            assert decoder.offset == len(SEND)


def test_no_reset(codec: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"^a _ColumnDecoder is for one input$"):
        codec._decode_columns(None, ["offset"], **WIDE).reset()


NO_MEMORY = """
import importlib, resource, sys
codec = importlib.import_module(sys.argv[1])
size = 64 * 1024 * 1024 - 1000
data = codec.encode(codec.Send("Foo", bytes(size)))
decoder = codec._decode_columns(data, ["queue", "content"], max_rows=9, max_bytes=2**31 - 1)
pages = int(open("/proc/self/statm").read().split()[0])
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 100 * 1024 * 1024, limits[1]))
for _ in range(3):
    try:
        next(decoder)
    except MemoryError:
        pass
    else:
        sys.exit("there was enough")
resource.setrlimit(resource.RLIMIT_AS, limits)
rows, [(_, [_, _, queue]), (_, [_, _, content])] = next(decoder)
assert (rows, bytes(queue), bytes(content)) == (1, b"Foo", bytes(size))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this system has another way to limit memory")
def test_memory_that_ends(both_codecs: tuple[ModuleType, ModuleType]) -> None:
    """Where one column has got its room and the next one has not, nothing is written, and nothing is lost."""
    run = subprocess.run(
        [sys.executable, "-c", NO_MEMORY, "phpmq._codec_c"], check=False, capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")


# UTF-8


#: Texts that are UTF-8, and, by what is wrong with them, texts that are not.
GOOD_TEXTS = ["", "x", "ß", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\0"]
BAD_TEXTS = [
    *(b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2\x41", b"\xdf\xc0", b"\xe0\x9f\xbf", b"\xe0\xa0"),
    *(
        b"\xe1\x80",
        b"\xe1\x80\x41",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xef\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x90\x80",
    ),
    *(b"\xf1\x80\x80\x41", b"\xf1\x80\x41\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xfe", b"\xff"),
]


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 15, 16, 17, 31, 40])
@pytest.mark.parametrize("behind", [0, 1, 8])
def test_utf8(codec: ModuleType, before: int, behind: int) -> None:
    for text in (*(text.encode() for text in GOOD_TEXTS), *BAD_TEXTS):
        name = b"a" * before + text + b"z" * behind
        data = b"".join(parts(6, [(1, b"Foo"), (3, name)]))
        [([row], _)] = at_once(codec, data, ["message_id", "fault", "fault_offset", "raw"], **WIDE)[:-1]
        if text in BAD_TEXTS:
            assert row == {"fault": b"NOT_UTF8", "fault_offset": 75, "raw": data}
        else:
            assert row == {"message_id": name}


# Finding frames


def test_find_frame(codec: ModuleType) -> None:
    data = SEND + b"HH0" + CONSUME + b"H0100999" + LOST + DISPATCH[:-1]
    places = [0, len(SEND) + 3, data.index(LOST)]
    for start in range(len(data) + 1):
        expected = min([place for place in places if place >= start], default=len(data))
        assert codec._find_frame(data, start) == expected


def test_find_frame_passes_over_frames_that_are_no_messages(codec: ModuleType) -> None:
    unknown = b"".join(parts(9, [(1, b"Foo")]))
    odd = b"".join(parts(2, [(1, b"Foo"), (4, b"05")]))
    assert codec._find_frame(unknown + odd + SEND, 0) == len(unknown + odd)


def test_find_frame_with_options(codec: ModuleType) -> None:
    assert codec._find_frame(b"", 0) == 0
    receipt = message_wire("Receipt", {"queue": "", "message_id": ""}, 36)
    assert codec._find_frame(b"xx" + receipt, 0, packet_header_size=36) == 2
    assert codec._find_frame(SEND, 0, max_frame_size=121) == 122


def test_no_frame_is_larger_than_a_column(codec: ModuleType) -> None:
    """Whatever the limit, a length is judged before its content is waited for."""
    data = b"H0100102" + packet_header(1, 0) + packet_header(2, 2**31)
    for limit in (None, 2**40):
        [(rows, _)] = at_once(codec, data, ["fault"], on_fault="skip", max_frame_size=limit, **WIDE)[:-1]
        assert rows == [{"fault": b"TOO_LARGE"}]
        for length, fault in ((2**31 - 1 - len(data), b"TRUNCATED"), (2**31 - len(data), b"TOO_LARGE")):
            cut = b"H0100102" + packet_header(1, 0) + packet_header(2, length)
            [(rows, _)] = at_once(codec, cut, ["fault"], on_fault="skip", max_frame_size=limit, **WIDE)[:-1]
            assert rows == [{"fault": fault}]


# Encoding


def column(batch: tuple[int, list[tuple[int, list[Any]]]], columns: list[str]) -> dict[str, tuple[int, list[Any]]]:
    return {name: (0, buffers) for name, (_, buffers) in zip(columns, batch[1], strict=True)}


ENCODED = ["type", "queue", "content", "message_id", "ttl", "count", "fault", "raw"]


@pytest.mark.parametrize("size", [32, 35, 36])
def test_what_is_decoded_is_encoded(codec: ModuleType, size: int) -> None:
    data = b"".join(vector.wire for vector in read_vectors() if vector.size == size and not vector.refused)
    data += b"".join(parts(6, [(1, b"\xff"), (3, b"d7")], size))
    [batch] = codec._decode_columns(data, ENCODED, packet_header_size=size, **WIDE)
    assert codec._encode_columns(batch[0], column(batch, ENCODED), packet_header_size=size) == data


def test_columns_that_begin_later(codec: ModuleType) -> None:
    data = read_capture("original_client_to_server")
    [batch] = codec._decode_columns(data, [*ENCODED, "offset"], **WIDE)
    offsets = [row["offset"] for row in rows_of(batch, [*ENCODED, "offset"])] + [len(data)]
    for first in range(batch[0] + 1):
        columns = {name: (first, buffers) for name, (_, buffers) in column(batch, [*ENCODED, "offset"]).items()}
        del columns["offset"]
        assert codec._encode_columns(batch[0] - first, columns) == data[offsets[first] :]


def given(**values: Any) -> dict[str, tuple[int, list[Any]]]:
    """Columns of one row."""
    columns: dict[str, tuple[int, list[Any]]] = {}
    for name, value in values.items():
        bits = b"\0" if value is None else None
        if COLUMNS[name] == "int64":
            columns[name] = (0, [bits, array.array("q", [value or 0])])
        else:
            text = value or b""
            columns[name] = (0, [bits, array.array("i", [0, len(text)]), text or None])
    return columns


WHOLE: dict[str, Any] = {"type": b"dispatch", "queue": b"Foo", "content": b"x", "message_id": b"d7", "ttl": 5}


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"type": None},
            {"type": b"Dispatch"},
            {"type": b""},
            {"queue": None},
            {"content": None},
            {"message_id": None},
        ),
        *({"count": 1}, {"ttl": -1}, {"type": b"send"}, {"type": b"acknowledge"}, {"type": b"requeue"}),
        *({"type": b"consume"}, {"fault": b"NOT_A_MESSAGE"}, {"fault": b"NOT_UTF8"}, {"fault": b""}),
        *({"fault": b"NOT_UTF8", "raw": raw} for raw in (None, b"", b"junk", SEND[:-1], SEND + b"x", SEND + SEND)),
        {"fault": b"NOT_UTF8", "raw": message_wire("Consume", {"queue": "", "count": 1}, 36)},
    ],
    ids=str,
)
def test_rows_that_are_no_message(codec: ModuleType, change: dict[str, Any]) -> None:
    assert codec._encode_columns(1, given(**WHOLE)) == message_wire(
        "Dispatch", {"queue": "Foo", "content": b"x", "message_id": "d7", "ttl": 5}
    )
    refused = codec._encode_columns(1, given(**WHOLE | change))
    assert (type(refused), refused) == (int, 0)


def test_the_older_forms_are_written_without_ttl(codec: ModuleType) -> None:
    expected = message_wire("Dispatch", {"queue": "Foo", "content": b"x", "message_id": "d7"})
    assert codec._encode_columns(1, given(**WHOLE | {"ttl": None})) == expected
    receipt = {"type": b"receipt", "queue": b"", "message_id": b""}
    assert codec._encode_columns(1, given(**receipt), packet_header_size=35) == (
        b"H0100502" + packet_header(1, 0, 35) + packet_header(3, 0, 35)
    )


def test_rows_of_any_size_are_encoded(codec: ModuleType) -> None:
    """Writing has no limit, not even the one that reading has where nothing else is said."""
    raw = b"".join(parts(1, [(1, b"\xff"), (2, bytes(2**26))]))
    assert codec._encode_columns(1, given(type=b"send", fault=b"NOT_UTF8", raw=raw)) == raw


def test_no_rows(codec: ModuleType) -> None:
    assert codec._encode_columns(0, {}) == b""
    with pytest.raises(ValueError, match="packet_header_size"):
        codec._encode_columns(0, {}, packet_header_size=33)


def test_large_frames(codec: ModuleType) -> None:
    """Larger than a piece, a block and a first buffer of each codec."""
    content = bytes(range(256)) * 20_000
    data = SEND + message_wire("Send", {"queue": "Foo", "content": content}) + CONSUME
    for chunks in ([data], [data[at : at + 65536] for at in range(0, len(data), 65536)]):
        seen = [entry[0] for entry in decoded(codec, chunks, ["content"], **WIDE) if isinstance(entry, tuple)]
        assert seen == [[{"content": b"Hello World"}, {"content": content}, {}]]
    damaged = b"x" + data[1:]
    [(rows, _)] = at_once(
        codec, damaged[: len(SEND)] + b"y" * 200_000 + data, ["raw", "size"], on_fault="skip", **WIDE
    )[:-1]
    assert rows[0] == {"raw": (damaged[: len(SEND)] + b"y" * 200_000)[:65536], "size": len(SEND) + 200_000}
    assert (
        Fault.NOT_A_MESSAGE.name.encode()
        == next(iter(at_once(codec, b"x", ["fault"], on_fault="skip", **WIDE)))[0][0]["fault"]
    )


def test_buffers_are_read_only(codec: ModuleType) -> None:
    [(_, [(_, buffers)])] = codec._decode_columns(SEND, ["content"], **WIDE)
    for buffer in buffers[1:]:
        assert memoryview(buffer).readonly
        with pytest.raises(TypeError, match="writable"):
            codec.encode_into(codec.Acknowledge("", ""), buffer)


@pytest.mark.thread_unsafe(reason="tracemalloc counts what all threads do")
def test_a_large_batch_leaves_nothing(codec: ModuleType) -> None:
    content = bytes(50 * 1024 * 1024)
    data = message_wire("Send", {"queue": "Foo", "content": content})
    tracemalloc.start()
    try:
        [(_, [(_, [_, _, text])])] = codec._decode_columns(data, ["content"], **WIDE)
        assert bytes(text) == content
        del text, _
        assert tracemalloc.get_traced_memory()[0] < 1024 * 1024
    finally:
        tracemalloc.stop()

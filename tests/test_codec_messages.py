"""The seven messages as values, and how they are written (docs/protocol.md, sections 2 and 3)."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from types import ModuleType
from typing import Any

import pytest
from buffers import BUFFERS, WRITABLE, label
from wire import message_wire, packet_header, parts

from phpmq.records import Packet

BIGGEST = 2**63 - 1

#: By message: its signature, good values, and what ``repr`` says of them.
MESSAGES: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "Send": ("(queue, content, ttl=None)", ("Foo", b"x", None), "Send(queue='Foo', content=b'x', ttl=None)"),
    "Consume": ("(queue, count)", ("Foo", 5), "Consume(queue='Foo', count=5)"),
    "Dispatch": (
        "(queue, content, message_id, ttl=None)",
        ("Foo", b"x", "7", 3600),
        "Dispatch(queue='Foo', content=b'x', message_id='7', ttl=3600)",
    ),
    "Acknowledge": ("(queue, message_id)", ("Foo", "7"), "Acknowledge(queue='Foo', message_id='7')"),
    "Requeue": ("(queue, message_id, ttl)", ("Foo", "7", 0), "Requeue(queue='Foo', message_id='7', ttl=0)"),
    "Receipt": ("(queue, message_id)", ("Foo", "7"), "Receipt(queue='Foo', message_id='7')"),
    "DeadLetter": ("(queue, message_id)", ("Foo", "7"), "DeadLetter(queue='Foo', message_id='7')"),
}
each_message = pytest.mark.parametrize("name", MESSAGES)


def example(codec: ModuleType, name: str) -> Any:
    return getattr(codec, name)(*MESSAGES[name][1])


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        return b"something else"


class Integer(int):
    def __index__(self) -> int:
        return 42


class Indexable:
    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@each_message
def test_values(codec: ModuleType, name: str) -> None:
    cls = getattr(codec, name)
    signature, values, text = MESSAGES[name]
    message = cls(*values)
    parameters = inspect.signature(cls).parameters.values()
    assert f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})" == signature
    assert cls.__match_args__ == tuple(p.name for p in parameters)
    assert tuple(getattr(message, field) for field in cls.__match_args__) == values
    assert repr(message) == text
    assert message == cls(**dict(zip(cls.__match_args__, values, strict=True)))
    assert isinstance(message, codec.Message)
    assert bytes(message) == codec.encode(message)


@each_message
def test_immutable(codec: ModuleType, name: str) -> None:
    message = example(codec, name)
    with pytest.raises(AttributeError):
        message.queue = "other"
    with pytest.raises(AttributeError):
        message.unknown = 1
    with pytest.raises(AttributeError):
        del message.queue
    assert not hasattr(message, "__dict__")
    assert repr(message) == MESSAGES[name][2]


@each_message
def test_final(codec: ModuleType, name: str) -> None:
    with pytest.raises(TypeError):
        type("Derived", (getattr(codec, name),), {})


@each_message
def test_copies(codec: ModuleType, name: str) -> None:
    message = example(codec, name)
    assert copy.copy(message) is message
    assert copy.deepcopy([message])[0] is message
    changed = message.__replace__(queue="Bar")
    assert (type(changed), changed.queue, message.queue) == (type(message), "Bar", "Foo")
    assert changed.__replace__(queue="Foo") == message
    with pytest.raises(TypeError):
        message.__replace__(unknown=1)


@each_message
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(codec: ModuleType, name: str, protocol: int) -> None:
    copied = pickle.loads(pickle.dumps(example(codec, name), protocol))
    # it loads as the message of the backend that runs, which need not be this codec's
    assert repr(copied) == MESSAGES[name][2]


def test_equality(codec: ModuleType) -> None:
    messages = [example(codec, name) for name in MESSAGES]
    messages += [message.__replace__(queue="Bar") for message in messages]
    assert len(set(messages)) == len(set(map(hash, messages))) == len(messages)
    for message in messages:
        assert message != repr(message)
        assert message.__eq__(None) is NotImplemented
        assert message != message.__replace__(queue="other")
        with pytest.raises(TypeError):
            operator.lt(message, message)
    acknowledge = codec.Acknowledge("Foo", "7")
    assert acknowledge != codec.DeadLetter("Foo", "7")
    assert hash(acknowledge) == hash(codec.Acknowledge(message_id="7", queue="Foo"))


def test_patterns(codec: ModuleType) -> None:
    match codec.Dispatch("Foo", b"x", "7"):
        case codec.Send():
            raise AssertionError("this is a Dispatch")
        case codec.Dispatch(queue, content, message_id=message_id, ttl=None):
            assert (queue, content, message_id) == ("Foo", b"x", "7")
        case _:
            raise AssertionError("this is a Dispatch")


def test_fields_are_made_exact(codec: ModuleType) -> None:
    message = codec.Dispatch(Text("Foo"), Bytes(b"x"), Text("7"), Integer(5))
    assert [type(getattr(message, name)) for name in message.__match_args__] == [str, bytes, str, int]
    assert (message.queue, message.content, message.message_id) == ("Foo", b"x", "7")
    assert codec.Consume("Foo", Indexable(7)).count == 7
    assert type(codec.Consume("Foo", Integer(5)).count) is int


@pytest.mark.parametrize(
    ("name", "values", "error", "words"),
    [
        ("Acknowledge", (b"Foo", "7"), TypeError, ("queue", "bytes", "decode")),
        ("Acknowledge", (None, "7"), TypeError, ("queue", "NoneType")),
        ("Acknowledge", ("Foo", 7), TypeError, ("message_id", "int")),
        ("Acknowledge", ("\ud800", "7"), ValueError, ("queue",)),
        ("Acknowledge", ("Foo", "7\udc7f"), ValueError, ("message_id",)),
        ("Acknowledge", ("Foo", "\udd00"), ValueError, ("message_id",)),
        ("Send", ("Foo", "café"), TypeError, ("content", "str", ".encode()")),
        ("Send", ("Foo", None), TypeError, ("content", "NoneType")),
        ("Send", ("Foo", 5), TypeError, ("content", "int")),
        ("Send", ("Foo", memoryview(b"abcd")[::2]), TypeError, ("content", "contiguous")),
        ("Send", ("Foo", b"", True), TypeError, ("ttl", "bool")),
        ("Send", ("Foo", b"", 1.0), TypeError, ("ttl", "float")),
        ("Send", ("Foo", b"", -1), ValueError, ("ttl", "-1")),
        ("Send", ("Foo", b"", BIGGEST + 1), ValueError, ("ttl",)),
        ("Consume", ("Foo", False), TypeError, ("count", "bool")),
        ("Consume", ("Foo", None), TypeError, ("count",)),
        ("Consume", ("Foo", -1), ValueError, ("count",)),
        ("Requeue", ("Foo", "7", None), TypeError, ("ttl",)),
        ("Dispatch", (b"", "", b"", True), TypeError, ("queue",)),
        ("Dispatch", ("", "", b"", True), TypeError, ("content",)),
        ("Dispatch", ("", b"", b"", True), TypeError, ("message_id",)),
    ],
)
def test_refused_fields(
    codec: ModuleType, name: str, values: tuple[Any, ...], error: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        getattr(codec, name)(*values)
    assert caught.type is error
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS)
def test_contents_are_snapshots(codec: ModuleType, make: Callable[[bytes], Any]) -> None:
    buffer = make(b"twelve bytes")
    message = codec.Send("Foo", buffer)
    assert type(message.content) is bytes
    if not memoryview(buffer).readonly:
        memoryview(buffer).cast("B")[:] = b"overwritten!"
    assert message.content == b"twelve bytes"


def test_bytes_are_not_copied(codec: ModuleType) -> None:
    content = bytes(100)
    assert codec.Send("Foo", content).content is content
    assert codec.Dispatch("Foo", content, "7").content is content


#: Each form as it stands on the wire, with 32 bytes a packet header.
FORMS: list[tuple[str, tuple[Any, ...], bytes]] = [
    (
        "Send",
        ("Foo", b"Hello World", 0),
        b"H0100103P0100000000000000000000000000003FooP0200000000000000000000000000011Hello World"
        b"P05000000000000000000000000000010",
    ),
    (
        "Send",
        ("Foo", b"Hello World"),
        b"H0100102P0100000000000000000000000000003FooP0200000000000000000000000000011Hello World",
    ),
    ("Consume", ("", 25), b"H0100202P0100000000000000000000000000000P040000000000000000000000000000225"),
    (
        "Dispatch",
        ("Foo", b"0", "7", BIGGEST),
        b"H0100304P0100000000000000000000000000003FooP02000000000000000000000000000010"
        b"P03000000000000000000000000000017P05000000000000000000000000000199223372036854775807",
    ),
    (
        "Dispatch",
        ("Foo", b"", "7"),
        b"H0100303P0100000000000000000000000000003FooP0200000000000000000000000000000P03000000000000000000000000000017",
    ),
    (
        "Acknowledge",
        ("é", "\udcff"),
        b"H0100402P0100000000000000000000000000002\xc3\xa9P0300000000000000000000000000001\xff",
    ),
    (
        "Requeue",
        ("Foo", "", 3600),
        b"H0100503P0100000000000000000000000000003FooP0300000000000000000000000000000"
        b"P05000000000000000000000000000043600",
    ),
    ("Receipt", ("", "7"), b"H0100502P0100000000000000000000000000000P03000000000000000000000000000017"),
    ("DeadLetter", ("", "7"), b"H0100602P0100000000000000000000000000000P03000000000000000000000000000017"),
]


@pytest.mark.parametrize(("name", "values", "wire"), FORMS)
def test_forms(codec: ModuleType, name: str, values: tuple[Any, ...], wire: bytes) -> None:
    message = getattr(codec, name)(*values)
    assert codec.encode(message) == wire
    assert codec.decode(wire) == message


@pytest.mark.parametrize(("name", "values", "wire"), FORMS)
@pytest.mark.parametrize("size", [35, 36])
def test_forms_in_other_sizes(codec: ModuleType, name: str, values: tuple[Any, ...], wire: bytes, size: int) -> None:
    message = getattr(codec, name)(*values)
    fields = {field: value for field in message.__match_args__ if (value := getattr(message, field)) is not None}
    assert message_wire(name, fields) == wire
    assert codec.encode(message, packet_header_size=size) == message_wire(name, fields, size)
    assert codec.decode(message_wire(name, fields, size), packet_header_size=size) == message


@each_message
def test_text_that_is_not_utf8(codec: ModuleType, name: str) -> None:
    values = dict(zip(getattr(codec, name).__match_args__, MESSAGES[name][1], strict=True))
    texts = {"queue": "caf\udce9 \u00e9", "message_id": "\udcff\0\udc80"}
    fields = {field: texts.get(field, value) for field, value in values.items() if value is not None}
    message = getattr(codec, name)(**fields)
    assert codec.encode(message) == message_wire(name, fields)
    assert codec.decode(message_wire(name, fields)) == message


@pytest.mark.parametrize(
    "content", [b"a\nb", b"a\r\nb", b"\x1a", b"\0", b"H0100103", bytes(range(256)), b"x" * 70_000], ids=label
)
def test_contents_are_written_as_they_are(codec: ModuleType, content: bytes) -> None:
    wire = codec.encode(codec.Send("", content))
    assert wire == b"H0100102" + packet_header(1, 0) + packet_header(2, len(content)) + content
    assert codec.decode(wire).content == content


def test_long_and_many_names(codec: ModuleType) -> None:
    # more than any table of names that repeat would keep
    messages = [codec.Consume("q" * length, length) for length in [*range(1500), 1, 0]]
    assert list(codec.iter_messages(codec.encode_many(messages))) == messages


@pytest.mark.parametrize("size", [32, 35, 36])
def test_contents_and_numbers_of_any_length(codec: ModuleType, size: int) -> None:
    powers = [10**digits for digits in range(19)]
    numbers = [0, *powers, *(power - 1 for power in powers), 12_345_678, BIGGEST]
    for length, number in zip_longest([*range(150), 999, 1000, 9999, 10_000], numbers, fillvalue=7):
        message = codec.Send("q" * length, b"\0" * length, number)
        packets = (1, b"q" * length), (2, b"\0" * length), (5, b"%d" % number)
        assert codec.encode(message, packet_header_size=size) == b"".join(parts(1, packets, size))


def test_encode_many(codec: ModuleType) -> None:
    messages = [codec.Acknowledge("Foo", str(number)) for number in range(3)]
    for size in (32, 35, 36):
        wire = b"".join(codec.encode(message, packet_header_size=size) for message in messages)
        assert codec.encode_many(iter(messages), packet_header_size=size) == wire
    assert codec.encode_many([]) == b""
    growing = [codec.Dispatch("Foo", bytes(2**power), "7", 60) for power in range(18)]
    assert codec.encode_many(growing) == b"".join(map(codec.encode, growing))


@pytest.mark.parametrize("wrong", [None, b"H0100402", ("Foo", "7"), ...])
def test_only_messages_are_encoded(codec: ModuleType, wrong: object) -> None:
    name = type(wrong).__name__
    for call in (codec.encode, lambda value: codec.encode_into(value, bytearray(99))):
        with pytest.raises(TypeError, match=name):
            call(wrong)
    with pytest.raises(TypeError, match=rf"messages\[1\].*{name}"):
        codec.encode_many([codec.Consume("Foo", 1), wrong])


ROOM = b"." * 100
ACKNOWLEDGE = b"H0100402P0100000000000000000000000000003FooP03000000000000000000000000000017"


@pytest.mark.parametrize("make", WRITABLE.values(), ids=WRITABLE)
def test_encode_into(codec: ModuleType, make: Callable[[bytes], Any]) -> None:
    message = codec.Acknowledge("Foo", "7")
    for offset in (0, 3, Indexable(7), len(ROOM) - len(ACKNOWLEDGE)):
        buffer = make(ROOM)
        assert codec.encode_into(message, buffer, offset) == len(ACKNOWLEDGE)
        at = operator.index(offset)
        assert bytes(buffer)[:at] == ROOM[:at]
        assert bytes(buffer)[at:] == (ACKNOWLEDGE + ROOM)[: len(ROOM) - at]


@pytest.mark.parametrize(
    ("make", "offset", "error", "word"),
    [
        (bytes, 0, TypeError, "buffer"),
        (lambda data: memoryview(bytearray(data * 2))[::2], 0, TypeError, "contiguous"),
        (lambda data: data.decode(), 0, TypeError, "buffer"),
        (lambda data: bytearray(b"." * (len(ACKNOWLEDGE) - 1)), 0, ValueError, "offset"),
        (bytearray, len(ROOM) - len(ACKNOWLEDGE) + 1, ValueError, "offset"),
        (bytearray, 2**63 - 1, ValueError, "offset"),
        (bytearray, 10**30, ValueError, "offset"),
        (bytearray, -1, ValueError, "offset"),
        (bytearray, True, TypeError, "offset"),
        (bytearray, 1.0, TypeError, "offset"),
        (bytearray, None, TypeError, "offset"),
    ],
)
def test_encode_into_refuses(
    codec: ModuleType, make: Callable[[bytes], Any], offset: Any, error: type[Exception], word: str
) -> None:
    buffer = make(ROOM)
    with pytest.raises(error, match=word):
        codec.encode_into(codec.Acknowledge("Foo", "7"), buffer, offset)
    assert set(buffer if isinstance(buffer, str) else bytes(buffer).decode()) == {"."}


def test_encode_into_writes_nothing_on_an_error(codec: ModuleType) -> None:
    buffer = bytearray(ROOM)
    for message, options in ((None, {}), (codec.Consume("", 1), {"packet_header_size": 33})):
        with pytest.raises((TypeError, ValueError)):
            codec.encode_into(message, buffer, **options)
    assert buffer == ROOM


def test_encode_frame(codec: ModuleType) -> None:
    assert codec.encode_frame(0, []) == b"H0100000"
    packets = [(99, b"x"), (0, bytearray()), (99, memoryview(b"yz"))]
    wire = b"H0199903" + packet_header(99, 1) + b"x" + packet_header(0, 0) + packet_header(99, 2) + b"yz"
    assert codec.encode_frame(999, packets) == wire
    assert codec.encode_frame(Indexable(7), iter([[Integer(2), b"x"]])) == b"H0100701" + packet_header(2, 1) + b"x"
    assert codec.encode_frame(1, ((1, b"") for _ in range(99))) == b"H0100199" + packet_header(1, 0) * 99


def test_encode_frame_in_other_sizes(codec: ModuleType) -> None:
    for size in (32, 35, 36):
        frame = codec.encode_frame(7, [Packet(3, b"abc")], packet_header_size=size)
        assert frame == b"H0100701" + packet_header(3, 3, size) + b"abc"


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ((1000, []), ValueError, "type"),
        ((-1, []), ValueError, "type"),
        ((True, []), TypeError, "type"),
        (("1", []), TypeError, "type"),
        ((1, None), TypeError, "NoneType"),
        ((1, [(1, b"")] * 100), ValueError, "packets"),
        ((1, [(1, b""), (100, b"")]), ValueError, r"packets\[1\].type"),
        ((1, [(-1, b"")]), ValueError, r"packets\[0\].type"),
        ((1, [(True, b"")]), TypeError, r"packets\[0\].type"),
        ((1, [(1, "text")]), TypeError, r"packets\[0\].content.*encode"),
        ((1, [(1, None)]), TypeError, r"packets\[0\].content"),
        ((1, [(1, b""), 5]), TypeError, r"packets\[1\]"),
        ((1, [(1, b"", 5)]), TypeError, r"packets\[0\]"),
    ],
)
def test_encode_frame_refuses(codec: ModuleType, arguments: tuple[Any, ...], error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        codec.encode_frame(*arguments)


@pytest.mark.parametrize("call", ["encode", "encode_many", "encode_frame"])
@pytest.mark.parametrize(
    ("size", "error"),
    [(31, ValueError), (33, ValueError), (-32, ValueError), (10**30, ValueError)]
    + [(wrong, TypeError) for wrong in (True, None, 32.0, "32")],
)
def test_wrong_sizes(codec: ModuleType, call: str, size: Any, error: type[Exception]) -> None:
    arguments = {"encode": (codec.Consume("", 1),), "encode_many": ([],), "encode_frame": (1, [])}[call]
    with pytest.raises(error, match="packet_header_size") as caught:
        getattr(codec, call)(*arguments, packet_header_size=size)
    assert caught.type is error


def test_sizes_are_integers_of_any_kind(codec: ModuleType) -> None:
    message = codec.Consume("", 1)
    wire = codec.encode(message, packet_header_size=Indexable(36))
    assert wire == b"H0100202" + packet_header(1, 0, 36) + packet_header(4, 1, 36) + b"1"
    assert codec.decode(wire, packet_header_size=Indexable(36), max_frame_size=Indexable(len(wire))) == message


def test_threads(codec: ModuleType) -> None:
    def work(worker: int) -> bool:
        messages = [
            codec.Dispatch(f"queue {worker}", b"x" * number, f"{worker}-{number}", number) for number in range(300)
        ]
        return all(codec.decode(codec.encode(message)) == message for message in messages)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))

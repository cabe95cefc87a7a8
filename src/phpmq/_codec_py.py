"""The reference codec: the protocol as one would explain it, in plain Python.

Reading has one fast path and one slow path. The fast path (``_take_messages``, ``_take_frames``) answers a
single question, "whole and canonical, or not?", and gives items as long as the answer is yes. On "not" the
slow path (``_Reader._walk``) goes over the same bytes in their order, waits where some are missing, and says
which fault the shortest prefix proves. Everything that reads stands on ``_Reader.items``.

Writing joins packet headers that are made once for each length.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from functools import partial, wraps
from itertools import accumulate, pairwise
from operator import index
from pickle import PickleBuffer
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    final,
    get_args,
    overload,
)

from phpmq.errors import Fault, IncompleteMessage, ProtocolError, foreign_hint, header_size_hint, number_text
from phpmq.protocol import (
    CATALOGUE,
    DAMAGE_DATA_SIZE,
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_PACKET_HEADER_SIZE,
    DETECTION_SIZE,
    FOUND_SIZE,
    MAX_INTEGER,
    MAX_MESSAGE_TYPE,
    MAX_PACKET_COUNT,
    MAX_PACKET_TYPE,
    MESSAGE_HEADER_SIZE,
    PACKET_HEADER_SIZES,
    VERSION,
    PacketType,
)
from phpmq.records import COLUMNS, NOT_UTF8, WORDS, Damage, Frame, Packet, Scan

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

__all__ = [
    "Acknowledge",
    "Consume",
    "DeadLetter",
    "Decoder",
    "Dispatch",
    "FrameDecoder",
    "Message",
    "Receipt",
    "Requeue",
    "Send",
    "decode",
    "detect_packet_header_size",
    "encode",
    "encode_frame",
    "encode_into",
    "encode_many",
    "iter_frames",
    "iter_messages",
    "scan",
]

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")
_P = ParamSpec("_P")
_OnFault: TypeAlias = Literal["raise", "skip"]

_MEMO_ENTRIES: Final = 1024
_MEMO_KEY_SIZE: Final = 256


class _Memo(dict[_K, _V]):
    """Works out what it lacks, and starts afresh rather than grow without end or keep a long key."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[_K], _V]) -> None:
        self._make = make

    def __missing__(self, key: _K) -> _V:
        value = self._make(key)
        if len(self) >= _MEMO_ENTRIES:
            self.clear()
        if sys.getsizeof(key) <= _MEMO_KEY_SIZE:
            self[key] = value
        return value


# Arguments


def _view(name: str, data: Buffer) -> memoryview:
    """The bytes under any C-contiguous buffer, whatever its items and dimensions."""
    try:
        view = memoryview(data)
    except TypeError:
        advice = "; .encode() it" if isinstance(data, str) else ""
        raise TypeError(f"{name} must be a C-contiguous bytes-like object, not {type(data).__name__}{advice}") from None
    if not view.c_contiguous:
        raise TypeError(f"{name} must be a C-contiguous bytes-like object, not a strided {type(data).__name__}")
    if view.ndim == 1 and view.format == "B":
        return view
    return PickleBuffer(view).raw()  # not always: CPython crashed when it collected one in a cycle, before 3.13


def _snapshot(name: str, data: Buffer) -> bytes:
    if type(data) is bytes:
        return data
    with _view(name, data) as view:
        return bytes(view)


def _text(name: str, value: str) -> str:
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        advice = "; .decode() it" if isinstance(value, bytes | bytearray | memoryview) else ""
        raise TypeError(f"{name} must be a str, not {type(value).__name__}{advice}")
    try:
        str.encode(value, "utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds a surrogate that stands for no byte, at index {error.start}") from None
    return str.__str__(value)


def _integer(name: str, value: int, lowest: int = 0, highest: int = MAX_INTEGER) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
        value = index(value)
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, not {number_text(value)}")
    return value


def _header_size(packet_header_size: int) -> int:
    size = _integer("packet_header_size", packet_header_size, -sys.maxsize, sys.maxsize)
    if size not in PACKET_HEADER_SIZES:
        raise ValueError(f"packet_header_size must be one of {PACKET_HEADER_SIZES}, not {size}")
    return size


class _Options(NamedTuple):
    size: int
    limit: int
    skip: bool


def _options(packet_header_size: int, max_frame_size: int | None, on_fault: str = "raise") -> _Options:
    size = _header_size(packet_header_size)
    limit = MAX_INTEGER if max_frame_size is None else _integer("max_frame_size", max_frame_size, MESSAGE_HEADER_SIZE)
    if not isinstance(on_fault, str):
        raise TypeError(f"on_fault must be a str, not {type(on_fault).__name__}")
    if on_fault not in ("raise", "skip"):
        raise ValueError(f"on_fault must be 'raise' or 'skip', not {on_fault!r}")
    return _Options(size, limit, on_fault == "skip")


# Messages


class _Message:
    """What the seven messages have in common; their fields are their ``__match_args__``."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if cls.__bases__ != (_Message,):
            raise TypeError(f"{cls.__bases__[0].__name__} cannot be subclassed")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be deleted")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), _fields(self)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __replace__(self, /, **changes: Any) -> Self:
        return type(self)(**dict(zip(self.__match_args__, _fields(self), strict=True)) | changes)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, tuple[Any, ...]]]:
        from phpmq._backend import rebuild  # noqa: PLC0415 (it imports this module)

        return rebuild, (type(self).__name__, _fields(self))

    def __bytes__(self) -> bytes:
        return encode(self)  # type: ignore[arg-type]


def _fields(message: Any) -> tuple[Any, ...]:
    return tuple([getattr(message, name) for name in message.__match_args__])


def _draft(*fields: str) -> Callable[[], Any]:
    """A class without the guard of a message: an instance is filled, then made a message. No constructor is as fast."""
    # Both, though none is deleted: one alone would be called through Python.
    unguarded = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type("_Draft", (_Message,), {"__slots__": fields, **unguarded})


_SendDraft = _draft("queue", "content", "ttl")
_ConsumeDraft = _draft("queue", "count")
_DispatchDraft = _draft("queue", "content", "message_id", "ttl")
_AnswerDraft = _draft("queue", "message_id")
_RequeueDraft = _draft("queue", "message_id", "ttl")


@final
class Send(_Message):
    """Puts a message at the end of a queue (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        content: any C-contiguous buffer; kept as bytes.
        ttl: time to live in seconds, 0 to 2**63-1; with 0 the message never expires, None leaves the packet out.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "content", "ttl")
    queue: str
    content: bytes
    ttl: int | None

    def __new__(cls, queue: str, content: Buffer, ttl: int | None = None) -> Self:
        draft = _SendDraft()
        draft.queue = _text("queue", queue)
        draft.content = _snapshot("content", content)
        draft.ttl = None if ttl is None else _integer("ttl", ttl)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class Consume(_Message):
    """Asks for up to ``count`` messages of a queue; a new one replaces the last (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        count: how many messages, 0 to 2**63-1.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "count")
    queue: str
    count: int

    def __new__(cls, queue: str, count: int) -> Self:
        draft = _ConsumeDraft()
        draft.queue = _text("queue", queue)
        draft.count = _integer("count", count)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class Dispatch(_Message):
    """Carries a queued message to a consumer (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        content: any C-contiguous buffer; kept as bytes.
        message_id: id that the server gave to the message.
        ttl: seconds that are left of its time to live, 0 to 2**63-1; None leaves the packet out.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "content", "message_id", "ttl")
    queue: str
    content: bytes
    message_id: str
    ttl: int | None

    def __new__(cls, queue: str, content: Buffer, message_id: str, ttl: int | None = None) -> Self:
        draft = _DispatchDraft()
        draft.queue = _text("queue", queue)
        draft.content = _snapshot("content", content)
        draft.message_id = _text("message_id", message_id)
        draft.ttl = None if ttl is None else _integer("ttl", ttl)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class Acknowledge(_Message):
    """Releases a dispatched message for good (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        message_id: id of the message.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "message_id")
    queue: str
    message_id: str

    def __new__(cls, queue: str, message_id: str) -> Self:
        draft = _AnswerDraft()
        draft.queue = _text("queue", queue)
        draft.message_id = _text("message_id", message_id)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class Requeue(_Message):
    """Takes a dispatched message out and appends it to its queue again (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        message_id: id of the message.
        ttl: its new time to live in seconds, 0 to 2**63-1; with 0 it never expires.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "message_id", "ttl")
    queue: str
    message_id: str
    ttl: int

    def __new__(cls, queue: str, message_id: str, ttl: int) -> Self:
        draft = _RequeueDraft()
        draft.queue = _text("queue", queue)
        draft.message_id = _text("message_id", message_id)
        draft.ttl = _integer("ttl", ttl)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class Receipt(_Message):
    """Tells a sender the id that its message got; older servers do (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        message_id: id of the message.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "message_id")
    queue: str
    message_id: str

    def __new__(cls, queue: str, message_id: str) -> Self:
        draft = _AnswerDraft()
        draft.queue = _text("queue", queue)
        draft.message_id = _text("message_id", message_id)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


@final
class DeadLetter(_Message):
    """Removes a message from its queue, whatever time to live it has left (docs/protocol.md, section 5).

    Args:
        queue: name of the queue.
        message_id: id of the message.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of range; the text names it.
    """

    __slots__ = __match_args__ = ("queue", "message_id")
    queue: str
    message_id: str

    def __new__(cls, queue: str, message_id: str) -> Self:
        draft = _AnswerDraft()
        draft.queue = _text("queue", queue)
        draft.message_id = _text("message_id", message_id)
        draft.__class__ = cls
        return draft  # type: ignore[no-any-return]


Message = Send | Consume | Dispatch | Acknowledge | Requeue | DeadLetter | Receipt


# From contents to messages: nothing is checked here but integers


def _read_integer(digits: bytes) -> int:
    if not re.fullmatch(rb"0|[1-9][0-9]{0,18}", digits) or int(digits) > MAX_INTEGER:
        raise ValueError("not a canonical integer")
    return int(digits)


_INTEGERS: Final = _Memo(_read_integer)
_QUEUES: Final = _Memo[bytes, str](lambda name: name.decode("utf-8", "surrogateescape"))


def _read_send(queue: bytes, content: bytes, ttl: bytes | None = None) -> Send:
    draft = _SendDraft()
    draft.queue = _QUEUES[queue]
    draft.content = content
    draft.ttl = None if ttl is None else _INTEGERS[ttl]
    draft.__class__ = Send
    return draft  # type: ignore[no-any-return]


def _read_consume(queue: bytes, count: bytes) -> Consume:
    draft = _ConsumeDraft()
    draft.queue = _QUEUES[queue]
    draft.count = _INTEGERS[count]
    draft.__class__ = Consume
    return draft  # type: ignore[no-any-return]


def _read_dispatch(queue: bytes, content: bytes, message_id: bytes, ttl: bytes | None = None) -> Dispatch:
    draft = _DispatchDraft()
    draft.queue = _QUEUES[queue]
    draft.content = content
    draft.message_id = message_id.decode("utf-8", "surrogateescape")
    draft.ttl = None if ttl is None else _INTEGERS[ttl]
    draft.__class__ = Dispatch
    return draft  # type: ignore[no-any-return]


def _read_requeue(queue: bytes, message_id: bytes, ttl: bytes) -> Requeue:
    draft = _RequeueDraft()
    draft.queue = _QUEUES[queue]
    draft.message_id = message_id.decode("utf-8", "surrogateescape")
    draft.ttl = _INTEGERS[ttl]
    draft.__class__ = Requeue
    return draft  # type: ignore[no-any-return]


def _read_answer(cls: type, queue: bytes, message_id: bytes) -> Message:
    draft = _AnswerDraft()
    draft.queue = _QUEUES[queue]
    draft.message_id = message_id.decode("utf-8", "surrogateescape")
    draft.__class__ = cls
    return draft  # type: ignore[no-any-return]


_READ: Final[dict[str, Callable[..., Message]]] = {
    "Send": _read_send,
    "Consume": _read_consume,
    "Dispatch": _read_dispatch,
    "Acknowledge": partial(_read_answer, Acknowledge),
    "Requeue": _read_requeue,
    "DeadLetter": partial(_read_answer, DeadLetter),
    "Receipt": partial(_read_answer, Receipt),
}


# Encoding


def _message_header(message_type: int, count: int) -> bytes:
    return b"H%02d%03d%02d" % (VERSION, message_type, count)


class _Writer:
    """What is written often, for one packet header size: headers by the length of the content, or whole packets."""

    __slots__ = ("content", "count", "header", "message_id", "queue", "ttl")

    def __init__(self, size: int) -> None:
        template = b"P%%02d%%0%dd" % (size - 3)

        def header(packet_type: int, length: int) -> bytes:
            return template % (packet_type, length)

        def integer(packet_type: int, value: int) -> bytes:
            digits = b"%d" % value
            return header(packet_type, len(digits)) + digits

        def queue(name: str) -> bytes:
            content = name.encode("utf-8", "surrogateescape")
            return header(PacketType.QUEUE, len(content)) + content

        self.header = header
        self.queue = _Memo(queue)
        self.content = _Memo(partial(header, PacketType.CONTENT))
        self.message_id = _Memo(partial(header, PacketType.MESSAGE_ID))
        self.count = _Memo(partial(integer, PacketType.COUNT))
        self.ttl = _Memo(partial(integer, PacketType.TTL))


_WRITERS: Final = {size: _Writer(size) for size in PACKET_HEADER_SIZES}
_DEFAULT_WRITER: Final = _WRITERS[DEFAULT_PACKET_HEADER_SIZE]


def _writer(packet_header_size: int) -> _Writer:
    return _WRITERS[_header_size(packet_header_size)]


def _write_send(message: Send, writer: _Writer) -> bytes:
    content, ttl = message.content, message.ttl
    start, end = (b"H0100102", b"") if ttl is None else (b"H0100103", writer.ttl[ttl])
    return b"".join((start, writer.queue[message.queue], writer.content[len(content)], content, end))


def _write_consume(message: Consume, writer: _Writer) -> bytes:
    return b"H0100202" + writer.queue[message.queue] + writer.count[message.count]


def _write_dispatch(message: Dispatch, writer: _Writer) -> bytes:
    content, ttl = message.content, message.ttl
    name = message.message_id.encode("utf-8", "surrogateescape")
    start, end = (b"H0100303", b"") if ttl is None else (b"H0100304", writer.ttl[ttl])
    queue = writer.queue[message.queue]
    return b"".join((start, queue, writer.content[len(content)], content, writer.message_id[len(name)], name, end))


def _write_requeue(message: Requeue, writer: _Writer) -> bytes:
    return _write_answer(b"H0100503", message, writer) + writer.ttl[message.ttl]


def _write_answer(start: bytes, message: Acknowledge | DeadLetter | Receipt | Requeue, writer: _Writer) -> bytes:
    name = message.message_id.encode("utf-8", "surrogateescape")
    return b"".join((start, writer.queue[message.queue], writer.message_id[len(name)], name))


_WRITE: Final[dict[type, Callable[[Any, _Writer], bytes]]] = {
    Send: _write_send,
    Consume: _write_consume,
    Dispatch: _write_dispatch,
    Acknowledge: partial(_write_answer, b"H0100402"),
    Requeue: _write_requeue,
    Receipt: partial(_write_answer, b"H0100502"),
    DeadLetter: partial(_write_answer, b"H0100602"),
}


def _writing(name: str, message: Message) -> Callable[[Any, _Writer], bytes]:
    try:
        return _WRITE[type(message)]
    except KeyError:
        raise TypeError(f"{name} must be a message of this codec, not {type(message).__name__}") from None


def encode(message: Message, *, packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE) -> bytes:
    """The frame of one message, its packets in canonical order (docs/protocol.md, section 3).

    Args:
        message: one of the seven messages.
        packet_header_size: 32, 35 or 36 bytes.

    Raises:
        TypeError: this is not a message, or the size not an integer.
        ValueError: the size is another one.
    """
    write = _writing("message", message)
    # "is": the default is nearly always left as it is, and then needs no check
    return write(
        message, _DEFAULT_WRITER if packet_header_size is DEFAULT_PACKET_HEADER_SIZE else _writer(packet_header_size)
    )


def encode_many(messages: Iterable[Message], *, packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE) -> bytes:
    """The frames of several messages, one after the other.

    Args:
        messages: any iterable of messages.
        packet_header_size: 32, 35 or 36 bytes.

    Raises:
        TypeError: one is not a message (the text says which), or the size not an integer.
        ValueError: the size is another one.
    """
    writes = [(_writing(f"messages[{number}]", message), message) for number, message in enumerate(messages)]
    writer = _writer(packet_header_size)
    return b"".join([write(message, writer) for write, message in writes])


def encode_into(
    message: Message,
    buffer: Buffer,
    offset: int = 0,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
) -> int:
    """Write the frame of one message into a buffer; on an error nothing is written.

    Args:
        message: one of the seven messages.
        buffer: any writable C-contiguous buffer.
        offset: where to write, in bytes from its start.
        packet_header_size: 32, 35 or 36 bytes.

    Returns:
        How many bytes were written.

    Raises:
        TypeError: an argument has the wrong type, or the buffer is read-only.
        ValueError: the offset is negative, the frame does not fit after it, or the size is another one.
    """
    frame = encode(message, packet_header_size=packet_header_size)
    with _view("buffer", buffer) as view:
        if view.readonly:
            raise TypeError(f"buffer must be writable, not a read-only {type(buffer).__name__}")
        start = _integer("offset", offset)
        if len(frame) > view.nbytes - start:
            raise ValueError(f"buffer has {view.nbytes} bytes: no room for {len(frame)} at offset {start}")
        view[start : start + len(frame)] = frame
    return len(frame)


def encode_frame(
    type: int,
    packets: Iterable[Packet | tuple[int, Buffer]],
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
) -> bytes:
    """A frame of any type and with any packets, in the catalogue or not (docs/protocol.md, section 3).

    Args:
        type: message type, 0 to 999.
        packets: at most 99 pairs of a packet type, 0 to 99, and a content, any C-contiguous buffer.
        packet_header_size: 32, 35 or 36 bytes.

    Raises:
        TypeError, ValueError: something has the wrong type or is out of range; the text names it.
    """
    message_type = _integer("type", type, highest=MAX_MESSAGE_TYPE)
    checked = []
    for number, packet in enumerate(packets):
        if number == MAX_PACKET_COUNT:
            raise ValueError(f"packets must be at most {MAX_PACKET_COUNT}")
        checked.append(_packet(f"packets[{number}]", packet))
    header = _writer(packet_header_size).header
    parts = [_message_header(message_type, len(checked))]
    for packet_type, content in checked:
        parts += header(packet_type, len(content)), content
    return b"".join(parts)


def _packet(name: str, packet: Packet | tuple[int, Buffer]) -> tuple[int, bytes]:
    try:
        packet_type, content = packet
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a Packet or a (type, content) pair") from None
    return _integer(f"{name}.type", packet_type, highest=MAX_PACKET_TYPE), _snapshot(f"{name}.content", content)


# Reading, the fast path

#: A frame longer than this takes the slow path, which copies contents only when the whole frame is proven.
_BLOCK_SIZE: Final = 64 * 1024

_DIGITS: Final = re.compile(rb"[0-9]*")

#: In the place of a length that is not whole or not a number: longer than any.
_UNKNOWN: Final = 10**40

#: A fault, how far into the header it is, and how many bytes show it.
_HeaderFault: TypeAlias = tuple[Fault, int, int]


def _read_message_header(header: bytes) -> tuple[int | None, int | None, _HeaderFault | None]:
    """Type, count and fault, as far as these first bytes of a header prove them."""
    (version, message_type, count), fault = _numbers(header, 3, 6, MESSAGE_HEADER_SIZE)
    if header[:1] not in (b"H", b""):
        return None, None, (Fault.NOT_A_MESSAGE, 0, FOUND_SIZE)
    if version not in (VERSION, None):
        return None, None, (Fault.UNSUPPORTED_VERSION, 1, 2)
    return message_type, count, fault


def _read_packet_header(size: int, header: bytes) -> tuple[int | None, int, _HeaderFault | None]:
    """Type, length and fault, as far as these first bytes of a header prove them."""
    (packet_type, length), fault = _numbers(header, 3, size)
    if header[:1] not in (b"P", b""):
        return None, _UNKNOWN, (Fault.NOT_A_PACKET, 0, FOUND_SIZE)
    return packet_type, _UNKNOWN if length is None else length, fault


def _numbers(header: bytes, *stops: int) -> tuple[list[int | None], _HeaderFault | None]:
    """The numbers after the marker, each up to one of the stops, None where one is not whole."""
    digits = _DIGITS.match(header, 1).end()  # type: ignore[union-attr]
    numbers = [int(header[start:stop]) if stop <= digits else None for start, stop in pairwise((1, *stops))]
    return numbers, (Fault.BAD_DIGITS, digits, 1) if digits < len(header) else None


_MESSAGE_HEADERS: Final = _Memo(_read_message_header)
_PACKET_HEADERS: Final = {size: _Memo(partial(_read_packet_header, size)) for size in PACKET_HEADER_SIZES}

#: What to expect after a message header of the catalogue: packet types in canonical order, and the name of the message.
_FORMS: Final = {
    _message_header(message_type, count): (tuple(map(int, form.packets)), form.message)
    for (message_type, count), form in CATALOGUE.items()
}


def _take_messages(reader: _Reader) -> Iterator[Message]:
    """Messages as long as they are whole and canonical at the position of the reader."""
    base, size, limit = reader.position, reader.size, reader.limit
    block = reader.copy(base, base + _BLOCK_SIZE)
    headers = _PACKET_HEADERS[size]
    start, stop = 0, len(block)
    while form := _FORMS.get(block[start : start + MESSAGE_HEADER_SIZE]):
        packet_types, name = form
        end = start + MESSAGE_HEADER_SIZE
        contents = []
        for expected in packet_types:
            begin = end + size
            packet_type, length, _ = headers[block[end:begin]]
            end = begin + length
            if packet_type != expected or end > stop:
                return
            contents.append(block[begin:end])
        if end - start > limit:
            return
        try:
            message = _READ[name](*contents)
        except ValueError:
            return
        start = end
        reader.position = base + end
        yield message


def _count_messages(reader: _Reader) -> tuple[()]:
    """Like ``_take_messages``, but counts them instead of making them."""
    base, size, limit = reader.position, reader.size, reader.limit
    block = reader.copy(base, base + _BLOCK_SIZE)
    headers = _PACKET_HEADERS[size]
    start, stop = 0, len(block)
    while form := _FORMS.get(block[start : start + MESSAGE_HEADER_SIZE]):
        packet_types, name = form
        end = start + MESSAGE_HEADER_SIZE
        for expected in packet_types:
            begin = end + size
            packet_type, length, _ = headers[block[end:begin]]
            end = begin + length
            if packet_type != expected or end > stop:
                return ()
        if end - start > limit or (packet_type in _INTEGER_TYPES and not _is_integer(block[begin:end])):
            return ()
        reader.count(name, base + start, base + end)
        start = end
        reader.position = base + end
    return ()


def _take_frames(reader: _Reader) -> Iterator[Frame]:
    """Frames as long as they are whole and canonical at the position of the reader."""
    base, size, limit = reader.position, reader.size, reader.limit
    block = reader.copy(base, base + _BLOCK_SIZE)
    headers = _PACKET_HEADERS[size]
    new: Any = tuple.__new__  # quicker than the constructors of Packet and Frame
    start, stop = 0, len(block)
    while True:
        message_type, count, _ = _MESSAGE_HEADERS[block[start : start + MESSAGE_HEADER_SIZE]]
        if count is None:
            return
        end = start + MESSAGE_HEADER_SIZE
        packets = []
        for _ in range(count):
            begin = end + size
            packet_type, length, _ = headers[block[end:begin]]
            end = begin + length
            if end > stop:
                return
            packets.append(new(Packet, (packet_type, block[begin:end])))
        if end - start > limit:
            return
        frame = new(Frame, (message_type, tuple(packets), base + start, end - start))
        start = end
        reader.position = base + end
        yield frame


# Reading, the slow path


class _Verdict(NamedTuple):
    """A fault, where it is, how many bytes from there show it, and how many are missing behind it."""

    fault: Fault
    offset: int
    shown: int
    missing: int = 0


class _Broken(Exception):  # noqa: N818
    """Ends a walk; its arguments are those of the verdict."""


class _Walked(NamedTuple):
    """A whole frame: its type, the type and the place of each content, and where it ends."""

    type: int
    packets: list[tuple[int, int, int]]
    stop: int


class _Layer(NamedTuple):
    """What messages and frames do differently."""

    in_catalogue: bool
    take: Callable[[_Reader], Iterable[Any]]
    build: Callable[[_Reader, int, _Walked], Any]


#: Where a frame may start: after its version, or where the bytes at hand end too early to tell.
_CANDIDATE: Final = re.compile(rb"H(?:01|0?\Z)")
_MESSAGE_TYPES: Final = {int(message_type) for message_type, _ in CATALOGUE}
_INTEGER_TYPES: Final = {int(PacketType.COUNT), int(PacketType.TTL)}
_INTEGER_SIZE: Final = len(str(MAX_INTEGER))

#: The faults of a frame that the frame layer may still frame.
_MESSAGE_FAULTS: Final = {
    Fault.UNKNOWN_MESSAGE_TYPE,
    Fault.PACKET_COUNT_MISMATCH,
    Fault.UNEXPECTED_PACKET,
    Fault.DUPLICATE_PACKET,
    Fault.BAD_INTEGER,
}


def _is_integer(content: bytes) -> bool:
    try:
        return _INTEGERS[content] >= 0
    except ValueError:
        return False


class _Reader:
    """Finds items in the bytes at hand, ``data``, the first of which has the offset ``base`` in the input.

    All positions are offsets in the input. Everything before ``position`` is done with: the owner may drop it.
    ``final`` says that no bytes will follow.
    """

    __slots__ = (
        "base", "counted", "counts", "damage", "data", "end", "error", "final", "layer", "limit", "position", "size",
        "skip",
    )  # fmt: skip

    def __init__(
        self, layer: _Layer, data: bytes | bytearray | memoryview, options: _Options, *, final: bool = True
    ) -> None:
        self.layer = layer
        self.data = data
        self.size, self.limit, self.skip = options
        self.final = final
        self.base = self.position = self.counted = 0
        self.end = len(data)
        self.counts: dict[str, tuple[int, int]] = {}
        #: What the search at ``position`` is for: where the damage begins, what is wrong, and its first bytes.
        self.damage: tuple[int, _Verdict, bytearray] | None = None
        self.error: ProtocolError | None = None

    def head(self, start: int, size: int) -> bytes:
        """As many bytes of a header as there are."""
        at = start - self.base
        return bytes(self.data[at : at + size])

    def copy(self, start: int, stop: int) -> bytes:
        # The views have no name: an exception that is kept would keep it, and a bytearray with a view cannot grow.
        return bytes(memoryview(self.data)[start - self.base : stop - self.base])

    def items(self) -> Generator[Any, None, None]:
        """All items in order; None where more bytes are needed. After a fault it ends, with ``error`` set."""
        if self.damage:  # the search for its end was broken off
            yield from self._search(*self.damage)
        while not self.error:
            start = self.position
            if start == self.end:
                if self.final:
                    return
                yield None
                continue
            yield from self.layer.take(self)
            if self.position > start:
                continue
            frame = yield from self._judge(start, self.layer.in_catalogue)
            if isinstance(frame, _Verdict):
                if not self.skip:
                    self.error = yield from self._error(start, frame)
                    continue
                start, frame = yield from self._recover(start, frame)
            if isinstance(frame, _Walked):
                item = self.layer.build(self, start, frame)
                self.position = frame.stop
                if item is not None:
                    yield item
                del item  # else it would be kept as long as bytes are missing

    def begin_again(self, offset: int) -> None:
        """Go back to ``offset``, where the last item given ends, before ``items`` is called anew."""
        if self.damage and self.damage[0] < offset:
            self.damage = None
        if self.damage is None:
            self.position = max(offset, self.counted)

    def contents(self, frame: _Walked) -> list[tuple[int, bytes]]:
        return [(kind, self.copy(begin, end)) for kind, begin, end in frame.packets]

    def count(self, name: str, start: int, stop: int) -> None:
        """Count a message of this name and its bytes."""
        frames, total = self.counts.get(name, (0, 0))
        self.counts[name] = frames + 1, total + stop - start
        self.counted = stop

    def check(self) -> None:
        """Raise the fault that was met, if any, as a fresh exception."""
        if self.error:
            raise type(self.error)(*self.error.args)

    # The walk over one frame

    def _judge(self, start: int, in_catalogue: bool) -> Generator[None, None, _Walked | _Verdict]:
        try:
            return (yield from self._walk(start, in_catalogue))
        except _Broken as broken:
            return _Verdict(*broken.args)

    def _walk(self, start: int, in_catalogue: bool) -> Generator[None, None, _Walked]:
        """Go over the frame at ``start`` in the order of its bytes, yielding None where some are missing.

        Contents are passed over, not copied, so this costs a few headers, however long the frame is.
        """
        while (header := self._message_header(start, in_catalogue)) is None:
            self._wait(start, start + MESSAGE_HEADER_SIZE)
            yield None
        message_type, count = header
        form = CATALOGUE[header].packets if in_catalogue else None  # type: ignore[index]
        unseen = set(form or ())
        packets: list[tuple[int, int, int]] = []
        end = start + MESSAGE_HEADER_SIZE
        for left in reversed(range(count)):
            begin = end + self.size
            while (packet := self._packet_header(start, end, form, unseen)) is None:
                self._wait(start, begin, left)
                yield None
            packet_type, length = packet
            end = begin + length
            while self.end < end:
                self._wait(start, end, left)
                yield None
            if form and packet_type in _INTEGER_TYPES and not _is_integer(self.copy(begin, end)):
                raise _Broken(Fault.BAD_INTEGER, begin, length)
            unseen.discard(packet_type)
            packets.append((packet_type, begin, end))
        return _Walked(message_type, packets, end)

    def _wait(self, start: int, stop: int, left: int = 0) -> None:
        """The bytes up to ``stop`` are wanted, and ``left`` packets after them: an error if none will come."""
        if self.final:
            raise _Broken(Fault.TRUNCATED, start, FOUND_SIZE, stop - self.end + left * self.size)

    def _message_header(self, start: int, in_catalogue: bool) -> tuple[int, int] | None:
        """Type and count, or None while the header is not whole; what there is of it is judged."""
        message_type, count, fault = _MESSAGE_HEADERS[self.head(start, MESSAGE_HEADER_SIZE)]
        if message_type is not None and in_catalogue and message_type not in _MESSAGE_TYPES:
            raise _Broken(Fault.UNKNOWN_MESSAGE_TYPE, start + 3, 3)
        if fault:
            raise _Broken(fault[0], start + fault[1], fault[2])
        if message_type is None or count is None:
            return None
        if in_catalogue and (message_type, count) not in CATALOGUE:
            raise _Broken(Fault.PACKET_COUNT_MISMATCH, start + 6, 2)
        return message_type, count

    def _packet_header(
        self, start: int, offset: int, form: Collection[int] | None, unseen: Collection[int]
    ) -> tuple[int, int] | None:
        """Type and length, or None while the header is not whole; what there is of it is judged."""
        packet_type, length, fault = _PACKET_HEADERS[self.size][self.head(offset, self.size)]
        if form and packet_type is not None and packet_type not in unseen:
            raise _Broken(Fault.DUPLICATE_PACKET if packet_type in form else Fault.UNEXPECTED_PACKET, offset + 1, 2)
        if fault:
            raise _Broken(fault[0], offset + fault[1], fault[2])
        if packet_type is None or length is _UNKNOWN:
            return None
        begin = offset + self.size
        if begin + length - start > self.limit:
            raise _Broken(Fault.TOO_LARGE, offset + 3, self.size - 3)
        if form and packet_type in _INTEGER_TYPES and not 0 < length <= _INTEGER_SIZE:
            raise _Broken(Fault.BAD_INTEGER, begin, length)
        return packet_type, length

    # What follows a fault

    def _error(self, start: int, verdict: _Verdict) -> Generator[None, None, ProtocolError]:
        fault, offset, shown, missing = verdict
        found = self.copy(offset, offset + min(shown, FOUND_SIZE))
        place = offset if fault is Fault.NOT_A_PACKET else start
        hint = foreign_hint(self.copy(place, place + MESSAGE_HEADER_SIZE))
        if not hint and self.size == DEFAULT_PACKET_HEADER_SIZE:
            hint = yield from self._header_size_hint(start)
        if fault is Fault.TRUNCATED:
            return IncompleteMessage(offset, found, missing, hint)
        return ProtocolError(fault, offset, found, hint)

    def _header_size_hint(self, start: int) -> Generator[None, None, str]:
        for size in PACKET_HEADER_SIZES[1:]:
            other = _Reader(self.layer, self.data, _Options(size, self.limit, skip=False))
            other.base, other.end = self.base, self.end
            if isinstance((yield from other._judge(start, in_catalogue=False)), _Walked):
                return header_size_hint(size)
        return ""

    def _recover(self, start: int, verdict: _Verdict) -> Generator[Damage | None, None, tuple[int, _Walked | _Verdict]]:
        """Give the damage that begins at ``start``; return where it ends, and the frame there if it is known."""
        if verdict.fault in _MESSAGE_FAULTS:
            frame = yield from self._judge(start, in_catalogue=False)
            if isinstance(frame, _Walked) and (yield from self._ends_well(frame)):
                data = self.copy(start, min(frame.stop, start + DAMAGE_DATA_SIZE))
                self.position = frame.stop
                yield Damage(start, frame.stop, verdict.fault, verdict.offset, data)
                return frame.stop, verdict
        self.damage = start, verdict, bytearray()
        return (yield from self._search(*self.damage))

    def _ends_well(self, frame: _Walked) -> Generator[None, None, bool]:
        while self.end == frame.stop and not self.final:
            yield None
        return self.copy(frame.stop, frame.stop + 1) in (b"H", b"")

    def _search(
        self, start: int, verdict: _Verdict, data: bytearray
    ) -> Generator[Damage | None, None, tuple[int, _Walked | _Verdict]]:
        """The damage ends where the next whole frame begins, or with the input."""
        frame: _Walked | _Verdict = verdict
        if self.position > start:  # here the search was broken off
            frame = yield from self._judge(self.position, self.layer.in_catalogue)
        while isinstance(frame, _Verdict) and self.position < self.end:
            stop = self._candidate(self.position + 1)
            del data[self.position - start :]
            data += self.copy(self.position, min(stop, self.position + DAMAGE_DATA_SIZE - len(data)))
            self.position = stop
            frame = yield from self._judge(stop, self.layer.in_catalogue)
        yield Damage(start, self.position, verdict.fault, verdict.offset, bytes(data))
        self.damage = None
        return self.position, frame

    def _candidate(self, start: int) -> int:
        found = _CANDIDATE.search(self.data, start - self.base)
        return self.base + found.start() if found else self.end


def _build_message(reader: _Reader, start: int, frame: _Walked) -> Message:
    form = CATALOGUE[frame.type, len(frame.packets)]  # type: ignore[index]
    contents = dict(reader.contents(frame))
    return _READ[form.message](*[contents[packet_type] for packet_type in form.packets])


def _build_frame(reader: _Reader, start: int, frame: _Walked) -> Frame:
    packets = tuple(map(Packet._make, reader.contents(frame)))
    return Frame(frame.type, packets, start, frame.stop - start)


def _count_message(reader: _Reader, start: int, frame: _Walked) -> None:
    reader.count(CATALOGUE[frame.type, len(frame.packets)].message, start, frame.stop)  # type: ignore[index]


_MESSAGES: Final = _Layer(True, _take_messages, _build_message)
_FRAMES: Final = _Layer(False, _take_frames, _build_frame)
_COUNT: Final = _Layer(True, _count_messages, _count_message)


# Reading a buffer


def decode(
    data: Buffer,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
) -> Message:
    """The one message that the data holds.

    Args:
        data: any C-contiguous buffer with exactly one frame.
        packet_header_size: 32, 35 or 36 bytes.
        max_frame_size: the longest frame to accept, in bytes (docs/protocol.md, section 4, "Limits").

    Raises:
        ProtocolError: the frame is damaged, or something follows it (docs/protocol.md, section 4, "Which fault").
        IncompleteMessage: the data ends before the frame does.
        TypeError, ValueError: an argument is wrong.
    """
    with _view("data", data) as view:
        reader = _Reader(_MESSAGES, view, _options(packet_header_size, max_frame_size))
        message: Message | None = next(reader.items(), None)
        reader.check()
        if message is None:
            raise IncompleteMessage(0, b"", MESSAGE_HEADER_SIZE)
        if reader.position < reader.end:
            found = reader.copy(reader.position, reader.position + FOUND_SIZE)
            raise ProtocolError(Fault.TRAILING_DATA, reader.position, found, foreign_hint(found))
        return message


@overload
def iter_messages(
    data: Buffer, *, packet_header_size: int = ..., max_frame_size: int | None = ..., on_fault: Literal["raise"] = ...
) -> Iterator[Message]: ...


@overload
def iter_messages(
    data: Buffer, *, packet_header_size: int = ..., max_frame_size: int | None = ..., on_fault: Literal["skip"]
) -> Iterator[Message | Damage]: ...


def iter_messages(
    data: Buffer,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    on_fault: _OnFault = "raise",
) -> Iterator[Message | Damage]:
    """The messages that the data holds, one after the other.

    The buffer stays exported until the iterator is exhausted or has failed.

    Args:
        data: any C-contiguous buffer; not copied as a whole.
        packet_header_size: 32, 35 or 36 bytes.
        max_frame_size: the longest frame to accept, in bytes (docs/protocol.md, section 4, "Limits").
        on_fault: "raise" ends at the first fault; "skip" gives a ``Damage`` in the place of what cannot be read
            and goes on behind it (docs/protocol.md, section 4, "Recovery").

    Raises:
        ProtocolError: while iterating, after the good messages (docs/protocol.md, section 4, "Which fault").
        TypeError, ValueError: at the call, an argument is wrong.
    """
    return _items(_MESSAGES, _view("data", data), _options(packet_header_size, max_frame_size, on_fault))


@overload
def iter_frames(
    data: Buffer, *, packet_header_size: int = ..., max_frame_size: int | None = ..., on_fault: Literal["raise"] = ...
) -> Iterator[Frame]: ...


@overload
def iter_frames(
    data: Buffer, *, packet_header_size: int = ..., max_frame_size: int | None = ..., on_fault: Literal["skip"]
) -> Iterator[Frame | Damage]: ...


def iter_frames(
    data: Buffer,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    on_fault: _OnFault = "raise",
) -> Iterator[Frame | Damage]:
    """The frames that the data holds, whatever their types and packets (docs/protocol.md, section 3).

    Arguments and errors are those of ``iter_messages``; only the faults of the frame layer are met.
    """
    return _items(_FRAMES, _view("data", data), _options(packet_header_size, max_frame_size, on_fault))


def _items(layer: _Layer, view: memoryview, options: _Options) -> Iterator[Any]:
    with view:
        reader = _Reader(layer, view, options)
        yield from reader.items()
        reader.check()


def scan(
    data: Buffer,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
) -> Scan:
    """Count the whole valid messages before the first fault, without making them.

    Args:
        data: any C-contiguous buffer; not copied as a whole.
        packet_header_size: 32, 35 or 36 bytes.
        max_frame_size: the longest frame to accept, in bytes (docs/protocol.md, section 4, "Limits").

    Returns:
        How many there are, the offset in bytes where the last one ends, and the fault that ``iter_messages``
        would raise, or None (docs/protocol.md, section 4).

    Raises:
        TypeError, ValueError: an argument is wrong; never a ``ProtocolError``.
    """
    with _view("data", data) as view:
        reader = _Reader(_COUNT, view, _options(packet_header_size, max_frame_size))
        next(reader.items(), None)  # runs to the end, because counting gives no items
        return Scan(sum(frames for frames, _ in reader.counts.values()), reader.position, reader.error)


def detect_packet_header_size(data: Buffer) -> int:
    """Which packet header size the data is written with (docs/protocol.md, section 1).

    Args:
        data: any C-contiguous buffer; its first 1 MiB is looked at, and may end inside a frame.

    Returns:
        The one size, 32, 35 or 36 bytes, with which there is a whole frame and no fault.

    Raises:
        TypeError: the data is not a buffer.
        ValueError: no size fits ("none"), or several do ("ambiguous").
    """
    with _view("data", data) as view:
        sample = bytes(view[:DETECTION_SIZE])
    fitting = [size for size in PACKET_HEADER_SIZES if _fits(sample, size)]
    if not fitting:
        raise ValueError(f"none of the packet header sizes {PACKET_HEADER_SIZES} fits the data")
    if len(fitting) > 1:
        raise ValueError(f"the packet header size is ambiguous: {' and '.join(map(str, fitting))} fit the data")
    return fitting[0]


def _fits(sample: bytes, size: int) -> bool:
    reader = _Reader(_FRAMES, sample, _Options(size, MAX_INTEGER, skip=False))
    frames = sum(1 for _ in reader.items())
    return frames > 0 and (reader.error is None or reader.error.fault is Fault.TRUNCATED)


# Reading a stream


def _exclusive(method: Callable[Concatenate[_Stream[_T], _P], _V]) -> Callable[Concatenate[_Stream[_T], _P], _V]:
    """Refuse a call while another one runs, from a second thread or from inside the first one.

    A lock would stay taken where a signal comes between taking it and ``try``. A mark in a dictionary is known as one's
    own from the moment it is in, and goes without a call, behind which a signal could come.
    """

    @wraps(method)
    def call(self: _Stream[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _V:
        mark = object()
        try:
            if self._call.setdefault(0, mark) is not mark:
                raise self._in_use()
            return method(self, *args, **kwargs)
        finally:
            if 0 in self._call and self._call[0] is mark:
                del self._call[0]

    return call


class _Stream(Generic[_T]):
    """What ``Decoder`` and ``FrameDecoder`` have in common: everything but the layer."""

    __slots__ = ("__weakref__", "_buffer", "_call", "_items", "_offset", "_options", "_reader")
    _layer: ClassVar[_Layer]
    _call: dict[int, object]

    def __init_subclass__(cls) -> None:
        if _Stream not in cls.__bases__:
            raise TypeError(f"{cls.__bases__[0].__name__} cannot be subclassed")

    def _open(self, options: _Options) -> None:
        buffer = bytearray()
        self._reader = _Reader(self._layer, buffer, options, final=False)
        self._options, self._buffer = options, buffer
        self._items: Iterator[_T | None] | None = None
        self._offset = 0

    @property
    def offset(self) -> int:
        """Where the last item given ends, in bytes from the start of the input."""
        return self._offset

    @property
    def buffered(self) -> int:
        """How many bytes were fed after ``offset``; 0 once a fault was raised."""
        return 0 if self._reader.error else self._reader.end - self.offset

    @_exclusive
    def feed(self, data: Buffer) -> None:
        """Take a copy of the next bytes of the input; nothing is parsed yet.

        Args:
            data: any C-contiguous buffer.

        Raises:
            TypeError: the data is not a buffer.
            ProtocolError: a fault was met before; ``reset`` ends that.
            ValueError: the input was closed, and these are more bytes.
            RuntimeError: another call on this decoder is running.
        """
        chunk = _snapshot("data", data)
        self._reader.check()
        if self._reader.final and chunk:
            raise ValueError("the input was closed: feed takes no more bytes before reset()")
        # dropping moves what is kept, so it must be worth it
        if self._reader.position - self._reader.base > len(self._buffer) // 2:
            self._drop()
        end = self._reader.end + len(chunk)
        # no call between these two, where a signal could come, and nothing that takes memory
        self._buffer += chunk
        self._reader.end = end

    @_exclusive
    def close(self) -> None:
        """Say that the input has ended: iteration gives the rest, and raises if a frame is cut. May be repeated."""
        self._reader.final = True

    @_exclusive
    def reset(self) -> None:
        """Forget all bytes, the fault, the end and the offset: begin a new input."""
        self._open(self._options)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        # this is _exclusive, written out: it runs once for each item
        mark = object()
        try:
            if self._call.setdefault(0, mark) is not mark:
                raise self._in_use()
            if self._items is None:
                self._items = self._reader.items()
            item: _T | None = next(self._items, None)
            if item is not None:
                self._offset = self._reader.position
                return item
            self._drop()
            if self._reader.error:
                self._buffer.clear()
        except BaseException:
            # out of memory, or interrupted: the next call begins again behind the last item
            if 0 in self._call and self._call[0] is mark:
                self._items = None
                self._reader.begin_again(self._offset)
            raise
        finally:
            if 0 in self._call and self._call[0] is mark:  # pragma: no branch (a refused call goes up from here)
                del self._call[0]
        self._reader.check()
        raise StopIteration

    def _in_use(self) -> RuntimeError:
        return RuntimeError(f"this {type(self).__name__} is in use by another call")

    def _drop(self) -> None:
        position = self._reader.position
        size = position - self._reader.base
        # no call between these two, where a signal could come
        del self._buffer[:size]
        self._reader.base = position

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle or copy a {type(self).__name__}")


@final
class Decoder(_Stream[_T]):
    """Reads messages from a stream: ``feed`` bytes as they come, iterate over the messages that are complete.

    ``StopIteration`` means that there is no more yet. Bytes are judged as they come, and damaged ones
    raise a ``ProtocolError`` after the good messages, at every call until ``reset``
    (docs/protocol.md, section 4, "The stream decoder").

    Args:
        packet_header_size: 32, 35 or 36 bytes.
        max_frame_size: the longest frame to accept, in bytes (docs/protocol.md, section 4, "Limits").
        on_fault: "raise", or "skip" to get a ``Damage`` in the place of what cannot be read and to go on
            behind it (docs/protocol.md, section 4, "Recovery").

    Raises:
        TypeError, ValueError: an argument is wrong.
    """

    __slots__ = ()
    _layer = _MESSAGES

    @overload
    def __init__(
        self: Decoder[Message],
        *,
        packet_header_size: int = ...,
        max_frame_size: int | None = ...,
        on_fault: Literal["raise"] = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Decoder[Message | Damage],
        *,
        packet_header_size: int = ...,
        max_frame_size: int | None = ...,
        on_fault: Literal["skip"],
    ) -> None: ...

    def __init__(
        self,
        *,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
        on_fault: _OnFault = "raise",
    ) -> None:
        self._call = {}
        self._open(_options(packet_header_size, max_frame_size, on_fault))


@final
class FrameDecoder(_Stream[_T]):
    """Reads frames from a stream, whatever their types and packets (docs/protocol.md, section 3).

    Like ``Decoder`` in everything else; only the faults of the frame layer are met.
    """

    __slots__ = ()
    _layer = _FRAMES

    @overload
    def __init__(
        self: FrameDecoder[Frame],
        *,
        packet_header_size: int = ...,
        max_frame_size: int | None = ...,
        on_fault: Literal["raise"] = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: FrameDecoder[Frame | Damage],
        *,
        packet_header_size: int = ...,
        max_frame_size: int | None = ...,
        on_fault: Literal["skip"],
    ) -> None: ...

    def __init__(
        self,
        *,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
        on_fault: _OnFault = "raise",
    ) -> None:
        self._call = {}
        self._open(_options(packet_header_size, max_frame_size, on_fault))


@final
class _Scanner(_Stream[Damage]):
    """A ``Decoder`` that counts messages instead of making them: iterating gives only the damages."""

    __slots__ = ()
    _layer = _COUNT

    def __init__(
        self,
        *,
        packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
        max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
        on_fault: _OnFault = "raise",
    ) -> None:
        self._call = {}
        self._open(_options(packet_header_size, max_frame_size, on_fault))

    @property
    def offset(self) -> int:
        """Where the last damage given, or the last message counted, ends."""
        return max(self._offset, self._reader.counted)

    @property
    def counts(self) -> dict[type[Message], tuple[int, int]]:
        """How many messages of each class were met so far, and their bytes: ``{Send: (frames, bytes)}``."""
        counts = self._reader.counts
        return {cls: counts[cls.__name__] for cls in get_args(Message) if cls.__name__ in counts}


# Columns

#: What is not null in a row, by the names of the columns; texts are bytes.
_Row: TypeAlias = dict[str, Any]

#: How many rows, and for each column how many of them are null and its buffers.
_Batch: TypeAlias = tuple[int, list[tuple[int, list[Any]]]]

#: How much of a whole input is looked at at once.
_PIECE_SIZE: Final = 1024 * 1024

_FIELD_NAMES: Final = {int(packet): packet.name.lower() for packet in PacketType}


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _build_row(reader: _Reader, start: int, frame: _Walked) -> _Row:
    form = CATALOGUE[frame.type, len(frame.packets)]  # type: ignore[index]
    row: _Row = {"offset": start, "size": frame.stop - start, "type": WORDS[form.message].encode()}
    lost = []
    for packet_type, begin, end in frame.packets:
        content = reader.copy(begin, end)
        if packet_type in _INTEGER_TYPES:
            row[_FIELD_NAMES[packet_type]] = int(content)
        elif packet_type == PacketType.CONTENT or _is_utf8(content):
            row[_FIELD_NAMES[packet_type]] = content
        else:
            lost.append(begin)
    if lost:
        row |= {"fault": NOT_UTF8.encode(), "fault_offset": lost[0], "raw": reader.copy(start, frame.stop)}
    return row


def _damage_row(damage: Damage) -> _Row:
    start, stop, fault, offset, data = damage
    return {"offset": start, "size": stop - start, "fault": fault.name.encode(), "fault_offset": offset, "raw": data}


_ROWS: Final = _Layer(True, lambda reader: (), _build_row)


@final
class _ColumnDecoder(_Stream[_Batch]):
    """A ``Decoder`` that gives batches of rows; see ``_decode_columns``."""

    __slots__ = ("_columns", "_held", "_is_done", "_most_bytes", "_most_rows", "_pieces", "_rows", "_size", "_stop")
    _layer = _ROWS

    def __init__(
        self,
        columns: Iterable[str],
        start: int,
        stop: int | None,
        options: _Options,
        limits: tuple[int, int],
    ) -> None:
        self._call = {}
        self._open(options)
        self._reader.base = self._reader.position = self._reader.end = self._offset = start
        #: The whole input, where it was given as one.
        self._pieces: Iterator[memoryview] | None = None
        self._columns = list(columns)
        self._stop = sys.maxsize if stop is None else stop
        self._most_rows, self._most_bytes = limits
        self._rows: list[_Row] = []
        self._size = 0
        #: A row, or what it is made of, that is in no batch yet.
        self._held: Any = None
        self._is_done = False

    def read(self, data: memoryview) -> None:
        """Take a whole input, in place of being fed."""
        start = self._offset
        if start > len(data):
            raise ValueError(f"start is {start}, behind the end of the data at {len(data)}")
        self._pieces = (data[place : place + _PIECE_SIZE] for place in range(start, len(data), _PIECE_SIZE))

    def reset(self) -> None:
        raise TypeError("a _ColumnDecoder is for one input")

    @property
    def offset(self) -> int:
        """Where the last row ends, in bytes, that is in a batch."""
        if self._held is None:
            return self._offset
        return self._held.start if isinstance(self._held, Damage) else self._held["offset"]

    def __next__(self) -> _Batch:
        while row := self._next_row():
            size = sum(8 if COLUMNS[name] == "int64" else 4 + len(row.get(name, b"")) for name in self._columns)
            size += self._size
            if self._rows and (len(self._rows) == self._most_rows or size > self._most_bytes):
                return self._give()
            # no call between these, where a signal could come
            self._rows += [row]
            self._held, self._size = None, size
        if self._rows and self._is_done:
            return self._give()
        self._reader.check()
        raise StopIteration

    def _next_row(self) -> _Row | None:
        """The next row, which is held; None where more bytes are needed, and at the end, which may be a fault."""
        while self._held is None and self._offset < self._stop:
            try:
                item: Any = super().__next__()
                self._held = item
            except ProtocolError:
                break
            except StopIteration:
                if self._reader.final:
                    break
                if self._pieces is None:
                    return None
                if piece := next(self._pieces, None):
                    self.feed(piece)
                else:
                    self.close()
        self._is_done = self._held is None
        return _damage_row(self._held) if isinstance(self._held, Damage) else self._held

    def _give(self) -> _Batch:
        columns = [_column(COLUMNS[name], [row.get(name) for row in self._rows]) for name in self._columns]
        batch = len(self._rows), columns
        self._rows, self._size = [], 0
        return batch


def _column(kind: str, values: list[Any]) -> tuple[int, list[Any]]:
    nulls = values.count(None)
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    buffers: list[Any] = [int(bits, 2).to_bytes(len(values) // 8 + 1, "little") if nulls else None]
    if kind == "int64":
        return nulls, [*buffers, array("q", [value or 0 for value in values]).tobytes()]
    texts = [value or b"" for value in values]
    return nulls, [*buffers, array("i", accumulate(map(len, texts), initial=0)).tobytes(), b"".join(texts)]


def _decode_columns(  # noqa: PLR0913
    data: Buffer | None,
    columns: Iterable[str],
    *,
    start: int = 0,
    stop: int | None = None,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
    on_fault: _OnFault = "raise",
    max_rows: int,
    max_bytes: int,
) -> _ColumnDecoder:
    """Decode messages and damages to batches of rows, as buffers of Arrow.

    Args:
        data: the whole input, any C-contiguous buffer; or None, to feed it.
        columns: names of ``COLUMNS``, each once.
        start: where to begin, in bytes: in the data, or for input that is fed the offset of its first byte.
        stop: reading ends at the first boundary at or behind it; None for the end of the input.
        packet_header_size, max_frame_size, on_fault: as ``Decoder`` takes them; no frame can have more than 2**31-1
            bytes.
        max_rows, max_bytes: a batch ends before the row that would make it larger than one of them. A number counts
            as 8 bytes, a text as 4 and its length.

    Returns:
        An iterator that is fed and closed as a ``Decoder`` is. It gives for each batch how many rows it has, and for
        each column how many of them are null and its buffers: [bits, numbers], or [bits, ends, texts], where bits
        are None if nothing is null. What has come of a batch is kept until it is full or the input has ended.
    """
    options = _options(packet_header_size, max_frame_size, on_fault)
    if start < 0 or max_rows < 1 or max_bytes < 1:
        raise ValueError("start must not be negative, and max_rows and max_bytes must be positive")
    options = options._replace(limit=min(options.limit, 2**31 - 1))  # no column holds more
    decoder = _ColumnDecoder(columns, start, stop, options, (max_rows, max_bytes))
    if data is not None:
        decoder.read(_view("data", data))
    return decoder


def _find_frame(
    data: Buffer,
    start: int,
    *,
    packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE,
    max_frame_size: int | None = DEFAULT_MAX_FRAME_SIZE,
) -> int:
    """Find the first place from ``start`` on where a whole valid message begins; the end of the data if there is none.

    This is where recovery ends that began before it (docs/protocol.md, section 4, "Recovery").
    """
    with _view("data", data) as view:
        reader = _Reader(_MESSAGES, view, _options(packet_header_size, max_frame_size))
        place = reader._candidate(start)
        while place < reader.end:
            judging = reader._judge(place, in_catalogue=True)
            try:
                next(judging)
            except StopIteration as outcome:
                if isinstance(outcome.value, _Walked):
                    break
            place = reader._candidate(place + 1)
        return place


def _encode_columns(
    rows: int, columns: Mapping[str, tuple[int, list[Any]]], *, packet_header_size: int = DEFAULT_PACKET_HEADER_SIZE
) -> bytes | int:
    """Encode rows of messages, as ``_decode_columns`` gives them, one after another.

    Args:
        rows: how many there are.
        columns: by name, the row where a column begins in its buffers, and these in Arrow's order; ``type`` and
            ``queue`` have to be there, and the buffers have to be valid and stay as they are.
        packet_header_size: 32, 35 or 36 bytes.

    Returns:
        The frames; or the number of the first row that is no message.
    """
    size = _header_size(packet_header_size)
    values = {name: _values(COLUMNS[name], rows, *column) for name, column in columns.items()}
    frames = []
    for number in range(rows):
        frame = _row_frame(
            {name: column[number] for name, column in values.items() if column[number] is not None}, size
        )
        if frame is None:
            return number
        frames.append(frame)
    return b"".join(frames)


def _values(kind: str, rows: int, first: int, buffers: list[Any]) -> list[Any]:
    """The values of a column, None where they are null."""
    bits, *others = [memoryview(b"" if buffer is None else buffer).cast("B") for buffer in buffers]
    values: list[Any]
    if kind == "int64":
        values = others[0].cast("q")[first : first + rows].tolist()
    else:
        ends = others[0].cast("i")[first : first + rows + 1]
        values = [bytes(others[1][start:end]) for start, end in pairwise(ends)]
    if bits:
        return [value if bits[at // 8] >> at % 8 & 1 else None for at, value in enumerate(values, first)]
    return values


def _row_frame(row: _Row, size: int) -> bytes | None:
    """The frame of a row; None if the row is no message."""
    if "fault" in row:
        return row["raw"] if row["fault"] == NOT_UTF8.encode() and _is_message(row.get("raw", b""), size) else None
    for (message_type, count), form in CATALOGUE.items():
        names = [_FIELD_NAMES[packet_type] for packet_type in form.packets]
        if WORDS[form.message].encode() == row.get("type") and row.keys() & _FIELD_NAMES.values() == set(names):
            if any(isinstance(row[name], int) and row[name] < 0 for name in names):
                return None
            contents = [b"%d" % row[name] if isinstance(row[name], int) else row[name] for name in names]
            headers = [_writer(size).header(*packet) for packet in zip(form.packets, map(len, contents), strict=True)]
            packets = [part for packet in zip(headers, contents, strict=True) for part in packet]
            return b"".join([_message_header(message_type, count), *packets])
    return None


def _is_message(frame: bytes, size: int) -> bool:
    try:
        decode(frame, packet_header_size=size, max_frame_size=None)
    except ProtocolError:
        return False
    return True

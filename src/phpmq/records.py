"""What the codecs give back beside messages: the same classes, and columns of the same names, from both."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from phpmq.errors import Fault, ProtocolError


class Packet(NamedTuple):
    """A packet as it stands on the wire: its type (0 to 99, known or not) and its content."""

    type: int
    content: bytes


class Frame(NamedTuple):
    """A frame as it stands on the wire, of any type (0 to 999) and with any packets.

    ``offset`` is where it starts in the input and ``size`` its length, both in bytes.
    """

    type: int
    packets: tuple[Packet, ...]
    offset: int
    size: int


class Damage(NamedTuple):
    """A range of the input that holds no frame (docs/protocol.md, section 4, "Recovery").

    It spans the bytes from ``start`` up to, not including, ``stop``. ``fault`` and its ``offset`` say
    what was wrong first, and ``data`` holds the first 64 KiB of the range.
    """

    start: int
    stop: int
    fault: Fault
    offset: int
    data: bytes


class Scan(NamedTuple):
    """What a scan saw: how many whole valid ``frames``, where the last of them ends, and the first fault."""

    frames: int
    end: int
    error: ProtocolError | None


#: What records and columns call the messages, by the names of their classes.
WORDS: Final[Mapping[str, str]] = {
    "Send": "send",
    "Consume": "consume",
    "Dispatch": "dispatch",
    "Acknowledge": "acknowledge",
    "Requeue": "requeue",
    "DeadLetter": "dead_letter",
    "Receipt": "receipt",
}

#: The columns that messages and damages are decoded to, in their order, and the type of each in Arrow's words.
COLUMNS: Final[Mapping[str, str]] = {
    "offset": "int64",
    "size": "int64",
    "type": "string",
    "queue": "string",
    "content": "binary",
    "message_id": "string",
    "ttl": "int64",
    "count": "int64",
    "fault": "string",
    "fault_offset": "int64",
    "raw": "binary",
}

#: What the column ``fault`` says of a message with text that is not UTF-8: its bytes are in ``raw``.
NOT_UTF8: Final = "NOT_UTF8"

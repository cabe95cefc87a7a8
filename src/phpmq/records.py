"""What the codecs give back beside messages; both give the same classes."""

from typing import NamedTuple

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

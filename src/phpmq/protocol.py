"""The protocol as data: numbers, sizes and the catalogue of message forms. No logic.

Every fact here is explained in ``docs/protocol.md``.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class MessageType(IntEnum):
    """Message types of the catalogue (docs/protocol.md, section 3).

    Type 005 with two packets is the older ``Receipt``, with three ``Requeue``.
    """

    SEND = 1
    CONSUME = 2
    DISPATCH = 3
    ACKNOWLEDGE = 4
    REQUEUE = 5
    DEAD_LETTER = 6


class PacketType(IntEnum):
    """Packet types (docs/protocol.md, section 2); a name in lower case is the field that carries it."""

    QUEUE = 1
    CONTENT = 2
    MESSAGE_ID = 3
    COUNT = 4
    TTL = 5


class Form(NamedTuple):
    """One form of a message: its class and its packets in canonical order."""

    message: str
    packets: tuple[PacketType, ...]


_QUEUE, _CONTENT, _ID, _COUNT, _TTL = PacketType

#: Every form that ever existed, by (message type, packet count) (docs/protocol.md, section 3).
CATALOGUE: Final[Mapping[tuple[MessageType, int], Form]] = {
    (MessageType.SEND, 3): Form("Send", (_QUEUE, _CONTENT, _TTL)),
    (MessageType.SEND, 2): Form("Send", (_QUEUE, _CONTENT)),
    (MessageType.CONSUME, 2): Form("Consume", (_QUEUE, _COUNT)),
    (MessageType.DISPATCH, 4): Form("Dispatch", (_QUEUE, _CONTENT, _ID, _TTL)),
    (MessageType.DISPATCH, 3): Form("Dispatch", (_QUEUE, _CONTENT, _ID)),
    (MessageType.ACKNOWLEDGE, 2): Form("Acknowledge", (_QUEUE, _ID)),
    (MessageType.REQUEUE, 3): Form("Requeue", (_QUEUE, _ID, _TTL)),
    (MessageType.REQUEUE, 2): Form("Receipt", (_QUEUE, _ID)),
    (MessageType.DEAD_LETTER, 2): Form("DeadLetter", (_QUEUE, _ID)),
}

VERSION: Final = 1
MESSAGE_HEADER_SIZE: Final = 8
PACKET_HEADER_SIZES: Final = (32, 35, 36)
DEFAULT_PACKET_HEADER_SIZE: Final = 32
DEFAULT_MAX_FRAME_SIZE: Final = 64 * 1024 * 1024
#: The largest TTL, count and frame size.
MAX_INTEGER: Final = 2**63 - 1
MAX_MESSAGE_TYPE: Final = 999
MAX_PACKET_TYPE: Final = 99
MAX_PACKET_COUNT: Final = 99
#: ``detect_packet_header_size`` looks at no more bytes than this.
DETECTION_SIZE: Final = 1024 * 1024
#: ``Damage.data`` holds no more bytes than this.
DAMAGE_DATA_SIZE: Final = 64 * 1024
#: ``ProtocolError.found`` holds no more bytes than this.
FOUND_SIZE: Final = 40

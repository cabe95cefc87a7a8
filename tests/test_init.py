"""The public names: these, and no other."""

from __future__ import annotations

from types import ModuleType

import phpmq

PUBLIC = [
    "BACKEND",
    "Acknowledge",
    "Consume",
    "Damage",
    "DeadLetter",
    "Decoder",
    "Dispatch",
    "Fault",
    "Frame",
    "FrameDecoder",
    "IncompleteMessage",
    "Message",
    "MessageType",
    "Packet",
    "PacketType",
    "ProtocolError",
    "Receipt",
    "Requeue",
    "Scan",
    "Send",
    "__version__",
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


def test_the_export_list() -> None:
    assert phpmq.__all__ == PUBLIC


def test_nothing_public_is_left_out_of_it() -> None:
    public = {
        name for name, value in vars(phpmq).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(PUBLIC) - {"__version__"}

"""The protocol's numbers against literals: both codecs read them, so comparing the codecs cannot find a wrong one."""

from __future__ import annotations

import pytest

from phpmq import MessageType, PacketType, protocol

FORMS = {
    (1, 3): ("Send", (1, 2, 5)),
    (1, 2): ("Send", (1, 2)),
    (2, 2): ("Consume", (1, 4)),
    (3, 4): ("Dispatch", (1, 2, 3, 5)),
    (3, 3): ("Dispatch", (1, 2, 3)),
    (4, 2): ("Acknowledge", (1, 3)),
    (5, 3): ("Requeue", (1, 3, 5)),
    (5, 2): ("Receipt", (1, 3)),
    (6, 2): ("DeadLetter", (1, 3)),
}


def test_message_types() -> None:
    assert {member.name: member.value for member in MessageType} == {
        "SEND": 1,
        "CONSUME": 2,
        "DISPATCH": 3,
        "ACKNOWLEDGE": 4,
        "REQUEUE": 5,
        "DEAD_LETTER": 6,
    }


def test_packet_types() -> None:
    assert {member.name: member.value for member in PacketType} == {
        "QUEUE": 1,
        "CONTENT": 2,
        "MESSAGE_ID": 3,
        "COUNT": 4,
        "TTL": 5,
    }


def test_the_catalogue_holds_every_form_and_no_other() -> None:
    assert dict(protocol.CATALOGUE) == FORMS


def test_the_catalogue_speaks_of_enum_members() -> None:
    for (message_type, _), form in protocol.CATALOGUE.items():
        assert isinstance(message_type, MessageType)
        assert all(isinstance(packet, PacketType) for packet in form.packets)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VERSION", 1),
        ("MESSAGE_HEADER_SIZE", 8),
        ("PACKET_HEADER_SIZES", (32, 35, 36)),
        ("DEFAULT_PACKET_HEADER_SIZE", 32),
        ("DEFAULT_MAX_FRAME_SIZE", 67_108_864),
        ("MAX_INTEGER", 9_223_372_036_854_775_807),
        ("MAX_MESSAGE_TYPE", 999),
        ("MAX_PACKET_TYPE", 99),
        ("MAX_PACKET_COUNT", 99),
        ("DETECTION_SIZE", 1_048_576),
        ("DAMAGE_DATA_SIZE", 65_536),
        ("FOUND_SIZE", 40),
    ],
)
def test_sizes_and_limits(name: str, value: object) -> None:
    assert getattr(protocol, name) == value

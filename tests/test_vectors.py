"""Golden bytes: what the original's own code wrote, what its server said, and what the documents print."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from types import ModuleType
from typing import Any

import pytest
from differential import plain
from wire import VECTORS, Vector, message_header, read_capture, read_vectors

from phpmq.errors import Fault, IncompleteMessage, ProtocolError

MESSAGES = read_vectors()
WRITTEN = [vector for vector in MESSAGES if not vector.refused]
REFUSED = [vector for vector in MESSAGES if vector.refused]
PACKET_HEADERS = json.loads((VECTORS / "packet_headers.json").read_text())


def test_that_all_are_there() -> None:
    assert (len(WRITTEN), len(REFUSED), len(PACKET_HEADERS)) == (236, 9, 40)


@pytest.mark.parametrize("vector", WRITTEN, ids=lambda vector: vector.name)
def test_written(codec: ModuleType, vector: Vector) -> None:
    message = getattr(codec, vector.message)(**vector.fields)
    wire = codec.encode(message, packet_header_size=vector.size)
    assert (len(wire), sha256(wire).hexdigest()) == (vector.length, vector.digest)
    decoded = codec.decode(wire, packet_header_size=vector.size)
    assert decoded == message
    assert {name: value for name in decoded.__match_args__ if (value := getattr(decoded, name)) is not None} == (
        vector.fields
    )


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector.name)
def test_refused(codec: ModuleType, vector: Vector) -> None:
    integer = "count" if "count" in vector.fields else "ttl"
    with pytest.raises(ValueError, match=integer):
        getattr(codec, vector.message)(**vector.fields)
    with pytest.raises(ProtocolError) as caught:
        codec.decode(vector.wire, packet_header_size=vector.size)
    content = str(vector.fields[integer]).encode()
    assert vector.wire.endswith(content)
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_INTEGER, len(vector.wire) - len(content))
    assert caught.value.found == content


#: Contents above this are not built: their headers are read instead.
BUILT = 2**20


@pytest.mark.parametrize("row", PACKET_HEADERS, ids=lambda row: row["wire"])
def test_packet_header(codec: ModuleType, row: dict[str, Any]) -> None:
    size, type_, length, wire = (row[key] for key in ("packet_header_size", "packet_type", "length", "wire"))
    if row["expect"] == "refuse":
        if length >= 0:
            with pytest.raises(ValueError, match="type"):
                codec.encode_frame(1, [(type_, bytes(length))], packet_header_size=size)
        else:
            sign = message_header(1, 1) + wire.encode()
            with pytest.raises(ProtocolError) as caught:
                list(codec.iter_frames(sign, packet_header_size=size))
            assert (caught.value.fault, caught.value.offset, caught.value.found) == (Fault.BAD_DIGITS, 11, b"-")
        return
    decoder = codec.FrameDecoder(packet_header_size=size, max_frame_size=None)
    decoder.feed(message_header(1, 1) + wire.encode())
    if length <= BUILT:
        frame = codec.encode_frame(1, [(type_, bytes(length))], packet_header_size=size)
        assert frame == message_header(1, 1) + wire.encode() + bytes(length)
        decoder.feed(bytes(length))
        assert next(decoder).packets == ((type_, bytes(length)),)
    elif length < 2**63 - 1:
        decoder.close()
        with pytest.raises(IncompleteMessage) as incomplete:
            next(decoder)
        assert incomplete.value.missing == length
    else:
        with pytest.raises(ProtocolError) as too_large:
            next(decoder)
        assert (too_large.value.fault, too_large.value.offset) == (Fault.TOO_LARGE, 11)


SENT = [
    b"Hello World",
    b"",
    b"bin\x00\x01\xff\r\n\tend",
    b"H0100102P0100000000000000000000000000003Foo",
    "Grüße".encode(),
]
IDS = [
    "37a16c42fc894b0111c54ca0afff54c1",
    "e72611f808b99a8a5274a3dc88b2015c",
    "6f52f2c8248c4738590331a60c859871",
    "4732ec2c09370a06c89d911fdf17ff90",
    "e90907f3ebd82d369ee08e53aecb0b10",
]


def test_captured_conversation(codec: ModuleType) -> None:
    """A client sends five messages, asks for two at a time, and acknowledges each that the server dispatches."""
    client = list(codec.iter_messages(read_capture("original_client_to_server")))
    server = list(codec.iter_messages(read_capture("original_server_to_client")))
    assert client == [
        *(codec.Send("Foo", content) for content in SENT),
        codec.Consume("Foo", 2),
        *(codec.Acknowledge("Foo", message_id) for message_id in IDS),
    ]
    assert server == [codec.Dispatch("Foo", *message) for message in zip(SENT, IDS, strict=True)]


ID = "d7e7f68761d34838494b233148b5486c"
WITHOUT_TTL = [
    ("Send", "Foo", b"Hello World", None),
    ("Consume", "Foo", 5),
    ("Dispatch", "Foo", b"Hello World", ID, None),
    ("Acknowledge", "Foo", ID),
]
WITH_TTL = [
    ("Send", "Foo", b"Hello World", 3600),
    ("Consume", "Foo", 5),
    ("Dispatch", "Foo", b"Hello World", ID, 3300),
    ("Acknowledge", "Foo", ID),
    ("Requeue", "Foo", ID, 3600),
    ("DeadLetter", "Foo", ID),
]
DOCUMENTS = {
    "readme_without_ttl": (32, WITHOUT_TTL),
    "readme_with_ttl": (32, WITH_TTL),
    "specification_with_ttl": (32, WITH_TTL),
    "specification_without_ttl": (36, WITHOUT_TTL),
}


@pytest.mark.parametrize(("name", "right"), DOCUMENTS.items(), ids=DOCUMENTS)
def test_documents(codec: ModuleType, name: str, right: tuple[int, list[tuple[Any, ...]]]) -> None:
    size, messages = right
    text = (VECTORS / "documents" / f"{name}.md").read_text(encoding="utf-8")
    examples = re.findall(r"```\w*\n(H.*?)\n```", text[text.index("## Full message examples") :], re.DOTALL)
    wires = [example.replace("\n", "").encode() for example in examples]
    decoded = [codec.decode(wire, packet_header_size=size) for wire in wires]
    assert [plain(message) for message in decoded] == messages
    assert [codec.encode(message, packet_header_size=size) for message in decoded] == wires
    assert codec.detect_packet_header_size(b"".join(wires)) == size

"""Wire bytes written by hand, in the few lines that it takes, and the golden ones: no codec has to be believed."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from phpmq.protocol import CATALOGUE, Form, PacketType

VECTORS = Path(__file__).parent / "vectors"
CAPTURES = ("original_client_to_server", "original_server_to_client")

FIELDS = [packet.name.lower() for packet in PacketType]
Fields = Mapping[str, Any]


def message_header(type: int, count: int) -> bytes:
    return b"H01%03d%02d" % (type, count)


def packet_header(type: int, length: int, size: int = 32) -> bytes:
    return b"P%02d%0*d" % (type, size - 3, length)


def parts(type: int, packets: Iterable[tuple[int, bytes]], size: int = 32) -> list[bytes]:
    """One frame as its message header, then the header and the content of each packet."""
    packets = list(packets)
    bodies = [part for kind, content in packets for part in (packet_header(kind, len(content), size), content)]
    return [message_header(type, len(packets)), *bodies]


def missing(frame: list[bytes], have: int) -> int:
    """How many bytes are known to be missing when the first ``have`` bytes of these ``parts`` are there."""
    for index, end in enumerate(accumulate(map(len, frame))):
        if have < end:
            headers_to_come = (len(frame) - 1 - index) // 2 if index else 0
            return end - have + headers_to_come * len(frame[1])
    raise AssertionError("nothing is missing")


def field_names(form: Form) -> list[str]:
    return [packet.name.lower() for packet in form.packets]


def message_parts(name: str, fields: Fields, size: int = 32) -> list[bytes]:
    """The ``parts`` of a message; the fields given choose its form, so an older one comes without ``ttl``."""
    for (type_, _), form in CATALOGUE.items():
        if form.message == name and set(field_names(form)) == fields.keys():
            return parts(type_, [(packet, to_bytes(fields[packet.name.lower()])) for packet in form.packets], size)
    raise AssertionError(f"{name} has no form with the fields {', '.join(fields)}")


def message_wire(name: str, fields: Fields, size: int = 32) -> bytes:
    return b"".join(message_parts(name, fields, size))


def to_bytes(value: str | int | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


class Vector(NamedTuple):
    """A message as the original's own code wrote it; ``refused`` ones should never have been written."""

    name: str
    size: int
    message: str
    fields: dict[str, Any]
    length: int
    digest: str
    wire: bytes
    refused: bool


def _field(row: dict[str, Any], name: str) -> Any:
    if name in ("ttl", "count"):
        return row[name]
    if repeat := row.get(f"{name}_repeat"):
        unit = b64decode(repeat["unit_b64"])
        value = (unit * (repeat["length"] // len(unit) + 1))[: repeat["length"]]
    else:
        value = b64decode(row[f"{name}_b64"])
    return value if name == "content" else value.decode("utf-8", "surrogateescape")


def _vector(row: dict[str, Any]) -> Vector:
    keys = {key.removesuffix("_b64").removesuffix("_repeat") for key in row}
    fields = {name: _field(row, name) for name in FIELDS if name in keys and row.get(name, 0) is not None}
    wire = b64decode(row.get("wire_b64", ""))
    return Vector(
        name=row["name"],
        size=row["packet_header_size"],
        message=row["message"],
        fields=fields,
        length=row.get("wire_length", len(wire)),
        digest=row.get("wire_sha256", sha256(wire).hexdigest()),
        wire=wire,
        refused=row["expect"] == "refuse",
    )


def read_vectors() -> list[Vector]:
    return [_vector(row) for row in json.loads((VECTORS / "messages.json").read_text())]


def read_capture(name: str) -> bytes:
    return (VECTORS / f"{name}.phpmq").read_bytes()

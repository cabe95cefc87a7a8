"""What ``phpmq inspect`` shows: each header and each content on a line, with its offset and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from phpmq import Damage, Fault, Frame, ProtocolError, decode, detect_packet_header_size, encode_frame
from phpmq.cli.listing import pieces_of
from phpmq.cli.terminal import counted, escape, fit
from phpmq.errors import foreign_hint, header_size_hint
from phpmq.protocol import CATALOGUE, MESSAGE_HEADER_SIZE, PacketType

_PACKETS: Final[dict[int, str]] = {
    PacketType.QUEUE: "queue name",
    PacketType.CONTENT: "content",
    PacketType.MESSAGE_ID: "message id",
    PacketType.COUNT: "consume count",
    PacketType.TTL: "time to live",
}
#: How many bytes are shown where a fault is.
_SHOWN_SIZE: Final = 16
_OFFSET_WIDTH: Final = 12
#: A window has to be as wide as this to show the leading zeros of lengths.
_WIDE: Final = 80
#: Behind a header of any size, what it means begins here.
_HEADER_WIDTH: Final = 41
_COLOURS: Final[dict[str, dict[str, Any]]] = {
    "marker": {"bold": True},
    "version": {"fg": "blue"},
    "message type": {"fg": "green", "bold": True},
    "packet count": {"fg": "magenta"},
    "packet type": {"fg": "cyan", "bold": True},
    "zeros": {"dim": True},
    "length": {"fg": "yellow"},
}


def explain(damage: Damage, packet_header_size: int) -> str:
    """What was expected at the fault of a damage, what is there if that is known, and the mistake it looks like."""
    found = damage.data[damage.offset - damage.start :][:_SHOWN_SIZE]
    text = f"expected {damage.fault.value}"
    if damage.fault is not Fault.TRUNCATED and found:
        text += f", found {found!r}"
    hint = _hint(damage, found, packet_header_size)
    return f"{text} ({hint})" if hint else text


def _hint(damage: Damage, found: bytes, packet_header_size: int) -> str:
    """The hint that the exception for this fault has; a damage brings none."""
    if damage.offset < damage.start + MESSAGE_HEADER_SIZE:
        hint = foreign_hint(damage.data[:MESSAGE_HEADER_SIZE])
    else:
        hint = foreign_hint(found) if damage.fault is Fault.NOT_A_PACKET else ""
    with suppress(ValueError):
        if not hint and (size := detect_packet_header_size(damage.data)) != packet_header_size:
            return header_size_hint(size)
    return hint


class View(NamedTuple):
    """How to show things: in a window of so many cells, with contents in full or cut to it, and in which colours."""

    packet_header_size: int
    width: int
    full: bool
    paint: Callable[..., str]

    def frame(self, start: int, frame: Frame, objection: ProtocolError | None) -> str:
        """The lines of a frame, with what the message layer objects to behind the line where that is."""
        lines = []
        fault_at = objection.offset if objection else frame.size
        at = 0
        for size, text in self._pieces(frame):
            lines.append(self._line(start + at, text))
            if objection and at <= fault_at < at + max(size, 1):
                found = f"expected {objection.fault.value}, found {objection.found!r}"
                lines.append(self._line(start + fault_at, self._fault(objection.fault, found)))
                objection = None
            at += size
        return "".join(lines)

    def damage(self, damage: Damage) -> str:
        """The lines of a damaged range."""
        size = counted(damage.stop - damage.start, "byte")
        return (
            self._line(damage.start, self.paint(f"damage: {size}", fg="red", bold=True))
            + self._line(damage.offset, self._fault(damage.fault, explain(damage, self.packet_header_size)))
            + self._line(damage.start, self._content(damage.data))
        )

    def _pieces(self, frame: Frame) -> Iterator[tuple[int, str]]:
        """Size and text of each header and each content."""
        pieces = pieces_of(frame, self.packet_header_size)
        form = CATALOGUE.get((frame.type, len(frame.packets)))  # type: ignore[arg-type]
        name = form.message if form else "unknown message"
        what = f"{name}: {counted(len(frame.packets), 'packet')}, {counted(frame.size, 'byte')}"
        yield MESSAGE_HEADER_SIZE, self._header(_message_fields(next(pieces).decode()), what)
        for packet in frame.packets:
            name = _PACKETS.get(packet.type, "unknown packet")
            what = f"{name}: {counted(len(packet.content), 'byte')}"
            yield self.packet_header_size, self._header(_packet_fields(next(pieces).decode()), what)
            yield len(packet.content), self._content(next(pieces))

    def _header(self, fields: list[tuple[str, str]], meaning: str) -> str:
        """The fields of a header, each in its colour, and what they mean."""
        narrow = self.width < _WIDE
        if narrow:
            fields = [("…", colour) if colour == "zeros" and text else (text, colour) for text, colour in fields]
        size = sum(len(text) for text, _ in fields)
        gap = " " * (2 if narrow else _HEADER_WIDTH - size)
        if narrow:
            meaning = fit(meaning.encode(), self.width - _OFFSET_WIDTH - size - 2)
        return "".join(self.paint(text, **_COLOURS[colour]) for text, colour in fields) + gap + meaning

    def _content(self, content: bytes) -> str:
        return (
            "    " + (escape(content) if self.full else fit(content, self.width - _OFFSET_WIDTH - 4)) if content else ""
        )

    def _fault(self, fault: Fault, text: str) -> str:
        return "  " + self.paint(f"! {fault.name}: {text}", fg="red")

    def _line(self, offset: int, text: str) -> str:
        return self.paint(f"{offset:>10}", dim=True) + (f"  {text}\n" if text else "\n")


def objection(frame: Frame, packet_header_size: int) -> ProtocolError | None:
    """What the message layer has against a frame; offsets count from its first byte."""
    wire = encode_frame(frame.type, frame.packets, packet_header_size=packet_header_size)
    try:
        decode(wire, packet_header_size=packet_header_size, max_frame_size=None)
    except ProtocolError as error:
        return error
    return None


def _message_fields(header: str) -> list[tuple[str, str]]:
    return [
        (header[0], "marker"),
        (f" {header[1:3]}", "version"),
        (f" {header[3:6]}", "message type"),
        (f" {header[6:]}", "packet count"),
    ]


def _packet_fields(header: str) -> list[tuple[str, str]]:
    length = header[3:].lstrip("0") or "0"
    return [
        (f"  {header[0]}", "marker"),
        (f" {header[1:3]} ", "packet type"),
        (header[3 : -len(length)], "zeros"),
        (length, "length"),
    ]

"""Listings: the form in which the protocol's documents print a frame, each header and content on a line of its own.

Where a header or a content ends, the codec knows: the frame so far is put before it, and what it then misses tells how
long the next content is. So nothing here reads a digit of a header.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import Any, Final

from phpmq import Fault, Frame, IncompleteMessage, ProtocolError, encode_frame, iter_frames
from phpmq.cli.inputs import WrongData
from phpmq.cli.terminal import counted
from phpmq.protocol import DEFAULT_PACKET_HEADER_SIZE, MESSAGE_HEADER_SIZE, PACKET_HEADER_SIZES

_LINE_BREAKS: Final = (b"\n", b"\r\n")
#: No header is longer, with its line break.
_HEADER_LINE_SIZE: Final = 64
#: How much of a content is read at once.
_PIECE_SIZE: Final = 1024 * 1024
#: How many bytes an error shows.
_SHOWN_SIZE: Final = 16


def pieces_of(frame: Frame, packet_header_size: int) -> Iterator[bytes]:
    """The headers and contents of a frame, as they stand on the wire, one by one."""
    wire = encode_frame(frame.type, frame.packets, packet_header_size=packet_header_size)
    yield wire[:MESSAGE_HEADER_SIZE]
    at = MESSAGE_HEADER_SIZE
    for packet in frame.packets:
        yield wire[at : at + packet_header_size]
        at += packet_header_size + len(packet.content)
        yield packet.content


class Listing:
    """The frames of a listing, whose lines end with LF or CRLF; empty lines between frames do not count.

    Args:
        stream: where the listing comes from.
        packet_header_size: 32, 35 or 36 bytes; None for what the lines say, frame by frame.
        max_frame_size: the largest frame to accept, in bytes on the wire.
    """

    def __init__(self, stream: BufferedReader[Any], packet_header_size: int | None, max_frame_size: int) -> None:
        self._stream = stream
        self._size = packet_header_size
        self._limit = max_frame_size
        self._number = 1  # of the line that is being read
        self._begins = True  # whether a line begins at what is read next
        self._ahead = b""  # a line to read once more
        self._last = b""  # the last header that was read, with its line break

    def frames(self) -> Iterator[Frame]:
        """Give the frames; after an error, begin again behind it with ``recover``.

        Raises:
            WrongData: what is wrong, and in which line.
        """
        while line := self._read_line():
            if line not in _LINE_BREAKS:
                yield self._read_frame(line)

    def recover(self) -> bool:
        """Go on, after an error, at the next line that is a message header; tell whether there is one."""
        begins, line = True, self._last
        while line:
            if begins and self._is_message_header(line):
                self._ahead = line
                return True
            begins, line = self._begins, self._read_line()
        return False

    def _read_frame(self, line: bytes) -> Frame:
        size = self._size
        wire = bytearray()
        state = self._take_header(line, MESSAGE_HEADER_SIZE, wire, DEFAULT_PACKET_HEADER_SIZE)
        if isinstance(state, Frame):
            return state
        for left in reversed(range(state // DEFAULT_PACKET_HEADER_SIZE)):
            line = self._read_line()
            if size is None:
                length = len(_without_break(line))
                size = length if length in PACKET_HEADER_SIZES else DEFAULT_PACKET_HEADER_SIZE
            state = self._take_header(line, size, wire, size)
            content_size = 0 if isinstance(state, Frame) else state - left * size
            self._take_content(content_size, wire)
        frame = self._judge(wire, size or DEFAULT_PACKET_HEADER_SIZE, self._number)
        assert isinstance(frame, Frame)  # it missed nothing more
        return frame

    def _take_header(self, line: bytes, size: int, wire: bytearray, packet_header_size: int) -> Frame | int:
        """Add a header to the frame."""
        number = self._number - line.count(b"\n")
        header = _without_break(line)
        wire += header[:size]
        state = self._judge(wire, packet_header_size, number)
        if len(header) < size and line.endswith(b"\n"):
            raise WrongData(f"line {number}: expected a header of {size} bytes, found {header!r}")
        if len(header) > size:
            found = header[size:][:_SHOWN_SIZE]
            raise WrongData(f"line {number}: expected a line break behind a header of {size} bytes, found {found!r}")
        if len(header) < size:
            raise self._ends_early(number)
        return state

    def _take_content(self, size: int, wire: bytearray) -> None:
        """Add a content to the frame, in pieces that the input has paid for."""
        number, left = self._number, size
        while left and (piece := self._stream.read(min(left, _PIECE_SIZE))):
            wire += piece
            left -= len(piece)
            self._number += piece.count(b"\n")
        if left:
            raise self._ends_early(number)
        rest = self._stream.readline(_SHOWN_SIZE)
        self._number += rest.count(b"\n")
        self._begins = rest.endswith(b"\n")
        if rest and rest not in _LINE_BREAKS:
            raise WrongData(
                f"line {number}: expected a line break behind a content of {counted(size, 'byte')}, found {rest!r}"
            )

    def _judge(self, wire: bytearray, packet_header_size: int, number: int) -> Frame | int:
        """The frame if it is whole, or how many bytes it is known to miss."""
        try:
            return next(iter_frames(wire, packet_header_size=packet_header_size, max_frame_size=self._limit))
        except IncompleteMessage as error:
            return error.missing
        except ProtocolError as error:
            fault = error.fault
            raise WrongData(f"line {number}: {fault.name}: expected {fault.value}, found {error.found!r}") from None

    def _is_message_header(self, line: bytes) -> bool:
        header = _without_break(line)
        try:
            return len(header) == MESSAGE_HEADER_SIZE and bool(self._judge(bytearray(header), 32, 0))
        except WrongData:
            return False

    def _read_line(self) -> bytes:
        """The next line, or as much of it as a header can be."""
        line = self._ahead or self._stream.readline(_HEADER_LINE_SIZE)
        if not self._ahead:
            self._number += line.count(b"\n")
        self._ahead, self._last = b"", line
        self._begins = line.endswith(b"\n")
        return line

    def _ends_early(self, number: int) -> WrongData:
        return WrongData(f"line {number}: {Fault.TRUNCATED.name}: expected {Fault.TRUNCATED.value}")


def _without_break(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")

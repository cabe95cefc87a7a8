"""What can be wrong with the bytes, and the texts that say it.

    ValueError
    └── ProtocolError          fault, offset, found, hint
        └── IncompleteMessage  and missing

Every text about damaged bytes is formatted here; the codecs only find out what is true.
"""

from enum import Enum
from typing import Final


class Fault(Enum):
    """What is wrong (docs/protocol.md, section 4); the value says what was expected.

    Where one byte proves two faults, the one that stands first here is reported.
    """

    NOT_A_MESSAGE = "a message header, which starts with 'H'"
    BAD_DIGITS = "a digit 0-9 in a header field"
    UNSUPPORTED_VERSION = "protocol version 01"
    UNKNOWN_MESSAGE_TYPE = "a message type from 001 to 006"
    PACKET_COUNT_MISMATCH = "a packet count that this message type has"
    NOT_A_PACKET = "a packet header, which starts with 'P'"
    UNEXPECTED_PACKET = "a packet type that this message has"
    DUPLICATE_PACKET = "each packet type once"
    TOO_LARGE = "a length that keeps the frame within max_frame_size"
    BAD_INTEGER = "a canonical decimal integer from 0 to 2**63-1"
    TRUNCATED = "the rest of the frame"
    TRAILING_DATA = "nothing after the one frame"


class ProtocolError(ValueError):
    """The bytes are not what the protocol says.

    Attributes:
        fault: which rule they break.
        offset: where the offending field begins, in bytes from the start of the input.
        found: the offending bytes, at most 40.
        hint: a known mistake that explains it, or an empty string.
    """

    def __init__(self, fault: Fault, offset: int, found: bytes = b"", hint: str = "") -> None:
        super().__init__(fault, offset, found, hint)
        self.fault = fault
        self.offset = offset
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.fault.name} at offset {self.offset}: expected {self.fault.value}, found {self.found!r}"
        return f"{text} ({self.hint})" if self.hint else text

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.args == self.args

    def __hash__(self) -> int:
        return hash(self.args)


class IncompleteMessage(ProtocolError):  # noqa: N818
    """The input ended inside a frame (fault ``TRUNCATED``).

    Attributes:
        missing: how many bytes are known to be missing (docs/protocol.md, section 4).
    """

    def __init__(self, offset: int, found: bytes, missing: int, hint: str = "") -> None:
        super().__init__(Fault.TRUNCATED, offset, found, hint)
        self.args = (offset, found, missing, hint)
        self.missing = missing

    def __str__(self) -> str:
        bytes_are = "byte is" if self.missing == 1 else "bytes are"
        text = (
            f"TRUNCATED at offset {self.offset}: the input ends inside this frame,"
            f" at least {self.missing} {bytes_are} missing"
        )
        return f"{text} ({self.hint})" if self.hint else text


LISTING_HINT: Final = "line breaks are not on the wire; this looks like a listing"
_TLS = "this looks like TLS"
_HTTP = "this looks like HTTP"

#: How frames of other protocols begin, and listings of this one.
_FOREIGN: Final = (
    (b"\n", LISTING_HINT),
    (b"\r", LISTING_HINT),
    (b"HTTP", _HTTP),
    (b"GET ", _HTTP),
    (b"HEAD", _HTTP),
    (b"POST", _HTTP),
    (b"PUT ", _HTTP),
    (b"OPTIONS", _HTTP),
    (b"SSH-", "this looks like SSH"),
    (b"\x15\x03", _TLS),
    (b"\x16\x03", _TLS),
)


def foreign_hint(header: bytes) -> str:
    """What the bytes at a place where a header must start look like, or an empty string."""
    return next((hint for start, hint in _FOREIGN if header.startswith(start)), "")


def header_size_hint(packet_header_size: int) -> str:
    """The hint for a frame that is whole with another packet header size."""
    return f"the frame is whole with packet_header_size={packet_header_size}"


_BITS_TO_TELL: Final = 128


def number_text(number: int) -> str:
    """A number as a text says it; Python writes none that is too long."""
    return str(number) if number.bit_length() <= _BITS_TO_TELL else f"a number of {number.bit_length()} bits"

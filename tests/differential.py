"""Everything that a caller can see of a codec at work, as plain values that two codecs are compared by.

The idea: an outcome holds what came out, when it came out and what went wrong, and nothing that belongs to
one codec. Where outcomes are equal, no caller can tell the codecs apart on these bytes, cut in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from mutations import Case

from phpmq.errors import ProtocolError
from phpmq.records import Damage, Frame, Scan

LAYERS = ("messages", "frames")
MODES = ("raise", "skip")
DECODERS = {"messages": "Decoder", "frames": "FrameDecoder"}
ITERATORS = {"messages": "iter_messages", "frames": "iter_frames"}

Outcome = list[Any]


def plain(value: Any) -> Any:
    """A value that compares equal whichever codec made it: its class's name and its fields."""
    if isinstance(value, ProtocolError):
        missing = getattr(value, "missing", None)
        return (type(value).__name__, value.fault.name, value.offset, missing, value.found, value.hint)
    if isinstance(value, Exception):
        return (type(value).__name__,)
    if isinstance(value, Scan):
        return ("Scan", value.frames, value.end, plain(value.error))
    if isinstance(value, Frame | Damage):
        return (type(value).__name__, *value)
    if names := getattr(value, "__match_args__", None):
        return (type(value).__name__, *(getattr(value, name) for name in names))
    return value


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        return plain(function(*args, **kwargs))
    except Exception as error:
        return plain(error)


def drain(items: Iterable[Any]) -> Outcome:
    """The items that there are, and the exception that ends them if one does."""
    seen: Outcome = []
    try:
        for item in items:
            seen.append(plain(item))
    except Exception as error:
        seen.append(plain(error))
    return seen


def streamed(codec: ModuleType, layer: str, chunks: Iterable[bytes], **options: Any) -> Outcome:
    """What a decoder gives with each chunk and at the end of input, and where it stands then, until it fails."""
    decoder = getattr(codec, DECODERS[layer])(**options)
    seen: Outcome = []
    try:
        for chunk in chunks:
            decoder.feed(chunk)
            for item in decoder:
                seen.append(plain(item))
            seen.append((decoder.offset, decoder.buffered))
        decoder.close()
        for item in decoder:
            seen.append(plain(item))
    except Exception as error:
        seen.append(plain(error))
    seen.append((decoder.offset, decoder.buffered))
    return seen


def whole(codec: ModuleType, data: bytes, **options: Any) -> Outcome:
    """What everything does that takes the whole input at once."""
    return [
        attempt(codec.detect_packet_header_size, data),
        attempt(codec.decode, data, **options),
        attempt(codec.scan, data, **options),
        *(iterated(codec, layer, data, on_fault=mode, **options) for layer in LAYERS for mode in MODES),
    ]


def iterated(codec: ModuleType, layer: str, data: bytes, **options: Any) -> Outcome:
    """The items of a whole buffer, and the fault."""
    return drain(getattr(codec, ITERATORS[layer])(data, **options))


def joined(codec: ModuleType, layer: str, chunks: Iterable[bytes], **options: Any) -> Outcome:
    """The items of all chunks, and the fault: ``iterated``, by way of a decoder."""
    marks = int, int
    return [entry for entry in streamed(codec, layer, chunks, **options) if tuple(map(type, entry)) != marks]


def lasting(outcome: Outcome) -> Outcome:
    """The part of ``joined`` that must not depend on the chunks: without the bytes shown and the hint."""
    return [entry[:4] if entry[0] in ("ProtocolError", "IncompleteMessage") else entry for entry in outcome]


def ways(case: Case) -> Iterator[Callable[[ModuleType], Outcome]]:
    """All ways to read a case."""
    yield partial(whole, data=case.data, **case.options)
    for layer in LAYERS:
        for mode in MODES:
            yield partial(streamed, layer=layer, chunks=case.chunks, on_fault=mode, **case.options)


def operated(codec: ModuleType, layer: str, chunks: Iterable[bytes], calls: Sequence[str], **options: Any) -> Outcome:
    """What each of these calls on a decoder gives, whatever their order, and where the decoder then is."""
    decoder = getattr(codec, DECODERS[layer])(**options)
    chunks = iter(chunks)
    actions: dict[str, Callable[[], Any]] = {
        "feed": lambda: decoder.feed(next(chunks, b"")),
        "feed nothing": lambda: decoder.feed(b""),
        "next": lambda: next(decoder),
        "drain": lambda: drain(decoder),
        "close": decoder.close,
        "reset": decoder.reset,
    }
    return [(call, attempt(actions[call]), decoder.offset, decoder.buffered) for call in calls]

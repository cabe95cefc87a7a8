"""The options of the data source and of the functions: names in any case, values as text, everything else refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from phpmq.protocol import DEFAULT_MAX_FRAME_SIZE, DEFAULT_PACKET_HEADER_SIZE, PACKET_HEADER_SIZES

PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"

#: What Spark calls sizes, in bytes.
_UNITS: Final = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
#: The columns that rows can be left out by.
_FILTERED: Final = ("path", "type", "queue", "message_id")
#: What one batch of Arrow, and with it one frame, can have.
_MOST: Final = 2**31 - 1


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in values:
            if text.lower() == value.lower():
                return value
        raise ValueError(f"one of {', '.join(values)}")

    return parse


def _flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _count(most: int, what: str, units: Mapping[str, int]) -> Callable[[str], int]:
    def parse(text: str) -> int:
        match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower(), re.ASCII)
        if match and match[2] in units and 1 <= (value := int(match[1]) * units[match[2]]) <= most:
            return value
        raise ValueError(what)

    return parse


def _size(most: int = 2**63 - 1) -> Callable[[str], int]:
    return _count(most, f"a size in bytes from 1 to {most}, like 65536 or 64m", _UNITS)


def _header_size(text: str) -> int | str:
    names = ["auto", *map(str, PACKET_HEADER_SIZES)]
    value = _one_of(*names)(text)
    return value if value == "auto" else int(value)


def _text(text: str) -> str:
    return text


def _conditions(text: str) -> list[tuple[str, list[str]]]:
    """Columns and the values that they may have."""
    try:
        told = json.loads(text)
        if not isinstance(told, list):
            raise ValueError
        return [_condition(*condition) for condition in told]
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            'a list in JSON like [["queue", "=", "Foo"], ["type", "in", ["send", "dispatch"]]],'
            f" with the columns {', '.join(_FILTERED)}"
        ) from None


def _condition(column: str, operator: str, value: Any) -> tuple[str, list[str]]:
    values = {"=": [value], "in": value}[operator]
    are_texts = isinstance(values, list) and all(isinstance(text, str) for text in values)
    if column not in _FILTERED or not are_texts:
        raise ValueError
    return column, values


#: What each option is by default, and what reads its value or says what it has to be.
OPTIONS: Final[Mapping[str, tuple[Any, Callable[[str], Any]]]] = {
    "mode": (PERMISSIVE, _one_of(PERMISSIVE, DROPMALFORMED, FAILFAST)),
    "packetHeaderSize": (DEFAULT_PACKET_HEADER_SIZE, _header_size),
    "maxFrameSize": (DEFAULT_MAX_FRAME_SIZE, _size(_MOST)),
    "maxPartitionBytes": (128 * 2**20, _size()),
    "maxBatchBytes": (32 * 2**20, _size(_MOST)),
    "splitting": (None, _one_of("guessed", "exact", "none")),
    "filters": ([], _conditions),
    "recursiveFileLookup": (False, _flag),
    "pathGlobFilter": (None, _text),
    "ignoreMissingFiles": (False, _flag),
    "maxBytesPerTrigger": (None, _size()),
    "maxFilesPerTrigger": (None, _count(_MOST, f"a number of files from 1 to {_MOST}", {"": 1})),
    "filesAreComplete": (False, _flag),
    "rememberMissingFiles": (False, _flag),
    "compression": ("none", _one_of("none", "gzip", "bzip2", "zstd")),
}

_FILES: Final = ("recursiveFileLookup", "pathGlobFilter", "ignoreMissingFiles")
_FRAMES: Final = ("mode", "packetHeaderSize", "maxFrameSize")
READ: Final = (*_FRAMES, "maxPartitionBytes", "maxBatchBytes", "splitting", "filters", *_FILES)
_PROGRESS: Final = ("maxBytesPerTrigger", "maxFilesPerTrigger", "filesAreComplete")
STREAM: Final = (*READ, *_PROGRESS, "rememberMissingFiles")
INGEST: Final = (*_FRAMES[1:], "maxPartitionBytes", "maxBatchBytes", "splitting", *_FILES, *_PROGRESS)
WRITE: Final = ("packetHeaderSize", "compression")
FUNCTION: Final = _FRAMES

_NAMES: Final = {name.lower(): name for name in OPTIONS}


def parse_options(given: Mapping[str, str], known: Iterable[str], use: str) -> dict[str, Any]:
    """The values of the known options, by their names as they are written here, defaults where they are not given.

    Args:
        given: names, in any case, and values as text; ``path`` and ``paths`` are left out.
        known: which there are.
        use: what the options are of, for the error.

    Raises:
        ValueError: an option is unknown, or its value is wrong.
    """
    known = list(known)
    values = {name: OPTIONS[name][0] for name in known}
    for key, text in given.items():
        if key.lower() in ("path", "paths"):
            continue
        name = _NAMES.get(key.lower())
        if name not in known:
            raise ValueError(f"{use} has no option {key!r}; the options are {', '.join(known)}")
        try:
            values[name] = OPTIONS[name][1](text)
        except ValueError as error:
            raise ValueError(f"the option {name} must be {error}, not {text!r}") from None
    return values

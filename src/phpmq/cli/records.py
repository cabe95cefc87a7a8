"""Records: what a line of JSON, of CSV or of a table says about a message or a damage."""

from __future__ import annotations

import base64
import json
import os
import reprlib
from contextlib import suppress
from json.encoder import encode_basestring
from typing import Any, Final, get_args

from rich.cells import cell_len

from phpmq import Damage, Message
from phpmq.cli.terminal import counted, escape, fit
from phpmq.records import WORDS as NAMES

#: What a record calls the messages.
WORDS: Final = {message_class: NAMES[message_class.__name__] for message_class in get_args(Message)}
CLASSES: Final[dict[str, type[Message]]] = {word: message_class for message_class, word in WORDS.items()}


_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def json_line(record: dict[str, Any]) -> bytes:
    """A line of JSON that no content can make steer the reader's terminal."""
    line = _encode(record)
    return (line if line.isprintable() else json.dumps(record)).encode() + b"\n"


def _message_line(message: Message) -> bytes:
    """``json_line`` for the record of a message, put together by hand in half the time."""
    fields = [("type", WORDS[type(message)]), *_fields(message)]
    texts = [f'"{name}": {encode_basestring(value) if isinstance(value, str) else value}' for name, value in fields]
    line = ", ".join(texts)
    return f"{{{line}}}\n".encode() if line.isprintable() else json_line(dict(fields))


def record_line(item: Message | Damage) -> bytes:
    """The line of JSON for a message or a damage."""
    return json_line(damage_record(item)) if isinstance(item, Damage) else _message_line(item)


def damage_record(damage: Damage) -> dict[str, Any]:
    """The record of a damage."""
    record = {"start": damage.start, "stop": damage.stop, "fault": damage.fault.name, "offset": damage.offset}
    return {"damage": record | dict([_field("data", damage.data)])}


def _fields(message: Message) -> list[tuple[str, str | int]]:
    """The fields that a message has, each in the form that fits its value: an older form has no TTL."""
    fields: list[tuple[str, str | int]] = []
    for name in message.__match_args__:
        value = getattr(message, name)
        if type(value) is int:
            fields.append((name, value))
        elif value is not None:
            fields.append(_field(name, value))
    return fields


def _field(name: str, value: str | bytes) -> tuple[str, str]:
    """A field as text if it is UTF-8, else in base64."""
    try:
        if isinstance(value, bytes):
            return name, value.decode()
        if not value.isprintable():
            value.encode()  # or are there surrogates, which stand for bytes?
        return name, value
    except UnicodeError:
        return _in_base64(name, value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape"))


def _in_base64(name: str, data: bytes) -> tuple[str, str]:
    return f"{name}_base64", base64.b64encode(data).decode()


class DamageRecord(ValueError):  # noqa: N818
    """A record of a damage, where a message is wanted."""


def message_of(line: bytes) -> Message:
    """Make the message of a record.

    Raises:
        DamageRecord: it is the record of a damage.
        TypeError, ValueError, RecursionError: the line is not a record of a message, as ``record_line`` writes them.
    """
    try:
        record = _parse(line.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if record.keys() == {"damage"}:
        raise DamageRecord("a damage record, which holds no message (--drop-damage passes over it)")
    word = record.pop("type", None)
    if not isinstance(word, str) or word not in CLASSES:
        raise ValueError(f"type must be one of {', '.join(CLASSES)}, not {reprlib.repr(word)}")
    fields: dict[str, Any] = {}
    for name in CLASSES[word].__match_args__:
        if name in ("count", "ttl"):
            if name in record or word in ("consume", "requeue"):
                fields[name] = _take_integer(record, name)
        else:
            data = _take_bytes(record, name)
            fields[name] = data if name == "content" else data.decode("utf-8", "surrogateescape")
    if record:
        raise ValueError(f"a {word} record has no field {reprlib.repr(next(iter(record)))}")
    return CLASSES[word](**fields)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {reprlib.repr(name)} occurs twice")
        fields[name] = value
    return fields


_parse: Final = json.JSONDecoder(object_pairs_hook=_object).decode


def _take_integer(record: dict[str, Any], name: str) -> Any:
    value = record.pop(name, None)
    if value is None:  # a message would take it for a TTL that is absent, but here absence has one form only
        raise ValueError(f"{name} is missing or null")
    return value


def _take_bytes(record: dict[str, Any], name: str) -> bytes:
    coded = f"{name}_base64"
    is_text = name in record
    if is_text == (coded in record):
        raise ValueError(f"there must be either {name} or {coded}")
    form = name if is_text else coded
    value = record.pop(form)
    if not isinstance(value, str):
        raise TypeError(f"{form} must be a string")
    if is_text:
        return value.encode()
    with suppress(ValueError):
        data = base64.b64decode(value)
        if base64.b64encode(data) == value.encode():
            return data
    raise ValueError(f"{form} is not canonical base64")


# CSV

_CSV_COLUMNS: Final = (
    *("path", "offset", "size", "type"),
    *("queue", "queue_base64", "content", "content_base64", "message_id", "message_id_base64", "ttl", "count"),
    *("fault", "fault_offset", "data", "data_base64"),
)
#: What may stand in the text of CSV though it is not printable.
_LAYOUT: Final = {ord("\n"): None, ord("\t"): None}
CSV_HEADER: Final = ",".join(_CSV_COLUMNS).encode() + b"\n"


def csv_line(path: str, start: int, stop: int, item: Message | Damage) -> bytes:
    """A line of CSV: text in quotes, numbers without, and nothing at all for what is missing.

    The writer of the standard library tells empty text from missing only since Python 3.12.
    """
    name = path if path.isprintable() else escape(os.fsencode(path))
    cells = {"path": _quoted(name), "offset": str(start), "size": str(stop - start)}
    fields: list[tuple[str, str | int]]
    if isinstance(item, Damage):
        fields = [("type", "damage"), ("fault", item.fault.name), ("fault_offset", item.offset)]
        fields.append(_field("data", item.data))
    else:
        fields = [("type", WORDS[type(item)]), *_fields(item)]
    for name, value in fields:
        if isinstance(value, int):
            cells[name] = str(value)
        elif value.isprintable() or value.translate(_LAYOUT).isprintable():
            cells[name] = _quoted(value)
        else:  # CSV has no way to escape what would steer a terminal
            cells[f"{name}_base64"] = _quoted(base64.b64encode(value.encode()).decode())
    return ",".join([cells.get(column, "") for column in _CSV_COLUMNS]).encode() + b"\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# A table


class Table:
    """Lines for people: columns that fit a window of so many cells, cut where they do not."""

    def __init__(self, width: int) -> None:
        left = width - 10 - 11 - 7 - 5 - 6 * 2  # what offset, type, TTL, count and the gaps leave
        self._queue = max(left // 5, 5)
        self._message_id = min(max(left // 3, 8), 32)
        self._width = width

    def header(self) -> str:
        """The names of the columns."""
        return self._line(["offset", "type", "ttl", "count"], [b"queue", b"message id", b"content"])

    def line(self, start: int, item: Message | Damage) -> str:
        """A message or a damage."""
        if isinstance(item, Damage):
            what = f"{item.fault.name} at offset {item.offset}, {counted(item.stop - item.start, 'byte')}: ".encode()
            return self._line([start, "damage", "", ""], [b"", b"", what + item.data])
        numbers = [getattr(item, name, None) for name in ("ttl", "count")]
        texts = [getattr(item, name, "").encode("utf-8", "surrogateescape") for name in ("queue", "message_id")]
        return self._line(
            [start, WORDS[type(item)], *["" if number is None else number for number in numbers]],
            [*texts, getattr(item, "content", b"")],
        )

    def _line(self, whole: list[object], cut: list[bytes]) -> str:
        """One line, of values that are never cut and of values that are where they do not fit."""
        offset, word, ttl, count = whole
        queue, message_id, content = cut
        texts = _padded(queue, self._queue), _padded(message_id, self._message_id)
        line = "  ".join([f"{offset:>10}", f"{word:11}", *texts, f"{ttl:>7}", f"{count:>5}", ""])
        return (line + fit(content, max(self._width - cell_len(line), 1))).rstrip() + "\n"


def _padded(data: bytes, width: int) -> str:
    text = fit(data, width)
    return text + " " * (width - cell_len(text))

"""The ``phpmq`` command: look into PHPMQ traffic from a shell.

Bytes become JSON lines (``decode``), JSON lines become bytes (``encode``), or only the balance is shown (``check``).
All three stream, in flat memory, so that they fit into pipes of any length.

Exit codes: 0 fine, 1 the data is damaged or wrong, 2 the command could not do its work.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import reprlib
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, Final, Literal

from phpmq import (
    BACKEND,
    Acknowledge,
    Consume,
    Damage,
    DeadLetter,
    Decoder,
    Dispatch,
    Message,
    ProtocolError,
    Receipt,
    Requeue,
    Send,
    __version__,
    encode,
)
from phpmq._backend import REASON
from phpmq.protocol import (
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_PACKET_HEADER_SIZE,
    MAX_INTEGER,
    MESSAGE_HEADER_SIZE,
    PACKET_HEADER_SIZES,
)

try:
    import click
    import rich
except ImportError:
    print('phpmq: this command needs click and rich: pip install "phpmq[cli]"', file=sys.stderr)
    raise SystemExit(2) from None

_CHUNK_SIZE: Final = 64 * 1024
_CLASSES: Final[dict[str, type[Message]]] = {
    "send": Send,
    "consume": Consume,
    "dispatch": Dispatch,
    "acknowledge": Acknowledge,
    "requeue": Requeue,
    "dead_letter": DeadLetter,
    "receipt": Receipt,
}
_WORDS: Final = {message_class: word for word, message_class in _CLASSES.items()}
_readable: Final = json.JSONEncoder(ensure_ascii=False).encode


# Records: what a line of JSON says about a message or a damage.


def _write_record(item: Message | Damage) -> str:
    if isinstance(item, Damage):
        damage = {"start": item.start, "stop": item.stop, "fault": item.fault.name, "offset": item.offset}
        record: dict[str, Any] = {"damage": damage | _field("data", item.data)}
    else:
        record = {"type": _WORDS[type(item)]}
        for name in item.__match_args__:
            record |= _field(name, getattr(item, name))
    line = _readable(record)
    return line if line.isprintable() else json.dumps(record)  # no content may steer the reader's terminal


def _field(name: str, value: str | bytes | int | None) -> dict[str, str | int]:
    """Give a field in the form that fits its value: nothing for None, base64 for bytes that are not UTF-8."""
    if value is None:
        return {}
    if isinstance(value, int):
        return {name: value}
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _read_record(line: bytes) -> Message:
    """Make the message of a record.

    Raises:
        TypeError, ValueError, RecursionError: the line is not what ``_write_record`` writes for a message.
    """
    try:
        record = json.loads(line.decode(), object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if "damage" in record:
        raise ValueError("a damage record, which holds no message")
    word = record.pop("type", None)
    if not isinstance(word, str) or word not in _CLASSES:
        raise ValueError(f"type must be one of {', '.join(_CLASSES)}, not {reprlib.repr(word)}")
    fields: dict[str, Any] = {}
    for name in _CLASSES[word].__match_args__:
        if name in ("count", "ttl"):
            if name in record or word in ("consume", "requeue"):
                fields[name] = _take_integer(record, name)
        else:
            data = _take_bytes(record, name)
            fields[name] = data if name == "content" else data.decode("utf-8", "surrogateescape")
    if record:
        raise ValueError(f"a {word} record has no field {reprlib.repr(next(iter(record)))}")
    return _CLASSES[word](**fields)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {reprlib.repr(name)} occurs twice")
        fields[name] = value
    return fields


def _take_integer(record: dict[str, Any], name: str) -> Any:
    value = record.pop(name, None)
    if value is None:  # a message would take it for a TTL that is absent, but here absence has one form only
        raise ValueError(f"{name} is missing or null")
    return value


def _take_bytes(record: dict[str, Any], name: str) -> bytes:
    forms = [form for form in (name, f"{name}_base64") if form in record]
    if len(forms) != 1:
        raise ValueError(f"there must be either {name} or {name}_base64")
    value = record.pop(forms[0])
    if not isinstance(value, str):
        raise TypeError(f"{forms[0]} must be a string")
    if forms == [name]:
        return value.encode()
    with contextlib.suppress(ValueError):
        data = base64.b64decode(value)
        if base64.b64encode(data) == value.encode():
            return data
    raise ValueError(f"{forms[0]} is not canonical base64")


# Commands.

_header_size_option = click.option(
    "--packet-header-size",
    type=click.Choice([str(size) for size in PACKET_HEADER_SIZES]),
    default=str(DEFAULT_PACKET_HEADER_SIZE),
    callback=lambda _context, _parameter, value: int(value),
    show_default=True,
    help="Bytes of a packet header; the wire does not say it.",
)
_frame_size_option = click.option(
    "--max-frame-size",
    type=click.IntRange(MESSAGE_HEADER_SIZE, MAX_INTEGER),
    default=DEFAULT_MAX_FRAME_SIZE,
    show_default=True,
    metavar="BYTES",
    help="A larger frame is a fault.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(f"{__version__}, {BACKEND} codec ({REASON})", message="phpmq %(version)s")
def commands() -> None:
    """Look into traffic of the PHPMQ message protocol.

    \b
    phpmq decode capture.phpmq | head -3          the first messages as JSON lines
    phpmq decode capture.phpmq | jq .queue        ... their queues
    nc queue.example.org 9100 | phpmq decode -    ... as they arrive
    phpmq encode edited.jsonl > edited.phpmq      JSON lines back to bytes
    phpmq check capture.phpmq                     frames by type, and what is damaged

    Exit codes: 0 fine, 1 the data is damaged or wrong, 2 the command could not do its work.
    """


@commands.command("decode")
@click.argument("file", type=click.File("rb"))
@_header_size_option
@_frame_size_option
@click.option(
    "--on-fault",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Stop at a fault, or write a damage record and go on behind it.",
)
def _decode(
    file: BufferedReader, packet_header_size: int, max_frame_size: int, on_fault: Literal["raise", "skip"]
) -> int:
    """Print the messages of FILE as JSON lines. FILE may be -, the standard input.

    \b
    {"type": "send", "queue": "Foo", "content": "Hello World", "ttl": 3600}
    {"type": "acknowledge", "queue": "Foo", "message_id": "d7e7f68761d34838494b233148b5486c"}

    What is not UTF-8 is in base64, and its field says so: "content_base64". The older forms of a message, which
    have no TTL, have no "ttl" here either.

    \b
    phpmq decode capture.phpmq
    phpmq decode --on-fault skip broken.phpmq | grep '^{"damage"'
    gzip -dc capture.phpmq.gz | phpmq decode --packet-header-size 36 -
    """
    decoder = Decoder(packet_header_size=packet_header_size, max_frame_size=max_frame_size, on_fault=on_fault)
    output = sys.stdout.buffer
    items = damages = 0
    try:
        for _ in _feed(decoder, file):
            for item in decoder:
                items += 1
                damages += isinstance(item, Damage)
                output.write(_write_record(item).encode() + b"\n")
            output.flush()
    except ProtocolError as error:
        output.flush()
        raise click.ClickException(f"{file.name}: frame {items + 1}: {error}") from None
    return 1 if damages else 0


@commands.command("encode")
@click.argument("file", type=click.File("rb"), default="-")
@_header_size_option
def _encode(file: BufferedReader, packet_header_size: int) -> int:
    """Write JSON lines of FILE as bytes. Without FILE it reads the standard input. Each line is as decode prints it.

    \b
    phpmq encode messages.jsonl > messages.phpmq
    phpmq decode old.phpmq --packet-header-size 36 | phpmq encode > new.phpmq
    echo '{"type": "consume", "queue": "Foo", "count": 5}' | phpmq encode | nc queue.example.org 9100
    """
    output = sys.stdout.buffer
    if output.isatty():
        raise click.UsageError("these bytes are not for a terminal: redirect them to a file or into a pipe")
    for number, line in enumerate(file, 1):
        try:
            message = _read_record(line)
        except (TypeError, ValueError, RecursionError) as error:
            output.flush()
            raise click.ClickException(f"{file.name}: line {number}: {error}") from None
        output.write(encode(message, packet_header_size=packet_header_size))
        output.flush()
    return 0


@commands.command("check")
@click.argument("file", type=click.File("rb"))
@_header_size_option
@_frame_size_option
def _check(file: BufferedReader, packet_header_size: int, max_frame_size: int) -> int:
    """Count the frames of FILE and find damage. FILE may be -, the standard input.

    \b
    phpmq check capture.phpmq && echo sound
    """
    decoder = Decoder(packet_header_size=packet_header_size, max_frame_size=max_frame_size, on_fault="skip")
    frames: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    end = 0
    for _ in _feed(decoder, file):
        for item in decoder:
            word = "damaged" if isinstance(item, Damage) else _WORDS[type(item)]
            frames[word] += 1
            sizes[word] += decoder.offset - end
            end = decoder.offset
            if isinstance(item, Damage):
                size = item.stop - item.start
                click.echo(f"damaged at {item.start}, {size} bytes: {item.fault.name} at offset {item.offset}")
    _print_balance(frames, sizes)
    return 1 if frames["damaged"] else 0


def _print_balance(frames: Counter[str], sizes: Counter[str]) -> None:
    from rich.table import Table  # noqa: PLC0415 (the other commands start faster without it)

    table = Table("", "frames", "bytes", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for word in _CLASSES:
        if frames[word]:
            table.add_row(word, str(frames[word]), str(sizes[word]))
    damaged = frames["damaged"], sizes["damaged"]
    table.add_row("all", str(frames.total() - damaged[0]), str(sizes.total() - damaged[1]), style="bold")
    table.add_row("damaged", *map(str, damaged), style="bold red" if damaged[0] else "")
    rich.print(table)


def _feed(decoder: Decoder[Any], file: BufferedReader) -> Iterator[None]:
    """Feed the file to the decoder, what is there at a time, and hand over after each chunk and after the end."""
    while chunk := file.read1(_CHUNK_SIZE):
        decoder.feed(chunk)
        yield
    decoder.close()
    yield


def main() -> int:
    """Run the command line of this process and give its exit code."""
    with contextlib.suppress(AttributeError):  # Windows has no such signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends this command as quietly as any other
    try:
        return int(commands.main(prog_name="phpmq", standalone_mode=False))
    except click.UsageError as error:
        return _complain(f"{error.format_message()} (phpmq --help shows how)", error.exit_code)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except click.Abort:
        return 130
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (what is still buffered has nowhere to go)
        return _complain(str(error), 2)


def _complain(text: str, code: int) -> int:
    """Say it in one line of printable characters, whatever the name of a file holds."""
    print("phpmq: " + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text), file=sys.stderr)
    return code

"""The commands, their options and their help."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, BinaryIO, Literal

import click

from phpmq import BACKEND, Damage, Decoder, Frame, FrameDecoder, ProtocolError, __version__, encode, encode_frame
from phpmq._backend import REASON, codec
from phpmq._compressed import CompressedDataError
from phpmq.cli.balance import Balance
from phpmq.cli.inputs import Reading, Source, WrongData, fault_at, feed, moved, read, reading, status_of
from phpmq.cli.inspection import View, explain, objection
from phpmq.cli.listing import Listing, pieces_of
from phpmq.cli.order import PacketOrder
from phpmq.cli.records import (
    CLASSES,
    CSV_HEADER,
    DamageRecord,
    Table,
    csv_line,
    damage_record,
    json_line,
    message_of,
    record_line,
)
from phpmq.cli.terminal import (
    Bar,
    NoBar,
    complain,
    counted,
    escape,
    heading,
    painter,
    progress_bar,
    wants_colour,
    width,
)
from phpmq.protocol import (
    DEFAULT_MAX_FRAME_SIZE,
    DEFAULT_PACKET_HEADER_SIZE,
    MAX_INTEGER,
    MESSAGE_HEADER_SIZE,
    PACKET_HEADER_SIZES,
)

_OnFault = Literal["raise", "skip"]
_Option = Callable[[Callable[..., int]], Callable[..., int]]
_AUTO = "auto"
#: The formats that hold columns.
_COLUMNS = ("parquet", "arrow")


# What the options of several commands are

_files_argument = click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(allow_dash=True))


def _header_size_option(
    *names: str, auto: bool = True, default: str | None = str(DEFAULT_PACKET_HEADER_SIZE)
) -> _Option:
    sizes = [str(size) for size in PACKET_HEADER_SIZES]
    return click.option(
        *names,
        type=click.Choice([*sizes, _AUTO] if auto else sizes),
        default=default,
        show_default=default is not None,
        help="Bytes of a packet header. auto: what fits the input." if auto else "Bytes of a packet header to write.",
    )


frame_size_option = click.option(
    "--max-frame-size",
    type=click.IntRange(MESSAGE_HEADER_SIZE, MAX_INTEGER),
    default=DEFAULT_MAX_FRAME_SIZE,
    show_default=True,
    metavar="BYTES",
    help="A larger frame is a fault.",
)


def _fault_option(default: _OnFault) -> _Option:
    return click.option(
        "--on-fault",
        type=click.Choice(["raise", "skip"]),
        default=default,
        show_default=True,
        help="Stop at a fault, or tell the damage and go on behind it.",
    )


_offset_option = click.option(
    "--offset",
    type=click.IntRange(0),
    default=0,
    metavar="BYTES",
    help="Begin at this byte, where a frame has to start.",
)
_limit_option = click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many, in all files.")
_output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write to this file, not to standard output.",
)


class _File:
    """A file to write, which is opened, and so emptied, when there is something to write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Write all of it."""
        self.open().write(data)

    def open(self) -> BinaryIO:
        """Open the file if it is not open yet."""
        if self._file is None:
            self._file = open(self._path, "wb")  # noqa: SIM115 (it is closed below)
        return self._file

    def flush(self) -> None:
        """Pass on what was written."""
        if self._file:
            self._file.flush()

    def close(self) -> None:
        """Close the file if it was opened."""
        if self._file:
            self._file.close()


@contextmanager
def _output_to(path: str | None, inputs: Reading, *, for_people: bool = False) -> Iterator[BinaryIO | _File]:
    """What a command writes to."""
    if path in (None, "-"):
        if not for_people and sys.stdout.buffer.isatty():
            raise click.UsageError("these bytes are not for a terminal: give -o FILE, or redirect them")
        yield sys.stdout.buffer
        return
    there = status_of(path)
    if there and any(os.path.samestat(there, status) for status in map(status_of, inputs.paths) if status):
        raise click.UsageError(f"{path} is read, and cannot be written at the same time")
    with closing(_File(path)) as output:
        yield output
        if not inputs.code:
            output.open()  # nothing is a result, too


def _size_of(option: str, source: Source) -> int:
    return source.find_packet_header_size() if option == _AUTO else int(option)


def _damage_line(damage: Damage, packet_header_size: int) -> str:
    size = counted(damage.stop - damage.start, "byte")
    why = explain(damage, packet_header_size)
    return f"damaged at {damage.start}, {size}: {damage.fault.name} at offset {damage.offset}: {why}"


# The commands


class Ended(Exception):  # noqa: N818
    """Something that ends a command by a signal. Click would make a plain exit of it."""

    def __init__(self, signal: str) -> None:
        super().__init__(signal)
        self.signal = signal


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # by `| head`
            raise Ended("SIGPIPE") from None
        except KeyboardInterrupt:
            with suppress(OSError):
                sys.stdout.flush()
            raise Ended("SIGINT") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(f"{__version__}, {BACKEND} codec ({REASON})", message="phpmq %(version)s")
def command_line() -> None:
    """Look into traffic of the PHPMQ message protocol, convert it, check it.

    \b
    phpmq inspect capture.phpmq | less            what the bytes mean, one by one
    phpmq decode capture.phpmq | jq .queue        messages as JSON lines
    nc queue.example.org 9100 | phpmq decode      ... as they arrive
    phpmq encode edited.jsonl > edited.phpmq      JSON lines back to bytes
    phpmq check '2024-*/*.phpmq.gz'               frames by type, and what is damaged
    phpmq convert --from 36 old.phpmq -o new.phpmq
    phpmq generate --size 10MB -o capture.phpmq   a capture to try all this with
    phpmq ingest captures/ --to warehouse         tables of Parquet, by Spark
    phpmq report warehouse -o report.html         what became of all messages

    A FILE is a path, a pattern, or - for standard input, which is also read if there is none. gzip, bzip2 and zstd
    are told by their content. Exit codes: 0 fine, 1 data is damaged or wrong, 2 the command could not do its work.

    \b
    Completion in bash (zsh and fish alike):
      eval "$(_PHPMQ_COMPLETE=bash_source phpmq)"
    """


@command_line.command("inspect", short_help="Show what the bytes mean, one by one.")
@_files_argument
@_header_size_option("--packet-header-size")
@frame_size_option
@_fault_option("skip")
@_offset_option
@_limit_option
@click.option("--full", is_flag=True, help="Show contents in full, not cut to the width of the window.")
@click.option("--listing", is_flag=True, help="Print the plain form of the protocol's documents instead.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def _inspect(
    files: tuple[str, ...],
    packet_header_size: str,
    max_frame_size: int,
    on_fault: _OnFault,
    offset: int,
    limit: int | None,
    full: bool,
    listing: bool,
    color: str,
) -> int:
    """Show what the bytes of FILE mean: each header and each content with its offset, and damage in its place.

    \b
    phpmq inspect capture.phpmq
    phpmq inspect --color always capture.phpmq | less -R
    phpmq inspect --offset 1059 --limit 1 --full capture.phpmq
    phpmq inspect --listing capture.phpmq > listing.txt

    It shows frames of any type and with any packets, and says what a message may not have. Bytes that are not
    printable are escaped: \\n, \\xff, \\u202e.
    """
    output, skip, shown = sys.stdout.buffer, on_fault == "skip", 0
    with reading(files, start=offset) as inputs:
        for source in inputs:
            with source:
                if len(inputs.paths) > 1 and not listing:
                    output.write(heading(source.name))
                size = _size_of(packet_header_size, source)
                view = View(size, width(), full, painter(wants_colour(color)))
                decoder = FrameDecoder(packet_header_size=size, max_frame_size=max_frame_size, on_fault=on_fault)
                for number, (start, _, item) in enumerate(
                    read(source.chunks(output.flush), decoder, offset, skip=skip), 1
                ):
                    shown += 1
                    if isinstance(item, Damage):
                        inputs.met_damage()
                        if listing:
                            complain(f"{source.name}: {_damage_line(item, size)}")
                        else:
                            output.write(view.damage(item).encode())
                    elif listing:
                        output.write(_plain_form(item, size))
                    else:
                        error = objection(item, size)
                        output.write(view.frame(start, item, error).encode())
                        if error and not skip:
                            raise fault_at(number, offset, moved(error, start))
                        if error:
                            inputs.met_damage()
                    if shown == limit:
                        return inputs.code
    return inputs.code


def _plain_form(frame: Frame, packet_header_size: int) -> bytes:
    """The lines of a listing: exact, except on a terminal, which no content may steer."""
    lines = pieces_of(frame, packet_header_size)
    if sys.stdout.isatty():
        lines = (escape(line).encode() for line in lines)
    return b"".join(line + b"\n" for line in lines)


@command_line.command("decode", short_help="Print messages, or write them as columns.")
@_files_argument
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv", "table", *_COLUMNS]), default="jsonl", show_default=True
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only messages of this queue; repeatable.")
@click.option(
    "--type", "types", multiple=True, type=click.Choice(list(CLASSES)), help="Only such messages; repeatable."
)
@_offset_option
@_limit_option
@_header_size_option("--packet-header-size")
@frame_size_option
@_fault_option("raise")
@_output_option
def _decode(
    files: tuple[str, ...],
    form: Literal["jsonl", "csv", "table", "parquet", "arrow"],
    queues: tuple[str, ...],
    types: tuple[str, ...],
    offset: int,
    limit: int | None,
    packet_header_size: str,
    max_frame_size: int,
    on_fault: _OnFault,
    output: str | None,
) -> int:
    """Print the messages of FILE, one a line: as JSON, as CSV, or as a table to look at; or write them as columns.

    \b
    {"type": "send", "queue": "Foo", "content": "Hello World", "ttl": 3600}
    {"type": "acknowledge", "queue": "Foo", "message_id": "d7e7f68761d34838494b233148b5486c"}

    What is not UTF-8 is in base64, and its field says so: "content_base64". The older forms of a message, which
    have no TTL, have no "ttl" here either. In CSV, "" is empty and nothing is missing. Parquet and Arrow files take
    the extra phpmq[arrow].

    \b
    phpmq decode capture.phpmq
    phpmq decode --type dispatch --queue Foo capture.phpmq.gz | jq -r .content
    phpmq decode --format table --limit 20 capture.phpmq
    phpmq decode --format csv 'captures/*.phpmq' > captures.csv
    phpmq decode --format parquet 'captures/*.phpmq' -o captures.parquet
    phpmq decode --on-fault skip broken.phpmq | grep '^{"damage"'
    phpmq decode --packet-header-size auto old.phpmq | phpmq encode > new.phpmq
    """
    skip, wanted, written = on_fault == "skip", {CLASSES[word] for word in types}, 0
    with (
        reading(files, start=offset, over_output=output not in (None, "-")) as inputs,
        _output_to(output, inputs, for_people=form not in _COLUMNS) as out,
    ):
        if form in _COLUMNS:
            options = {"max_frame_size": max_frame_size, "on_fault": on_fault}
            return _decode_columns(inputs, out, form, (types, queues), offset, limit, packet_header_size, options)
        table = Table(width())
        header = {"jsonl": b"", "csv": CSV_HEADER, "table": table.header().encode()}[form]
        for source in inputs:
            with source:
                if header:
                    out.write(header)
                    header = b""
                size = _size_of(packet_header_size, source)
                decoder = Decoder(packet_header_size=size, max_frame_size=max_frame_size, on_fault=on_fault)
                order = PacketOrder(decoder, size, offset)
                if form == "table" and len(inputs.paths) > 1:
                    out.write(heading(source.name))
                for start, stop, item in read(order.watch(source.chunks(out.flush)), decoder, offset, skip=skip):
                    if isinstance(item, Damage):
                        inputs.met_damage()
                    elif (wanted and type(item) not in wanted) or (queues and item.queue not in queues):
                        continue
                    if form == "csv":
                        out.write(csv_line(source.name, start, stop, item))
                    elif form == "table":
                        out.write(table.line(start, item).encode())
                    else:
                        out.write(record_line(item))
                        order.check(item, start, stop)
                    written += 1
                    if written == limit:
                        break
                order.report(source.name)
            if written == limit:
                break
    return inputs.code


def _decode_columns(
    inputs: Reading,
    out: BinaryIO | _File,
    form: str,
    wanted: tuple[tuple[str, ...], tuple[str, ...]],
    offset: int,
    limit: int | None,
    packet_header_size: str,
    options: dict[str, Any],
) -> int:
    try:
        import phpmq.arrow  # noqa: F401, PLC0415 (this one says how to get pyarrow, which takes a moment to load)
        from phpmq.cli import columns  # noqa: PLC0415
    except ImportError as error:
        raise click.UsageError(f"--format {form}: {error}") from None
    types, queues = wanted
    if any(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") != name for name in queues):
        raise click.UsageError("--queue: columns have no name that is not UTF-8")
    file, written = columns.Columns(form, out), 0
    # more than are asked for would be waited for
    most = columns.MOST_ROWS if limit is None or types or queues else min(limit, columns.MOST_ROWS)
    try:
        for source in inputs:
            with source:
                options["packet_header_size"] = _size_of(packet_header_size, source)
                for batch in columns.read_columns(source, offset, most, out.flush, **options):
                    rows = columns.wanted(batch, types, queues)[: None if limit is None else limit - written]
                    if rows["type"].null_count:
                        inputs.met_damage()
                    file.write(source.name, rows)
                    written += len(rows)
                    if written == limit:
                        return inputs.code
    finally:
        file.close(even_if_empty=not inputs.code)
    return inputs.code


@command_line.command("encode", short_help="Write JSON lines as bytes.")
@_files_argument
@_header_size_option("--packet-header-size", auto=False)
@click.option("--drop-damage", is_flag=True, help="Pass over the records of damages.")
@_output_option
def _encode(files: tuple[str, ...], packet_header_size: str, drop_damage: bool, output: str | None) -> int:
    """Write the JSON lines of FILE as bytes. Each line is as decode prints it.

    \b
    phpmq encode messages.jsonl > messages.phpmq
    phpmq decode old.phpmq --packet-header-size 36 | phpmq encode > new.phpmq
    phpmq decode --on-fault skip broken.phpmq | phpmq encode --drop-damage -o sound.phpmq
    echo '{"type": "consume", "queue": "Foo", "count": 5}' | phpmq encode | nc queue.example.org 9100

    A line with a missing, extra or wrong field is refused with its number, and ends its FILE.
    """
    with reading(files, over_output=output not in (None, "-")) as inputs, _output_to(output, inputs) as out:
        for source in inputs:
            with source:
                dropped = 0
                for number, line in enumerate(_lines(source.chunks(out.flush)), 1):
                    try:
                        message = message_of(line)
                    except DamageRecord as error:
                        if not drop_damage:
                            raise WrongData(f"line {number}: {error}") from None
                        dropped += 1
                        continue
                    except (TypeError, ValueError, RecursionError) as error:
                        raise WrongData(f"line {number}: {error}") from None
                    out.write(encode(message, packet_header_size=int(packet_header_size)))
                if dropped:
                    complain(f"{source.name}: {counted(dropped, 'damage record')} dropped")
    return inputs.code


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, as soon as they are there: reading a file by lines would wait for a chunk to be full."""
    begun: list[bytes] = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join([*begun, whole[0]])
            yield from whole[1:]
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last


@command_line.command("check", short_help="Count frames and tell what is damaged.")
@_files_argument
@_header_size_option("--packet-header-size")
@frame_size_option
@_fault_option("skip")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each damage, and one for each file.")
def _check(
    files: tuple[str, ...], packet_header_size: str, max_frame_size: int, on_fault: _OnFault, as_json: bool
) -> int:
    """Count the frames of FILE by type, and tell what is damaged.

    \b
    phpmq check capture.phpmq && echo sound
    phpmq check --json 'captures/*.phpmq.zst' | jq 'select(.damages > 0 or .error)'
    """
    paint, total = painter(wants_colour()), Balance()
    with reading(files, over_output=True) as inputs:
        several = len(inputs.paths) > 1 and not as_json

        def show(text: bytes) -> None:
            with inputs.bar.away():
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()

        def line_of(name: str, damage: Damage, size: int) -> bytes:
            if as_json:
                return json_line({"path": name, **damage_record(damage)})
            return f"{_damage_line(damage, size)}\n".encode()

        for source in inputs:
            with source:
                if several:
                    show(heading(source.name))
                size = _size_of(packet_header_size, source)
                scanner = codec._Scanner(packet_header_size=size, max_frame_size=max_frame_size, on_fault=on_fault)
                balance, error = Balance(), {}
                try:
                    for _ in feed(source.chunks(), scanner, skip=on_fault == "skip"):
                        if damages := list(scanner):
                            inputs.met_damage()
                            balance.add_damages(damages)
                            show(b"".join(line_of(source.name, damage, size) for damage in damages))
                except CompressedDataError as end:
                    error = {"error": str(end)}
                    raise
                except ProtocolError as end:
                    fault = fault_at(sum(frames for frames, _ in scanner.counts.values()) + 1, 0, end)
                    error = {"error": str(fault)}
                    raise fault from None
                finally:  # an input without end is left by Ctrl-C, and one that is cut off has a balance, too
                    balance.add_messages(scanner.counts)
                    total.add(balance)
                    if as_json:
                        record = {"path": source.name, "packet_header_size": size}
                        show(json_line(record | balance.record() | error))
                    else:
                        show(balance.table(paint).encode())
        if several:
            show(b"total:\n" + total.table(paint).encode())
    return inputs.code


@command_line.command("convert", short_help="Change packet headers; read listings.")
@_files_argument
@_header_size_option("--from", "source_size", default=None)
@_header_size_option("--to", "target_size", auto=False)
@click.option("--from-listing", is_flag=True, help="FILE is a listing, as the protocol's documents print frames.")
@frame_size_option
@_fault_option("raise")
@_output_option
def _convert(
    files: tuple[str, ...],
    source_size: str | None,
    target_size: str,
    from_listing: bool,
    max_frame_size: int,
    on_fault: _OnFault,
    output: str | None,
) -> int:
    """Write the frames of FILE with packet headers of another size, or from a listing.

    \b
    phpmq convert --from 36 --to 32 old.phpmq -o new.phpmq
    phpmq convert --from auto 'old/*.phpmq.gz' > new.phpmq
    phpmq convert --from-listing example.txt | phpmq decode

    Frames of any type are written, and packets stay in their order. Without --from, packet headers have 32 bytes,
    those of a listing what its lines say. With --on-fault skip damage is left out, and told on standard error.
    """
    skip = on_fault == "skip"
    with reading(files, over_output=output not in (None, "-")) as inputs, _output_to(output, inputs) as out:

        def leave_out(source: Source, what: object) -> None:
            inputs.met_damage()
            complain(f"{source.name}: {what}")

        def wire_frames(source: Source) -> Iterator[Frame]:
            size = _size_of(source_size or str(DEFAULT_PACKET_HEADER_SIZE), source)
            decoder = FrameDecoder(packet_header_size=size, max_frame_size=max_frame_size, on_fault=on_fault)
            for _, _, item in read(source.chunks(out.flush), decoder, 0, skip=skip):
                if isinstance(item, Damage):
                    leave_out(source, _damage_line(item, size))
                else:
                    yield item

        def listed_frames(source: Source) -> Iterator[Frame]:
            size = None if source_size in (None, _AUTO) else int(source_size)
            listing = Listing(source.stream, size, max_frame_size)
            there_is_more = True
            while there_is_more:
                try:
                    for frame in listing.frames():
                        yield frame
                        out.flush()  # the next one can take long
                    there_is_more = False
                except WrongData as error:
                    if not skip:
                        raise
                    leave_out(source, error)
                    there_is_more = listing.recover()

        frames = listed_frames if from_listing else wire_frames
        for source in inputs:
            with source:
                for frame in frames(source):
                    out.write(encode_frame(frame.type, frame.packets, packet_header_size=int(target_size)))
    return inputs.code


def bytes_of(_ctx: click.Context, _param: click.Parameter, size: str) -> int:
    match = re.fullmatch("([0-9]{1,18})(|[kmgt]i?)b?", size, re.IGNORECASE | re.ASCII)
    if not match:
        raise click.BadParameter(f"{size!r} is no size; write 500, 10k, 100MB or 2GiB")
    number, unit = int(match[1]), match[2].lower()
    for _ in range(" kmgt".index(unit[:1])):
        number *= 1024 if unit.endswith("i") else 1000
    return number


class _Counted:
    """An output whose bytes a progress bar counts."""

    def __init__(self, output: BinaryIO | _File, bar: Bar | NoBar) -> None:
        self._output = output
        self._bar = bar

    def write(self, data: bytes) -> None:
        """Write all of it."""
        self._output.write(data)
        self._bar.advance(len(data))


@command_line.command("generate", short_help="Write a capture of made-up traffic.")
@click.option(
    "--size", callback=bytes_of, default="1MB", show_default=True, metavar="SIZE", help="How large the capture gets."
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Another one, another capture.")
@_header_size_option("--packet-header-size", auto=False)
@click.option("--damages", type=click.IntRange(0), default=0, metavar="N", help="Damage so many places.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write what was damaged to this file, as JSON lines.",
)
@_output_option
def _generate(
    size: int, seed: int, packet_header_size: str, damages: int, ledger: str | None, output: str | None
) -> int:
    """Write a capture of made-up traffic, as a broker with some dozen queues would see it.

    \b
    phpmq generate | phpmq decode --format table | less
    phpmq generate --size 100MB -o capture.phpmq
    phpmq generate --size 2GiB --seed 7 | gzip > capture.phpmq.gz
    phpmq generate --damages 3 --ledger damages.jsonl -o broken.phpmq; phpmq check broken.phpmq

    The same seed gives the same bytes everywhere. The frame that reaches the size is the last one. 1k and 1kB are
    1000 bytes and 1KiB is 1024; M, G and T alike. Damaged are headers, first bytes of frames and the end of the file,
    and there is junk between frames. A line of the ledger:

    \b
    {"kind": "digit", "start": 5204, "stop": 5330, "message": 31}

    It says where in the capture the damage is, and which message, counted from 0, is lost by it.
    """
    from phpmq.generate import write_capture  # noqa: PLC0415 (it takes a moment)

    if ledger == "-" and output in (None, "-"):
        raise click.UsageError("the capture and its ledger cannot both be standard output")
    if ledger and output and os.path.realpath(ledger) == os.path.realpath(output):
        raise click.UsageError(f"{output} cannot be the capture and its ledger at the same time")
    with (
        progress_bar(size, over_output=output not in (None, "-")) as bar,
        _output_to(output, Reading([], 0, bar)) as out,
        nullcontext(sys.stdout.buffer if ledger else None) if ledger in (None, "-") else open(ledger, "wb") as lines,
    ):
        touches = write_capture(
            _Counted(out, bar), size, seed=seed, packet_header_size=int(packet_header_size), damages=damages
        )
        if lines:
            lines.writelines(json_line(touch._asdict()) for touch in touches)
    if len(touches) < damages:
        complain(f"there is no more than {counted(len(touches), 'frame')} to damage")
    return 0

"""The commands that work with Spark. They are thin: what they do is in ``phpmq.spark``, for programs, too."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from phpmq.cli.commands import bytes_of, command_line, frame_size_option
from phpmq.cli.terminal import complain, counted, progress_bar, width, working
from phpmq.protocol import DEFAULT_PACKET_HEADER_SIZE, PACKET_HEADER_SIZES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from phpmq.spark.ingest import Batch
    from phpmq.spark.report import Facts

#: How wide a table is where nobody looks at it.
_PLAIN_WIDTH: Final = 160
#: Queues that are printed; the page has more.
_MOST_QUEUES: Final = 20
#: What is printed of each of them.
_FIGURES: Final = ("sent", "dispatched", "acknowledged", "requeued", "dead_lettered", "outstanding", "redelivered")
#: How Spark tells what a worker has met: the last line of a traceback.
_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", re.MULTILINE)

_master_option = click.option(
    "--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs: here, or on a cluster."
)
_conf_option = click.option(
    "--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable."
)


@command_line.command("ingest", short_help="Take what is new in captures into tables of Parquet.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--to", "warehouse", required=True, metavar="WAREHOUSE", help="A directory or a URL; it need not exist.")
@click.option("--finished", is_flag=True, help="The captures have ended: what is cut off at their ends is damage.")
@click.option("--recursive", is_flag=True, help="Look into directories in directories, too.")
@click.option(
    "--packet-header-size",
    type=click.Choice([str(size) for size in PACKET_HEADER_SIZES]),
    default=str(DEFAULT_PACKET_HEADER_SIZE),
    show_default=True,
    help="Bytes of a packet header.",
)
@frame_size_option
@click.option(
    "--batch-size",
    callback=lambda ctx, param, size: size and bytes_of(ctx, param, size),
    metavar="SIZE",
    help="How much is taken at once, and done again if it is cut off. [default: 512MiB for each core]",
)
@_master_option
@_conf_option
def _ingest(
    sources: tuple[str, ...],
    warehouse: str,
    finished: bool,
    recursive: bool,
    packet_header_size: str,
    max_frame_size: int,
    batch_size: int | None,
    master: str,
    settings: tuple[str, ...],
) -> int:
    """Take what is new in captures into WAREHOUSE, which has two tables of Parquet: messages and damage.

    \b
    phpmq ingest captures/ --to warehouse
    phpmq ingest 'captures/2024-*.phpmq.gz' --finished --to warehouse
    phpmq report warehouse -o report.html

    Run it again, and it takes only what has come since: new captures, and what was appended to old ones. Kill it, and
    the next run goes on; every frame is taken once. A SOURCE is a capture, a directory or a pattern.

    The tables are for any tool, for example DuckDB: SELECT queue, count(*) FROM 'warehouse/messages/**/*.parquet' ...
    """
    options = {
        "filesAreComplete": str(finished),
        "recursiveFileLookup": str(recursive),
        "packetHeaderSize": packet_header_size,
        "maxFrameSize": str(max_frame_size),
    }
    if batch_size:
        options["maxBytesPerTrigger"] = str(batch_size)
    batches: list[Batch] = []
    with _spark(master, settings) as spark:
        from phpmq.spark.ingest import ingest, unread  # noqa: PLC0415 (it takes a moment)

        total = sum(unread(sources, warehouse, options=options).values())
        with progress_bar(total, over_output=True) as bar:

            def note(batch: Batch) -> None:
                batches.append(batch)
                bar.advance(batch.size)

            ingest(spark, sources, warehouse, options=options, on_batch=note)
        waiting = unread(sources, warehouse, options=options)
    figures = {
        "bytes of captures": sum(batch.size for batch in batches),
        "messages": sum(batch.messages for batch in batches),
        "damaged ranges": sum(batch.damage for batch in batches),
        "bytes left": sum(waiting.values()),
    }
    _print_table(["taken", ""], [[name, f"{figure:,}"] for name, figure in figures.items()])
    if waiting:
        complain(
            f"{counted(len(waiting), 'capture')} ended within a frame, or in damage that may go on:"
            " --finished takes what is left as damage"
        )
    return 0


@command_line.command("report", short_help="Make a page of HTML about what ingest has taken.")
@click.argument("warehouse", metavar="WAREHOUSE")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Write to this file.",
)
@_master_option
@_conf_option
def _report(warehouse: str, output: str, master: str, settings: tuple[str, ...]) -> int:
    """Tell what became of the messages in WAREHOUSE, which `phpmq ingest` has filled: what was lost, what was delivered
    twice, which queue has trouble, and where the traffic is damaged. The page needs nothing but a browser.

    \b
    phpmq report warehouse -o report.html
    """
    try:
        from phpmq.spark.ingest import open_warehouse  # noqa: PLC0415 (it takes a moment)
        from phpmq.spark.report import collect, render  # noqa: PLC0415
    except ImportError as error:
        raise click.ClickException(f'{error}: pip install "phpmq[pipeline]"') from None
    if not os.path.isdir(directory := os.path.dirname(output) or os.curdir):
        raise click.ClickException(f"there is no directory {directory}")  # before all the counting
    with _spark(master, settings) as spark:
        tables = open_warehouse(spark, warehouse)
        with working("Counting what became of all messages"):
            facts = collect(tables.messages, tables.damage)
    page = render(facts)
    with open(output, "w", encoding="utf-8") as file:
        file.write(page)
    _print_queues(facts)
    return 0


def _print_queues(facts: Facts) -> None:
    from phpmq.spark.wording import queue_name  # noqa: PLC0415

    shown = [*facts.queues[:_MOST_QUEUES], facts.totals]
    names = [*(queue_name(queue.queue) for queue in shown[:-1]), f"all {counted(facts.queue_count, 'queue')}"]
    _print_table(
        ["queue", *(figure.replace("_", "-") for figure in _FIGURES)],
        [
            [name, *(f"{getattr(queue, figure):,}" for figure in _FIGURES)]
            for name, queue in zip(names, shown, strict=True)
        ],
    )
    anomalies = sum(count for (_, is_suspect), count in facts.anomaly_counts.items() if not is_suspect)
    print(f"{anomalies:,} anomalies, {facts.damaged_ranges:,} damaged ranges")


def _print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, numbers on the right."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    text = io.StringIO()
    Console(file=text, width=width() if sys.stdout.isatty() else _PLAIN_WIDTH).print(table)
    sys.stdout.buffer.write(text.getvalue().encode())


@contextmanager
def _spark(master: str, settings: Sequence[str]) -> Iterator[SparkSession]:
    """A session of Spark without its noise, and with its errors in one line.

    Raises:
        click.ClickException: Spark or Java is missing, or something has failed.
    """
    for setting in settings:
        if "=" not in setting:
            raise click.UsageError(f"--conf takes NAME=VALUE, not {setting!r}")
    chosen = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.master": master}
    chosen |= dict(setting.split("=", 1) for setting in settings)
    try:
        from phpmq.spark import local_session  # noqa: PLC0415 (it takes a moment)
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    is_ours = SparkSession.getActiveSession() is None
    try:
        with working("Starting Spark"), _unheard():
            spark = local_session(chosen)
        try:
            yield spark
        finally:
            if is_ours:
                spark.stop()
    except (PySparkException, Py4JError, RuntimeError, ValueError) as error:
        raise click.ClickException(_reason(str(error))) from None


@contextmanager
def _unheard() -> Iterator[None]:
    """Let what is started meanwhile, and so the JVM with all it ever says, write its errors to nowhere."""
    sys.stderr.flush()
    ours, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(nowhere)


def _reason(text: str) -> str:
    """What is wrong, out of all that Spark says: what a worker has met last, or the first line."""
    reasons: list[str] = _ERROR.findall(text)
    return reasons[-1] if reasons else text.partition("\n")[0]

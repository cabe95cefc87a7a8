"""The ``phpmq`` command: look into PHPMQ traffic from a shell.

``commands`` and ``pipeline`` say what there is; ``inputs`` reads; ``records``, ``inspection`` and ``listing`` are the
forms in which bytes are shown; ``terminal`` is what only people need. All commands stream, in flat memory.

Exit codes: 0 fine, 1 the data is damaged or wrong, 2 the command could not do its work.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress

try:
    import click
    import rich  # noqa: F401
except ImportError:
    print('phpmq: this command needs click and rich: pip install "phpmq[cli]"', file=sys.stderr)
    raise SystemExit(2) from None

from phpmq.cli import pipeline  # noqa: F401 (more commands)
from phpmq.cli.commands import Ended, command_line
from phpmq.cli.terminal import complain


def main() -> int:
    """Run the command line of this process and give its exit code."""
    if sys.stdout is None:
        complain("standard output is closed")
        return 2
    if isinstance(sys.stdout.buffer, io.RawIOBase):
        # PYTHONUNBUFFERED is set: each record would be a system call, and one that may write a part of it
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(sys.stdout.buffer), encoding="utf-8")
    try:
        code = int(command_line.main(prog_name="phpmq", standalone_mode=False))
        sys.stdout.flush()
        return code
    except click.ClickException as error:
        text = error.format_message()
        if isinstance(error, click.UsageError):
            text += f" ({error.ctx.command_path if error.ctx else 'phpmq'} --help shows how)"
        complain(text)
        return 2
    except Ended as ended:
        return _die_of(ended.signal)
    except BrokenPipeError:
        return _die_of("SIGPIPE")
    except OSError as error:
        with suppress(OSError):  # what is still buffered has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        complain(str(error))
        return 2


def _die_of(name: str) -> int:
    """Die of a signal as other commands do, which shells go by; only now, when the terminal is in order again."""
    if os.name == "posix":
        number = signal.Signals[name]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 1

"""Runs what README.md shows: every Python example, the network loops over loopback, and the command lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CAPTURE = (ROOT / "tests/vectors/original_server_to_client.phpmq").read_bytes()
INSTALL_AND_RUN = 'pip install ".[cli]" && phpmq decode tests/vectors/original_server_to_client.phpmq'
INSTALL_AND_TEST = 'pip install -e ".[test]" && pytest'
#: How many bytes each read gives at most, again and again.
SPLITS = {"byte by byte": [1], "at random": random.Random(1).choices(range(1, 200), k=50), "whole": [65536]}


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, each behind as many empty lines as put it on its own line numbers."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return ["\n" * README.count("\n", 0, match.start(1)) + match[1] for match in found]


def block_with(text: str) -> str:
    (block,) = [block for block in blocks("python") if text in block]
    return block


def function(name: str, codec: ModuleType) -> Callable[[Any], Any]:
    """A function of the README, over one codec."""
    namespace: dict[str, Any] = {"Decoder": codec.Decoder}
    exec(compile(block_with(f"def {name}("), "README.md", "exec"), namespace)
    result: Callable[[Any], Any] = namespace[name]
    return result


class Trickle:
    """A socket or a stream reader that gives at most the next size at each read."""

    def __init__(self, source: Any, sizes: list[int]) -> None:
        self.source = source
        self.sizes = sizes
        self.reads = 0

    def next_size(self, wanted: int) -> int:
        self.reads += 1
        return min(wanted, self.sizes[self.reads % len(self.sizes)])

    def recv(self, size: int) -> bytes:
        data: bytes = self.source.recv(self.next_size(size))
        return data

    async def read(self, size: int) -> bytes:
        data: bytes = await self.source.read(self.next_size(size))
        return data


def test_the_python_examples_run(codec: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "README.py"
    lines: dict[int, str] = {}
    for block in blocks("python"):
        if "spark" in block:  # these take a session
            continue
        lines |= {number: line for number, line in enumerate(block.split("\n")) if line}
    script.write_text("\n".join(lines.get(number, "") for number in range(max(lines) + 1)), encoding="utf-8")
    backend = codec.__name__.removeprefix("phpmq._codec_").replace("py", "python").replace("c", "cython")
    program = f"import phpmq, runpy; assert phpmq.BACKEND == {backend!r}; runpy.run_path({str(script)!r})"
    environment = os.environ | {"PHPMQ_BACKEND": backend}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert (run.returncode, run.stderr.decode()) == (0, "")


def test_the_network_examples_are_under_ten_lines() -> None:
    for name in ("receive", "receive_async"):
        assert len(block_with(f"def {name}(").strip().split("\n")) in range(1, 10)


@contextlib.contextmanager
def peer_that_sends(data: bytes) -> Iterator[tuple[str, int]]:
    """Give the loopback address of a peer that sends ``data`` to its first client and hangs up."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join()


def received(codec: ModuleType, data: bytes, sizes: list[int], messages: list[Any]) -> None:
    with peer_that_sends(data) as address, socket.create_connection(address) as connection:
        for message in function("receive", codec)(Trickle(connection, sizes)):
            messages.append(message)


def received_async(codec: ModuleType, data: bytes, sizes: list[int], messages: list[Any]) -> None:
    async def receive_all(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        stream: AsyncIterator[Any] = function("receive_async", codec)(Trickle(reader, sizes))
        try:
            async for message in stream:
                messages.append(message)
        finally:
            writer.close()
            await writer.wait_closed()

    with peer_that_sends(data) as address:
        asyncio.run(receive_all(address))


@pytest.mark.parametrize("sizes", SPLITS.values(), ids=SPLITS.keys())
@pytest.mark.parametrize("receive", [received, received_async])
def test_the_network_examples_receive_every_message(
    codec: ModuleType, receive: Callable[..., None], sizes: list[int]
) -> None:
    messages: list[Any] = []
    receive(codec, CAPTURE, sizes, messages)
    assert messages == list(codec.iter_messages(CAPTURE))


@pytest.mark.parametrize("sizes", SPLITS.values(), ids=SPLITS.keys())
@pytest.mark.parametrize("receive", [received, received_async])
def test_the_network_examples_notice_a_peer_that_left_in_a_frame(
    codec: ModuleType, receive: Callable[..., None], sizes: list[int]
) -> None:
    messages: list[Any] = []
    with pytest.raises(ValueError, match=r"^TRUNCATED at offset .* at least 1 byte is missing$"):
        receive(codec, CAPTURE[:-1], sizes, messages)
    assert messages == list(codec.iter_messages(CAPTURE))[:-1]


@pytest.mark.parametrize("command", [INSTALL_AND_RUN, INSTALL_AND_TEST])
def test_the_two_commands_stand_there_and_ci_runs_them(command: str) -> None:
    assert command in [block.strip() for block in blocks("sh")]
    assert f"'{command}'" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def shell(command: str, folder: Path, code: int = 0) -> str:
    """Run a line as a shell with an installed ``phpmq`` would."""
    program = "import sys; from phpmq.cli import main; sys.exit(main())"
    script = f'phpmq() {{ "$PYTHON" -c "{program}" "$@"; }}\n{command}\n'
    environment = os.environ | {"PYTHON": sys.executable}
    run = subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, check=False)
    assert (run.returncode, run.stderr.decode()) == (code, "")
    return run.stdout.decode()


def test_the_first_command_gives_the_output_shown() -> None:
    (shown,) = blocks("json")
    records = shell(INSTALL_AND_RUN.split(" && ")[1], ROOT).splitlines()
    assert records[:3] == shown.strip().splitlines()
    assert [json.loads(record)["type"] for record in records] == ["dispatch"] * 5


def test_what_inspect_shows() -> None:
    (shown,) = blocks("console")
    command, _, output = shown.strip("\n").removeprefix("$ ").partition("\n")
    assert shell(command, ROOT, code=1) == output + "\n"


#: Those that need Spark, one after the other, are run with the other examples of Spark.
PHPMQ_LINES = [
    line
    for block in blocks("sh")
    if "phpmq ingest" not in block
    for line in block.split("\n")
    if line.startswith("phpmq ")
]


@pytest.mark.parametrize("line", PHPMQ_LINES)
def test_the_phpmq_commands_run(line: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert shell(line, tmp_path) or [path for path in tmp_path.iterdir() if path.is_file() and path.stat().st_size]


def test_the_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists()

"""What the benchmarks read and write: always the same messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, NamedTuple, Protocol

from phpmq import Dispatch, Message, encode
from phpmq.generate import generate_messages
from phpmq.records import WORDS


class Traffic(NamedTuple):
    """Some messages, as frames."""

    name: str
    messages: list[Message]
    frames: list[bytes]
    wire: bytes

    def chunks(self, size: int) -> list[bytes]:
        return chunks(self.wire, size)

    def rows(self) -> list[tuple[Any, ...]]:
        """What peers send: the fields of a message, behind a number for its type where there is more than one."""
        return [row_of(message) if self.name == "mixed" else fields_of(message) for message in self.messages]


def fields_of(message: Message) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in message.__match_args__)


def row_of(message: Message) -> tuple[Any, ...]:
    fields = (field for field in fields_of(message) if field is not None)
    return (list(WORDS).index(type(message).__name__), *fields)


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def dispatches(size: int) -> Iterator[Message]:
    """Dispatches of one queue, each with an id of its own and so many bytes of content."""
    random = Random(size)
    while True:
        yield Dispatch("orders", random.randbytes(size), f"{random.getrandbits(128):032x}", 3600)


#: By names: Dispatches with contents of one size; and what a broker sees, which is messages of all types and many
#: queues, with contents of a few bytes to 64 KiB, half of them below 142. And how many of them are measured.
MESSAGES: dict[str, tuple[Callable[[], Iterator[Message]], int]] = {
    "60B": (lambda: dispatches(60), 4096),
    "2KiB": (lambda: dispatches(2048), 4096),
    "64KiB": (lambda: dispatches(65536), 256),
    "mixed": (lambda: generate_messages(seed=1), 8192),
}


def make_traffic(name: str, number: int | None = None) -> Traffic:
    """Traffic of a kind, or its first messages."""
    generate, most = MESSAGES[name]
    messages = list(islice(generate(), number or most))
    frames = [encode(message) for message in messages]
    return Traffic(name, messages, frames, b"".join(frames))


class Measure(Protocol):
    """The fixture `measure`."""

    def __call__(
        self, operation: str, traffic: Traffic, implementation: str, function: Callable[[], object], repeat: int = 1
    ) -> None: ...

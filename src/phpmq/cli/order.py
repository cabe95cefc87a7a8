"""Notices what a record does not hold: that the packets of a message came in another order than the canonical one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from phpmq import Damage, Decoder, Message, encode
from phpmq.cli.terminal import complain


class PacketOrder:
    """Compares messages with the bytes that they were decoded from, which it keeps as long as the decoder does."""

    def __init__(self, decoder: Decoder[Any], packet_header_size: int, start: int) -> None:
        self._decoder = decoder
        self._size = packet_header_size
        self._start = start
        self._window = bytearray()
        self._window_start = start
        self._others = 0
        self._first = 0

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on what the decoder is fed."""
        for chunk in chunks:
            done = self._start + self._decoder.offset
            del self._window[: done - self._window_start]
            self._window_start = done
            self._window += chunk
            yield chunk

    def check(self, item: Message | Damage, start: int, stop: int) -> None:
        """Compare what was decoded from the bytes from ``start`` to ``stop``, if it is a message."""
        wire = self._window[start - self._window_start : stop - self._window_start]
        if not isinstance(item, Damage) and encode(item, packet_header_size=self._size) != wire:
            self._first = self._first if self._others else start
            self._others += 1

    def report(self, name: str) -> None:
        """Say on standard error what ``encode`` would change."""
        if self._others:
            they_have = "1 message has its" if self._others == 1 else f"{self._others} messages have their"
            complain(
                f"{name}: {they_have} packets in another order than encode writes, the first at offset {self._first}"
            )

"""The operations, by one of the codecs of phpmq."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from types import ModuleType
from typing import Any

from benchmarks.peers import Take, feeding
from benchmarks.traffic import Traffic, fields_of


class Codec:
    def __init__(self, codec: ModuleType) -> None:
        self.codec: Any = codec

    def wire(self, traffic: Traffic) -> bytes:
        return traffic.wire

    def scan(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        return lambda: take(self.codec.scan(traffic.wire))

    def iter_messages(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        return lambda: take(self.codec.iter_messages(traffic.wire))

    def decoder_64KiB(self, traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802 (a unit)
        return feeding(self.codec.Decoder, iter, traffic.chunks(65536), take)

    def decoder_1400B(self, traffic: Traffic, take: Take) -> Callable[[], object]:  # noqa: N802
        return feeding(self.codec.Decoder, iter, traffic.chunks(1400), take)

    def decode(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        return lambda: take(map(self.codec.decode, traffic.frames))

    def encode(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        messages = self._messages(traffic)
        return lambda: take(map(self.codec.encode, messages))

    def encode_many(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        messages = self._messages(traffic)
        return lambda: take([self.codec.encode_many(messages)])

    def encode_into(self, traffic: Traffic, take: Take) -> Callable[[], object]:
        messages, buffer = self._messages(traffic), bytearray(max(map(len, traffic.frames)))
        return lambda: take(map(self.codec.encode_into, messages, repeat(buffer)))

    def _messages(self, traffic: Traffic) -> list[Any]:
        return [getattr(self.codec, type(message).__name__)(*fields_of(message)) for message in traffic.messages]

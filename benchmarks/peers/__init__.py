"""What is measured: the codecs of phpmq, and what people would use instead, each in its best form.

Each has functions named like the operations. They take a `Traffic`, and `take`, to be called with every iterable of
results; they prepare what is not to be measured, and return the function that is. So what is measured (`take` drops the
results) is also tested (`take` keeps them).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

#: Takes what an operation gives.
Take = Callable[[Iterable[object]], object]

CODECS = {"cython": "phpmq._codec_c", "python": "phpmq._codec_py"}
#: Who takes part, by operations.
OPERATIONS = {
    "scan": (*CODECS, "copy"),
    "iter_messages": (*CODECS, "msgpack", "hiredis", "handwritten", "php"),
    "decoder_64KiB": (*CODECS, "msgpack", "hiredis"),
    "decoder_1400B": (*CODECS, "msgpack", "hiredis"),
    "decode": (*CODECS, "msgpack", "hiredis", "handwritten"),
    "encode": (*CODECS, "msgpack", "hiredis", "handwritten", "php"),
    "encode_many": (*CODECS, "msgpack"),
    "encode_into": (*CODECS,),
}


def feeding(
    make: Callable[[], Any], items: Callable[[Any], Iterable[object]], chunks: list[bytes], take: Take
) -> Callable[[], object]:
    """What feeds a new decoder with chunks, and takes the items that there are after each."""

    def receive() -> None:
        decoder = make()
        for chunk in chunks:
            decoder.feed(chunk)
            take(items(decoder))

    return receive


def load(name: str) -> Any:
    """A codec or a peer, by its name.

    Raises:
        ImportError: it is not installed.
    """
    if name in CODECS:
        from benchmarks.peers.codec import Codec  # noqa: PLC0415

        return Codec(importlib.import_module(CODECS[name]))
    return importlib.import_module(f"benchmarks.peers.{name}_peer")

"""Every kind of C-contiguous buffer, by what makes it from bytes; their number must be a multiple of four."""

from __future__ import annotations

import array
import ctypes
import mmap
from collections.abc import Callable
from typing import Any


def mapped(data: bytes) -> mmap.mmap:
    area = mmap.mmap(-1, len(data))
    area[:] = data
    return area


READONLY: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "memoryview": memoryview,
    "memoryview of I": lambda data: memoryview(data).cast("I"),
    "memoryview of 2 dimensions": lambda data: memoryview(data).cast("B", (4, len(data) // 4)),
    "slice": lambda data: memoryview(b"<" + data + b">")[1:-1],
    # not to be asked for its length or its items
    "subclass": type("Derived", (bytes,), {"__getitem__": None, "__len__": lambda self: 1, "__bytes__": None}),
}
WRITABLE: dict[str, Callable[[bytes], Any]] = {
    "bytearray": bytearray,
    "array": lambda data: array.array("I", data),
    "ctypes": lambda data: (ctypes.c_uint32 * (len(data) // 4)).from_buffer_copy(data),
    "mmap": mapped,
}
BUFFERS = READONLY | WRITABLE


def label(value: object) -> str | None:
    """A short name for a parameter of many bytes."""
    return repr(value[:24]) if isinstance(value, bytes) else None

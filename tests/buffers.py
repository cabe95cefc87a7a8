"""Every kind of C-contiguous buffer, by what makes it from bytes; their number must be a multiple of four."""

from __future__ import annotations

import array
import ctypes
import mmap
import weakref
from collections.abc import Callable
from functools import wraps
from types import ModuleType
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


_allocate, _free = ctypes.pythonapi.PyMem_RawMalloc, ctypes.pythonapi.PyMem_RawFree
_allocate.restype, _allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_free.restype, _free.argtypes = None, [ctypes.c_void_p]


def exact(data: bytes) -> Any:
    """The bytes in a block of exactly their size, where a sanitizer sees a read behind them; all objects have more."""
    place = _allocate(len(data))
    block = (ctypes.c_ubyte * len(data)).from_address(place)
    weakref.finalize(block, _free, place)
    ctypes.memmove(place, data, len(data))
    return block


#: What takes a whole input.
READERS = (
    *("decode", "detect_packet_header_size", "iter_frames", "iter_messages", "scan", "_decode_columns", "_find_frame"),
)


def with_exact_inputs(codec: ModuleType) -> ModuleType:
    """The codec, whose readers are given bytes in exact blocks."""

    def reader(read: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(read)
        def call(data: Any, *args: Any, **options: Any) -> Any:
            return read(exact(data) if type(data) is bytes else data, *args, **options)

        return call

    twin = ModuleType(codec.__name__)
    vars(twin).update(vars(codec), **{name: reader(getattr(codec, name)) for name in READERS})
    return twin

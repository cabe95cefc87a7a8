"""Compressed files as streams of what they hold: gzip, bzip2 and zstd, told apart by their first bytes.

The file objects of the standard library pass silently over what follows a compressed file and is damaged, and they
wait for more of a pipe than they need. Their decompressors, which are used here, do neither.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

#: How many compressed bytes are read at once.
_CHUNK_SIZE: Final = 64 * 1024

#: No format takes more bytes to be told.
MAGIC_SIZE: Final = 4


class CompressedDataError(ValueError):
    """Compressed bytes are damaged, or end too early."""


class _Format(NamedTuple):
    """How a format begins, what decompresses one member of a file, and what that raises on damage."""

    name: str
    magic: bytes
    load: Callable[[], tuple[Callable[[], Any], type[Exception]]]


class _GzipDecompressor:
    """The decompressor of ``zlib`` with the manners of the two others."""

    def __init__(self) -> None:
        import zlib  # noqa: PLC0415

        self._error = zlib.error
        self._decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._rest = b""
        self._is_damaged = False

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data, before = self._rest + data, self._decompressor.copy()
        if not self._is_damaged:
            try:
                plain = self._decompressor.decompress(data, max_length)
                self._rest = self._decompressor.unconsumed_tail
                return plain
            except self._error:
                self._is_damaged, self._decompressor = True, before
        # An error takes along what was decompressed in the same step, so go up to it in small ones.
        plain = b""
        for place in range(len(data)):  # pragma: no branch (the error comes again)
            self._rest = data[place:]
            try:
                plain += self._decompressor.decompress(data[place : place + 1])
            except self._error:
                if plain:
                    break
                raise
        return plain

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data


def _gzip() -> tuple[Callable[[], Any], type[Exception]]:
    import zlib  # noqa: PLC0415

    return _GzipDecompressor, zlib.error


def _bzip2() -> tuple[Callable[[], Any], type[Exception]]:
    import bz2  # noqa: PLC0415

    return bz2.BZ2Decompressor, OSError


def zstd_module(what_for: str) -> Any:
    """The standard library's module for zstd, or the package that has it for older Pythons.

    Raises:
        ImportError: it is missing; the text says what it is needed for.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        try:
            from backports import zstd  # noqa: PLC0415
        except ImportError:
            raise ImportError(f'{what_for} takes: pip install "phpmq[capture]"') from None
    return zstd


def _zstd() -> tuple[Callable[[], Any], type[Exception]]:
    zstd = zstd_module("this is zstd data, and to read it")
    return zstd.ZstdDecompressor, zstd.ZstdError


_FORMATS: Final = (
    _Format("gzip", b"\x1f\x8b", _gzip),
    _Format("bzip2", b"BZh", _bzip2),
    _Format("zstd", b"\x28\xb5\x2f\xfd", _zstd),
)


class _Decompressed(io.RawIOBase):
    """What all members of a compressed file hold, one after another."""

    def __init__(self, raw: io.RawIOBase, form: _Format) -> None:
        self._raw = raw
        self._name = form.name
        self._make, self._error = form.load()
        self._decompressor = self._make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            compressed, wanted = b"", self._decompressor.eof or self._decompressor.needs_input
            if wanted:
                compressed = self._decompressor.unused_data or self._raw.read(_CHUNK_SIZE) or b""
            if self._decompressor.eof:
                if not compressed:
                    return 0
                self._decompressor = self._make()
            try:
                data = self._decompressor.decompress(compressed, len(buffer))
            except self._error as error:
                raise CompressedDataError(f"damaged {self._name} data: {error}") from None
            if data:
                buffer[: len(data)] = data
                return len(data)
            if wanted and not compressed:
                raise CompressedDataError(f"damaged {self._name} data: it ends too early")


def decompressed(raw: io.RawIOBase, magic: bytes) -> io.RawIOBase:
    """Give what the file holds, which begins with ``magic``: the file itself if it is not compressed.

    Reading it raises:
        CompressedDataError: what could be decompressed was given before.

    Raises:
        ImportError: the package for this compression is missing.
    """
    for form in _FORMATS:
        if magic.startswith(form.magic):
            return _Decompressed(raw, form)
    return raw

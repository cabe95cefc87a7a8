"""The codecs by the names of their backends."""

from __future__ import annotations

from types import ModuleType

MODULES = {"python": "phpmq._codec_py", "cython": "phpmq._codec_c"}


def backend_of(codec: ModuleType) -> str:
    return next(backend for backend, module in MODULES.items() if module == codec.__name__)

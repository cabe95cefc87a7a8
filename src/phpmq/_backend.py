"""Chooses the codec, once, at import, by ``PHPMQ_BACKEND=auto|cython|python``. Nothing else chooses."""

import os
import warnings
from typing import TYPE_CHECKING, Any

from phpmq._version import __version__

#: What makes the compiled codec, on a Python that has no wheel with it, too.
_BUILD = "PHPMQ_BUILD_EXT=require pip install --no-cache-dir --force-reinstall --no-deps --no-binary phpmq phpmq"

_wanted = os.environ.get("PHPMQ_BACKEND") or "auto"
if _wanted not in ("auto", "cython", "python"):
    raise ValueError(f"PHPMQ_BACKEND must be auto, cython or python, not {_wanted!r}")
BACKEND, REASON = "python", "PHPMQ_BACKEND=python"
if _wanted != "python":
    try:
        from phpmq._codec_c import __version__ as _built_for

        if _built_for != __version__:
            raise ImportError(
                f"the extension was built for phpmq {_built_for}, this is {__version__}; install phpmq again"
            )
        BACKEND, REASON = "cython", "the extension is installed"
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "phpmq._codec_c"
        REASON = f"the extension is not installed; {_BUILD} builds it" if is_missing else str(error)
        if _wanted == "cython":
            raise ImportError(f"PHPMQ_BACKEND=cython, but {REASON}") from error
        if not is_missing:  # there, but refused: somebody meant it to run
            warnings.warn(f"phpmq runs in pure Python: {REASON}", RuntimeWarning, stacklevel=2)
if TYPE_CHECKING or BACKEND == "python":
    import phpmq._codec_py as _chosen
    from phpmq._codec_py import *  # noqa: F403
else:
    import phpmq._codec_c as _chosen
    from phpmq._codec_c import *  # noqa: F403
#: The whole codec, for what is not public in it.
codec = _chosen


def rebuild(name: str, fields: tuple[Any, ...]) -> Any:
    """Make a message again from its pickle: of the backend that runs here, whichever wrote it."""
    return globals()[name](*fields)

"""What goes from the driver to the executors, so that an executor without phpmq says what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def imported_there(module: str, name: str) -> Callable[..., Any]:
    """A function that imports another one where it runs, and calls it.

    Cloudpickle sends it as code, because it is nested in another one. So it reaches also an executor that cannot import
    phpmq.
    """

    def call(*args: Any) -> Any:
        from importlib import import_module  # noqa: PLC0415 (this function has no module there)

        try:
            function = getattr(import_module(module), name)
        except ImportError as error:
            raise ImportError(
                f"the Python of this executor cannot import {module} ({error}): install phpmq[spark] on every machine,"
                " or send it with --py-files or spark.sparkContext.addPyFile, and call phpmq.spark.register(spark) then"
            ) from None
        return function(*args)

    return call


class Shipped:
    """What is sent to executors by its class's name and its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        return imported_there(__name__, "_restored"), (kind.__module__, kind.__qualname__, self.__dict__)


def _restored(module: str, name: str, attributes: dict[str, Any]) -> Any:
    kind = getattr(import_module(module), name)
    restored = kind.__new__(kind)
    restored.__dict__.update(attributes)
    return restored

"""Says what is wrong with PySpark before anything else of it is imported."""

from typing import Final

#: The oldest one whose streams know limits.
_OLDEST: Final = (4, 2)


def check() -> None:
    """See whether there is a PySpark that is new enough.

    Raises:
        ImportError: there is none.
    """
    try:
        import pyspark  # noqa: PLC0415
    except ImportError:
        raise ImportError('phpmq.spark takes: pip install "phpmq[spark]"') from None
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < _OLDEST:
        raise ImportError(f"phpmq.spark needs PySpark 4.2 or later, and this is {pyspark.__version__}")


check()

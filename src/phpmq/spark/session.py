"""Sessions of Spark that know the data source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from phpmq.spark.source import PhpmqDataSource

_OLDEST_JAVA: Final = 17
_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",  # 64 MiB, packed, do not fit in the memory of a task
    "spark.python.unix.domain.socket.enabled": "true",  # twice as fast where there are many small tasks
    "spark.ui.showConsoleProgress": "true" if sys.stderr.isatty() else "false",
}


def register(spark: SparkSession) -> None:
    """Tell a session of the data source ``phpmq``.

    Where phpmq is installed, sessions find it by themselves; unless another package spoils the search.

    Raises:
        RuntimeError: the Python that Spark starts on this machine cannot import phpmq.
    """
    context = getattr(spark, "_sc", None)
    if context is not None:  # it is elsewhere for Spark Connect
        _check_python(context.pythonExec)
    spark.dataSource.register(PhpmqDataSource)


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark on this machine, with this Python, or take the session that there is; either way registered.

    Args:
        settings: of Spark, by their names; ``spark.master`` is ``local[*]`` unless they say otherwise.

    Raises:
        RuntimeError: there is no Java, or it is too old.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        _check_java()
        os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
        builder = SparkSession.builder.master("local[*]").appName("phpmq")
        spark = builder.config(map={**_SETTINGS, **(settings or {})}).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _check_python(python: str) -> None:
    if python == sys.executable:
        return
    try:
        subprocess.run([python, "-c", "import phpmq.spark.source"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise RuntimeError(
            f"Spark's Python is {shutil.which(python) or python}, which cannot import phpmq.spark:"
            f" set the environment variable PYSPARK_PYTHON={sys.executable} before the session starts"
        ) from None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    try:
        told = subprocess.run([java, "-version"], check=True, capture_output=True, text=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise RuntimeError(
            f"Spark needs Java {_OLDEST_JAVA} or later, and {java} does not run: install it"
            " (apt install openjdk-17-jre-headless, brew install openjdk@17) and set JAVA_HOME if it is not on the PATH"
        ) from None
    version = re.search(r'version "(?:1\.)?([0-9]+)', told)
    if version and int(version[1]) < _OLDEST_JAVA:
        raise RuntimeError(f"Spark needs Java {_OLDEST_JAVA} or later, and {java} is Java {version[1]}")

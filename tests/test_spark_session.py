"""What is said where Spark, Java, or phpmq on an executor is missing, and sessions as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import phpmq
from phpmq.spark._pyspark import check
from phpmq.spark.session import _check_java, _check_python, local_session, register
from phpmq.spark.shipping import imported_there
from phpmq.spark.source import PhpmqDataSource

CAPTURE = Path(__file__).parent / "vectors" / "original_server_to_client.phpmq"


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def last_line(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 1
    return process.stderr.splitlines()[-1]


def test_without_pyspark() -> None:
    process = run("import sys; sys.modules['pyspark'] = None; import phpmq.spark")
    assert last_line(process) == 'ImportError: phpmq.spark takes: pip install "phpmq[spark]"'


@pytest.mark.parametrize("version", ["3.5.4", "4.1.0"])
def test_with_an_old_pyspark(version: str) -> None:
    process = run(f"import pyspark; pyspark.__version__ = '{version}'; import phpmq.spark")
    assert last_line(process) == f"ImportError: phpmq.spark needs PySpark 4.2 or later, and this is {version}"


def test_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, too."""
    check()
    monkeypatch.setattr("pyspark.__version__", "4.1.9.dev0")
    with pytest.raises(ImportError, match=r"and this is 4\.1\.9\.dev0"):
        check()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"phpmq\.spark takes"):
        check()


def java(directory: Path, version: str) -> str:
    """A JAVA_HOME with a Java that only tells its version."""
    command = directory / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    command.chmod(0o755)
    return str(directory)


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11), ("16-ea", 16)])
def test_an_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    with pytest.raises(RuntimeError, match=rf"^Spark needs Java 17 or later, and {tmp_path}/bin/java is Java {major}$"):
        _check_java()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_a_java_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    _check_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^Spark needs Java 17 or later, and java does not run: "):
        _check_java()


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=f"{tmp_path}/bin/java does not run"):
        _check_java()


def test_workers_with_another_python(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    for python in (str(other), str(tmp_path / "nowhere")):
        with pytest.raises(RuntimeError) as raised:
            _check_python(python)
        assert str(raised.value) == (
            f"Spark's Python is {python}, which cannot import phpmq.spark:"
            f" set the environment variable PYSPARK_PYTHON={sys.executable} before the session starts"
        )


def test_the_same_python_by_another_name(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    _check_python(str(other))


def test_a_session_that_there_is(spark: SparkSession) -> None:
    assert local_session() is spark
    register(spark)
    assert spark.read.format("phpmq").load(str(CAPTURE)).count() == 5


def test_a_session_that_is_elsewhere() -> None:
    """Spark Connect has no context, so nobody knows which Python it runs."""
    registered: list[type] = []

    class Remote:
        dataSource = SimpleNamespace(register=registered.append)  # noqa: N815

    remote: Any = Remote()
    register(remote)
    assert registered == [PhpmqDataSource]


def test_what_is_imported_on_an_executor() -> None:
    assert imported_there("phpmq", "decode")(bytes(phpmq.encode(phpmq.Consume("Foo", 5)))) == phpmq.Consume("Foo", 5)
    with pytest.raises(ImportError, match=r"^the Python of this executor cannot import phpmq\.nothing \(No module"):
        imported_there("phpmq.nothing", "decode")(b"")


READ = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("phpmq").load(sys.argv[1]).count())
"""


def test_spark_finds_the_data_source_by_itself() -> None:
    process = run(READ, str(CAPTURE), PYSPARK_PYTHON=sys.executable)
    assert process.stdout == "5\n"


def test_a_session_of_its_own() -> None:
    process = run(
        "import sys; from phpmq.spark import local_session\n"
        "spark = local_session({'spark.master': 'local[1]'})\n"
        "print(spark.read.format('phpmq').load(sys.argv[1]).count())",
        str(CAPTURE),
        PYSPARK_PYTHON="",
    )
    assert process.stdout == "5\n"


def test_an_executor_without_phpmq_says_so() -> None:
    """What is sent to executors is read by a Python without phpmq."""
    code = """
import base64, sys
sys.modules["phpmq"] = None
from pyspark.cloudpickle import loads
loads(base64.b64decode(sys.stdin.read()))
"""
    import base64  # noqa: PLC0415

    from pyspark import cloudpickle  # noqa: PLC0415

    from phpmq.spark.reader import SCHEMA  # noqa: PLC0415

    source = PhpmqDataSource({"path": str(CAPTURE)})
    dumps: Any = cloudpickle.dumps
    sent: list[Any] = [source, source.reader(SCHEMA), source.streamReader(SCHEMA)]
    for what in sent:
        process = subprocess.run(
            [sys.executable, "-c", code],
            input=base64.b64encode(dumps(what)).decode(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert last_line(process).startswith(
            "ImportError: the Python of this executor cannot import phpmq.spark.shipping"
        )
        assert last_line(process).endswith(
            ": install phpmq[spark] on every machine, or send it with --py-files or spark.sparkContext.addPyFile,"
            " and call phpmq.spark.register(spark) then"
        )

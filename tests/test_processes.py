"""What a codec gives travels between processes, and between the codecs that run in them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import travel


@pytest.mark.parametrize(("writer", "reader"), [("python", "cython"), ("cython", "python")])
@pytest.mark.usefixtures("both_codecs")
def test_all_that_one_codec_gives_is_read_where_the_other_runs(tmp_path: Path, writer: str, reader: str) -> None:
    file = str(tmp_path / "things.pickle")
    for action, backend in (("write", writer), ("read", reader)):
        done = subprocess.run(
            [sys.executable, travel.__file__, action, file],
            env={**os.environ, "PHPMQ_BACKEND": backend},
            check=True,
            capture_output=True,
            text=True,
        )
    backend, number = done.stdout.split()
    assert backend == reader
    assert int(number) == len(travel.things())


@pytest.mark.parametrize("backend", ["python", "cython"])
@pytest.mark.usefixtures("both_codecs")
def test_a_pool_of_processes(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("PHPMQ_BACKEND", backend)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        own = travel.things()
        given = pool.submit(travel.things).result()
        assert given == own
        assert [type(thing) for thing in given] == [type(thing) for thing in own]
        message = travel.decode(travel.ANSWER)
        assert pool.submit(bytes, message).result() == travel.ANSWER
        assert pool.submit(travel.decode, travel.ANSWER).result() == message
        for data in travel.FAULTY:
            error = pool.submit(travel.decode, data).exception()
            expected = travel.caught(travel.decode, data)
            assert (type(error), error, str(error)) == (type(expected), expected, str(expected))

"""Fuzzing that coverage guides, by atheris; a folder of inputs and the options of libFuzzer may follow.

    python tests/fuzz_guided.py reference [FOLDER] -max_total_time=600 -max_len=4096
    python tests/fuzz_guided.py compiled [FOLDER] -max_total_time=600 -max_len=4096

The first looks for input that takes new branches of the reference, and lets both codecs agree on it. The second looks
into the compiled codec, which clang has to build with `-fsanitize=fuzzer-no-link`, and checks its laws.
`python tests/fuzz.py FILE` shows what is wrong with an input that either has found.
"""

from __future__ import annotations

import sys
from random import Random

import atheris

with atheris.instrument_imports(include=["phpmq._codec_py"]):
    import phpmq._codec_py  # noqa: F401

from differential import ways
from fuzz import codecs, mutated, unpack
from laws import LAWS


def agree(data: bytes) -> None:
    reference, compiled = codecs()
    for way in ways(unpack(data)):
        assert way(compiled) == way(reference)


def keep_laws(data: bytes) -> None:
    case = unpack(data)
    _, compiled = codecs()
    for law in LAWS:
        law(compiled, case)


def mutate(data: bytes, most: int, seed: int) -> bytes:
    random = Random(seed)
    mutation = mutated(data, random) if random.randrange(2) else atheris.Mutate(data, most)
    return bytes(mutation[:most])


if __name__ == "__main__":
    target = {"reference": agree, "compiled": keep_laws}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target, custom_mutator=mutate)
    atheris.Fuzz()

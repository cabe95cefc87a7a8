"""The version is one that packaging tools take as it stands."""

from __future__ import annotations

import re

import phpmq
from phpmq import _version


def test_it_is_a_canonical_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", _version.__version__)


def test_the_package_says_it() -> None:
    assert phpmq.__version__ == _version.__version__

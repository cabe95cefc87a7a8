"""What the codecs give back beside messages: named tuples, with these fields in this order."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest

from phpmq import Damage, Fault, Frame, Packet, ProtocolError, Scan

PACKET = Packet(type=2, content=b"x")
RECORDS = [
    PACKET,
    Frame(type=900, packets=(PACKET, PACKET), offset=40, size=74),
    Damage(start=3, stop=11, fault=Fault.BAD_DIGITS, offset=5, data=b"H0x00100"),
    Scan(frames=7, end=700, error=ProtocolError(Fault.NOT_A_MESSAGE, 700, b"?")),
    Scan(frames=0, end=0, error=None),
]


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (Packet, ("type", "content")),
        (Frame, ("type", "packets", "offset", "size")),
        (Damage, ("start", "stop", "fault", "offset", "data")),
        (Scan, ("frames", "end", "error")),
    ],
)
def test_fields(record: type[NamedTuple], fields: tuple[str, ...]) -> None:
    assert record._fields == fields
    assert not record._field_defaults


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_copies_are_equal_and_of_the_same_class(record: tuple[object, ...]) -> None:
    pickles = [pickle.loads(pickle.dumps(record, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [copy.copy(record), copy.deepcopy(record), *pickles]:
        assert type(twin) is type(record)
        assert twin == record

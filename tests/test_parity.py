"""The codecs are one interface: the same names, signatures and defaults, and messages that behave alike and travel."""

from __future__ import annotations

import ast
import copy
import inspect
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import travel
from backends import backend_of
from wire import VECTORS

import phpmq
from phpmq.records import Packet

#: What a function or a class takes, or "property"; by name, and by class and name for members.
Interface = dict[str, Any]

#: Of the methods with two underscores, those that a caller may look up; the others are operators.
HOOKS = ("__bytes__", "__copy__", "__deepcopy__", "__replace__")


def parameters(function: Any) -> list[tuple[str, str, object]]:
    """The name, the kind and the default of each parameter, without a method's first."""
    signature = inspect.signature(function)
    return [(name, p.kind.name, p.default) for name, p in signature.parameters.items() if name not in ("self", "cls")]


def interface(codec: ModuleType) -> Interface:
    """What the codec itself shows."""
    found: Interface = {}
    for name in codec.__all__:
        value = getattr(codec, name)
        if callable(value):
            found[name] = parameters(value)
        if isinstance(value, type):
            for attribute in dir(value):
                if not attribute.startswith("_") or attribute in HOOKS:
                    member = inspect.getattr_static(value, attribute)
                    is_property = inspect.isdatadescriptor(member)
                    found[f"{name}.{attribute}"] = "property" if is_property else parameters(member)
    return found


def stated_parameters(function: ast.FunctionDef) -> Any:
    if [ast.unparse(decorator) for decorator in function.decorator_list] == ["property"]:
        return "property"
    for node in ast.walk(function.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return parameters(eval(f"lambda {ast.unparse(function.args)}: None"))


def stub() -> tuple[list[str], dict[str, list[Any]]]:
    """``__all__`` of the stub, and the same names as in an interface with all that their overloads take."""
    names: list[str] = []
    found: dict[str, list[Any]] = defaultdict(list)
    for node in ast.parse(Path(phpmq.__file__).with_name("_codec_c.pyi").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
        elif isinstance(node, ast.FunctionDef):
            found[node.name].append(stated_parameters(node))
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    if member.name in ("__init__", "__new__"):
                        found[node.name].append(stated_parameters(member))
                    elif not member.name.startswith("_") or member.name in HOOKS:
                        found[f"{node.name}.{member.name}"].append(stated_parameters(member))
    return names, found


def test_codecs_are_one_interface(both_codecs: tuple[ModuleType, ModuleType]) -> None:
    reference, compiled = both_codecs
    assert reference.__all__ == compiled.__all__
    assert interface(reference) == interface(compiled)


@pytest.mark.thread_unsafe(reason="CPython 3.11 parses in one thread at a time only")
def test_stub_states_the_interface(codec: ModuleType) -> None:
    names, stated = stub()
    shown = interface(codec)
    assert names == codec.__all__
    assert stated.keys() == shown.keys()
    for name, overloads in stated.items():
        assert overloads[0] == shown[name], name
        for other in overloads[1:]:
            assert [parameter[:2] for parameter in other] == [parameter[:2] for parameter in shown[name]]


def test_package_exports_what_the_codecs_do(codec: ModuleType) -> None:
    assert set(codec.__all__) < set(phpmq.__all__)


#: Every form of every message, by what it prints.
MESSAGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "Send(queue='Foo', content=b'\\x00', ttl=None)": ("Send", ("Foo", b"\0", None)),
    "Send(queue='Foo', content=b'\\xff', ttl=0)": ("Send", ("Foo", b"\xff", 0)),
    "Consume(queue='Grüße', count=5)": ("Consume", ("Grüße", 5)),
    "Dispatch(queue='\\udcff', content=b'', message_id='d7', ttl=None)": ("Dispatch", ("\udcff", b"", "d7", None)),
    "Dispatch(queue='', content=b'x', message_id='\"', ttl=3300)": ("Dispatch", ("", b"x", '"', 3300)),
    "Acknowledge(queue='Foo', message_id='d7')": ("Acknowledge", ("Foo", "d7")),
    "Requeue(queue='Foo', message_id='d7', ttl=9223372036854775807)": ("Requeue", ("Foo", "d7", 2**63 - 1)),
    "DeadLetter(queue='Foo', message_id=\"'\")": ("DeadLetter", ("Foo", "'")),
    "Receipt(queue='Foo', message_id='')": ("Receipt", ("Foo", "")),
}
forms = pytest.mark.parametrize(("text", "name", "fields"), [(text, *told) for text, told in MESSAGES.items()])


@forms
def test_message(codec: ModuleType, text: str, name: str, fields: tuple[Any, ...]) -> None:
    make = getattr(codec, name)
    message, twin = make(*fields), make(**dict(zip(make.__match_args__, fields, strict=True)))
    assert repr(message) == text
    assert tuple(getattr(message, field) for field in make.__match_args__) == fields
    assert message is not twin
    assert (message == twin, message != twin, hash(message) == hash(twin)) == (True, False, True)
    assert bytes(message) == codec.encode(message)
    assert copy.copy(message) is copy.deepcopy(message) is message
    assert message.__replace__() == message
    assert (message == fields, message == text, message == None) == (False, False, False)  # noqa: E711
    assert message.__eq__(fields) is NotImplemented


@forms
def test_message_differs_by_each_field(codec: ModuleType, text: str, name: str, fields: tuple[Any, ...]) -> None:
    message = getattr(codec, name)(*fields)
    for field in message.__match_args__:
        new: Any = {"content": b"new", "ttl": 7, "count": 7}.get(field, "new")
        other = message.__replace__(**{field: new})
        assert (getattr(other, field), type(other)) == (new, type(message))
        assert other != message
        assert {message, other, message} == {other, message}
        assert repr(message) == text


def test_messages_of_different_classes_differ(codec: ModuleType) -> None:
    messages = [make("q", "m") for make in (codec.Acknowledge, codec.DeadLetter, codec.Receipt)]
    assert len(set(messages)) == len(messages)
    assert messages[0] != messages[1]


def test_match(codec: ModuleType) -> None:
    match codec.Dispatch("q", b"c", "m", 5):
        case codec.Dispatch(queue, content, message_id, ttl):
            assert (queue, content, message_id, ttl) == ("q", b"c", "m", 5)
        case _:
            pytest.fail("no match")


class Text(str):
    pass


class Bytes(bytes):
    pass


class Integer(int):
    pass


class Index:
    def __index__(self) -> int:
        return 5


def test_fields_are_of_exact_types(codec: ModuleType) -> None:
    for content in (Bytes(b"c"), bytearray(b"c"), memoryview(b"c")):
        message = codec.Dispatch(Text("q"), content, Text("m"), Integer(5))
        assert message == codec.Dispatch("q", b"c", "m", Index())
        assert [type(getattr(message, name)) for name in message.__match_args__] == [str, bytes, str, int]
    assert type(codec.Consume("q", Integer(5)).count) is int


def test_results_are_of_exact_types(codec: ModuleType) -> None:
    wire = bytes(codec.Send("q", b"c"))
    (frame,) = codec.iter_frames(bytearray(wire))
    assert [type(packet) for packet in frame.packets] == [Packet, Packet]
    assert {type(value) for packet in frame.packets for value in packet} == {int, bytes}
    assert [type(value) for value in frame] == [int, tuple, int, int]
    assert type(codec.encode_many([])) is bytes
    with pytest.raises(phpmq.ProtocolError) as caught:
        codec.decode(bytearray(b"H02"))
    assert (type(caught.value.found), type(caught.value.offset)) == (bytes, int)


@forms
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(codec: ModuleType, text: str, name: str, fields: tuple[Any, ...], protocol: int) -> None:
    loaded = pickle.loads(pickle.dumps(getattr(codec, name)(*fields), protocol))
    assert loaded == getattr(phpmq, name)(*fields)
    assert repr(loaded) == text


#: Runs in an interpreter of its own: prints which codec it has, and the messages of a pickle.
LOAD = """
import pickle, sys
import phpmq
with open(sys.argv[1], "rb") as file:
    messages = pickle.load(file)
assert all(type(message) is getattr(phpmq, type(message).__name__) for message in messages)
print(ascii([phpmq.BACKEND, *map(repr, messages)]))
"""


@pytest.mark.parametrize("written_by", ["python", "cython"])
def test_pickle_of_either_codec(codec: ModuleType, written_by: str) -> None:
    backend = backend_of(codec)
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, VECTORS / f"messages_{written_by}.pickle"],
        env={**os.environ, "PHPMQ_BACKEND": backend},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ast.literal_eval(loaded.stdout) == [backend, *MESSAGES]


def test_what_reads_cannot_be_copied(codec: ModuleType) -> None:
    data = travel.GOOD
    columns = codec._decode_columns(data, ["ttl"], max_rows=1, max_bytes=99)
    readers: list[Any] = [codec.iter_messages(data), codec.iter_frames(data), columns, codec._Scanner()]
    pickling = [partial(pickle.dumps, protocol=number) for number in range(pickle.HIGHEST_PROTOCOL + 1)]
    ways: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, *pickling]
    for reader in readers:
        for copying in ways:
            with pytest.raises(TypeError, match=f"cannot pickle .*{type(reader).__name__}"):
                copying(reader)
        assert next(reader, None) is not None or type(reader) is codec._Scanner

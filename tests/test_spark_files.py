"""Which files a path means, without Spark: names of all kinds, patterns, directories, and file systems of fsspec."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from phpmq.spark.files import list_files, natural, read_head

#: What means something to a shell, to Hadoop or to a URL, and means itself in a name.
STRANGE = (
    "a b.phpmq",
    " ",
    "100%.phpmq",
    "a%20b.phpmq",
    "a[1].phpmq",
    "[",
    "{a,b}.phpmq",
    "{",
    "*.phpmq",
    "?",
    "a\nb.phpmq",
    "Größe €.phpmq",
    "Gro\u0308ße",
    "\U0001f600",
    "a\\b",
    "a:b",
    "a#b?c=d",
    "a;b&c+d",
    "~",
    "$HOME",
    "'a\"b'",
    "-",
    "x" * 255,
)


def make(root: Path, *names: str) -> None:
    """Files that hold their own names."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode("utf-8", "surrogateescape"))


def listed(*paths: object, recursive: bool = False, name_filter: str | None = None) -> list[str]:
    return [file.path for file in list_files(list(map(str, paths)), recursive=recursive, name_filter=name_filter)]


def names(root: Path, pattern: str = "", *, recursive: bool = False, name_filter: str | None = None) -> list[str]:
    """The files that a pattern in a directory means, by their paths in there."""
    paths = listed(f"{root}/{pattern}", recursive=recursive, name_filter=name_filter)
    return [path.removeprefix(f"{root}/") for path in paths]


# --- one file ---


def test_a_file_with_its_size_and_its_time(tmp_path: Path) -> None:
    make(tmp_path, "a.phpmq")
    os.utime(tmp_path / "a.phpmq", (1, 1234.5))
    (file,) = list_files([str(tmp_path / "a.phpmq")], recursive=False, name_filter=None)
    assert file == (str(tmp_path / "a.phpmq"), 7, 1234.5)


@pytest.mark.parametrize("name", STRANGE)
def test_what_exists_by_a_name_is_meant_by_it(tmp_path: Path, name: str) -> None:
    make(tmp_path, name, "a1.phpmq", "a.phpmq", "b.phpmq", "ab.phpmq")
    path = tmp_path / name
    assert listed(path) == [str(path)]
    assert listed(f"file:{path}") == listed(f"file://{path}") == listed(f"file://localhost{path}") == [str(path)]
    assert read_head(listed(path)[0], 1000) == name.encode()
    assert str(path) in listed(tmp_path)


@pytest.mark.parametrize("name", STRANGE)
def test_directories_have_strange_names_too(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}/a.phpmq", "a1.phpmq/x", "a.phpmq/y", "b.phpmq/z")
    right = [str(tmp_path / name / "a.phpmq")]
    assert listed(tmp_path / name) == listed(f"file://{tmp_path / name}") == right
    assert listed(f"{tmp_path / name}/") == listed(tmp_path / name / "a.phpmq") == right


@pytest.mark.parametrize("name", [name for name in STRANGE if not set("[{?*\\") & set(name)])
def test_patterns_in_strange_directories(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}/a.phpmq", f"{name}/b.phpmq", f"{name}/c")
    assert names(tmp_path / name, "*.phpmq") == ["a.phpmq", "b.phpmq"]


def test_a_hidden_file_is_read_if_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "_a", ".b")
    assert listed(tmp_path / "_a", tmp_path / ".b") == [str(tmp_path / "_a"), str(tmp_path / ".b")]


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a", "sub/b", "file")
    monkeypatch.chdir(tmp_path / "sub")
    for path in ("b", "./b", "../sub/b", ".", "b*", "../s?b", "file:b"):
        assert listed(path) == [str(tmp_path / "sub/b")]
    assert listed("../a") == [str(tmp_path / "a")]
    assert listed("../file") == [str(tmp_path / "file")]


def test_links_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "real/a", "read/x")
    (tmp_path / "read/to_file").symlink_to(tmp_path / "real/a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files = list_files([str(tmp_path / "read")], recursive=False, name_filter=None)
    assert [(file.path, file.size) for file in files] == [
        (str(tmp_path / "read/to_file"), len("real/a")),
        (str(tmp_path / "read/x"), len("read/x")),
    ]
    assert listed(tmp_path / "link") == [str(tmp_path / "link/a")]
    assert names(tmp_path, "l*") == ["link/a"]


def test_a_link_in_a_directory_to_a_directory_is_one(tmp_path: Path) -> None:
    make(tmp_path, "real/a", "read/x")
    (tmp_path / "read/to_directory").symlink_to(tmp_path / "real")
    assert names(tmp_path / "read") == ["x"]
    assert names(tmp_path / "read", recursive=True) == ["to_directory/a", "x"]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A link to nothing, and a pipe that nobody writes to."""
    make(tmp_path, "a")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == ["a"]


# --- directories ---


def test_hidden_ones_in_a_directory_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a", "_SUCCESS", ".a.crc", "_temporary/b", ".hidden/c", "sub/d", "sub/_e", "a_b", "a.b")
    assert names(tmp_path) == ["a", "a.b", "a_b"]
    assert names(tmp_path, recursive=True) == ["a", "a.b", "a_b", "sub/d"]


def test_a_directory_that_is_hidden_is_read_if_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "_a/b", ".c/d/e")
    assert names(tmp_path, "_a") == ["_a/b"]
    assert names(tmp_path, ".c", recursive=True) == [".c/d/e"]


def test_directories_in_directories(tmp_path: Path) -> None:
    make(tmp_path, "a", "b/c", "b/d/e", "f/g/h/i")
    assert names(tmp_path) == ["a"]
    assert names(tmp_path, recursive=True) == ["a", "b/c", "b/d/e", "f/g/h/i"]


def test_directories_of_partitions_are_always_looked_into(tmp_path: Path) -> None:
    make(tmp_path, "a", "day=1/b", "day=1/hour=2/c", "day=1/other/d", "day=1/_e", "_day=2/f", "other/day=3/g")
    assert names(tmp_path) == ["a", "day=1/b", "day=1/hour=2/c"]
    assert names(tmp_path, recursive=True) == ["a", "day=1/b", "day=1/hour=2/c", "day=1/other/d", "other/day=3/g"]


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "empty/deeper").mkdir(parents=True)
    assert listed(tmp_path / "empty") == []
    assert listed(tmp_path / "empty", tmp_path / "empty/deeper") == []
    assert names(tmp_path, "e*", recursive=True) == []


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (file,) = list_files([str(tmp_path)], recursive=False, name_filter=None)
    assert file[:2] == (str(tmp_path / "empty"), 0)


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("*", ["a.gz", "a.phpmq", "b.phpmq", "sub/c.phpmq"]),
        ("*.phpmq", ["a.phpmq", "b.phpmq", "sub/c.phpmq"]),
        ("[^a]*", ["b.phpmq", "sub/c.phpmq"]),
        ("{a,c}.phpmq", ["a.phpmq", "sub/c.phpmq"]),
        ("?.gz", ["a.gz"]),
        ("A*", []),
        ("sub", []),
    ],
)
def test_path_glob_filter_is_for_names_of_files(tmp_path: Path, pattern: str, right: list[str]) -> None:
    make(tmp_path, "a.phpmq", "a.gz", "b.phpmq", "sub/c.phpmq", "_a.phpmq")
    assert names(tmp_path, recursive=True, name_filter=pattern) == right


def test_path_glob_filter_for_a_file_that_is_named(tmp_path: Path) -> None:
    make(tmp_path, "a.phpmq", "b.gz")
    assert names(tmp_path, "{a,b}.*", name_filter="*.gz") == ["b.gz"]
    assert names(tmp_path, "a.phpmq", name_filter="*.gz") == []


# --- patterns ---

TREE = (
    *("a1", "a2", "a10", "b1", "ab", "abc", "a.b", "A1", "c]", "c[", "c-", "c^", "c!", "{x}", "{y}", "ü1"),
    *("d1/a", "d1/b", "d2/a", "d2/sub/e", "_h", ".h", "_d/a", "d1/_h"),
)


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("a?", ["a1", "a2", "ab"]),
        ("a??", ["a10", "a.b", "abc"]),
        ("?1", ["A1", "a1", "b1", "d1/a", "d1/b", "ü1"]),
        ("a*", ["a1", "a2", "a10", "a.b", "ab", "abc"]),
        ("*b", ["a.b", "ab"]),
        ("a*b*", ["a.b", "ab", "abc"]),
        ("[ab]1", ["a1", "b1"]),
        ("[a-c]1", ["a1", "b1"]),
        ("[^a]1", ["A1", "b1", "d1/a", "d1/b", "ü1"]),
        ("[^a-z]1", ["A1", "ü1"]),
        ("c[^a-z]", ["c!", "c-", "c[", "c]", "c^"]),
        ("c[!^]", ["c!", "c-", "c[", "c]"]),
        ("c[-]", ["c-"]),
        ("c[[]", ["c["]),
        ("{a1,b1}", ["a1", "b1"]),
        ("{b1,a1}", ["a1", "b1"]),
        ("{a1,nothing}", ["a1"]),
        ("a{1,2,10}", ["a1", "a2", "a10"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1"]),
        ("a{,b,bc}?", ["a1", "a2", "ab", "abc"]),
        ("a{1,{2,b}}", ["a1", "a2", "ab"]),
        ("{a{1,2},b1}", ["a1", "a2", "b1"]),
        ("{a[12],b?}", ["a1", "a2", "b1"]),
        ("{a1,d1/a}", ["a1", "d1/a"]),
        ("{d1,d2/sub}/*", ["d1/a", "d1/b", "d2/sub/e"]),
        ("d?", ["d1/a", "d1/b", "d2/a"]),
        ("d*/a", ["d1/a", "d2/a"]),
        ("d*/*", ["d1/a", "d1/b", "d2/a", "d2/sub/e"]),
        ("*/sub", ["d2/sub/e"]),
        ("*/*/*", ["d2/sub/e"]),
        ("d[12]/", ["d1/a", "d1/b", "d2/a"]),
        ("_*", ["_d/a", "_h"]),
        ("_h*", ["_h"]),
        ("*h", []),
        ("d1//a*", ["d1/a"]),
        ("d2/../d1/[a]", ["d1/a"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, right: list[str]) -> None:
    make(tmp_path, *TREE)
    right = sorted(right, key=natural)
    if pattern == "*h":
        with pytest.raises(FileNotFoundError):
            names(tmp_path, pattern)
        return
    assert names(tmp_path, pattern) == right
    assert listed(f"file://{tmp_path}/{pattern}") == [f"{tmp_path}/{name}" for name in right]


@pytest.mark.parametrize("pattern", ["{a*,*b}", "{ab,a?}", "{a,ab}*", "{a,a}*", "{*,ab}"])
def test_what_two_alternatives_mean_is_read_once(tmp_path: Path, pattern: str) -> None:
    make(tmp_path, "ab", "a1")
    assert names(tmp_path, pattern) == ["a1", "ab"]


def test_a_pattern_that_exists_is_a_name(tmp_path: Path) -> None:
    make(tmp_path, "[ab]", "a", "b", "*/x")
    assert names(tmp_path, "[ab]") == ["[ab]"]
    assert names(tmp_path, "*") == ["*/x"]


def test_a_pattern_of_directories_looks_into_them_if_it_is_told_to(tmp_path: Path) -> None:
    make(tmp_path, *TREE)
    assert names(tmp_path, "d*", recursive=True) == ["d1/a", "d1/b", "d2/a", "d2/sub/e"]


@given(st.lists(st.text("ab1[]^!-*?", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
def test_a_pattern_of_everything_gives_everything(tmp_path_factory: pytest.TempPathFactory, drawn: list[str]) -> None:
    root = tmp_path_factory.mktemp("drawn")
    make(root, *drawn)
    right = sorted(drawn, key=natural)
    assert names(root) == right
    for name in drawn:
        assert names(root, name) == [name]


# --- order ---


def test_numbers_in_names_count_as_numbers(tmp_path: Path) -> None:
    make(tmp_path, *(f"part-{number}" for number in (10, 9, 2, 1, 100)), "b2/x10", "b2/x9", "b10/x1")
    assert names(tmp_path) == ["part-1", "part-2", "part-9", "part-10", "part-100"]
    assert names(tmp_path, recursive=True)[:3] == ["b2/x9", "b2/x10", "b10/x1"]


def test_numbers_and_letters_in_the_same_place(tmp_path: Path) -> None:
    drawn = ["1", "a", "1a", "a1", "1a1", "10", "2b", "007", "²", "1²2", "1a2", "٣", "1٣2", "x"]
    make(tmp_path, *drawn)
    found = names(tmp_path)
    assert sorted(found) == sorted(drawn)
    assert found.index("1") < found.index("2b") < found.index("10")


@given(st.lists(st.text("012a²٣", max_size=5)))
def test_anything_can_be_ordered(drawn: list[str]) -> None:
    keys = [natural(name) for name in sorted(drawn, key=natural)]
    assert all(before <= after for before, after in pairwise(keys))
    again = [natural(name) for name in sorted(sorted(drawn), key=natural)]
    assert again == keys or len(set(map(str, keys))) < len(drawn)  # some are equal, as "1" and "01" are


def test_paths_are_read_in_their_order(tmp_path: Path) -> None:
    make(tmp_path, "b/2", "b/1", "a/3", "c")
    assert listed(tmp_path / "c", tmp_path / "b", f"{tmp_path}/a/*") == [
        *(str(tmp_path / name) for name in ("c", "b/1", "b/2", "a/3"))
    ]


# --- what is not there ---


@pytest.mark.parametrize("name", ["nothing", "nothing/deeper", "a/below a file", "no*", "{x,y}", "a/*", "[x]", "a b"])
def test_a_missing_path(tmp_path: Path, name: str) -> None:
    make(tmp_path, "a")
    with pytest.raises(FileNotFoundError) as raised:
        names(tmp_path, name)
    assert str(raised.value) == f"path does not exist: {tmp_path}/{name}"


def test_one_of_several_is_missing(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    with pytest.raises(FileNotFoundError, match=r"path does not exist: .*/nothing$"):
        listed(tmp_path / "a", tmp_path / "nothing", tmp_path / "b")


def test_a_path_of_a_file_system_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="nosuch"):
        listed("nosuch://bucket/a")


# --- other file systems ---


@pytest.fixture
def memory() -> Iterator[str]:
    """A place in memory, as a URL."""
    system, root = MemoryFileSystem(), f"/{uuid4().hex}"
    for name in ("a1.phpmq", "a10.phpmq", "a2.phpmq", "sub/b.phpmq", "day=1/c.phpmq", "_h", "a b%20[1].phpmq", "ü"):
        system.pipe_file(f"{root}/{name}", name.encode())
    yield f"memory://{root}"
    system.rm(root, recursive=True)


def test_a_directory_in_memory(memory: str) -> None:
    right = ["a1.phpmq", "a2.phpmq", "a10.phpmq", "a b%20[1].phpmq", "day=1/c.phpmq", "ü"]
    assert listed(memory) == listed(f"{memory}/") == [f"{memory}/{name}" for name in right]
    assert listed(memory, recursive=True, name_filter="b*") == [f"{memory}/sub/b.phpmq"]


def test_files_in_memory(memory: str) -> None:
    (file,) = list_files([f"{memory}/a10.phpmq"], recursive=False, name_filter=None)
    assert file[:2] == (f"{memory}/a10.phpmq", len("a10.phpmq"))
    assert file.modified > 10**9
    assert listed(f"{memory}/a b%20[1].phpmq") == [f"{memory}/a b%20[1].phpmq"]
    # this is how fsspec writes the URL, however it was written
    assert listed(f"{memory}/ü".replace(":///", "://")) == [f"{memory}/ü"]


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ("a?.phpmq", ["a1.phpmq", "a2.phpmq"]),
        ("a{10,1}.phpmq", ["a1.phpmq", "a10.phpmq"]),
        ("*/b*", ["sub/b.phpmq"]),
        ("s*", ["sub/b.phpmq"]),
        ("[^a]", ["ü"]),
    ],
)
def test_patterns_in_memory(memory: str, pattern: str, right: list[str]) -> None:
    assert listed(f"{memory}/{pattern}") == [f"{memory}/{name}" for name in right]


def test_a_pattern_from_the_root_on(memory: str) -> None:
    root = memory.removeprefix("memory:///")
    assert listed(f"memory://{root[:20]}*/ü") == [f"{memory}/ü"]


def test_what_is_missing_in_memory(memory: str) -> None:
    for path in (f"{memory}/nothing", f"{memory}/n*"):
        with pytest.raises(FileNotFoundError) as raised:
            listed(path)
        assert str(raised.value) == f"path does not exist: {path}"


def test_the_head_of_a_file(memory: str, tmp_path: Path) -> None:
    make(tmp_path, "abcdef")
    assert read_head(str(tmp_path / "abcdef"), 3) == b"abc"
    assert read_head(str(tmp_path / "abcdef"), 100) == b"abcdef"
    assert read_head(f"{memory}/a10.phpmq", 3) == b"a10"
    assert read_head(f"{memory}/ü", 100) == "ü".encode()


# --- while files come and go ---


def test_files_that_vanish_while_they_are_listed_are_no_error(tmp_path: Path) -> None:
    """Whatever is found, it is what stays there."""
    make(tmp_path, *(f"stays{number}" for number in range(50)))
    ended = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not ended.is_set():
            path = tmp_path / f"goes{number % 7}"
            path.touch()
            path.unlink()
            number += 1

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(100):
            found = names(tmp_path)
            assert [name for name in found if name.startswith("stays")] == [f"stays{number}" for number in range(50)]
    finally:
        ended.set()
        thread.join()


def test_names_that_are_not_utf8_are_found(tmp_path: Path) -> None:
    name = b"caf\xe9.phpmq".decode("utf-8", "surrogateescape")
    make(tmp_path, name)
    assert listed(tmp_path) == listed(tmp_path / name) == [str(tmp_path / name)]
    assert read_head(listed(tmp_path)[0], 3) == b"caf"

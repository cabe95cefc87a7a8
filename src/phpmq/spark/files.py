"""Which files a path means, by the rules of Spark's own sources, on every file system that fsspec knows."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NamedTuple

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

_URL: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_MAGIC: Final = re.compile(r"[*?\[{]")
#: What file systems call the time of the last change.
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "created")


class File(NamedTuple):
    """A file: its absolute path or its URL, its bytes, and when it was changed last, in seconds; 0 if nobody knows."""

    path: str
    size: int
    modified: float


def list_files(paths: Iterable[str], *, recursive: bool, name_filter: str | None) -> list[File]:
    """All files that the paths mean, in natural order (``part-2`` before ``part-10``) for each of them.

    Args:
        paths: of files, of directories, or patterns with ``*``, ``?``, ``[…]`` and ``{…,…}``; on this machine, or URLs.
            What exists by a name is meant by it, whatever characters it has. In directories, names that begin with
            ``_`` or ``.`` are left out.
        recursive: whether directories in directories are looked into. Those called ``key=value`` always are.
        name_filter: a pattern for the names of files.

    Raises:
        FileNotFoundError: nothing is called so.
        ImportError: a package is missing that reads such a URL.
    """
    return [file for path in paths for file in _Place(path).files(recursive, name_filter)]


def check_paths(paths: Iterable[str]) -> None:
    """See whether paths mean anything, without a look at what directories hold. It raises what `list_files` does."""
    for path in paths:
        _Place(path).roots()


def read_head(path: str, size: int) -> bytes:
    """The first bytes of a file as it is."""
    system, name, _ = locate(path)
    head: bytes = system.cat_file(name, 0, size)
    return head


def natural(path: str) -> list[Any]:
    """A key to sort by: numbers in a path count as numbers."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split("([0-9]+)", path))]


def locate(path: str) -> tuple[Any, str, bool]:
    """The file system of a path or a URL, its name there, and whether it is on this machine.

    Raises:
        ImportError: a package is missing that reads such a URL.
    """
    if _URL.match(path) and not path.startswith("file:"):
        return (*url_to_fs(path), False)
    # Not left to fsspec, which takes "::" and "~" in a path for something else.
    return LocalFileSystem(), os.path.abspath(re.sub("^file:(//[^/]*(?=/))?", "", path)), True


class _Place:
    """A path and its file system."""

    def __init__(self, path: str) -> None:
        self._system, self._path, self._is_local = locate(path)
        self._told = self._path if self._is_local else path

    def roots(self) -> list[dict[str, Any]]:
        """The files and directories that the path means."""
        self._system.invalidate_cache()
        if self._system.exists(self._path):
            found = [_followed(self._system.info(self._path))]
        else:
            matches = [info for pattern in _alternatives(self._path) for info in self._matches(pattern)]
            found = list({info["name"]: info for info in matches}.values())
        if not found:
            raise FileNotFoundError(f"path does not exist: {self._told}")
        return found

    def files(self, recursive: bool, name_filter: str | None) -> list[File]:
        name_filters = _alternatives(name_filter or "*")
        files = [
            File(self._name(info), int(info["size"]), _time(info))
            for root in self.roots()
            for info in (self._within(root["name"], recursive) if root["type"] == "directory" else [root])
            if info["type"] == "file" and any(map(partial(fnmatchcase, _base(info)), name_filters))
        ]
        return sorted(files, key=lambda file: natural(file.path))

    def _name(self, info: dict[str, Any]) -> str:
        name: str = info["name"] if self._is_local else self._system.unstrip_protocol(info["name"])
        return name

    def _within(self, directory: str, recursive: bool) -> Iterator[dict[str, Any]]:
        for info in self._listed(directory):
            if _base(info).startswith(("_", ".")) or info["name"].rstrip("/") == directory.rstrip("/"):
                continue
            if info["type"] != "directory":
                yield info
            elif recursive or "=" in _base(info):
                yield from self._within(info["name"], recursive)

    def _listed(self, directory: str) -> Iterator[dict[str, Any]]:
        return map(_followed, self._system.ls(directory, detail=True))

    def _matches(self, pattern: str) -> list[dict[str, Any]]:
        """What fits a pattern without braces, one directory after another."""
        *_, last = parts = pattern.split("/")
        first = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        found = ["/".join(parts[:first])]
        infos: list[dict[str, Any]] = []
        for number in range(first, len(parts)):
            infos = []
            for directory in found:
                if self._system.isdir(directory or "/"):
                    infos += [info for info in self._listed(directory or "/") if _fits(info, parts[number])]
            found = [info["name"] for info in infos]
        return infos if last else []


def _followed(info: dict[str, Any]) -> dict[str, Any]:
    """What a link leads to, by the name of the link; only file systems of this machine have some."""
    if not info.get("islink") or not os.path.exists(info["name"]):
        return info
    target = os.stat(info["name"])
    kind = "directory" if stat.S_ISDIR(target.st_mode) else "file" if stat.S_ISREG(target.st_mode) else "other"
    return info | {"type": kind, "size": target.st_size, "mtime": target.st_mtime}


def _fits(info: dict[str, Any], pattern: str) -> bool:
    name = _base(info)
    hidden = name.startswith(("_", ".")) and not pattern.startswith(name[0])
    return not hidden and fnmatchcase(name, pattern)


def _base(info: dict[str, Any]) -> str:
    base: str = info["name"].rstrip("/").rpartition("/")[2]
    return base


def _time(info: dict[str, Any]) -> float:
    time = next((info[key] for key in _TIMES if info.get(key) is not None), 0.0)
    return time.timestamp() if hasattr(time, "timestamp") else float(time)


def _alternatives(pattern: str) -> list[str]:
    """A pattern as Python has them, without braces: ``a{b,c}[^d]`` is ``ab[!d]`` and ``ac[!d]``."""
    match = re.search(r"\{([^{}]*)\}", pattern)  # the innermost ones
    if not match:
        return [pattern.replace("[^", "[!")]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [whole for part in dict.fromkeys(match[1].split(",")) for whole in _alternatives(f"{before}{part}{after}")]

"""A directory that is written to, on any file system that fsspec knows."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from fsspec import AbstractFileSystem

from phpmq.spark.files import locate


@dataclass(frozen=True)
class Entry:
    """Something in a directory."""

    name: str
    size: int
    is_directory: bool


class Directory:
    """A directory, on this machine or as a URL. Names are relative to it; those of directories end with a slash."""

    def __init__(self, path: str) -> None:
        self.system, self._root, self.is_local = locate(path)
        self.path = self._root if self.is_local else path

    def entries(self, name: str) -> list[Entry]:
        """What a directory has in it: nothing if there is no such directory."""
        directory = self.at(name)
        self.system.invalidate_cache()
        try:
            infos = self.system.ls(directory, detail=True)
        except FileNotFoundError:
            return []
        return [
            Entry(info["name"].rstrip("/").rpartition("/")[2], info["size"], info["type"] == "directory")
            for info in infos
            if info["name"].rstrip("/") != directory  # some stores have a directory in itself
        ]

    def rename(self, source: str, target: str) -> None:
        system, old, new = self.system, self.at(source), self.at(target)
        if self.is_local:
            os.replace(old, new)
        elif type(system).mv is AbstractFileSystem.mv:  # which would take brackets for a pattern
            system.cp_file(old, new)
            with suppress(OSError):  # what is left goes with the directory of the job
                system.rm_file(old)
        else:
            system.mv(old, new)

    def sync(self, *names: str) -> None:
        """See to it that what was made and renamed in directories is safe on the disk."""
        if self.is_local and os.name == "posix":
            for name in names:
                with suppress(FileNotFoundError):  # who was faster has removed it
                    number = os.open(self.at(name), os.O_RDONLY)
                    try:
                        os.fsync(number)
                    finally:
                        os.close(number)

    def at(self, name: str) -> str:
        """What the file system calls it."""
        return f"{self._root.rstrip('/')}/{name}".rstrip("/")

    def url(self, name: str) -> str:
        """What all others call it, who have to find the file system, too."""
        return f"{self.path.rstrip('/')}/{name}"

"""Small files in memory, as far as what a node and a client keep of their cluster needs them."""

from __future__ import annotations

import os
from typing import Any

from samelog.store.disk.files import NoSuchFile


class MemoryFiles:
    """Implements what is used here of files.FileSystem."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def exists(self, path: Any) -> bool:
        return os.fspath(path) in self._files

    def read_file(self, path: Any, limit_bytes: int) -> bytes:
        name = os.fspath(path)
        if name not in self._files:
            raise NoSuchFile(name, "open", 2)
        return self._files[name]

    def write_atomically(self, path: Any, data: Any, *, durable: bool = True) -> None:
        self._files[os.fspath(path)] = bytes(data)

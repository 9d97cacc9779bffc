"""Group commit: makes many files durable at the price of one.

One round runs at a time; what is asked for during a round joins the next. A round of one or two files syncs each; a
larger one syncs the whole file system (`syncfs`), which is many times cheaper than file after file. An error fails
every request of its round and is never retried: after a failed sync the kernel forgets what it could not write, so a
second one would lie.

`syncfs` reports write-back errors since its own descriptor was opened, once. So one descriptor is opened at the start
and kept: an error between two rounds cannot slip through. (Seen through two calls, one error can fail two rounds.)

Invariant: `sync` returns only if everything written to the files before the call is durable.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from shiplog.logformat.files import DiskFault, File

FEW_FILES = 2


class Syncer(Protocol):
    """What the rest of the package knows of making things durable."""

    async def sync(self, files: Iterable[File]) -> None:
        """Return when everything written to `files` is durable. Raises DiskFault."""


class GroupSync:
    """Syncs files of one data directory."""

    def __init__(self, directory: str) -> None:
        """Raises OSError when the directory cannot be opened."""
        self._directory = directory
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._directory_fd).st_dev
        self._threads = ThreadPoolExecutor(FEW_FILES, thread_name_prefix="sync")
        self._waiting: list[tuple[list[File], asyncio.Future[None]]] = []
        self._round: asyncio.Task[None] | None = None

    async def sync(self, files: Iterable[File]) -> None:
        """Return when everything written to `files` before this call is durable. Raises DiskFault."""
        raise NotImplementedError

    async def close(self) -> None:
        """Finish the rounds asked for, then give everything back."""
        raise NotImplementedError

"""Group commit: makes many files durable at the price of one.

One round runs at a time; what is asked for during a round joins the next. A round of one or two
files syncs each; a larger one syncs the whole file system (`syncfs`), which is many times cheaper
than file after file. An error fails every request of its round and is never retried: after a failed
sync the kernel forgets what it could not write, so a second one would lie.

`syncfs` reports errors of writing back since its own descriptor was opened, once. So one descriptor
is opened at the start and kept: an error between two rounds cannot slip through. (Seen through both
calls, one error can fail two rounds.)

Invariant: `sync` returns only if everything written to the files before the call is durable.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, Protocol

from shiplog.logformat.disk_errors import DiskFault, translated
from shiplog.logformat.files import File
from shiplog.runtime.loop import spawn

FEW_FILES = 2


class Syncer(Protocol):
    """What the rest of the package knows of making things durable."""

    async def sync(self, files: Iterable[File]) -> None:
        """Return when all that was written to `files` before is durable. Raises DiskFault."""


class _Request(NamedTuple):
    files: Sequence[File]
    done: asyncio.Future[None]


class GroupSync:
    """Syncs the files of one data directory, in threads of its own."""

    def __init__(self, directory: str) -> None:
        """Raises DiskFault when the directory cannot be opened."""
        self._directory = directory
        with translated(directory, "open"):
            self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._fd).st_dev
        self._threads = ThreadPoolExecutor(FEW_FILES, thread_name_prefix="sync")
        self._waiting: list[_Request] = []
        self._rounds: asyncio.Task[None] | None = None

    async def sync(self, files: Iterable[File]) -> None:
        """Return when all that was written to `files` before is durable. Raises DiskFault."""
        request = _Request(list(files), asyncio.get_running_loop().create_future())
        if not request.files:
            return
        self._waiting.append(request)
        if self._rounds is None:
            self._rounds = spawn(self._run_rounds(), "group sync")
        await request.done

    async def close(self) -> None:
        """Finish what was asked for, then give everything back."""
        if self._rounds is not None:
            await self._rounds
        self._threads.shutdown()
        os.close(self._fd)

    async def _run_rounds(self) -> None:
        while self._waiting:
            requests, self._waiting = self._waiting, []
            files = list(dict.fromkeys(chain.from_iterable(r.files for r in requests)))
            error = await self._round(files)
            for request in requests:
                _settle(request.done, error)
        self._rounds = None

    async def _round(self, files: list[File]) -> BaseException | None:
        """Sync all files; the first error, if any."""
        loop = asyncio.get_running_loop()
        if len(files) <= FEW_FILES:
            calls = [loop.run_in_executor(self._threads, file.datasync) for file in files]
        else:
            calls = [loop.run_in_executor(self._threads, self._sync_many, files)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        return next((outcome for outcome in outcomes if outcome is not None), None)

    def _sync_many(self, files: list[File]) -> None:
        """In a thread: one call for those on the directory's file system, one each for others."""
        elsewhere = [file for file in files if not self._is_here(file)]
        if len(elsewhere) < len(files):
            _sync_file_system(self._fd, self._directory)
        for file in elsewhere:
            file.datasync()

    def _is_here(self, file: File) -> bool:
        """A file that its owner has closed meanwhile needs no sync, so it may be anywhere."""
        try:
            return os.fstat(file.fileno()).st_dev == self._device
        except OSError:
            return True


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    """Tell a request the outcome of its round, unless nobody waits for it any more."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _sync_file_system(descriptor: int, path: str) -> None:
    if _libc.syncfs(descriptor) != 0:
        raise DiskFault(path, "sync the file system of", ctypes.get_errno())


_libc = ctypes.CDLL(None, use_errno=True)

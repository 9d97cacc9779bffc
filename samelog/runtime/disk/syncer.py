"""Group commit: makes many files durable at the price of one.

One round runs at a time; what is asked for during a round joins the next. A round of one or two
files syncs each; a larger one syncs the whole file system (`syncfs`), which is many times cheaper
than file after file. An error fails every request of its round and is never retried: after a failed
sync the kernel forgets what it could not write, so a second one would lie.

`syncfs` reports errors of writing back since its own descriptor was opened, once. So one descriptor
is opened at the start and kept: an error between two rounds cannot slip through. (Seen through both
calls, one error can fail two rounds.)

Invariant: `sync` returns only if everything written to the files before the call is durable. Of two
calls, the later one does not succeed before an earlier one has failed: who waits for that one is
woken first.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Protocol

from samelog.runtime.counters import FAST_S, Histogram
from samelog.runtime.disk.pace import SLOW_S, DiskPace
from samelog.runtime.disk.threads import DiskCall, DiskThreads
from samelog.runtime.loop import InLoop
from samelog.store.disk.disk_errors import DiskFault, LeftUnsynced, fault_of, translated
from samelog.store.disk.files import File

FEW_FILES = 2
MOST_CALLS = 64
"""Submitted together; more are needed only where many files are on other file systems."""


class Syncer(Protocol):
    """What the rest of the package knows of making things durable."""

    async def sync(self, files: Iterable[File]) -> None:
        """Return when all that was written to `files` before is durable. Raises DiskFault."""


class _SyncRequest(NamedTuple):
    files: Sequence[File]
    done: asyncio.Future[None]


_FILES: Callable[[_SyncRequest], Sequence[File]] = attrgetter("files")


class GroupSync(InLoop):
    """Syncs the files of one data directory, in threads of its own."""

    def __init__(
        self, directory: str, start_disk: Callable[[int], DiskThreads] = DiskThreads
    ) -> None:
        """Raises DiskFault when the directory cannot be opened."""
        self._directory = directory
        with translated(directory, "open"):
            self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._device = os.fstat(self._fd).st_dev
            self._disk = start_disk(FEW_FILES)
        self._pace = DiskPace()
        self.durations = Histogram(FAST_S)
        """Of each call, in seconds."""
        self._is_attached = False
        self._waiting: list[_SyncRequest] = []
        self._round: list[_SyncRequest] = []
        self._under_way: dict[int, Callable[[int], None]] = {}
        """Number of a call -> what to do with its errno."""
        self._calls: list[tuple[int, DiskCall, int]] = []
        """Those of a round that begins: they are submitted together."""
        self._next_number = 0
        self._error: Exception | None = None
        """The first one of the round."""
        self._idle: asyncio.Future[None] | None = None

    async def sync(self, files: Iterable[File]) -> None:
        """Return when all that was written to `files` before is durable. Raises DiskFault."""
        wanted = list(files)
        if not wanted:
            return
        is_busy = self._waiting or self._round
        if self._pace.is_fast and len(wanted) <= FEW_FILES and not is_busy:
            try:
                for file in wanted:  # it is cheaper to wait for the disk
                    began = time.perf_counter()
                    file.datasync()
                    took_s = time.perf_counter() - began
                    self.durations.observe(took_s)
                    if took_s > SLOW_S:
                        self._pace.took(took_s)
            except LeftUnsynced:
                pass  # a round covers it
            else:
                return
        request = _SyncRequest(wanted, self.loop.create_future())
        if not is_busy:
            self.loop.call_soon(self._begin_round)
        self._waiting.append(request)
        await request.done

    async def close(self) -> None:
        """Finish what was asked for, then give everything back."""
        if self._waiting or self._round:
            self._idle = self.loop.create_future()
            await self._idle
        self._disk.close()
        os.close(self._fd)

    # --- rounds -----------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        if not self._is_attached:
            self._disk.attach(self.loop, self._answered)
            self._is_attached = True
        self._round, self._waiting = self._waiting, []
        self._error = None
        files = list(dict.fromkeys(chain.from_iterable(map(_FILES, self._round))))
        if len(files) > FEW_FILES:
            files = self._sync_many(files)
        for file in files:
            self._sync_one(file)
        if self._calls:
            calls, self._calls = self._calls, []
            for start in range(0, len(calls), MOST_CALLS):
                self._disk.submit(calls[start : start + MOST_CALLS])
        else:
            self._end_round()

    def _sync_one(self, file: File) -> None:
        try:
            target = file.begin_sync()
        except LeftUnsynced:
            self._request(DiskCall.SYNCFS, self._fd, self._file_system_synced)
            return
        except DiskFault as fault:
            self._note(fault)
            return
        if target is not None:
            call = DiskCall.FSYNC if target.names else DiskCall.FDATASYNC
            self._request(call, target.descriptor, file.end_sync)

    def _sync_many(self, files: list[File]) -> list[File]:
        """One call for those on the directory's file system, as all are that were left unsynced;
        the others, to be synced each. A file that its owner has closed meanwhile needs no sync, so
        it may be anywhere.
        """
        elsewhere = []
        for file in files:
            if file.is_left_unsynced:
                continue
            try:
                device = os.fstat(file.fileno()).st_dev
            except OSError:
                continue
            if device != self._device:
                elsewhere.append(file)
        if len(elsewhere) < len(files):
            self._request(DiskCall.SYNCFS, self._fd, self._file_system_synced)
        return elsewhere

    def _file_system_synced(self, error: int) -> None:
        if error:
            fault = OSError(error, os.strerror(error))
            raise fault_of(self._directory, "sync the file system of", fault)

    def _request(self, call: DiskCall, descriptor: int, on_answer: Callable[[int], None]) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        self._under_way[number] = on_answer
        self._calls.append((number, call, descriptor))

    def _answered(self, number: int, error: int, seconds: float) -> None:
        self._pace.took(seconds)
        self.durations.observe(seconds)
        try:
            self._under_way.pop(number)(error)
        except DiskFault as fault:
            self._note(fault)
        if not self._under_way:
            self._end_round()

    def _note(self, fault: DiskFault) -> None:
        self._error = self._error or fault
        self._pace.took(math.inf)  # the next ones go by a thread, behind the waking

    def _end_round(self) -> None:
        requests, self._round = self._round, []
        for request in requests:
            _settle(request.done, self._error)
        if self._waiting:
            self._begin_round()
        elif self._idle is not None:
            self._idle.set_result(None)


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    """Set the outcome of a request's round, unless its waiter was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)

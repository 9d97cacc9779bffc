"""Group commit on a simulated disk: rounds as `samelog.runtime.disk.syncer` makes them, in
simulated time.

Invariant: a sync covers what was written before it began, and nothing more; an error fails every
request of its round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from samelog.runtime.counters import FAST_S, Histogram
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import File
from tests.cluster_sim.files import SimFile, SimFileSystem


class _Request(NamedTuple):
    files: Sequence[SimFile]
    done: asyncio.Future[None]


class SimSyncer:
    """One process's way to make files durable."""

    def __init__(self, fs: SimFileSystem) -> None:
        self._fs = fs
        self._waiting: list[_Request] = []
        self._is_busy = False
        self.durations = Histogram(FAST_S)

    async def sync(self, files: Iterable[File]) -> None:
        """Return when all that was written to `files` before is durable. Raises DiskFault."""
        loop = asyncio.get_running_loop()
        wanted = [file for file in files if isinstance(file, SimFile)]
        if not wanted:
            return
        request = _Request(wanted, loop.create_future())
        self._waiting.append(request)
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin)
        await request.done

    async def close(self) -> None:
        """Wait until nothing is under way."""
        while self._is_busy:  # noqa: ASYNC110 - as good as any in simulated time
            await asyncio.sleep(0.001)

    def _begin(self) -> None:
        requests, self._waiting = self._waiting, []
        disk = self._fs.disk
        marks: list[tuple[SimFile, int]] = []
        error: DiskFault | None = None
        for file in dict.fromkeys(chain.from_iterable(request.files for request in requests)):
            try:
                if file.begin_sync() is not None:
                    marks.append((file, file.sync_mark()))
            except DiskFault as fault:
                error = error or fault
        delay = disk.sync_s * disk.chance.uniform(0.3, 3)
        asyncio.get_running_loop().call_later(delay, self._end, requests, marks, error)

    def _end(
        self,
        requests: list[_Request],
        marks: list[tuple[SimFile, int]],
        error: DiskFault | None,
    ) -> None:
        for file, mark in marks:
            try:
                file.finish_sync(mark, self._fs.next_sync_fails(file.path))
            except DiskFault as fault:
                error = error or fault
        for request in requests:
            if request.done.done():
                continue
            if error is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(error)
        if self._waiting:
            self._begin()
        else:
            self._is_busy = False

"""Makes the session bytes that came in durable, in rounds: while one is synced, the next gathers.

Bytes that an entry is about to name wait for it a moment, to be synced together with it.

Invariant: a round vouches only for what was written before it began, and behind its sync.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable

from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.merge.session_store import SessionStore, SyncedEnds
from samelog.store.disk.files import DiskFault, File

ENTRY_WAIT_S = 0.02
"""So long at most bytes are not synced because an entry that names them is expected."""


class SessionRounds:
    """One replica's."""

    def __init__(
        self,
        sessions: SessionStore,
        syncer: Syncer,
        room: Room,
        *,
        pause_s: float,
        on_synced: Callable[[Iterable[int]], None] | None,
    ) -> None:
        """A round begins no sooner than `pause_s` after there is something to sync. `on_synced` is
        told of which inputs more is durable. A disk that fails leaves no `room`.
        """
        self._sessions = sessions
        self._syncer = syncer
        self._room = room
        self._pause_s = pause_s
        self._on_synced = on_synced
        self.dirty: set[int] = set()
        """Inputs with bytes that are in no round yet."""
        self._own: list[asyncio.Future[None]] = []
        """Rounds of `run` that are under way."""
        self._idle: asyncio.Future[None] | None = None
        self._waits_for_entry = False

    def begin_soon(self) -> None:
        """There is something to sync."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def begin_later(self) -> None:
        """There is, and the entry that names it is about to come: it is synced together with it."""
        if not self._waits_for_entry:
            self._waits_for_entry = True
            asyncio.get_running_loop().call_later(ENTRY_WAIT_S, self._waited)

    def _waited(self) -> None:
        self._waits_for_entry = False
        if self.dirty:
            self.begin_soon()

    async def run(self) -> None:
        """Round after round, until cancelled, or the disk fails."""
        loop = asyncio.get_running_loop()
        while True:
            if not self.dirty:
                self._idle = loop.create_future()
                await self._idle
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            try:
                await self._round()
            except DiskFault as fault:
                self._room.stop(str(fault), for_good=True)
                return

    async def _round(self) -> None:
        files, ends = self.begin(self.dirty)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._own.append(done)
        try:
            await self._syncer.sync(files)
        finally:
            self._own.remove(done)
            done.set_result(None)
        self.end(files, ends)

    def begin(self, numbers: Iterable[int]) -> tuple[list[File], SyncedEnds]:
        """The files of these inputs that are not synced, for a round that somebody syncs, and what
        to end it with.
        """
        taken = self.dirty.intersection(numbers)
        self.dirty -= taken
        ends = self._sessions.ends(taken)
        return self._sessions.take_dirty(taken), ends

    def end(self, files: Iterable[File], ends: SyncedEnds) -> None:
        """Such a round is over: this node vouches for what it was about."""
        self._sessions.mark_durable(ends, files)
        if self._on_synced is not None:
            self._on_synced(ends)

    async def next(self) -> None:
        """Wait until a round that is under way is over. Raises DiskFault if nothing will be made
        durable any more.
        """
        if self._own:
            await self._own[0]
        if self._room.is_stopped_for_good:
            raise DiskFault("sessions", "sync", errno.EIO)

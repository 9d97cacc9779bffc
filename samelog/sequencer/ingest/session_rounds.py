"""Makes the session bytes that came in durable, in rounds: while one is synced, the next gathers.

Bytes that an entry is about to name wait for it a moment, to be synced together with it.

Invariant: a round vouches only for what was written before it began, and behind its sync; none does
behind one that failed, for its bytes may be those of that one, and a disk does not tell twice. A
lack of descriptors or memory is not a failure: inputs whose files cannot be opened stay dirty.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from samelog.runtime.disk.syncer import Syncer
from samelog.runtime.loop import InLoop
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.merge.session_store import SessionStore, SyncedEnds
from samelog.store.disk.dirty_files import UNSYNCED_RETRY_S, report_left
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, File

ENTRY_WAIT_S = 0.02
"""So long at most bytes are not synced because an entry that names them is expected."""


class SessionRounds(InLoop):
    """One replica's."""

    def __init__(
        self,
        sessions: SessionStore,
        syncer: Syncer,
        room: Room,
        *,
        pause_s: float,
        on_synced: Callable[[Iterable[int]], None] | None,
        on_failed: Callable[[], None],
    ) -> None:
        """A round begins no sooner than `pause_s` after there is something to sync. `on_synced` is
        told of which inputs more is durable, `on_failed` once a sync has failed. A disk that fails
        leaves no `room`.
        """
        self._sessions = sessions
        self._syncer = syncer
        self._room = room
        self._pause_s = pause_s
        self._on_synced = on_synced
        self._on_failed = on_failed
        self.dirty: set[int] = set()
        """Inputs with bytes that are in no round yet."""
        self._has_failed = False
        self._begun = self._ended = 0
        """Rounds with files; they end in the order in which they begin."""
        self._followers: list[asyncio.Future[None]] = []
        """Rounds without files, each of which ends with those before it."""
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Ends the wait for an entry."""
        self._in_round = False

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to sync, nor being synced by `run`."""
        return not (self.dirty or self._in_round)

    def begin_soon(self) -> None:
        """There is something to sync."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def begin_later(self) -> None:
        """There is, and the entry that names it is about to come: it is synced together with it."""
        if self._timer is None:
            self._timer = self.loop.call_later(ENTRY_WAIT_S, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if self.dirty:
            self.begin_soon()

    async def run(self) -> None:
        """Round after round, until cancelled, or the disk fails."""
        while True:
            if not self.dirty:
                self._idle = self.loop.create_future()
                await self._idle
            self._in_round = True
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            try:
                await self.sync(self.dirty)
            except DiskFault as fault:
                self._room.stop(str(fault), for_good=True)
                return
            finally:
                self._in_round = False

    async def sync(self, numbers: Iterable[int], also: Sequence[File] = ()) -> None:
        """Make all that is here of these inputs durable, in one round with other files. What an
        earlier round has of them is durable, too, when this returns: rounds end in the order in
        which they began. Raises DiskFault, and from then on always.
        """
        waiting: Set[int] = frozenset(numbers)
        is_reported = False
        while True:
            taken, files, left = self._take(waiting)
            if not (also or files):
                await self._rounds_before()
            else:
                self._begun += 1
                try:
                    await self._syncer.sync([*also, *files])
                except BaseException as error:
                    self._fail(error)
                    raise
                finally:
                    self._ended += 1
                    if self._followers:
                        self._wake_followers()
            if self._has_failed:
                raise DiskFault("sessions", "sync", errno.EIO)
            self._sessions.mark_durable(taken, files)
            if self._on_synced is not None:
                self._on_synced(taken)
            if not left:
                return
            if not is_reported:
                report_left(left)
            also, is_reported = (), True
            await asyncio.sleep(UNSYNCED_RETRY_S)
            waiting = self.dirty | left.keys()

    def _take(self, numbers: Set[int]) -> tuple[SyncedEnds, list[File], Mapping[int, NoSpace]]:
        """Take what a round is to have of these inputs: their ends, and files. Inputs that have to
        wait for a round stay dirty. Raises DiskFault, and from then on no round succeeds.
        """
        self.dirty -= numbers
        if self._timer is not None and not self.dirty:  # the entry has come
            self._timer.cancel()
            self._timer = None
        ends = self._sessions.ends(numbers)
        try:
            files, left = self._sessions.take_dirty(numbers)
        except BaseException as error:
            self._fail(error)  # files of other inputs may be in no round
            raise
        if left:
            self.dirty |= left.keys()
            ends = {number: end for number, end in ends.items() if number not in left}
        return ends, files, left

    def _fail(self, error: BaseException) -> None:
        """From now on nothing becomes durable; if the disk is why, written bytes may be gone."""
        if isinstance(error, DiskFault) and not self._has_failed:
            self._on_failed()
        self._has_failed = True

    async def _rounds_before(self) -> None:
        """Wait until all rounds with files that are under way have ended."""
        newest = self._begun
        while self._ended < newest:
            ended: asyncio.Future[None] = self.loop.create_future()
            self._followers.append(ended)
            await ended

    def _wake_followers(self) -> None:
        followers, self._followers = self._followers, []
        for each in followers:
            if not each.done():
                each.set_result(None)

"""Keeps a subscriber's copies from within its process: a pull client in a thread of its own.

Invariant: what is told here is a snapshot that the pull client's loop took; nobody else looks at
its copies.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from samelog.config.tables.client import ClientConfig
from samelog.format.directory_files import RowsFile
from samelog.replicator.pull.client import PullClient
from samelog.replicator.pull.copy import Copy, FindStart
from samelog.replicator.pull.options import PullOptions, PullParts, PullStatus
from samelog.replicator.pull.share import Share
from samelog.runtime.clock import SystemClock
from samelog.runtime.disk.syncer import GroupSync
from samelog.runtime.loop import LoopThreads
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.reload import ConfigFollower
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.copy_snapshots import CopySnapshot, WantedCopies, check_copy, explain
from samelog.subscriber.errors import CopyStopped, NotCaughtUp
from samelog.subscriber.keeper import KeptCopy

PULL_THREADS = LoopThreads("samelog-pull")


@dataclass(frozen=True, slots=True)
class CopyListener:
    """Who is told, in another thread: `on_growth` when a copy has grown, `on_news` of more than
    that, `on_config` of another configuration.
    """

    on_growth: Callable[[], None]
    on_news: Callable[[], None]
    on_config: Callable[[ClientConfig], None] = lambda config: None


class Copier:
    """The embedded pull client: a Keeper."""

    is_local = False

    def __init__(
        self,
        directory: str,
        topics: tuple[str, ...],
        config: ClientConfig,
        *,
        find_start: FindStart,
        listener: CopyListener,
        wanted: WantedCopies,
        is_shared: bool = False,
        rows: Mapping[str, RowsFile],
    ) -> None:
        """Start copying. `is_shared`: a group says what is copied. `rows`: by topic, only what
        passes a filter at the node.

        Raises:
            DirectoryInUse: another process keeps these copies.
            TlsFault: the certificate files cannot be used.
            LogFormatError: a copy cannot be used as it is.
        """
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._topics = topics
        self._config = config
        self._listener = listener
        self._wanted = wanted
        self._is_shared = is_shared
        self._state_lock = threading.RLock()
        self._moved = threading.Condition(self._state_lock)
        self._waiting = 0
        """How many threads wait for `_moved`: telling nobody is not free."""
        self._copies: dict[tuple[str, int], CopySnapshot] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self._status: PullStatus | None = None
        tls = ReloadingContext(config.tls)
        self._syncer = GroupSync(directory)
        self._thread = PULL_THREADS.take()
        try:
            started = self._start(directory, config, tls, find_start, rows)
            self._client, self._follower = self._thread.run(started)
        except BaseException:
            self._thread.run(self._syncer.close())
            PULL_THREADS.give_back(self._thread)
            raise

    async def _start(
        self,
        directory: str,
        config: ClientConfig,
        tls: ReloadingContext,
        find_start: FindStart,
        rows: Mapping[str, RowsFile],
    ) -> tuple[PullClient, ConfigFollower]:
        client = PullClient(
            directory,
            self._topics,
            config,
            PullParts(
                tls=tls,
                fs=OsFileSystem(),
                syncer=self._syncer,
                clock=SystemClock(),
                random=Random(),
            ),
            PullOptions(
                rows=rows,
                find_start=find_start,
                is_shared=self._is_shared,
                on_change=self._note_copy,
                on_status=lambda: self._note_all_copies(client),
            ),
        )
        client.start()
        self._note_all_copies(client)

        def follow(newer: ClientConfig) -> None:
            self._config = newer
            client.follow(newer)
            self._listener.on_config(newer)

        follower = ConfigFollower(config, follow)
        follower.start()
        return client, follower

    # --- in the loop's thread ------------------------------------------------------------------

    def _note_copy(self, copy: Copy) -> None:
        name = copy.name
        self.ends[name] = copy.log.next_offset
        self._listener.on_growth()
        before = self._copies.get(name)
        after = CopySnapshot(
            copy.state,
            copy.fault,
            copy.is_begun,
            copy.caught_up and copy.first_end is not None,
            copy.cluster_end,
            copy.first_end,
            None if copy.is_from_end else copy.wanted_offset,
            copy.successor,
            copy.log.topic_id,
        )
        if after == before or name[0] not in self._topics:
            return
        with self._state_lock:
            self._copies[name] = after
            if self._waiting:
                self._moved.notify_all()
        if before is None or after.is_news(before):
            self._listener.on_news()

    def _note_all_copies(self, client: PullClient) -> None:
        for copy in client.copies.values():
            self._note_copy(copy)
        with self._state_lock:
            self._status = client.status
            self._moved.notify_all()
        self._listener.on_news()

    # --- in any thread -------------------------------------------------------------------------

    def kept(self, topic: str, partition: int, held: int) -> KeptCopy | None:
        """What the cluster said of a partition."""
        with self._state_lock:
            copy = self._copies.get((topic, partition))
        if copy is None or not copy.is_begun:
            return None
        return KeptCopy(copy.cluster_end, copy.first_end, copy.asked_for)

    def partitions(self, topic: str) -> frozenset[int]:
        """Return the partitions of a topic that are copied."""
        with self._state_lock:
            return frozenset(partition for name, partition in self._copies if name == topic)

    def check(self) -> None:
        """Raise what keeps a copy from growing for good: also OffsetOutOfRange, UnknownTopic,
        LogReset. A group takes the partitions of a deleted topic away by itself.
        """
        with self._state_lock:
            copies, status = dict(self._copies), self._status
        for name, copy in copies.items():
            if not (self._is_shared and copy.is_deleted):
                check_copy(name, copy)
        if status is not None:
            self._wanted.check(status, self._topics)

    def share(self, held: Mapping[tuple[str, int], Share]) -> None:
        """Keep copies of these partitions only. Raises LogFormatError."""
        self._thread.run(self._share(held))

    async def _share(self, held: Mapping[tuple[str, int], Share]) -> None:
        with self._state_lock:
            for name in [name for name in self._copies if name not in held]:
                del self._copies[name]
        self._client.share(held)

    def follow_topics(self, topics: tuple[str, ...], logs: Mapping[str, str]) -> None:
        """Copy these from now on; what was copied of others stays as it is. Copies that topics of
        the same names left are set aside, where `logs` says which log a topic has now.
        """
        self._thread.run(self._follow_topics(topics, logs))

    async def _follow_topics(self, topics: tuple[str, ...], logs: Mapping[str, str]) -> None:
        with self._state_lock:
            self._topics = topics
            for name in [name for name in self._copies if name[0] not in topics]:
                del self._copies[name]
        self._client.follow(self._config, topics, logs)

    def begin_anew(self, topic: str, partition: int) -> str:
        """Set aside the copy of a log that the cluster restarted; return the new log's id. Raises
        CopyStopped, or NoSpace, after which it can be tried again.
        """
        return self._thread.run(self._begin_anew((topic, partition)))

    async def _begin_anew(self, name: tuple[str, int]) -> str:
        old = self._client.copies[name]
        with self._state_lock:
            del self._copies[name], self.ends[name]  # what was heard of the old one is void
        self._client.begin_anew(old)
        new = self._client.copies[name]
        if new is old:
            self._note_copy(old)
            if isinstance(old.fault, NoSpace):
                raise old.fault
            raise CopyStopped(f"copying of {name[0]}-{name[1]} has stopped: {old.fault}")
        return new.log.topic_id

    def is_caught_up(self) -> bool:
        """Whether all copies hold what the cluster had when it was last heard of."""
        with self._state_lock:
            return self._holds_all()

    def _holds_all(self) -> bool:
        has_topics = {topic for topic, _ in self._copies} >= set(self._topics)
        return (has_topics or self._is_shared) and all(
            copy.is_caught_up for copy in self._copies.values()
        )

    def wait_caught_up(self, timeout_s: float | None) -> None:
        """Wait until they do. Raises NotCaughtUp, and as `check`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_caught_up():
            self.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise NotCaughtUp(self._explain())
            with self._state_lock:
                if not self._holds_all():
                    self._wait(left)

    def _wait(self, timeout_s: float | None) -> None:
        """Until something has moved; `_state_lock` is held."""
        self._waiting += 1
        try:
            self._moved.wait(timeout_s)
        finally:
            self._waiting -= 1

    def _explain(self) -> str:
        with self._state_lock:
            copies, status = dict(self._copies), self._status
        return explain(copies, status, self._follower.problem)

    def stop(self) -> None:
        """Stop copying."""
        self._thread.run(self._end())
        self._thread.run(self._syncer.close())
        PULL_THREADS.give_back(self._thread)

    async def _end(self) -> None:
        self._follower.stop()
        await self._client.stop()

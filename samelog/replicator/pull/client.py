"""Keeps local copies of the merged logs of some topics, from one node of the cluster at a time.

When a connection ends, the next node goes on at the same byte: both sides check that they hold the
same batch before it. A node that disagrees is left for another; when all do, that copy stops, with
a loud error, and nothing of it is cut.

Invariant: one process keeps the copies of a directory (a lock); a copy is a prefix of the cluster's
log from where it begins; nothing is made in a directory that took the place of the one that is
locked, or of a copy that is open.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.format.errors import LogFormatError
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.conversation import PullConversation
from samelog.replicator.pull.copy import (
    EARLIEST,
    Copy,
    CopyState,
    FindStart,
    begin_anew,
    make_copy,
)
from samelog.replicator.pull.copy_budget import segments_of_all, starts_within
from samelog.replicator.pull.repair_pull import PullRefused
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.disk.syncer import Syncer
from samelog.runtime.errors import TlsFault
from samelog.runtime.log import format_event
from samelog.runtime.loop import spawn
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, Deadlines
from samelog.store.disk.disk_errors import DirectoryGone, NoSpace
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.partition_file import find_partition_directories
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments
from samelog.wire.messages import ConnectionRole, Hello

log = logging.getLogger(__name__)

LOCK_FILE = "copies.lock"
POLL_S = 0.5
SYNC_S = 1.0
RETRY_S = 1.0
DEADLINES = Deadlines(connect_s=2.0, handshake_s=3.0, idle_s=4.0)
"""Less patient than others: another node has the same bytes."""


@dataclass(frozen=True, slots=True)
class PullStatus:
    """How copying is. `node`: the one connected to, empty if none; `problems`: of topics."""

    address: Address
    node: str
    last_error: str | None
    disk_fault: LogFormatError | None
    problems: Mapping[str, PullRefused]


class PullClient:
    """Copies some topics. All calls and callbacks are in its event loop.

    Implements pull_conversation.PullEvents.
    """

    def __init__(
        self,
        directory: str,
        topics: Iterable[str],
        config: ClientConfig,
        *,
        tls: ReloadingContext,
        fs: FileSystem,
        syncer: Syncer,
        clock: Clock,
        random: Random,
        find_start: FindStart = lambda topic, topic_id, partition: EARLIEST,
        on_change: Callable[[Copy], None] = lambda copy: None,
        on_status: Callable[[], None] = lambda: None,
        begins_anew: bool = False,
        poll_s: float = POLL_S,
    ) -> None:
        """`directory` holds the copies, `<topic>-<partition>` each; it is made if need be.

        `find_start` tells where a copy that does not exist yet begins. `on_change` is called when a
        copy grew, caught up, or changed its state; `on_status` when `status` has changed. With
        `begins_anew` a copy whose log the cluster began anew does so too, at once.
        """
        self.copies: dict[InputName, Copy] = {}
        self._directory = directory
        self.topics = tuple(topics)
        self._config = config
        self._tls = tls
        self._fs = fs
        self._syncer = syncer
        self._clock = clock
        self._find_start = find_start
        self._on_change = on_change
        self._on_status = on_status
        self._begins_anew = begins_anew
        self._poll_s = poll_s
        self._link = NodeLink(
            self._open,
            tls=tls,
            backoff=Backoff(random),
            clock=clock,
            says="not copying",
            deadlines=DEADLINES,
        )
        self._address = random.choice(config.nodes)
        self._conversation: PullConversation | None = None
        self._disk_fault: LogFormatError | None = None
        self._problems: dict[str, PullRefused] = {}
        self._lock: File | None = None
        self._locked: tuple[int, int] | None = None
        """Which file that is."""
        self._archived: dict[Copy, int] = {}
        """Copies with files to be truncated: those below the segment."""
        self._followed = self._dialled_for = 0
        """How often what is asked for has changed, in all and before the last dialling."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def status(self) -> PullStatus:
        """How it goes, for people."""
        conversation = self._conversation
        return PullStatus(
            self._address,
            "" if conversation is None else conversation.node,
            self._link.last_error,
            self._disk_fault,
            dict(self._problems),
        )

    @property
    def _lock_path(self) -> str:
        return os.path.join(self._directory, LOCK_FILE)

    def start(self) -> None:
        """Open the copies there are, and begin to copy.

        Raises:
            DirectoryInUse: another process keeps these copies.
            LogFormatError: a copy cannot be used as it is.
        """
        self._fs.make_directory(self._directory)
        self._lock = self._fs.lock(self._lock_path)
        self._locked = self._fs.identity(self._lock_path)
        for topic in self.topics:
            self._find(topic)
        self._tasks = [
            spawn(self._link.keep_up(self._target, self._ended), "pull"),
            spawn(self._poll(), "pull: poll"),
            spawn(self._sync_often(), "pull: sync"),
        ]

    async def stop(self) -> None:
        """End the connection, make the copies durable, close them."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sync()
        for copy in self.copies.values():
            _close(copy)
        if self._lock is not None:
            self._lock.close()

    def follow(self, config: ClientConfig, topics: Iterable[str] | None = None) -> None:
        """Ask these nodes, and copy these topics (None: as before), from now on. What was copied of
        other topics stays as it is.
        """
        wanted = self.topics if topics is None else tuple(topics)
        stays = wanted == self.topics and self._address in config.nodes
        has_new_node = not set(config.nodes) <= set(self._config.nodes)
        self._config, self.topics = config, wanted
        self._reload_certificates()
        self._problems = {name: why for name, why in self._problems.items() if name in wanted}
        for topic in wanted:
            try:
                self._find(topic)
            except LogFormatError as error:  # told again, and tried again, when it is to grow
                log.error("a copy of %s cannot be used: %s", topic, error)
        if has_new_node:
            for copy in self.copies.values():
                copy.ask_again()
                self._on_change(copy)
        if not stays:
            self._followed += 1
            if self._link.connection is not None:
                self._link.connection.close()
        self._on_status()

    def _find(self, topic: str) -> None:
        """Open the copies there are. Raises LogFormatError."""
        for name, topic_id, partition in find_partition_directories(
            self._fs, self._directory, topic
        ):
            if (name, partition) not in self.copies:
                self._add(name, topic_id, partition)

    def _add(self, topic: str, topic_id: str, partition: int) -> Copy:
        self._check_place()
        copy = make_copy(self._fs, self._directory, topic, topic_id, partition)
        for damage in copy.log.damaged:
            log.error("a copy was damaged: %s", damage)
        self.copies[copy.name] = copy
        return copy

    # --- connecting ---------------------------------------------------------------------------

    def _target(self) -> NodeAddress:
        """The node to ask now, and the name that it must have."""
        names = self._config.node_names
        names_of = dict(zip(self._config.nodes, names, strict=True)) if names else {}
        self._dialled_for = self._followed
        return NodeAddress(self._address, names_of.get(self._address))

    def _next_node(self) -> Address:
        nodes = self._config.nodes
        if self._address not in nodes:
            return nodes[0]
        return nodes[(nodes.index(self._address) + 1) % len(nodes)]

    def _open(self, connection: Connection, on_over: OnOver) -> PullConversation:
        connection.send(Hello(role=ConnectionRole.PULL, cluster=self._config.cluster))
        self._conversation = PullConversation(
            connection,
            self,
            self._clock,
            cluster=self._config.cluster,
            topics=self.topics,
            find_start=self._find_start,
            on_over=on_over,
        )
        if self._dialled_for != self._followed:  # something else is asked for by now
            connection.close()
        return self._conversation

    def _ended(self, error: Exception | None) -> None:
        """Go to the next node."""
        self._conversation = None
        self._disk_fault = error if isinstance(error, LogFormatError) else None
        self._address = self._next_node()
        self._on_status()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            self._reload_certificates()
            if self._conversation is not None:
                self._conversation.tick()

    def _reload_certificates(self) -> None:
        try:
            self._tls.reload_if_changed()
        except TlsFault as fault:
            log.warning("the certificate files have changed, the old ones stay: %s", fault)

    # --- what conversations tell --------------------------------------------------------------

    def on_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        """The topic is so; its copies, made if need be: all are told of before any catches up."""
        for partition in range(partitions):
            if (topic, partition) not in self.copies:
                self._on_change(self._add(topic, topic_id, partition))
        return [copy for copy in self.copies.values() if copy.log.topic == topic]

    def on_problem(self, topic: str, fault: PullRefused | None) -> None:
        """A topic is refused (for now); None: not any more."""
        if fault is not None:
            if topic not in self._problems:
                log.warning("topic %s cannot be copied yet: %s", topic, fault)
            self._problems[topic] = fault
        elif self._problems.pop(topic, None) is None:
            return
        self._on_status()

    def on_change(self, copy: Copy) -> None:
        """It grew, caught up, or its state changed."""
        if copy.successor and self._begins_anew:
            asyncio.get_running_loop().call_soon(self._begin_anew_if_still, copy)
        self._on_change(copy)

    def _begin_anew_if_still(self, copy: Copy) -> None:
        if self._tasks and self.copies.get(copy.name) is copy:
            self.begin_anew(copy)

    def begin_anew(self, old: Copy) -> None:
        """The cluster began this log anew: so does the copy; the old one is set aside. If the disk
        is full, `fault` says so, and it can be tried again; if it fails, copying of it has stopped.
        """
        try:
            self._check_place()
            copy, aside = begin_anew(self._fs, self._directory, old)
        except NoSpace as error:
            old.fault = error
            if self._begins_anew:
                asyncio.get_running_loop().call_later(RETRY_S, self._begin_anew_if_still, old)
            return
        except LogFormatError as error:
            old.state, old.fault, old.successor = CopyState.STOPPED, error, ""
            log.error("copying of %s-%d has stopped: %s", *old.name, error)
            self._on_change(old)
            return
        log.warning("%s-%d was begun anew in the cluster; the old copy is %s", *old.name, aside)
        self._archived.pop(old, None)
        self.copies[copy.name] = copy
        if self._conversation is not None:
            self._conversation.replaced(old, copy)
            self._conversation.tick()
        self._on_change(copy)

    def on_archived(self, copy: Copy, start: LogStart) -> None:
        """The cluster has archived what is before `start`; the copy has to go on there at least."""
        if copy.archive(start, keep=self._config.subscriber.keep):
            self._let_go_below(copy, start.segment)
        self.on_change(copy)

    def on_disagreement(self, copy: Copy, fault: PullRefused) -> bool:
        """The node cannot go on with this copy; True: ask another node."""
        is_news = self._address not in copy.refused_by
        copy.refused_by[self._address] = fault
        if copy.refused_by.keys() >= set(self._config.nodes):
            copy.state = CopyState.STOPPED
            log.error("copying of %s-%d has stopped: every node says: %s", *copy.name, fault)
            return False
        return is_news

    # --- the place ----------------------------------------------------------------------------

    def is_in_place(self) -> bool:
        """Whether the directory and the copies are those that were opened; others may have taken
        their places. Once not, never again.
        """
        return self._is_locked() and all(copy.is_in_place for copy in self._alive())

    def _is_locked(self) -> bool:
        try:
            return self._fs.identity(self._lock_path) == self._locked
        except LogFormatError:
            return False

    def _check_place(self) -> None:
        if not self._is_locked():
            raise DirectoryGone(self._directory)

    def _stop_displaced(self) -> None:
        """Copies that readers do not find any more grow no more."""
        is_locked = self._is_locked()
        for copy in self._alive():
            if copy.state is not CopyState.STOPPED and not (is_locked and copy.is_in_place):
                path = copy.log.path if is_locked else self._directory
                copy.state, copy.fault = CopyState.STOPPED, DirectoryGone(path)
                log.error("copying of %s-%d has stopped: %s", *copy.name, copy.fault)
                self._on_change(copy)

    # --- durability ---------------------------------------------------------------------------

    async def _sync_often(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            self._stop_displaced()
            await self._sync()
            await self._keep_budget()
            await self._truncate()
            self._leave_others()

    def _leave_others(self) -> None:
        """Close the copies of topics that are copied no more, once they are durable."""
        for copy in tuple(self.copies.values()):
            if copy.log.topic not in self.topics and not copy.log.dirty():
                del self.copies[copy.name]
                self._archived.pop(copy, None)
                _close(copy)
                copy.state = CopyState.GONE
                log.info("%s-%d is copied no more; what was copied is kept", *copy.name)
                self._on_change(copy)

    async def _keep_budget(self) -> None:
        """Let copies begin later, as far as they take more than the budget. Files are looked at in
        a thread: there may be many.
        """
        budget = self._config.subscriber.budget_bytes
        if budget is None:
            return
        try:
            copies = {copy.name: copy for copy in self._alive()}
            paths = {name: copy.log.path for name, copy in copies.items()}
            held = await asyncio.to_thread(segments_of_all, self._fs, paths)
            for name, base in starts_within(budget, held).items():
                if self.copies.get(name) is copies[name]:  # not begun anew meanwhile
                    self._cut(copies[name], base)
        except LogFormatError as error:
            log.error("the copies cannot be kept within budget_bytes: %s", error)

    def _cut(self, copy: Copy, base: int) -> None:
        copy.log.archive(LogStart(base, base, checksum=0))  # it has its own
        self._let_go_below(copy, base)
        log.info("%s", format_event("copy cut to its budget", copy=copy.name, start=base))

    def _let_go_below(self, copy: Copy, base: int) -> None:
        self._archived[copy] = max(base, self._archived.get(copy, 0))

    def _alive(self) -> list[Copy]:
        return [copy for copy in self.copies.values() if copy.state is not CopyState.GONE]

    async def _truncate(self) -> None:
        """Give the room of what is archived back; what cannot be now is, when more is archived."""
        while self._archived:
            copy, below = self._archived.popitem()
            try:
                if copy.is_in_place:
                    await asyncio.to_thread(_truncate_below, self._fs, copy.log.path, below)
            except LogFormatError as error:
                log.error("archived files of %s-%d are not truncated: %s", *copy.name, error)

    async def _sync(self) -> None:
        """Make what was copied durable. A failed sync stops its copies: nothing is retried."""
        dirty = [copy for copy in self.copies.values() if copy.log.dirty() and copy.is_in_place]
        written = [(copy, copy.log.next_offset) for copy in dirty]
        try:
            await self._syncer.sync([file for copy in dirty for file in copy.log.take_dirty()])
            for copy, offset in written:
                copy.log.mark_durable(offset)
        except LogFormatError as error:
            for copy in dirty:
                copy.state, copy.fault = CopyState.STOPPED, error
                log.error("copying of %s-%d has stopped: %s", *copy.name, error)
                self.on_change(copy)


def _truncate_below(fs: FileSystem, path: str, below: int) -> None:
    truncate_segments(fs, path, not_truncated(fs, path, below))


def _close(copy: Copy) -> None:
    try:
        if copy.state is not CopyState.GONE:  # its name may be another one's already
            copy.log.save_marks()
    except LogFormatError as error:
        log.error("the marks of %s-%d could not be saved: %s", *copy.name, error)
    copy.log.close()

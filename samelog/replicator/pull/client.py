"""Keeps local copies of the merged logs of some topics, from one node of the cluster at a time.

When a connection ends, the next node goes on at the same byte: both sides check that they hold the
same batch before it. A node that disagrees is left for another; when all do, that copy stops, with
a loud error, and nothing of it is cut.

Invariant: a copy is a prefix of the cluster's log from where it begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.format.errors import LogFormatError
from samelog.replicator.interfaces import InputName
from samelog.replicator.known_nodes import KnownNodes, nodes_of
from samelog.replicator.pull.conversation import PullConversation
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.copy_directory import CopyDirectory
from samelog.replicator.pull.copy_upkeep import CopyUpkeep
from samelog.replicator.pull.lane import PullLane
from samelog.replicator.pull.options import PullOptions, PullParts, PullStatus
from samelog.replicator.pull.share import Share
from samelog.runtime.backoff import Backoff
from samelog.runtime.errors import TlsFault
from samelog.runtime.loop import end_all, spawn
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver
from samelog.runtime.network.transport import Connection, Deadlines
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.merged.truncation import LogStart
from samelog.wire.bounds import Holder
from samelog.wire.messages import ConnectionRole, Hello, Start
from samelog.wire.pull.copies import EARLIEST, StartAt
from samelog.wire.pull.receiver import PullTarget
from samelog.wire.pull.refusal import Refusal

log = logging.getLogger(__name__)

SYNC_S = 1.0
RETRY_S = 1.0
DEADLINES = Deadlines(connect_s=2.0, handshake_s=3.0, idle_s=4.0)
"""Less patient than others: another node has the same bytes."""


class PullClient:
    """Copies some topics. All calls and callbacks are in its event loop.

    Implements conversation.PullEvents.
    """

    def __init__(
        self,
        directory: str,
        topics: Iterable[str],
        config: ClientConfig,
        parts: PullParts,
        options: PullOptions,
    ) -> None:
        """`directory` holds the copies, `<topic>-<partition>` each; it is made if need be."""
        self.topics = tuple(topics)
        self.directory = CopyDirectory(directory, parts.fs, options.on_change, options.rows)
        self.copies = self.directory.copies
        if options.is_shared:
            self.directory.shared = {}
        self._config = config
        self._parts = parts
        self._options = options
        self._upkeep = CopyUpkeep(self.directory, parts.fs, parts.syncer)
        self._link = NodeLink(
            self._open,
            tls=parts.tls,
            backoff=Backoff(parts.random),
            clock=parts.clock,
            says="not copying",
            deadlines=DEADLINES,
        )
        self._address = parts.random.choice(config.nodes)
        self._conversation: PullConversation | None = None
        self._nodes = KnownNodes(config)
        self._lanes: dict[NodeAddress, PullLane] = {}
        """A connection to each node, once one has not all topics' partitions."""
        self._disk_fault: LogFormatError | None = None
        self._problems: dict[str, Refusal] = {}
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
            dict(self.directory.counts),
        )

    def start(self) -> None:
        """Open the copies there are, and begin to copy.

        Raises:
            DirectoryInUse: another process keeps these copies.
            LogFormatError: a copy cannot be used as it is.
        """
        self.directory.open()
        try:
            for topic in self.topics:
                self.directory.find(topic)
        except LogFormatError:
            self.directory.close()
            raise
        self._tasks = [
            spawn(self._link.keep_up(self._next_target, self._ended), "pull"),
            spawn(self._poll(), "pull: poll"),
            spawn(self._maintain(), "pull: upkeep"),
        ]

    async def stop(self) -> None:
        """End the connection, make the copies durable, close them."""
        tasks, self._tasks = self._tasks, []
        for lane in self._lanes.values():
            lane.stop()
        await end_all(tasks)
        await self._upkeep.sync()
        self._upkeep.mark_deleted()
        self.directory.close()

    def follow(
        self,
        config: ClientConfig,
        topics: Iterable[str] | None = None,
        logs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Ask these nodes, and copy these topics (None: as before), from now on. What was copied of
        other topics stays as it is. `logs`: by topic, the log that it has now; copies of another
        one are set aside.
        """
        wanted = self.topics if topics is None else tuple(topics)
        stays = wanted == self.topics and self._address in config.nodes
        if not set(config.nodes) <= set(self._config.nodes):
            self._ask_again()
        self._config, self.topics = config, wanted
        self._nodes.follow(config)
        if self._lanes:
            self._follow_nodes()
        self._reload_certificates()
        self._problems = {name: why for name, why in self._problems.items() if name in wanted}
        self._set_aside_others(logs)
        self.directory.find_usable(wanted)
        if stays and self._conversation is not None:
            self._conversation.follow(self._target())
        elif self._link.connection is not None:
            self._link.connection.close()
        self._options.on_status()

    def _set_aside_others(self, logs: Mapping[str, str]) -> None:
        for topic, log_id in logs.items():
            for copy in self.directory.set_aside_others(topic, log_id):
                self._upkeep.forget(copy)

    def share(self, held: Mapping[InputName, Share]) -> None:
        """Copy these partitions only, from now on. Raises LogFormatError."""
        before = set(self.copies.values())
        new = self.directory.share(held)
        for copy in before - set(self.copies.values()):
            self._upkeep.forget(copy)
        for conversation in self._conversations():
            conversation.found(new)
        for copy in new:
            self.on_change(copy)

    def _ask_again(self) -> None:
        for copy in self.copies.values():
            copy.ask_again()
            self.on_change(copy)

    # --- connecting ---------------------------------------------------------------------------

    def _next_target(self) -> NodeAddress:
        """The node to ask now, and the name that it must have."""
        known = dict(nodes_of(self._config))
        return NodeAddress(self._address, known.get(self._address))

    def _target(self, address: Address | None = None) -> PullTarget:
        addresses = frozenset(str(each.address) for each in self._nodes.all)
        asked = address or self._address
        near, far = False, False
        if self._lanes:
            node = NodeAddress(asked, None)
            near, far = self._nodes.is_near(node), self._nodes.is_far(node)
        return PullTarget(self._config.cluster, self.topics, str(asked), addresses, far, near)

    def _open(self, connection: Connection, on_over: OnOver) -> PullConversation:
        self._conversation = self._converse(connection, self._address, on_over)
        if self._address not in self._config.nodes:  # they changed while it was dialled
            connection.close()
        return self._conversation

    def _converse(
        self, connection: Connection, address: Address, on_over: OnOver
    ) -> PullConversation:
        role, cluster = ConnectionRole.PULL, self._config.cluster
        rack = self._config.rack
        connection.send(Hello(role=role, cluster=cluster, parts=True, roams=True, rack=rack))
        return PullConversation(
            connection,
            self,
            self._parts.clock,
            self._target(address),
            find_start=self._find_start,
            on_over=on_over,
        )

    def _ended(self, error: Exception | None) -> None:
        """Go to the next node."""
        self._conversation = None
        self._disk_fault = error if isinstance(error, LogFormatError) else None
        nodes = self._config.nodes
        place = nodes.index(self._address) + 1 if self._address in nodes else 0
        self._address = nodes[place % len(nodes)]
        self._options.on_status()

    def _reload_certificates(self) -> None:
        try:
            self._parts.tls.reload_if_changed()
        except TlsFault as fault:
            log.warning("the certificate files have changed, the old ones stay: %s", fault)

    # --- now and then -------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_s)
            self._reload_certificates()
            for conversation in self._conversations():
                if self._lanes:
                    topics = frozenset(self.topics)
                    conversation.found(c for c in self.copies.values() if c.name[0] in topics)
                conversation.tick()

    def _conversations(self) -> Iterator[PullConversation]:
        lanes = (lane.conversation for lane in self._lanes.values())
        return filter(None, (self._conversation, *lanes))

    def on_elsewhere(self, nodes: Sequence[Holder]) -> None:
        """A node has not all partitions: from now on, ask every one."""
        met = {conversation.node for conversation in self._conversations()}
        if self._nodes.learn(nodes, met) or not self._lanes:
            self._follow_nodes()
        if self._conversation is not None:
            self._conversation.follow(self._target())

    def on_taken(self, copy: Copy) -> None:
        """A node near this subscriber has had all of it for a while: it gives it from now on."""
        for conversation in self._conversations():
            conversation.let_go(copy)

    def _follow_nodes(self) -> None:
        wanted = self._nodes.all
        for node in self._lanes.keys() - set(wanted):
            self._lanes.pop(node).stop()
        for node in wanted:
            if node not in self._lanes:
                self._lanes[node] = PullLane(node, self._parts, self._converse)
                self._tasks.append(spawn(self._lanes[node].run(), "pull: lane"))

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            self.directory.stop_displaced()
            await self._upkeep.sync()
            self._upkeep.mark_deleted()
            await self._upkeep.keep_budget(self._config.subscriber.budget_bytes)
            await self._upkeep.truncate()
            await self._upkeep.remove_replaced()
            for copy in self.directory.leave_others(self.topics):
                self._upkeep.forget(copy)

    # --- what conversations tell --------------------------------------------------------------

    @property
    def on_growth(self) -> Callable[[Copy], None]:
        """Takes copies that grew: growth never marks a topic as deleted."""
        return self._options.on_change

    def on_change(self, copy: Copy) -> None:
        """A copy has caught up, or its state has changed."""
        self._upkeep.changed(copy)
        self._options.on_change(copy)

    def on_cluster(self, cluster_id: str) -> None:
        """It is the one of before, or the first one. Raises ProtocolFault, LogFormatError."""
        self.directory.pin.meet(cluster_id)

    def on_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        """The topic is so; its copies, made if need be."""
        is_known = self.directory.counts.get(topic) == partitions
        self.directory.counts[topic] = partitions
        if self._problems.pop(topic, None) is not None or not is_known:
            self._options.on_status()
        self.directory.begin_log(topic_id, partitions, is_resumed=self._options.is_resumed)
        return self.directory.of_topic(topic, topic_id, partitions)

    def _find_start(self, topic: str, topic_id: str, partition: int) -> StartAt:
        """Return where a new copy begins. All records of a partition that was added after copying
        began came after the end that was wanted, so it begins at its first record.
        """
        at = self._options.find_start(topic, topic_id, partition)
        is_added = self.directory.is_added(topic_id, partition)
        return EARLIEST if is_added and at.start is Start.LATEST else at

    def on_refused(self, topic: str, refusal: Refusal) -> None:
        """A topic is refused, for now."""
        if topic not in self._problems:
            log.warning("topic %s cannot be copied yet: %s", topic, refusal)
        self._problems[topic] = refusal
        self._options.on_status()

    def on_archived(self, copy: Copy, start: LogStart) -> None:
        """The cluster has archived what is before `start`; the copy has to go on there at least."""
        self._upkeep.archived(copy, start, keep=self._config.subscriber.keep)
        self.on_change(copy)

    def on_cut(self, copy: Copy, base: int) -> None:
        """Copy the log from `base` on again: the cluster has compacted it."""
        self._upkeep.cut(copy, base, keep=self._config.subscriber.keep)
        self.on_change(copy)

    def on_given_up(self, copy: Copy) -> None:
        """Every node refuses to go on with it."""
        log.error("copying of %s-%d has stopped: every node says: %s", *copy.name, copy.fault)

    def on_begun_anew(self, copy: Copy) -> None:
        """The cluster restarted the log: restart the copy, if that is configured."""
        if self._options.begins_anew:
            asyncio.get_running_loop().call_soon(self._begin_anew_if_still, copy)

    def _begin_anew_if_still(self, copy: Copy) -> None:
        if self._tasks and self.copies.get(copy.name) is copy:
            self.begin_anew(copy)

    def begin_anew(self, old: Copy) -> None:
        """Restart the copy of a log that the cluster restarted; set the old copy aside. If the disk
        is full, `fault` says so, and it can be tried again; if it fails, copying of it has stopped.
        """
        try:
            copy = self.directory.begin_anew(old)
        except NoSpace as error:
            old.fault = error
            if self._options.begins_anew:
                asyncio.get_running_loop().call_later(RETRY_S, self._begin_anew_if_still, old)
            return
        except LogFormatError as error:
            old.successor = ""
            self.directory.stop(old, error)
            return
        self._upkeep.forget(old)
        for conversation in self._conversations():
            conversation.replaced(old, copy)
        self.on_change(copy)

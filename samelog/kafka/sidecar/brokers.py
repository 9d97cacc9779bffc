"""The two sidecars as Kafka clients see them: the only broker there is. It leads every partition,
knows no leader epochs, and changes no topics.

The publisher sidecar takes records of any topic, and has none to read. How many partitions a topic
has it cannot ask, because it never waits for the cluster: its configuration says it, as the
arguments of a native publisher do.

The subscriber sidecar has its copies of merged logs, to be read.

Invariant: nothing here waits for the cluster.
Also: a topic always has the same partitions, whether the cluster is there or not.
Also: only what the copies hold is served, and that is committed; an offset that a copy does
not have is waited for: a client may have learned of it elsewhere.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from samelog.config.tables.client import PublisherKafka
from samelog.config.values import Address
from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name
from samelog.kafka.any_broker import (
    AnyBroker,
    AppendResult,
    BatchLog,
    BrokerEndpoint,
    KafkaClient,
    WatchedLog,
)
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.sidecar.groups import GroupForwarder
from samelog.kafka.sidecar.session_log import SidecarLog
from samelog.replicator.interfaces import InputName, RequestRefused
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.listening import Listening
from samelog.runtime.clock import Clock
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.merged.log import MergedLog
from samelog.wire.errors import FaultCode
from samelog.wire.pull.copies import CopyState

NUMBER = 0
NO_EPOCH = -1


class SidecarBroker(AnyBroker):
    """See the module. Whoever reaches the listener has the rights of the sidecar's certificate."""

    def __init__(self, cluster: str, clock: Clock, address: Address) -> None:
        super().__init__(NUMBER, cluster, clock)
        self._address = address

    @property
    def leader(self) -> int | None:
        """The sidecar leads every partition."""
        return NUMBER

    @property
    def epoch(self) -> int:
        """Sidecars know no leader epochs."""
        return NO_EPOCH

    def nodes(self) -> Sequence[int]:
        """The sidecar alone."""
        return (NUMBER,)

    def endpoints(self, listener: str) -> Sequence[BrokerEndpoint]:
        """The sidecar's only listener."""
        return (BrokerEndpoint(NUMBER, *self._address),)

    def is_there(self, number: int) -> bool:
        """The sidecar always is."""
        return number == NUMBER

    async def catch_up(self) -> None:
        """Do nothing: a sidecar never asks the cluster before it answers."""

    @property
    def auto_creates(self) -> bool:
        """Never: the cluster creates a topic when its first records arrive."""
        return False

    async def create_by_default(self, name: str) -> None:
        """A sidecar never creates topics. Raises ApiError."""
        raise ApiError(ErrorCode.policy_violation, "a sidecar makes no topics")

    def may_administer(self, client: KafkaClient) -> bool:
        """Nobody: topics are changed at the nodes."""
        return False


NO_ID = "0" * 32
"""Only the cluster knows the ids of topics."""
TOPICS_KEPT = 1000


class PublisherBroker(SidecarBroker):
    """What the Kafka APIs see of a publisher sidecar."""

    def __init__(
        self, cluster: str, clock: Clock, config: PublisherKafka, batches: SidecarLog
    ) -> None:
        super().__init__(cluster, clock, config.listen)
        self.batches = batches
        self._config = config
        self._topic = lru_cache(TOPICS_KEPT)(self._make_topic)

    def topics(self) -> Iterator[Topic]:
        """The topics that the configuration names."""
        return (self._topic(name) for name in self._config.partitions)

    def topic(self, key: str | UUID) -> Topic | None:
        """A topic of any valid name; no topic is known by its id."""
        try:
            return None if isinstance(key, UUID) else self._topic(check_topic_name(key))
        except InvalidName:
            return None

    def _make_topic(self, name: str) -> Topic:
        count = self._config.partitions.get(name, self._config.num_partitions)
        return Topic(NO_ID, name, {}, 0, list(range(count)))

    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        """None: a publisher sidecar has no merged logs."""
        return None

    def committed(self, topic: Topic, index: int) -> int:
        """0: only the cluster knows what is committed."""
        return 0

    def max_message_bytes(self, topic: Topic | None) -> int:
        """The configured limit, which should be what the nodes accept."""
        return self._config.message_max_bytes

    def may_read(self, client: KafkaClient, topic: str) -> bool:
        """Nobody: a publisher sidecar has no merged logs."""
        return False

    def may_write(self, client: KafkaClient, topic: str) -> bool:
        """Every client of this host; the cluster checks the sidecar's certificate."""
        return True


_FAULTS = {
    CopyState.GONE: (FaultCode.TOPIC_GONE, "the topic was deleted; its copy is kept"),
    CopyState.STOPPED: (FaultCode.NOT_READY, "copying has stopped: see the sidecar's log"),
}


class CopyStream(Listening):
    """A copy that clients read. Implements any_broker.Stream."""

    def __init__(self, copy: Copy) -> None:
        super().__init__()
        self.copy = copy

    @property
    def log(self) -> MergedLog:
        """The copied log."""
        return self.copy.log

    @property
    def fault(self) -> RequestRefused | None:
        """Why the copy does not grow any more; None if it does."""
        found = _FAULTS.get(self.copy.state)
        return None if found is None else RequestRefused(*found)


class NothingTaken:
    """Refuses every batch, because copies are read-only. Implements any_broker.BatchLog."""

    def __init__(self) -> None:
        self.checker = BatchChecker()

    async def open(self, topic: Topic, index: int) -> None:
        """Always raises ApiError: copies are read-only."""
        raise ApiError(ErrorCode.topic_authorization_failed, "copies are only read")

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> Future[AppendResult]:
        """Always raises ApiError: copies are read-only."""
        raise ApiError(ErrorCode.topic_authorization_failed, "copies are only read")


class CopiesBroker(SidecarBroker):
    """What the Kafka APIs see of copies."""

    def __init__(
        self, cluster: str, clock: Clock, address: Address, copies: Mapping[InputName, Copy]
    ) -> None:
        """`copies`: (topic, partition) -> copy, as they are at any time."""
        super().__init__(cluster, clock, address)
        self.batches: BatchLog = NothingTaken()
        self._copies = copies
        self._streams: dict[InputName, CopyStream] = {}
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[str, Topic] = {}
        self._seen = 0
        """How many copies there were when topics were last looked at."""

    def changed(self, copy: Copy) -> None:
        """A copy has grown, or its state is another one."""
        if copy.log.topic_id not in self._by_id:
            self._seen = -1  # its log was restarted
        stream = self._streams.get(copy.name)
        if stream is not None:
            stream.changed()

    async def confirm_ends(self, asked: Iterable[tuple[str | UUID, int]]) -> None:
        """Raises ApiError: only the leader could, and the copied node may be behind."""
        raise ApiError(ErrorCode.leader_not_available, "what is not copied yet may be there")

    # --- topics -----------------------------------------------------------------------------------

    def topics(self) -> Iterator[Topic]:
        """Those that are copied."""
        self._update_topics()
        return iter(tuple(self._by_name.values()))

    def topic(self, key: str | UUID) -> Topic | None:
        """A topic that is copied."""
        self._update_topics()
        return self._by_id.get(key.hex) if isinstance(key, UUID) else self._by_name.get(key)

    def _update_topics(self) -> None:
        """Take up copies that are new, and leave those that are no more."""
        if self._seen == len(self._copies):
            return
        self._seen = len(self._copies)
        self._by_name.clear()
        self._by_id.clear()
        for (name, index), copy in self._copies.items():
            topic = self._by_name.get(name)
            if topic is None:
                topic = self._by_name[name] = Topic(copy.log.topic_id, name, {}, 0, [])
                self._by_id[topic.topic_id] = topic
            topic.partition_numbers.extend(range(topic.partitions, index + 1))

    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        """A copy, once it is settled where it begins."""
        copy = self._copies.get((topic.name, index))
        if copy is None or not copy.is_begun:
            return None
        stream = self._streams.get(copy.name)
        if stream is None or stream.copy is not copy:
            stream = self._streams[copy.name] = CopyStream(copy)
        return stream

    def committed(self, topic: Topic, index: int) -> int:
        """What the cluster had when it was last heard, and never less than the copy."""
        copy = self._copies.get((topic.name, index))
        return 0 if copy is None else max(copy.log.next_offset, copy.cluster_end or 0)

    def max_message_bytes(self, topic: Topic | None) -> int:
        """0: a subscriber sidecar accepts no batches."""
        return 0

    # --- rights -----------------------------------------------------------------------------------

    def may_read(self, client: KafkaClient, topic: str) -> bool:
        """Whoever is on this host; the cluster lets the sidecar's certificate copy, or does not."""
        return True

    def may_write(self, client: KafkaClient, topic: str) -> bool:
        """Copies are never changed."""
        return False


class SubscriberBroker(CopiesBroker):
    """What the Kafka APIs see of a subscriber sidecar."""

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        address: Address,
        copies: Mapping[InputName, Copy],
        *,
        groups: GroupForwarder | None,
    ) -> None:
        """`groups`: the way to their coordinator, if there is one."""
        super().__init__(cluster, clock, address, copies)
        self.groups = groups

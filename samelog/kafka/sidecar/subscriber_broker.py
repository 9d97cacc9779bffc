"""The subscriber sidecar, as Kafka clients see it: its copies of merged logs, to be read.

Invariant: only what the copies hold is served, and that is committed; an offset that a copy does
not have is waited for: a client may have learned of it elsewhere.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator, Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode

from samelog.config.values import Address
from samelog.kafka.any_broker import AppendResult, BatchLog, WatchedLog
from samelog.kafka.client import KafkaClient
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.sidecar.broker import SidecarBroker
from samelog.kafka.sidecar.groups import GroupForwarder
from samelog.replicator.interfaces import InputName, RequestRefused
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.listening import Listening
from samelog.runtime.clock import Clock
from samelog.sequencer.state.types import Topic
from samelog.store.merged.log import MergedLog
from samelog.wire.errors import FaultCode
from samelog.wire.pull.copies import CopyState

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

    async def open(self, topic: Topic, index: int) -> None:
        """Always raises ApiError: copies are read-only."""
        raise ApiError(ErrorCode.topic_authorization_failed, "copies are only read")

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> Future[AppendResult]:
        """Always raises ApiError: copies are read-only."""
        raise ApiError(ErrorCode.topic_authorization_failed, "copies are only read")


class SubscriberBroker(SidecarBroker):
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
        """`copies`: (topic, partition) -> copy, as they are at any time; `groups`: the way to their
        coordinator, if there is one.
        """
        super().__init__(cluster, clock, address)
        self.groups = groups
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
            self._seen = -1  # it was begun anew
        stream = self._streams.get(copy.name)
        if stream is not None:
            stream.changed()

    async def confirm_ends(self) -> None:
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

"""A replay as Kafka clients see it: one broker, with copies that grow as they grew once.

Invariant: it can only be read; what groups of it commit is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from uuid import UUID

from samelog.config.tables.kafka import KafkaConfig
from samelog.config.values import Address
from samelog.format.errors import LogFormatError
from samelog.kafka.any_broker import KafkaClient, WatchedLog
from samelog.kafka.groups.driver import GroupDriver
from samelog.kafka.groups.patterns import TopicPatterns
from samelog.kafka.replay.groups import LocalGroups
from samelog.kafka.replay.log import ReplayLog
from samelog.kafka.replay.timeline import ReplayStream, Timeline
from samelog.kafka.sidecar.brokers import CopiesBroker, CopyStream
from samelog.replicator.interfaces import InputName, RequestRefused
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import Clock
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.access import AccessTable
from samelog.sequencer.state.tables.topics import AddPartitions, CreateTopicCommand, Topic
from samelog.store.merged.reader import MergedReader

ReplayStart = int | datetime | None
"""An offset, a time, or the beginning."""


class ReplayConfig:
    """What group handlers look up: Kafka's defaults."""

    kafka = KafkaConfig()


class ReplayBroker(CopiesBroker):
    """See the module."""

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        address: Address,
        copies: Mapping[InputName, Copy],
        *,
        start: ReplayStart,
        timeline: Timeline,
    ) -> None:
        super().__init__(cluster, clock, address, copies)
        self.machine = StateMachine()
        self.config = ReplayConfig()
        self.access = AccessTable()
        self.patterns = TopicPatterns(lambda: self.machine.state)
        self.groups = GroupDriver(
            LocalGroups(self.machine), self.machine, clock, self.config.kafka.groups
        )
        self._start = start
        self._timeline = timeline
        self._is_begun = False
        self._replayed: dict[InputName, tuple[Copy, ReplayStream]] = {}

    def begin(self) -> None:
        """The copies hold what is to be replayed."""
        self._is_begun = True
        for copy in self._copies.values():
            self.changed(copy)

    def changed(self, copy: Copy) -> None:
        """A copy has grown, or its state is another one."""
        super().changed(copy)
        if not self._is_begun:
            return
        self._note_topic(copy)
        self._stream_of(copy)
        self._timeline.grew()

    def _note_topic(self, copy: Copy) -> None:
        """Groups know topics by the state."""
        name, index = copy.name
        known = self.machine.state.topics.named(name)
        if known is None:
            self.machine.apply(CreateTopicCommand(copy.log.topic_id, name, index + 1, {}, 0))
        elif known.partitions <= index:
            self.machine.apply(AddPartitions(known.topic_id, index + 1))

    def _stream_of(self, copy: Copy) -> ReplayStream | None:
        """None: it is not settled where it begins."""
        known = self._replayed.get(copy.name)
        if known is not None and known[0] is copy:
            return known[1]
        if not copy.is_begun:
            return None
        first = _first_offset(copy.log, self._start)
        fault = partial(_fault_of, CopyStream(copy))
        stream = ReplayStream(ReplayLog(copy.log, first), self._timeline, fault)
        self._replayed[copy.name] = copy, stream
        self._timeline.add(stream)
        return stream

    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        copy = self._copies.get((topic.name, index))
        return None if copy is None else self._stream_of(copy)

    def committed(self, topic: Topic, index: int) -> int:
        """Up to what is due."""
        stream = self.partition(topic, index)
        return 0 if stream is None else stream.log.next_offset

    def partition_number(self, key: str | UUID, index: int) -> int | None:
        """By which the state of groups knows a partition; None if there is none."""
        topic = self.topic(key)
        known = None if topic is None else self.machine.state.topics.named(topic.name)
        if known is None or not 0 <= index < known.partitions:
            return None
        return known.partition_numbers[index]

    def may_use_group(self, client: KafkaClient, group: str) -> bool:
        """Whoever is on this host."""
        return True


def _fault_of(stream: CopyStream) -> RequestRefused | None:
    return stream.fault


def _first_offset(log: MergedReader, start: ReplayStart) -> int:
    """Where the replay of a copy begins; a time is looked for in what is there by then."""
    if start is None:
        return log.start_offset
    if isinstance(start, int):
        return max(start, log.start_offset)
    try:
        return log.locate_timestamp(int(start.timestamp() * 1000))
    except LogFormatError:
        return log.start_offset

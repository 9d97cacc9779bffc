"""The generated topics of one node: which there are, and their partitions.

They are read only. Nobody has a right to change, delete or write to them, whatever grants and ACLs
say, and to anything but reading they do not exist.

Invariant: they take nothing while nobody reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID

from samelog.archiver.policy import CLEANUP_POLICY
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.state_topics.log import FeedStream
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.feeds import PARTITIONS, STATE_NUMBERS, StateTopic
from samelog.sequencer.state.tables.topics import Topic

MAY = frozenset((AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS))
"""What anybody can have a right to do with them."""


def _topic(name: StateTopic) -> Topic:
    topic_id = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    first = STATE_NUMBERS + PARTITIONS * tuple(StateTopic).index(name)
    numbers = list(range(first, first + PARTITIONS))
    return Topic(topic_id, name.value, {CLEANUP_POLICY: "compact"}, 0, numbers)


TOPICS: Mapping[str | UUID, tuple[StateTopic, Topic]] = {
    key: (name, topic)
    for name in StateTopic
    for topic in (_topic(name),)
    for key in (topic.name, UUID(topic.topic_id))
}

RESERVED = frozenset(TOPICS)


class StateTopics:
    """See the module."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._streams: dict[tuple[StateTopic, int], FeedStream] = {}

    def listed(self) -> Iterable[Topic]:
        """Those in which something was told, as Kafka makes them when they are used first."""
        state = self._machine.state
        for name in StateTopic:
            if state.feeds.of(name) and name not in state.topics.by_name:
                yield TOPICS[name][1]

    def topic(self, key: str | UUID) -> Topic | None:
        """One by its name or its id; None: there is no such, or a topic of users has the name."""
        found, state = TOPICS.get(key), self._machine.state
        if found is None or found[0] in state.topics.by_name:
            return None
        return found[1]

    def stream(self, topic: Topic, index: int) -> FeedStream | None:
        """A partition of one of them; None if there is none."""
        name = StateTopic(topic.name)
        if not 0 <= index < PARTITIONS:
            return None
        found = self._streams.get((name, index))
        if found is None:
            found = self._streams[name, index] = FeedStream(self._machine, name, index)
        return found

    def end(self, topic: Topic, index: int) -> int:
        """The offset behind all that is told in a partition."""
        feed = self._machine.state.feeds.of(StateTopic(topic.name)).get(index)
        return 0 if feed is None else feed.next_offset


def is_reserved(name: str, machine: StateMachine) -> bool:
    """Whether a name is one of theirs: then nobody may do more than MAY."""
    return name in TOPICS and name not in machine.state.topics.by_name

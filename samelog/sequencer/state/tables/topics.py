"""Topics: their names, settings and partitions.

Invariant: a name belongs to one living topic.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.tables.feeds import STATE_NUMBERS
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.schemas import SchemaVersion


class Topic(msgspec.Struct):
    """A living topic; `partition_numbers[i]` is the cluster-wide number of partition i."""

    topic_id: str
    name: str
    settings: dict[str, str]
    created_ms: int
    partition_numbers: list[Unsigned32]
    present_log: str = ""
    """The id of its log; empty: that of the topic, whose log was never restarted."""
    former_logs: list[str] = []
    """The ids that its log had before each hard reset."""
    schemas: list[SchemaVersion] = []
    """The versions of its schema, from version 1 on."""
    is_placed: bool = False
    """Its partitions are in data groups."""

    @property
    def log_id(self) -> str:
        """The id of its merged log: what readers go by."""
        return self.present_log or self.topic_id

    @property
    def is_generated(self) -> bool:
        """Whether it is told of the state, and has no log."""
        return bool(self.partition_numbers) and self.partition_numbers[0] >= STATE_NUMBERS

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.partition_numbers)


class CreateTopicCommand(Command, frozen=True, tag=1):
    """Bind a new topic id to a name that no living topic has. `beside`: the id of a topic whose
    group it shares for good; empty: of none. `source`: what it is a mirror of, if it is one.
    """

    topic_id: str
    name: str
    partitions: Unsigned32
    settings: dict[str, str]
    at_ms: int
    beside: str = ""
    source: MirrorSource | None = None


class DeleteTopicCommand(Command, frozen=True, tag=2):
    """End a topic: its inputs are let go, its name is free again."""

    topic_id: str


class AlterTopicCommand(Command, frozen=True, tag=21):
    """Change settings of a topic: those in `settings` are set, those in `unset` have their default
    again.
    """

    topic_id: str
    settings: dict[str, str]
    unset: list[str]


class AddPartitions(Command, frozen=True, tag=22):
    """Let a topic have `partitions` partitions in all; never fewer than it has."""

    topic_id: str
    partitions: Unsigned32


class TopicsTable(msgspec.Struct, dict=True):
    """All living topics."""

    by_id: dict[str, Topic] = {}
    by_name: dict[str, str] = {}
    """Name -> topic id."""

    @cached_property
    def by_log(self) -> dict[str, str]:
        """Id of a present log -> topic id; snapshots do not have it."""
        return {topic.log_id: topic.topic_id for topic in self.by_id.values()}

    def named(self, name: str) -> Topic | None:
        """Return the living topic of that name."""
        topic_id = self.by_name.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def of_log(self, log_id: str) -> Topic | None:
        """Return the living topic whose present log has that id."""
        topic_id = self.by_log.get(log_id)
        return None if topic_id is None else self.by_id[topic_id]

    def put(self, topic: Topic) -> None:
        """Add a topic."""
        self.by_id[topic.topic_id] = topic
        self.by_name[topic.name] = topic.topic_id
        self.by_log[topic.log_id] = topic.topic_id

    def note_log(self, topic_id: str) -> None:
        """Let a topic be found by its present log, too."""
        self.by_log[self.by_id[topic_id].log_id] = topic_id

    def take(self, topic_id: str) -> Topic | None:
        """Remove and return a topic, if it is there."""
        by_log, topic = self.by_log, self.by_id.pop(topic_id, None)
        if topic is not None:
            del self.by_name[topic.name], by_log[topic.log_id]
        return topic

    def reindex(self) -> None:
        """Rebuild the index: logs have other ids."""
        self.by_log = {topic.log_id: topic.topic_id for topic in self.by_id.values()}


TopicCommand = CreateTopicCommand | DeleteTopicCommand | AlterTopicCommand | AddPartitions

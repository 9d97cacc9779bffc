"""Topics: their names, settings and partitions.

Invariant: a name belongs to one living topic.
"""

from __future__ import annotations

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.tables.feeds import STATE_NUMBERS
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
    """Bind a new topic id to a name that no living topic has."""

    topic_id: str
    name: str
    partitions: Unsigned32
    settings: dict[str, str]
    at_ms: int


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


class TopicsTable(msgspec.Struct):
    """All living topics."""

    by_id: dict[str, Topic] = {}
    by_name: dict[str, str] = {}
    """Name -> topic id."""


TopicCommand = CreateTopicCommand | DeleteTopicCommand | AlterTopicCommand | AddPartitions

"""Commands about what nodes offer to Kafka clients, and about topics that exist already.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class Advertised(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One Kafka listener of a node, by the name it has on every node, and where clients find it;
    `rack`: where the node is, empty if nobody said.
    """

    name: str
    host: str
    port: int
    rack: str = ""


class SetListeners(Command, frozen=True, tag=20):
    """Where Kafka clients reach a member; replaces what was known."""

    node: Unsigned32
    listeners: list[Advertised]


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


SettingCommand = SetListeners | AlterTopicCommand | AddPartitions

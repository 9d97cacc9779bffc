"""Commands about schemas of topics.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class SetSchemaCommand(Command, frozen=True, tag=80):
    """Let a topic have one more version of its schema, behind version `follows` (0: its first)."""

    topic_id: str
    follows: Unsigned32
    text: str
    at_ms: int


SchemaCommand = SetSchemaCommand

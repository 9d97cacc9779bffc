"""The command about keys that count once.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class TellKeys(Command, frozen=True, tag=101):
    """A member's digest of a block of a partition's index, told to the voters of its group."""

    partition: Unsigned32
    block: int
    member: Unsigned32
    digest: int
    voters: list[Unsigned32]

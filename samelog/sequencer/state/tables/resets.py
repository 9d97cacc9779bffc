"""Commands that reset the whole cluster, for administrators only.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

import msgspec

from samelog.sequencer.state.command_base import Command

RESETS_REMEMBERED = 64


class SoftReset(Command, frozen=True, tag=30):
    """Every node takes a snapshot and lets go of the Raft log before it; nothing that clients see
    changes. `reset_id` is chosen by who asks.
    """

    reset_id: str
    at_ms: int


class HardReset(Command, frozen=True, tag=31):
    """Every topic's log restarts at offset 0: the old ones are set aside on every node, under
    the ids they had. The new ids follow from `reset_id`, which is chosen by who asks; `term` is
    that of the leader who proposed it.
    """

    reset_id: str
    at_ms: int
    term: int


ResetCommand = SoftReset | HardReset


class ResetsTable(msgspec.Struct):
    """The ids of the newest resets: one that is proposed twice is done once."""

    ids: list[str] = []

    def note(self, reset_id: str) -> bool:
        """Remember a reset; return whether it is news."""
        if reset_id in self.ids:
            return False
        self.ids.append(reset_id)
        del self.ids[:-RESETS_REMEMBERED]
        return True

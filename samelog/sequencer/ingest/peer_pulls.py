"""What a replica of a group pulls from the other members through.

Invariant: there is one connection for it to every other member, whatever groups they share.
"""

from __future__ import annotations

from typing import Protocol

from samelog.replicator.pull.repair_pull import RepairPull


class PeerPulls(Protocol):
    """The bulk connections of this member."""

    def get(self, number: int) -> RepairPull | None:
        """The connection to a member; None if it is none any more."""

    def name(self, number: int) -> str:
        """The name of a member."""

"""What every table of facts about partitions can do, so that no event in the life of a partition
passes one by.

`State.partition_tables` names the tables, and each event happens in all of them, in that order. A
table that lacks one of these methods does not pass the type checker.

Invariant: within one of these calls, no table reads another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from samelog.sequencer.state.instructions import VoidRecordsCommand


class PartitionTable(Protocol):
    """Facts of one kind about the partitions of a group."""

    def drop(self, numbers: Collection[int]) -> None:
        """These partitions have left the group: they were deleted, or moved to another one."""

    def renumber(self, moved: Mapping[int, int]) -> None:
        """The logs of these partitions (old number -> new number) were restarted and are empty."""

    def export(self, number: int) -> bytes:
        """What the group that a partition moves to must know."""

    def import_(self, number: int, exported: bytes) -> None:
        """Take over what the group that had the partition before exported."""

    def give_up(self, command: VoidRecordsCommand) -> None:
        """Void batches stand for records from now on, because no node has them."""

    def expire(self, producers: Collection[int]) -> None:
        """Forget these idempotent producers, which have been idle for too long."""

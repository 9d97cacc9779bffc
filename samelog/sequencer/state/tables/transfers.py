"""Partitions on their way between two groups, and those that have left this one.

Invariant: a partition that has left comes back by a task only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.placement.tasks import Action
from samelog.placement.values import PartitionPass, PassStage
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import VoidRecordsCommand


class PassPartition(Command, frozen=True, tag=90):
    """In a data group: a step of a task that moves a partition into this group, or out of it.
    `carried`: what comes with it, as passing.Carried; empty where nothing does.
    """

    task: Unsigned32
    action: Action
    partition: Unsigned32
    carried: bytes


class TransfersTable(msgspec.Struct):
    """What a group has of moves."""

    passing: PartitionPass | None = None
    """The newest task that moves, or moved, a partition of it."""
    left: list[Unsigned32] = []
    """Partitions that went to other groups."""

    def pass_of(self, task: int) -> PassStage | None:
        """How far this group is with what a task moves; None: it has not begun."""
        return None if self.passing is None or self.passing.task != task else self.passing.stage

    def is_sealed(self, partition: int) -> bool:
        """Whether it is leaving this group, which merges nothing into it any more."""
        known = self.passing
        if known is None or known.partition != partition:
            return False
        return known.stage is PassStage.SEALED

    def is_held(self, partition: int) -> bool:
        """Whether this group may not compact a partition: another group copies it, or this one."""
        known = self.passing
        return (
            known is not None
            and known.partition == partition
            and known.stage in (PassStage.HELD, PassStage.COPYING, PassStage.SEALED)
        )

    def is_on_its_way(self, partition: int) -> bool:
        """Whether nothing may be merged into a partition in this group: it comes, or has gone."""
        known = self.passing
        return (
            known is not None
            and known.partition == partition
            and known.stage in (PassStage.COPYING, PassStage.SEALED)
        )

    def is_coming(self, partition: int) -> bool:
        """Whether it is being copied into this group, which has no history of it yet."""
        known = self.passing
        if known is None or known.partition != partition:
            return False
        return known.stage is PassStage.COPYING

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable: a move is known until the topic is deleted."""

    def forget(self, numbers: Collection[int]) -> None:
        """The topic of these partitions was deleted."""
        self.left = [each for each in self.left if each not in numbers]

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable: who left has the old number, which nothing gets again."""

    def export(self, number: int) -> bytes:
        """See PartitionTable: moves are each group's own."""
        return b""

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable: it has come back, if it had left."""
        self.left = [each for each in self.left if each != number]

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: it has no facts about records."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: it has no facts about producers."""

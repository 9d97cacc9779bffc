"""What is placed where, as group 0 has it: data groups, their replicas, and partitions in them.

Invariant: numbers of groups and replicas are never used twice; a value is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.placement.sites import Sites
from samelog.placement.tasks import PlacementTask, TaskKind

METADATA = 0
"""The number of the group of all members, which has the table."""
REPLICAS_MOST = 7
EPOCHS_PER_MOVE = 1 << 18
"""So far a partition's leader epochs rise with each move to another group, whose terms may be
lower.
"""


class PlacedReplica(msgspec.Struct, frozen=True, array_like=True):
    """What a member has of a group. `replica` is a number that no other one ever has.

    `votes`: it is no learner. `is_whole`: every segment from each log's start is there and checked.
    `made_at`: the version of the placement in which it was made.
    """

    member: Unsigned32
    replica: Unsigned32
    votes: bool = True
    is_whole: bool = True
    made_at: int = 0


class DroppedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic that was deleted, and which version of the table that made."""

    topic_id: str
    name: str
    version: int


class PlacedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A data group: `copies` is how many replicas it shall have, `version` that of its newest
    configuration, `preferred` who shall lead it.

    `founders`: who voted when it began. `is_pinned`: an operator chose its members. `wanted`: the
    members that an operator asked for, until it has them; empty if nobody asks.
    """

    number: Unsigned32
    copies: int
    replicas: tuple[PlacedReplica, ...]
    preferred: Unsigned32
    founders: tuple[Unsigned32, ...]
    version: int = 0
    is_pinned: bool = False
    wanted: tuple[Unsigned32, ...] = ()
    made_at: int = 0
    """The version of the placement in which it was made, with the replicas of its founders."""
    recovered: int = 0
    """The version of the configuration with which one replica goes on alone, or went on last."""
    readers: tuple[PlacedReplica, ...] = ()
    """Learners that stay learners, where a site only reads: none of `replicas`."""
    coming: tuple[PlacedReplica, ...] = ()
    """The one that a task makes, until the group has it."""
    was_used: bool = False
    """A partition was placed here, or sent here, or the group was made for any: it ends when it has
    none, and is no default group.
    """
    owed: tuple[DroppedTopic, ...] = ()
    """Deleted topics that a majority of the group has yet to drop."""

    @property
    def is_recovering(self) -> bool:
        """Whether its only replica has yet to go on alone."""
        return self.recovered > self.version

    def is_to_go_on_with(self, member: int) -> bool:
        """Whether a member's replica has yet to go on alone: not one that is new."""
        replica = self.replica_of(member)
        return self.is_recovering and replica is not None and replica.votes

    @property
    def members(self) -> tuple[int, ...]:
        """Who has a replica that votes, or that is to."""
        return tuple(each.member for each in self.replicas)

    @property
    def everybody(self) -> tuple[int, ...]:
        """Who has a replica of any kind."""
        return tuple(each.member for each in self._all)

    @property
    def _all(self) -> tuple[PlacedReplica, ...]:
        return (*self.replicas, *self.readers, *self.coming)

    @property
    def in_order(self) -> tuple[int, ...]:
        """The members, the one that shall lead first."""
        return tuple(sorted(self.members, key=lambda member: member != self.preferred))

    @property
    def voters(self) -> tuple[int, ...]:
        """Whose votes count."""
        return tuple(each.member for each in self.replicas if each.votes)

    @property
    def goal(self) -> int:
        """How many replicas it shall have now."""
        return len(self.wanted) or self.copies

    def is_founder(self, member: int) -> bool:
        """Whether a member's replica is there since the group began: a later one of the same member
        knows nothing, and belongs to the group only once that has it.
        """
        replica = self.replica_of(member)
        return replica is not None and replica.made_at == self.made_at

    def replica_of(self, member: int) -> PlacedReplica | None:
        """A member's replica."""
        return next((each for each in self._all if each.member == member), None)


class NewGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group to be made, on these members; `preferred` shall lead it."""

    copies: Unsigned32
    members: tuple[Unsigned32, ...]
    preferred: Unsigned32
    is_pinned: bool = False
    is_default: bool = False
    """It is made before any partition is placed there, and ends if the planner does not want it."""


class PlacedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition and the group that has it. Its leader epoch is that group's term, and
    `epoch_base` more.
    """

    number: Unsigned32
    topic_id: str
    index: int
    group: Unsigned32
    epoch_base: int = 0
    first_epoch: int = 0
    """The epochs of its present log are at least this."""


class PassStage(IntEnum):
    """How far a group is with a partition that comes to it, or leaves it. The numbers are the
    format.

    COPYING: it comes, and this group has the log up to some offset. OPEN: it has come, with all
    that is known of it. HELD: it leaves, and its files are not compacted meanwhile. SEALED: it
    leaves, and nothing is merged here any more. GONE: nothing of it is here. FORBIDDEN: it will not
    be sealed for this task.
    """

    COPYING = 1
    OPEN = 2
    SEALED = 3
    GONE = 4
    FORBIDDEN = 5
    HELD = 6


class PartitionPass(msgspec.Struct, frozen=True, array_like=True):
    """A partition on its way between two groups, as one of them has it."""

    task: Unsigned32
    partition: Unsigned32
    stage: PassStage


class NumbersLeftOut(msgspec.Struct):
    """Numbers that a recovered group 0 left out, for what it may have forgotten: [first, stop), by
    what they number. Whoever has one of them is unknown, and not gone.
    """

    ranges: dict[str, list[tuple[int, int]]] = {}

    def leave_out(self, kind: str, first: int, count: int) -> int:
        """The first number behind those that are left out."""
        self.ranges.setdefault(kind, []).append((first, first + count))
        return first + count

    def has_given(self, kind: str, number: int, following: int) -> bool:
        """Whether this number was given, as far as is known; `following`: the one that is next."""
        left_out = any(first <= number < stop for first, stop in self.ranges.get(kind, ()))
        return number < following and not left_out


class OwnPlacement(msgspec.Struct):
    """What the state of a data group has of placement."""

    own: list[PlacedReplica] = []
    """Its replicas. `Placement.version` is that of its configuration."""
    recovered: int = 0
    """With which version of the configuration one replica went on alone last: what others had
    committed before may be missing.
    """
    ends: dict[int, int] | None = None
    """By partition: where its log ended then; None: that is not known."""
    dropped: int = 0
    """All topics that were deleted up to this version of group 0's table are gone."""


class BegunAnew(OwnPlacement):
    """What hard resets and recoveries leave in the table of group 0."""

    resetting: dict[int, str] = {}
    """Groups that have yet to restart their logs -> the reset that they owe."""
    skipped: NumbersLeftOut = msgspec.field(default_factory=NumbersLeftOut)


class TopicRules(BegunAnew):
    """What operators say of where topics are."""

    default_copies: int = 0
    """The goal of topics created without a number; 0: the one of samelog."""
    together: dict[str, str] = {}
    """Topic that stays in one group with others -> the first of these."""


class Placement(TopicRules):
    """The whole of it: a part of the replicated state of group 0. Partitions that are not named
    here are in group 0 itself.
    """

    version: int = 0
    """Grows with every change."""
    groups: dict[int, PlacedGroup] = {}
    partitions: dict[int, PlacedPartition] = {}
    next_group: Unsigned32 = 1
    next_replica: Unsigned32 = 1
    let_in_at: dict[int, int] = {}
    """Member -> the version in which it was let in last: what was made for it before then, another
    directory of it may have had.
    """

    draining: list[Unsigned32] = []
    """Members that shall have no replicas."""
    tasks: dict[int, PlacementTask] = {}
    """Those that are not over, by number."""
    ended: list[PlacementTask] = []
    """The newest that are over."""
    next_task: Unsigned32 = 1
    are_paused: bool = False
    """Whether no task is begun."""
    declined: list[tuple[TaskKind, Unsigned32]] = []
    """Kinds of tasks, and groups, that an operator cancelled: they are begun again when asked for.
    """
    moves: dict[int, int] = {}
    """Partition -> the group that it shall be in."""
    sites: Sites = msgspec.field(default_factory=Sites)
    """Where members are."""

    def begin_anew(self, moved: Mapping[int, int], reset_id: str, epoch_step: int) -> None:
        """A hard reset: partitions have other numbers, and their groups have yet to follow."""
        self.version += 1
        self.partitions = {
            moved[number]: msgspec.structs.replace(
                each, number=moved[number], epoch_base=each.epoch_base + epoch_step
            )
            for number, each in self.partitions.items()
        }
        self.resetting = {each.group: reset_id for each in self.partitions.values()}

    def let_in(self, member: int) -> None:
        """A member counts again, whatever it has forgotten."""
        self.version += 1
        self.let_in_at[member] = self.version

    def keep(self, members: Mapping[int, object]) -> None:
        """Forget all others: they were removed from the cluster."""
        self.sites.keep(members)
        self.draining = [each for each in self.draining if each in members]

    def is_first(self, replica: PlacedReplica) -> bool:
        """Whether no other directory of its member can have had this replica."""
        return replica.made_at > self.let_in_at.get(replica.member, 0)

    def has_replicas(self, member: int) -> bool:
        """Whether a member has a replica of any data group that counts as a copy."""
        return any(member in group.members for group in self.groups.values())

    def may_hold(self, member: int) -> bool:
        """Return whether a member may hold replicas that vote."""
        return member not in self.draining and not self.sites.only_reads(member)

    def is_resetting(self, partition: int) -> bool:
        """Whether the group of a partition has yet to restart its log."""
        placed = self.partitions.get(partition)
        return placed is not None and placed.group in self.resetting

    def group_of(self, partition: int) -> int:
        """The group that has a partition."""
        placed = self.partitions.get(partition)
        return METADATA if placed is None else placed.group

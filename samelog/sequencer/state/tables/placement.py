"""Commands about data groups, and those that a data group has of its own (docs/groups.md).

Invariant: applying a command of a data group needs nothing of group 0; field order is the format.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from itertools import count, repeat

import msgspec
from msgspec.structs import replace

from samelog.format.numbers import Unsigned32
from samelog.placement.changes import AnyChange, PlaceGroups, apply_change, put_partitions
from samelog.placement.values import (
    REPLICAS_MOST,
    DroppedTopic,
    NewGroup,
    PlacedPartition,
    PlacedReplica,
    Placement,
)
from samelog.sequencer.state.command_base import Command, WhyNot
from samelog.sequencer.state.tables.mirror_source import MirrorSource


class MakeGroups(Command, frozen=True, tag=74):
    """In group 0: make data groups, with the next numbers. `since`: the version of the table that
    they were planned from.
    """

    since: int
    groups: list[NewGroup]


class ChangePlacement(Command, frozen=True, tag=75):
    """In group 0: changes of the table, each of which is done or refused by itself. With `since`
    all are refused if the table has another version by now; -1: whatever it has.
    """

    since: int
    changes: list[AnyChange]


class PlaceTopic(Command, frozen=True, tag=72):
    """In group 0: as CreateTopicCommand, of a topic whose partitions are in data groups: in these,
    in order, of which the new ones are made. `since`: the version of the table that it was planned
    from, which must be the present one if groups are made.
    """

    since: int
    topic_id: str
    name: str
    settings: dict[str, str]
    at_ms: int
    new_groups: list[NewGroup]
    groups: list[Unsigned32]
    beside: str = ""
    source: MirrorSource | None = None

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return len(self.groups)


class PlacePartitions(Command, frozen=True, tag=78):
    """In group 0: as AddPartitions, of a topic whose partitions are in data groups: it gets
    more, until it has `partitions`, in these groups, of which the new ones are made.
    """

    since: int
    topic_id: str
    partitions: Unsigned32
    new_groups: list[NewGroup]
    groups: list[Unsigned32]


class OpenPartition(Command, frozen=True, tag=77):
    """In a data group: a partition of a topic is in it, if it was not; the topic has these settings
    and these partitions, by their numbers in the cluster. `source`: what it is a mirror of.
    """

    number: Unsigned32
    topic_id: str
    name: str
    settings: dict[str, str]
    at_ms: int
    numbers: list[Unsigned32]
    since: int = 0
    """The version of group 0's table that says so."""
    source: MirrorSource | None = None


class DropTopics(Command, frozen=True, tag=87):
    """In a data group: behind this entry it has none of the topics that were deleted up to this
    version of group 0's table, and opens none by an older one.
    """

    version: int


class NewLog(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic's log after a hard reset: its id, the numbers of the topic's partitions in the
    cluster, and what their leader epochs are more than their groups' terms.
    """

    topic_id: str
    log_id: str
    numbers: list[Unsigned32]
    epoch_bases: list[int]


class BeginAnew(Command, frozen=True, tag=135):
    """In a data group: a hard reset, as group 0 has decided it. It restarts
    the topics of this group that are older here. `term`: of the leader who proposed it.
    """

    reset_id: str
    at_ms: int
    term: int
    logs: list[NewLog]


class OpenNewLog(Command, frozen=True, tag=136):
    """In a data group: as OpenPartition, of a topic whose log was restarted before."""

    opening: OpenPartition
    log_id: str
    former_logs: list[str]
    epoch_base: int

    @property
    def topic_id(self) -> str:
        """Of the partition's topic."""
        return self.opening.topic_id


class SetReplicas(Command, frozen=True, tag=76):
    """In a data group, always its share of a configuration entry of Raft: these are its replicas.
    `level` is the cluster's feature level, `task` asked for it (empty: the group begins), `version`
    is that of the configuration before it.
    """

    group: Unsigned32
    level: Unsigned32
    version: int
    task: str
    replicas: list[PlacedReplica]


class LowerOffsets(Command, frozen=True, tag=137):
    """In group 0: a data group went on alone, with this version of its configuration, and its
    partitions ended at these offsets: what consumer groups have committed behind them is lowered.
    """

    group: Unsigned32
    recovered: int
    ends: list[tuple[Unsigned32, int]]
    at_ms: int


PLACING = (MakeGroups, ChangePlacement, PlaceTopic, PlacePartitions)
"""What may give a member of the cluster a replica."""

PlacementCommand = (
    MakeGroups
    | ChangePlacement
    | PlaceTopic
    | PlacePartitions
    | OpenPartition
    | DropTopics
    | BeginAnew
    | OpenNewLog
    | SetReplicas
    | LowerOffsets
)


def make_groups(table: Placement, members: Container[int], command: MakeGroups) -> WhyNot:
    """Make data groups; return why there cannot be such, if so."""
    problem = _problem_with_groups(table, members, command.since, command.groups)
    if problem is None:
        apply_change(table, PlaceGroups(table.next_group, tuple(command.groups)))
    return problem


def _problem_with_groups(
    table: Placement, members: Container[int], since: int, groups: Sequence[NewGroup]
) -> WhyNot:
    if since != table.version:
        return "PLACEMENT_MOVED", f"the table of placement is at version {table.version}"
    problems = (_problem_with(members, wanted) for wanted in groups)
    problem = next(filter(None, problems), None)
    return None if problem is None else ("INVALID_GROUP", problem)


def _problem_with(members: Container[int], wanted: NewGroup) -> str | None:
    if not 0 < len(wanted.members) <= REPLICAS_MOST:
        return f"a group has 1 to {REPLICAS_MOST} replicas, not {len(wanted.members)}"
    if len(set(wanted.members)) < len(wanted.members):
        return f"a member has one replica of a group, at most: {wanted.members}"
    strangers = [number for number in wanted.members if number not in members]
    if strangers:
        return f"no members have the numbers {strangers}"
    if wanted.preferred not in wanted.members:
        return f"member {wanted.preferred} would lead, and has no replica"
    return None


def problem_with_place(
    table: Placement, members: Container[int], command: PlaceTopic | PlacePartitions
) -> WhyNot:
    """Why new partitions cannot be where they are to be; None if they can."""
    if command.new_groups:
        problem = _problem_with_groups(table, members, command.since, command.new_groups)
        if problem is not None:
            return problem
    made = range(table.next_group, table.next_group + len(command.new_groups))
    unknown = sorted(each for each in {*command.groups} - table.groups.keys() if each not in made)
    if unknown and command.since != table.version:
        return "PLACEMENT_MOVED", f"groups {unknown} are gone"
    return ("INVALID_GROUP", f"there are no groups {unknown}") if unknown else None


def place(table: Placement, command: PlaceTopic | PlacePartitions, numbers: Sequence[int]) -> None:
    """A topic has these partitions, the newest of which are to be in these groups."""
    apply_change(table, PlaceGroups(table.next_group, tuple(command.new_groups)))
    first, topic_id = len(numbers) - len(command.groups), command.topic_id
    places = zip(numbers[first:], count(first), command.groups, strict=False)
    put_partitions(table, [PlacedPartition(n, topic_id, at, group) for n, at, group in places])


def forget(table: Placement, topic_id: str, name: str, partitions: Collection[int]) -> None:
    """A topic is deleted: its groups are to let go of it."""
    gone = [each for each in map(table.partitions.pop, partitions, repeat(None)) if each]
    moves = [number for number in partitions if table.moves.pop(number, None)]
    if gone or moves:
        table.version += 1
    owed = DroppedTopic(topic_id, name, table.version)
    for number in {each.group for each in gone} & table.groups.keys():
        group = table.groups[number]
        table.groups[number] = replace(group, owed=(*group.owed, owed))

"""Commands about data groups, and those that a data group has of its own (docs/groups.md).

Invariant: applying a command of a data group needs nothing of group 0; field order is the format.
"""

from __future__ import annotations

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.placement.changes import AnyChange
from samelog.placement.values import NewGroup, PlacedReplica
from samelog.sequencer.state.command_base import Command


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
    and these partitions, by their numbers in the cluster.
    """

    number: Unsigned32
    topic_id: str
    name: str
    settings: dict[str, str]
    at_ms: int
    numbers: list[Unsigned32]


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
    | BeginAnew
    | OpenNewLog
    | SetReplicas
    | LowerOffsets
)

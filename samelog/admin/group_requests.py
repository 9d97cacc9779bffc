"""What subscribers ask of consumer groups: to be members, and how far somebody has come.

Invariant: as in `samelog.admin.requests`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from samelog.admin.group_answers import GroupBeaten, PositionsNoted, ProcessedOffsets
from samelog.admin.requests import MAX_31, AdminRequest, GroupName, Offset, TopicName
from samelog.wire.bounds import Identifier

GROUP_TOPICS_MAX = 1000
GROUP_PARTITIONS_MAX = 100_000
"""That a member has, and commits, at once."""
GlobalPartition = Annotated[
    int, Meta(ge=0, le=MAX_31, description="A partition's number in the cluster, never used twice.")
]
MemberId = Annotated[str, Meta(pattern=r"^[0-9A-Za-z-]{1,64}$", description="A member.")]
HostName = Annotated[str, Meta(max_length=255, description="Where it runs.")]
Partitions = Annotated[tuple[GlobalPartition, ...], Meta(max_length=GROUP_PARTITIONS_MAX)]


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The offset of the next record to be dealt with in a partition."""

    partition: GlobalPartition
    offset: Offset


CommittedPositions = Annotated[tuple[Position, ...], Meta(max_length=GROUP_PARTITIONS_MAX)]


class BeatGroup(AdminRequest[GroupBeaten], frozen=True):
    """A subscriber joins a group (epoch 0), stays, gives partitions up, commits, or leaves."""

    group: GroupName
    member: MemberId
    epoch: Annotated[int, Meta(ge=0, le=MAX_31, description="As answered last; 0: it joins.")]
    topics: Annotated[tuple[TopicName, ...], Meta(max_length=GROUP_TOPICS_MAX)]
    host: HostName = ""
    owned: Annotated[
        Partitions | UnsetType, Meta(description="What it has now; left out: as before.")
    ] = UNSET
    commits: CommittedPositions = ()
    leaves: Annotated[bool, Meta(description="It is a member no more.")] = False
    rebalance_timeout_ms: Annotated[
        int, Meta(ge=1000, le=MAX_31, description="How long it may take to give partitions up.")
    ] = 300_000
    polled_ms_ago: Annotated[
        int, Meta(ge=-1, le=MAX_31, description="Since its application asked for more.")
    ] = -1


class NotePositions(AdminRequest[PositionsNoted], frozen=True):
    """A subscriber that is in no group says how far it has come, for others to see: as the
    positions of a group that has its name, and no members.
    """

    group: GroupName
    topic: TopicName
    topic_id: Annotated[Identifier, Meta(description="Of the log that they are in.")]
    offsets: Annotated[
        dict[Annotated[str, Meta(pattern=r"^\d{1,9}$")], Offset],
        Meta(max_length=GROUP_PARTITIONS_MAX, description="By partition."),
    ]


class GetProcessedOffset(AdminRequest[ProcessedOffsets], frozen=True):
    """How far a group, or a named subscriber, has come in a topic."""

    group: GroupName
    topic: TopicName

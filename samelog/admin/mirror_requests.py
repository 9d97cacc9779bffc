"""What can be asked of a node about mirrors: what is at the source, and what a mirror is to be.

Invariant: as in `samelog.admin.requests`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from samelog.admin.answers import SchemaSet
from samelog.admin.mirror_answers import (
    MirrorInfo,
    MirrorRows,
    MirrorsPromoted,
    SourceFollowed,
    SourceState,
)
from samelog.admin.requests import (
    MAX_31,
    AdminRequest,
    ConfirmedRequest,
    GroupName,
    Offset,
    PartitionNumber,
    TopicName,
)
from samelog.wire.bounds import ShortText

ClusterId = Annotated[str, Meta(min_length=1, max_length=256, description="A cluster's id.")]
Checksum = Annotated[int, Meta(ge=0, lt=1 << 32)]
MIRRORED_GROUPS_MAX = 1_000
"""In one request."""


class GetSource(AdminRequest[SourceState], frozen=True):
    """What a mirror needs to know of its source, as far as who asks may read it."""


class ListMirrors(AdminRequest[MirrorRows], frozen=True):
    """All mirrors that who asks may bring records to; for administrators all."""


class PutMirror(AdminRequest[MirrorInfo], frozen=True):
    """Have a mirror of a log of another cluster's topic, with so many partitions at least, and
    these settings.
    """

    topic: TopicName
    partitions: Annotated[int, Meta(ge=1, le=MAX_31, description="How many; at most 10,000.")]
    settings: Annotated[dict[str, str], Meta(description="Settings that are the source's.")]
    cluster_id: ClusterId
    source_topic: Annotated[TopicName, Meta(description="Its name at the source.")]
    log_id: Annotated[str, Meta(max_length=64, description="Of the source's log.")]
    origins: Annotated[
        tuple[ClusterId, ...],
        Meta(max_length=64, description="Clusters that the records were in, the source last."),
    ]
    keeps_epochs: Annotated[bool, Meta(description="Leader epochs are kept: they are samelog's.")]


class LeaveGap(AdminRequest[MirrorInfo], frozen=True):
    """The source has nothing from the mirror's end, `base_offset`, up to `next_offset`."""

    topic: TopicName
    partition: PartitionNumber
    base_offset: Offset
    next_offset: Offset
    start_offset: Annotated[Offset, Meta(description="What readers of the source may read first.")]
    checksum: Checksum | UnsetType = UNSET
    reason: ShortText = ""


class CopySchema(AdminRequest[SchemaSet], frozen=True):
    """Let a mirror's schema have the source's next version."""

    topic: TopicName
    follows: Annotated[int, Meta(ge=0, le=MAX_31, description="The newest version of the mirror.")]
    schema: Annotated[str, Meta(description="The next one, as the source has it.")]


class GroupPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a consumer group is in a partition at the source, and since when."""

    group: GroupName
    partition: PartitionNumber
    offset: Offset
    leader_epoch: int
    metadata: Annotated[str, Meta(max_length=4096)]
    at_ms: int


class VersionFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From this offset on this version of the schema is in force."""

    offset: Offset
    version: Annotated[int, Meta(ge=1)]


class SchemaSince(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which offsets on versions of the schema are in force in a partition."""

    partition: PartitionNumber
    since: tuple[VersionFrom, ...]


class FollowMirrored(AdminRequest[SourceFollowed], frozen=True):
    """Let consumer groups be where they are at the source, as far as that is mirrored."""

    topic: TopicName
    positions: Annotated[tuple[GroupPosition, ...], Meta(max_length=MIRRORED_GROUPS_MAX)] = ()
    since: tuple[SchemaSince, ...] = ()


class PromoteTopics(ConfirmedRequest[MirrorsPromoted], frozen=True):
    """Let these topics be mirrors no more, all of them at once."""

    CONFIRMS = "topics"
    topics: Annotated[tuple[TopicName, ...], Meta(min_length=1, max_length=10_000)]

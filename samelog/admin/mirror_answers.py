"""What nodes answer about mirrors: what is to be mirrored of them, and how far theirs are.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

import msgspec

from samelog.admin.answers import AdminAnswer


class SourcePartition(AdminAnswer, frozen=True):
    """One partition at the source. Its nodes agree that the running checksum at `checked_offset` is
    `checked_sum` (null: they do not know). `since`: from these offsets on, these versions of the
    topic's schema were in force.
    """

    partition: int
    start_offset: int
    next_offset: int
    start_segment: int
    start_checksum: int
    checked_offset: int
    checked_sum: int | None
    since: tuple[tuple[int, int], ...]


class SourceTopic(AdminAnswer, frozen=True):
    """One topic at the source. `origins`: the clusters that its records come from, the first one
    first; empty unless it is, or was, a mirror. `schemas`: how many versions its schema has.
    """

    topic: str
    log_id: str
    settings: dict[str, str]
    schemas: int
    origins: tuple[str, ...]
    is_mirror: bool
    partitions: tuple[SourcePartition, ...]


class SourcePosition(AdminAnswer, frozen=True):
    """Where a consumer group is in a partition, and when it committed that (ms)."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int


class SourceState(AdminAnswer, frozen=True):
    """What who asks may read of a cluster: all of it at one moment, and committed. `placed`: topics
    in data groups, with how many partitions each has; `here`: the same with those partitions that
    have a replica on the node that answers, as it has them.
    """

    cluster_id: str
    topics: tuple[SourceTopic, ...]
    positions: tuple[SourcePosition, ...]
    placed: dict[str, int] = msgspec.field(default_factory=dict)
    here: tuple[SourceTopic, ...] = ()


class MirroredPartition(AdminAnswer, frozen=True):
    """How far a mirrored partition is, by its instructions; `crc` is that of the last batch (null:
    it is not known), `checksum` the running checksum (null: it is not the source's). `left_open`:
    from where on a transaction is open that began before a gap, in which its end may have been
    (null: there is none). `behind`: where the batch of `crc` ends, if the mirror ends with a gap.
    """

    partition: int
    start_offset: int
    next_offset: int
    crc: int | None
    checksum: int | None
    left_open: int | None = None
    behind: int | None = None


class MirrorInfo(AdminAnswer, frozen=True):
    """One mirror, and what it is a mirror of. `promoted_ms` is -1 while it is one; `ends`: up to
    where its partitions are the source's since then. `partitions`: those of `partition_count` that
    the node that answers has. `is_ending`: its promotion is under way.
    """

    topic: str
    topic_id: str
    cluster_id: str
    source_topic: str
    log_id: str
    origins: tuple[str, ...]
    keeps_epochs: bool
    since_ms: int
    promoted_ms: int
    ends: tuple[int, ...]
    settings: dict[str, str]
    schemas: int
    partitions: tuple[MirroredPartition, ...]
    partition_count: int
    is_ending: bool = False


class MirrorRows(AdminAnswer, frozen=True):
    """All mirrors of the cluster, and those that were promoted."""

    cluster_id: str
    mirrors: tuple[MirrorInfo, ...]


class SourceFollowed(AdminAnswer, frozen=True):
    """The groups that have positions of their own in the topic, which stay."""

    own: tuple[str, ...]


class MirrorsPromoted(AdminAnswer, frozen=True):
    """The topics that are mirrors no more, each with the offsets from which on it is its own."""

    promoted: dict[str, tuple[int, ...]]

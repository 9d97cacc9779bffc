"""What is answered to members of groups, and about how far somebody has come.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer


class AssignedPartition(AdminAnswer, frozen=True):
    """A partition that a member is given: its number in the cluster, whose it is, and the offset to
    resume at; -1: nothing is committed. `topic_id` is the log's, which a hard reset changes;
    `topic_uuid` is the topic's own. `is_new`: nothing is committed, and the partition was created
    after the group began.
    """

    number: int
    topic: str
    topic_id: str
    partition: int
    committed: int
    topic_uuid: str = ""
    is_new: bool = False


class GroupBeaten(AdminAnswer, frozen=True):
    """What a member is told. `lost`: why it is no member any more, empty if it is. `assigned` is
    None if that is what it has. `not_committed`: partitions that it does not have.
    """

    epoch: int
    lost: str
    assigned: tuple[AssignedPartition, ...] | None
    not_committed: tuple[int, ...]
    heartbeat_ms: int
    session_ms: int


class PositionsNoted(AdminAnswer, frozen=True):
    """They are; or not: a group of this name has members, or the topic has another log now."""

    noted: bool


class ProcessedOffset(AdminAnswer, frozen=True):
    """How far it is in a partition: `offset` is that of the next record, -1 if nothing is known;
    `lag` how many records there are from there on, None if other nodes have the partition.
    """

    partition: int
    offset: int
    lag: int | None
    at_ms: int


class ProcessedOffsets(AdminAnswer, frozen=True):
    """In all partitions of a topic."""

    topic: str
    partitions: tuple[ProcessedOffset, ...]

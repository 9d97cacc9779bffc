"""What nodes answer about who is connected to them, and how far each has come.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer
from samelog.format.positions import SessionPosition


class SessionPartition(AdminAnswer, frozen=True):
    """A session's part of one partition: up to where this node has its bytes, up to where they are
    merged, and up to where a majority has them merged durably (none yet: run -1).
    """

    topic: str
    partition: int
    replicated: SessionPosition
    merged: SessionPosition
    released: SessionPosition


class SessionRow(AdminAnswer, frozen=True):
    """A session as this node sees it. `connected`: a publisher ships it to this node now, since
    `connected_ms` (-1: none does). `last_record_ms`: when its last bytes came. Bytes and the recent
    rate per second are those that this node received since it was started.
    """

    session: str
    identity: str
    run: int
    is_open: bool
    connected: bool
    connected_ms: int
    last_record_ms: int
    received_bytes: int
    bytes_per_s: float
    unmerged_bytes: int
    dedup_id: str
    partitions: tuple[SessionPartition, ...]


class PublisherSessions(AdminAnswer, frozen=True):
    """All sessions of publishers."""

    sessions: tuple[SessionRow, ...]


class Watermark(AdminAnswer, frozen=True):
    """The highest id merged in a partition."""

    topic: str
    partition: int
    watermark: int


class DedupPublisher(AdminAnswer, frozen=True):
    """A publisher that uses a dedup id, and the highest of its ids that this node has seen in each
    partition. `connected`: to this node.
    """

    session: str
    identity: str
    connected: bool
    partitions: tuple[Watermark, ...]


class DedupRow(AdminAnswer, frozen=True):
    """A dedup id, its watermarks, and the publishers that use it."""

    dedup_id: str
    partitions: tuple[Watermark, ...]
    publishers: tuple[DedupPublisher, ...]


class DedupUsers(AdminAnswer, frozen=True):
    """All dedup ids."""

    dedup_ids: tuple[DedupRow, ...]


class ReadPartition(AdminAnswer, frozen=True):
    """One log that is read: the position up to which it was sent, and how many bytes are left."""

    topic: str
    partition: int
    segment: int
    byte: int
    lag_bytes: int


class SubscriberRow(AdminAnswer, frozen=True):
    """One connection that reads merged logs from this node: of a subscriber, or of a node that
    repairs its own. `bytes_per_s` is the recent rate.
    """

    identity: str
    peer: str
    connected_ms: int
    sent_bytes: int
    bytes_per_s: float
    partitions: tuple[ReadPartition, ...]


class Subscribers(AdminAnswer, frozen=True):
    """All connections that read merged logs from this node, the oldest first."""

    subscribers: tuple[SubscriberRow, ...]


class LatestPosition(AdminAnswer, frozen=True):
    """The end of a partition: `offset` of the next record on this node, `durable` what this node
    has synced, `merged` what a majority has merged durably, `committed` what Raft has committed;
    and the position of `offset` in this node's files.
    """

    topic: str
    partition: int
    offset: int
    durable_offset: int
    merged_offset: int
    committed_offset: int
    segment: int
    byte: int


class LatestPositions(AdminAnswer, frozen=True):
    """The ends of all partitions, or of one topic's."""

    positions: tuple[LatestPosition, ...]


class RaftMember(AdminAnswer, frozen=True):
    """A member of the group. What the leader knows of its log: the highest entry that it has, and
    the state of feeding it (elsewhere -1 and empty).
    """

    name: str
    number: int
    address: str
    voter: bool
    connected: bool
    match_index: int
    progress: str


class RaftStatus(AdminAnswer, frozen=True):
    """This node's part of the Raft group."""

    role: str
    term: int
    leader: str | None
    may_vote: bool
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    members: tuple[RaftMember, ...]

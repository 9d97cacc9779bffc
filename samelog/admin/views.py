"""What nodes answer to those who look: who is connected, how far each has come, what was merged.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer, HeldRecords, LostToDamage


class SessionPlace(AdminAnswer, frozen=True):
    """Byte `byte` of file `log.<run>.<roll>` of one partition of a session."""

    run: int
    roll: int
    byte: int


class SessionPartition(AdminAnswer, frozen=True):
    """A session's part of one partition: up to where this node has its bytes, up to where they are
    merged, and up to where a majority has them merged durably (none yet: run -1).
    """

    topic: str
    partition: int
    replicated: SessionPlace
    merged: SessionPlace
    released: SessionPlace


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
    held: tuple[HeldRecords, ...] = ()
    damaged: tuple[LostToDamage, ...] = ()


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
    """The ends of the partitions that the node has, of all or of one topic."""

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
    """This node's part of the Raft group of all members; `node` is its name."""

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
    node: str = ""


class Election(AdminAnswer, frozen=True):
    """A leader that was elected, when the answering node saw it, and why as far as it saw that."""

    at_ms: int
    term: int
    leader: str
    why: str


class Elections(AdminAnswer, frozen=True):
    """The newest elections that the answering node has seen since its start, oldest first."""

    elections: tuple[Election, ...]


class MergedRange(AdminAnswer, frozen=True):
    """What one session gave to an instruction; `records` 0: all were duplicates, or refused."""

    session: str
    run: int
    records: int
    size_bytes: int


class MergeInstruction(AdminAnswer, frozen=True):
    """A committed merge instruction: the entry of Raft's log that holds it, and its ranges in the
    order in which every node appends them.
    """

    index: int
    term: int
    base_offset: int
    append_ms: int
    ranges: tuple[MergedRange, ...]


class CopyChecksum(AdminAnswer, frozen=True):
    """The running checksum of a node's merged log from offset 0 up to `offset`."""

    node: str
    offset: int
    checksum: int


class MergeOrder(AdminAnswer, frozen=True):
    """The newest instructions of a partition that the answering node still has in Raft's log,
    oldest first; the checksum that a majority last agreed on (at offset 0: on none yet); and those
    that nodes have told of since, as far as the answering node heard them.
    """

    instructions: tuple[MergeInstruction, ...]
    agreed_offset: int
    agreed_checksum: int
    copies: tuple[CopyChecksum, ...]


class PeekedRecord(AdminAnswer, frozen=True):
    """A record. Of long keys, values and headers only the beginning is there; `value_bytes` is the
    whole length (-1: null).
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    value_bytes: int
    headers: tuple[tuple[str, bytes | None], ...]


class RecordPage(AdminAnswer, frozen=True):
    """Records of a partition that has the offsets [start_offset, end_offset) here. All up to
    `next_offset` were looked at.
    """

    start_offset: int
    end_offset: int
    next_offset: int
    records: tuple[PeekedRecord, ...]


class GrantRow(AdminAnswer, frozen=True):
    """What the identities that match `identity` may do, by the answering node's configuration."""

    identity: str
    admin: bool
    publish_sessions: tuple[str, ...]
    publish_topics: tuple[str, ...]
    publish_dedup_ids: tuple[str, ...]
    subscribe_topics: tuple[str, ...]
    subscribe_groups: tuple[str, ...]
    mirror: tuple[str, ...] = ()


class CertificateRow(AdminAnswer, frozen=True):
    """A certificate of the answering node, and when it expires (-1: it cannot be read)."""

    name: str
    expires_ms: int


class AclRow(AdminAnswer, frozen=True):
    """An ACL, as Kafka's tools set it: what a principal may do from a host (`*`: any) with
    resources of a kind that are called `name`, or whose names begin so; or, not `is_allowed`, may
    not.
    """

    principal: str
    host: str
    resource: str
    name: str
    is_prefix: bool
    operation: str
    is_allowed: bool


class Access(AdminAnswer, frozen=True):
    """Who may do what at the answering node, and its certificates. ACLs and users (those whose
    password Kafka's tools set) are the same on every node; what grants say goes before.
    """

    grants: tuple[GrantRow, ...]
    certificates: tuple[CertificateRow, ...]
    acls: tuple[AclRow, ...] = ()
    users: tuple[str, ...] = ()


class Whoami(AdminAnswer, frozen=True):
    """Who the asking client is to the answering node, and whether it may change the cluster."""

    cluster: str
    node: str
    version: str
    identity: str
    may_change: bool

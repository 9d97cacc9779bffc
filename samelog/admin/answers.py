"""What nodes answer when a request changes something, or about the cluster, topics, files, groups.

What else nodes answer is in `samelog.admin.views`. Invariant: one name stands for one type; an
answer is the same JSON over HTTP and from `samelog … --json`.
"""

from __future__ import annotations

from enum import Enum, unique

import msgspec

FRESH_S = 5.0
"""A member says once a second how it is; what it said before is no state, but a memory."""


class AdminAnswer(msgspec.Struct, frozen=True):
    """Base of all answers."""


@unique
class NodeState(Enum):
    """What a node is doing, as others see it."""

    OFFLINE = "offline"
    INITIALIZING = "initializing"
    SYNCING = "syncing"
    LIVE = "live"
    MAINTENANCE = "maintenance"


# --- topics -------------------------------------------------------------------------------------


class TopicInfo(AdminAnswer, frozen=True):
    """A topic as the cluster knows it."""

    name: str
    topic_id: str
    partitions: int
    settings: dict[str, str]
    base: str = ""
    """Of a view: the topic whose records it shows; else empty."""
    query: str = ""
    """Of a view: what passes."""


class DeletingTopic(AdminAnswer, frozen=True):
    """A deleted topic that data groups have yet to drop. Its name is free."""

    name: str
    topic_id: str
    groups: tuple[int, ...]


class Topics(AdminAnswer, frozen=True):
    """All topics."""

    topics: tuple[TopicInfo, ...]
    deleting: tuple[DeletingTopic, ...] = ()


class PartitionInfo(AdminAnswer, frozen=True):
    """One partition on the answering node, which has the offsets [start_offset, end_offset).
    `wanted_offset` above `end_offset`: no node that could be asked has the records in between.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    durable_offset: int
    segments: int
    size_bytes: int
    checksum: int
    committed_offset: int = 0
    merged_offset: int = 0
    halted: str = ""
    wanted_offset: int = 0
    elsewhere: str = ""
    """The nodes that have it, if this one has not: then all numbers are 0."""
    unread: int = 0
    """Of a view: records that this node could not read since its start, and the newest one's
    offset (-1: there is none).
    """
    newest_unread: int = -1


class MisplacedKeys(AdminAnswer, frozen=True):
    """A session that writes keys into a partition in which Kafka's murmur2 does not put them, of a
    topic with `dedup.key` or compaction: `misplaced` of the `compared` records of a sample.
    """

    session: str
    partition: int
    compared: int
    misplaced: int
    remedy: str


class TopicDescription(AdminAnswer, frozen=True):
    """One topic and its partitions. `misplaced_keys`: by those leaders that are on this node."""

    topic: TopicInfo
    partitions: tuple[PartitionInfo, ...]
    misplaced_keys: tuple[MisplacedKeys, ...] = ()


# --- the cluster --------------------------------------------------------------------------------


class EventInfo(AdminAnswer, frozen=True):
    """Something that happened to the cluster and must not be forgotten."""

    at_ms: int
    kind: str
    text: str


class NodeInfo(AdminAnswer, frozen=True):
    """One member, in its own words, as the answering node heard them `age_s` seconds ago (its own:
    0). `not_ready`: why its /readyz answers 503; empty if it answers 200. `host`: what it shares
    with others that fail with it. `stands_by`: it votes only once others of its host, or of other
    hosts, do not.
    """

    name: str
    address: str
    state: NodeState
    detail: str
    boot: int
    applied_index: int
    role: str = ""
    number: int = 0
    voter: bool = True
    maintenance_until_ms: int = 0
    not_ready: str = ""
    age_s: float = 0.0
    host: str = ""
    stands_by: bool = False


class Resources(AdminAnswer, frozen=True):
    """What the process of a node uses, and its limits (0: there is none). Clients are refused once
    `client_descriptors_max` descriptors are open; the others are reserved for files and nodes.
    """

    descriptors: int
    client_descriptors_max: int
    descriptors_max: int
    resident_bytes: int
    resident_bytes_max: int
    threads: int
    threads_max: int


class HeldRecords(AdminAnswer, frozen=True):
    """Records of a partition that a connected publisher holds, because their topic was deleted
    before they were merged.
    """

    topic: str
    partition: int
    topic_id: str
    size_bytes: int


class LostToDamage(AdminAnswer, frozen=True):
    """How many ranges of a partition's files a connected publisher has lost: they were damaged
    before they were shipped. Its log and its sidecar's status name them.
    """

    topic: str
    partition: int
    ranges: int


class SessionInfo(AdminAnswer, frozen=True):
    """One session: its newest run, and what the answering node holds of it but has not merged."""

    session: str
    identity: str
    run: int
    is_open: bool
    unmerged_bytes: int
    dedup_id: str = ""
    held: tuple[HeldRecords, ...] = ()
    damaged: tuple[LostToDamage, ...] = ()


class Status(AdminAnswer, frozen=True):
    """The cluster as one node sees it; `leader` is null while there is none. `resources` are those
    of the answering node.
    """

    cluster: str
    node: str
    leader: str | None
    term: int
    commit_index: int
    nodes: tuple[NodeInfo, ...]
    partitions: tuple[PartitionInfo, ...]
    sessions: tuple[SessionInfo, ...]
    events: tuple[EventInfo, ...] = ()
    resources: Resources | None = None
    warnings: tuple[str, ...] = ()
    """What the loss of one node would stop."""


class SessionDecided(AdminAnswer, frozen=True):
    """The session whose publisher has continued or discarded so many held bytes."""

    session: str
    held_bytes: int


class SessionRetired(AdminAnswer, frozen=True):
    """The session whose directory is fenced."""

    session: str


class NodeAdded(AdminAnswer, frozen=True):
    """The node, which is a learner now, and its number."""

    name: str
    number: int


class NodeRemoved(AdminAnswer, frozen=True):
    """The node, which is no member any more."""

    name: str
    number: int


class LeadershipMoved(AdminAnswer, frozen=True):
    """The node that leads now."""

    leader: str


class MaintenanceSet(AdminAnswer, frozen=True):
    """Until when the nodes are in maintenance (ms of the epoch; 0: they are not)."""

    nodes: tuple[str, ...]
    until_ms: int


class MemberLevel(AdminAnswer, frozen=True):
    """The newest feature level that a member supports, by its own word; 0: it says nothing."""

    name: str
    level: int


class UpgradeStatus(AdminAnswer, frozen=True):
    """The cluster's feature level (0: it has just begun), the newest that a member supports, what
    the levels up to that bring, and why the cluster cannot have it now (empty: it can).
    """

    level: int
    newest: int
    members: tuple[MemberLevel, ...]
    brings: dict[int, str]
    waits_for: tuple[str, ...]


class LevelRaised(AdminAnswer, frozen=True):
    """The cluster's feature level, and what it was."""

    level: int
    since: int


class GroupPlacement(AdminAnswer, frozen=True):
    """A Raft group: who has a replica, who leads (None: nobody is known to), how many replicas it
    shall have, how many entries each member lacks, by the node that leads it (else empty), whether
    it has yet to restart its logs for a hard reset, of the replica at the node that
    answers, by its name: newest term and index, and that it counts for nothing; who only reads it;
    how many replicas vote.
    """

    group: int
    leader: str | None
    members: tuple[str, ...]
    copies: int
    lag: dict[str, int]
    is_resetting: bool = False
    newest: dict[str, tuple[int, int]] = {}
    suspect: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    voters: int = 0


class PartitionPlacement(AdminAnswer, frozen=True):
    """A partition, the group that has it, who leads that, and who has a replica."""

    topic: str
    partition: int
    group: int
    leader: str | None
    replicas: tuple[str, ...]


class PlacementStatus(AdminAnswer, frozen=True):
    """What is where. Group 0 is on all members. Members that are drained get no replicas of other
    groups.
    """

    groups: tuple[GroupPlacement, ...]
    partitions: tuple[PartitionPlacement, ...]
    drained: tuple[str, ...] = ()
    default_copies: int = 0
    """The goal of topics created without a number; 0: one copy on every node."""
    warnings: tuple[str, ...] = ()
    """What the loss of one node would stop."""


class ClusterSettings(AdminAnswer, frozen=True):
    """Settings of the cluster. `default_replication_factor`: how many copies a topic gets that is
    created without a number; 0: one on every node.
    """

    default_replication_factor: int


class ResetTopic(AdminAnswer, frozen=True):
    """A topic, and the id of its new log."""

    topic: str
    log_id: str


class ClusterReset(AdminAnswer, frozen=True):
    """The reset is committed. A node that has applied the entry `index` has done it."""

    index: int
    topics: tuple[ResetTopic, ...]


# --- archiving ----------------------------------------------------------------------------------


class PlannedArchive(AdminAnswer, frozen=True):
    """The oldest `files` segments of a partition would go: offsets [first_offset, next_offset)."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    files: int
    size_bytes: int
    reason: str


class CopyProgress(AdminAnswer, frozen=True):
    """Copying before archiving, as the leader does it: to where (empty: nowhere), how many segments
    it has copied since it was started, how many wait; the file that is being copied (empty: none)
    and how many of how many bytes were read; and why copying waits, until it is tried again.
    """

    target: str = ""
    copied: int = 0
    waiting: int = 0
    file: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    problem: str = ""


class ArchivePlan(AdminAnswer, frozen=True):
    """The policy that counts (empty: none), why a newer one does not, what would go, the partitions
    of which more would go if no consumer group held it, and the nodes that have another policy.
    `data_groups`: how many there are, whose leaders plan for them.
    """

    policy: str
    problem: str
    planned: tuple[PlannedArchive, ...]
    held: tuple[str, ...] = ()
    copies: CopyProgress = CopyProgress()
    differing: tuple[str, ...] = ()
    data_groups: int = 0


class LogFile(AdminAnswer, frozen=True):
    """One file of a merged log, offsets [first_offset, next_offset). Times in ms, -1: none, or not
    known; `archived_ms` -1: it is there. `size_bytes`: before it was archived; `sha256` (hex): of a
    sealed one, soon after its roll; `reason`: of an archived one. `copied_ms` -1: it has no copy;
    else its copies in `copy_formats` (as in `segments,parquet`) are at `copy_url`.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    first_ms: int
    last_ms: int
    size_bytes: int
    rolled_ms: int
    archived_ms: int
    sha256: str
    reason: str
    copied_ms: int = -1
    copy_url: str = ""
    copy_formats: str = ""


class LogHistoryPage(AdminAnswer, frozen=True):
    """A page of files. With `more`, ask again from the end of the last file."""

    files: tuple[LogFile, ...]
    more: bool


# --- schemas ------------------------------------------------------------------------------------


class SchemaInfo(AdminAnswer, frozen=True):
    """One version of a topic's schema, as a text of JSON (docs/typed.md). Equal ones have the same
    fingerprint, the SHA-256 of the text.
    """

    version: int
    set_ms: int
    fingerprint: str
    schema: str


class SchemaPage(AdminAnswer, frozen=True):
    """Versions of a topic's schema, oldest first. With `more`, ask again from the one after the
    last. `newest` is 0 if there is no schema. `topic_id` is that of the topic's log. `since` is of
    the partition that was asked for: pairs of offset and version, from where on that version was in
    force; for records before `next_offset` there will be no others. `enforce`: who refuses what
    does not fit.
    """

    topic: str
    compatibility: str
    newest: int
    versions: tuple[SchemaInfo, ...]
    more: bool
    since: tuple[tuple[int, int], ...] = ()
    topic_id: str = ""
    next_offset: int = 0
    enforce: str = "off"


class SchemaSet(AdminAnswer, frozen=True):
    """The topic's schema has this version, now or already."""

    topic: str
    version: int
    fingerprint: str


# --- consumer groups ----------------------------------------------------------------------------


class GroupInfo(AdminAnswer, frozen=True):
    """A consumer group. `state` is Kafka's word for its state; `protocol_type` is empty if it never
    had a member.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: int
    generation: int


class GroupRow(GroupInfo, frozen=True):
    """A group and its lag, without that of the `elsewhere` partitions that the node lacks."""

    lag: int
    elsewhere: int = 0


class GroupRows(AdminAnswer, frozen=True):
    """All consumer groups."""

    groups: tuple[GroupRow, ...]


class GroupMemberInfo(AdminAnswer, frozen=True):
    """One member, and the partitions that it has; `assignment` is what its group's leader gave a
    member by the classic protocol, in its clients' own encoding. The rest is of samelog's own
    subscribers; what was heard of them, the coordinator knows. Times: ms; -1: not known.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes
    partitions: tuple[tuple[str, int], ...] = ()
    identity: str = ""
    joined_ms: int = -1
    moved_ms: int = -1
    heard_ms: int = -1
    polled_ms: int = -1


class GroupPartition(AdminAnswer, frozen=True):
    """A partition that a group committed in, or has assigned to a member. Its records are at the
    offsets [begin, end); `committed` is -1 and `lag` counts all of them if the group committed
    nothing there. Begin, end and lag are 0 if only the nodes in `elsewhere` have the partition.
    """

    topic: str
    partition: int
    begin: int
    end: int
    committed: int
    lag: int
    committed_at_ms: int
    metadata: str
    elsewhere: str = ""


class GroupDescription(AdminAnswer, frozen=True):
    """One group, its members, and its partitions: those that it committed in or has assigned."""

    group: GroupInfo
    members: tuple[GroupMemberInfo, ...]
    partitions: tuple[GroupPartition, ...]


# --- transactions -------------------------------------------------------------------------------


class TransactionInfo(AdminAnswer, frozen=True):
    """A transactional id and its newest transaction. `state` is Kafka's word for it; `began_ms` is
    -1 unless it is open.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    began_ms: int


class TransactionRows(AdminAnswer, frozen=True):
    """All transactional ids."""

    transactions: tuple[TransactionInfo, ...]


class TransactionPartition(AdminAnswer, frozen=True):
    """A partition that has no marker of the transaction yet, and where its records begin (-1: it
    has none).
    """

    topic: str
    partition: int
    first_offset: int


class TransactionDescription(AdminAnswer, frozen=True):
    """One transactional id, the partitions that take part, and the consumer groups whose offsets go
    with it.
    """

    transaction: TransactionInfo
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]


# --- stages -------------------------------------------------------------------------------------


class StageHeld(AdminAnswer, frozen=True):
    """A majority holds the runs durably: their sender need not keep them."""


class StagePublished(AdminAnswer, frozen=True):
    """The batch is published; `is_new` says whether this request did it."""

    is_new: bool


class StageDropped(AdminAnswer, frozen=True):
    """The stage was given up."""

"""What an administrator can ask of a node, and the answers: the bodies of Request and Response.

Invariant: as for all messages, tag, order and types are the wire format (docs/protocol.md,
"Administration").
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple, TypeAlias

from samelog.format.names import check_session_name, check_topic_name
from samelog.wire.admin_archive import ArchiveRequest, ArchiveResponse
from samelog.wire.admin_groups import GroupRequest, GroupResponse
from samelog.wire.admin_stage import StageRequest, StageResponse
from samelog.wire.bounds import (
    Identifier,
    Message,
    Partition,
    Place63,
    ShortText,
    Text,
    Unsigned32,
)
from samelog.wire.errors import FaultCode


@unique
class NodeState(IntEnum):
    """What a node is doing, as others see it."""

    OFFLINE = 0
    INITIALIZING = 1
    SYNCING = 2
    LIVE = 3
    MAINTENANCE = 4


class TopicInfo(NamedTuple):
    """A topic as the cluster knows it."""

    name: ShortText
    topic_id: Identifier
    partitions: Unsigned32
    settings: dict[str, str]


class PartitionInfo(NamedTuple):
    """One partition on the answering node: offsets [start_offset, end_offset)."""

    topic: ShortText
    partition: Partition
    start_offset: Place63
    end_offset: Place63
    durable_offset: Place63
    segments: Unsigned32
    size_bytes: Place63
    checksum: Unsigned32
    committed_offset: Place63 = 0
    merged_offset: Place63 = 0
    halted: Text = ""
    wanted_offset: Place63 = 0
    """Above `end_offset`: nobody who could be asked has the records from there to here."""


class EventInfo(NamedTuple):
    """Something that happened to the cluster and must not be forgotten."""

    at_ms: Place63
    kind: ShortText
    text: Text


class NodeInfo(NamedTuple):
    """One member as the answering node sees it."""

    name: ShortText
    address: ShortText
    state: NodeState
    detail: Text
    boot: Place63
    applied_index: Place63
    role: ShortText = ""
    number: Unsigned32 = 0
    voter: bool = True
    maintenance_until_ms: Place63 = 0


class SessionInfo(NamedTuple):
    """One session: its newest run, and what the cluster holds of it but has not merged."""

    session: ShortText
    identity: Text
    run: Unsigned32
    is_open: bool
    unmerged_bytes: Place63
    dedup_id: ShortText = ""


class CreateTopic(Message, frozen=True, tag=1):
    """Create a topic; answered by TopicCreated."""

    name: str
    partitions: Unsigned32
    settings: dict[str, str]

    def __post_init__(self) -> None:
        check_topic_name(self.name)


class DeleteTopic(Message, frozen=True, tag=2):
    """Delete a topic for good; answered by TopicDeleted."""

    name: str

    def __post_init__(self) -> None:
        check_topic_name(self.name)


class ListTopics(Message, frozen=True, tag=3):
    """All topics; answered by Topics."""


class DescribeTopic(Message, frozen=True, tag=4):
    """One topic and its partitions; answered by TopicDescription."""

    name: str

    def __post_init__(self) -> None:
        check_topic_name(self.name)


class GetStatus(Message, frozen=True, tag=5):
    """The cluster as the node sees it; answered by Status."""


class RetireSession(Message, frozen=True, tag=6):
    """Fence a session, so that another directory may take the name; answered by SessionRetired."""

    session: str

    def __post_init__(self) -> None:
        check_session_name(self.session)


class AddNode(Message, frozen=True, tag=7):
    """Add a node as a learner; `promote`: it becomes a voter by itself when it has caught up;
    `replaces`: then that node is removed. Answered by NodeAdded, or NotLeader.
    """

    node: str
    address: ShortText
    promote: bool = True
    replaces: str | None = None

    def __post_init__(self) -> None:
        check_session_name(self.node)


class RemoveNode(Message, frozen=True, tag=8):
    """Remove a node; answered by NodeRemoved, or NotLeader."""

    node: str


class ReadmitNode(Message, frozen=True, tag=9):
    """Take a node that lost its directory in anew; answered by NodeAdded, or NotLeader."""

    node: str


class MoveLeadership(Message, frozen=True, tag=10):
    """Let a node lead, or whichever is best; answered by LeadershipMoved, or NotLeader."""

    to: str | None = None


class SetMaintenance(Message, frozen=True, tag=11):
    """A node is worked on for so long (0: no more); answered by MaintenanceSet."""

    node: str
    seconds: Place63


class VoidRecords(Message, frozen=True, tag=12):
    """Fill [first_offset, next_offset) of a partition with void batches, because no node has these
    records; `without`: the nodes that cannot be asked any more. Answered by RecordsVoided, or
    NotLeader.
    """

    topic: str
    partition: Partition
    first_offset: Place63
    next_offset: Place63
    without: tuple[ShortText, ...] = ()

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class AlterTopic(Message, frozen=True, tag=13):
    """Set and unset settings of a topic; answered by TopicAltered."""

    name: str
    settings: dict[str, str]
    unset: tuple[ShortText, ...] = ()

    def __post_init__(self) -> None:
        check_topic_name(self.name)


class ResetCluster(Message, frozen=True, tag=14):
    """Begin the Raft log anew, or, `hard`, the logs of all topics; answered by ClusterReset.
    `reset_id` is new for every reset: one that is asked for twice is done once.
    """

    hard: bool
    reset_id: Identifier


class TopicCreated(Message, frozen=True, tag=1):
    """The topic exists now, on a majority."""

    topic: TopicInfo


class TopicDeleted(Message, frozen=True, tag=2):
    """The topic is gone."""

    topic_id: Identifier


class Topics(Message, frozen=True, tag=3):
    """All topics."""

    topics: tuple[TopicInfo, ...]


class TopicDescription(Message, frozen=True, tag=4):
    """One topic and its partitions."""

    topic: TopicInfo
    partitions: tuple[PartitionInfo, ...]


class Status(Message, frozen=True, tag=5):
    """The cluster as one node sees it; `leader` is None while there is none."""

    cluster: ShortText
    node: ShortText
    leader: ShortText | None
    term: Place63
    commit_index: Place63
    nodes: tuple[NodeInfo, ...]
    partitions: tuple[PartitionInfo, ...]
    sessions: tuple[SessionInfo, ...]
    events: tuple[EventInfo, ...] = ()


class SessionRetired(Message, frozen=True, tag=6):
    """The session's directory is fenced."""

    session: ShortText


class NotLeader(Message, frozen=True, tag=7):
    """Ask another node: `node` at `address`, where known."""

    node: ShortText | None
    address: ShortText | None


class Failed(Message, frozen=True, tag=8):
    """The request was refused or could not be done; the connection is fine."""

    code: FaultCode
    message: Text
    remedy: Text


class NodeAdded(Message, frozen=True, tag=9):
    """The node is a learner now, under this number."""

    name: ShortText
    number: Unsigned32


class NodeRemoved(Message, frozen=True, tag=10):
    """The node is no member any more."""

    name: ShortText
    number: Unsigned32


class LeadershipMoved(Message, frozen=True, tag=11):
    """This node leads now."""

    leader: ShortText


class MaintenanceSet(Message, frozen=True, tag=12):
    """The node is in maintenance until then (ms of the epoch; 0: it is not)."""

    name: ShortText
    until_ms: Place63


class RecordsVoided(Message, frozen=True, tag=13):
    """The offsets are void now."""

    first_offset: Place63
    next_offset: Place63


class TopicAltered(Message, frozen=True, tag=14):
    """The topic's settings are these now, on a majority."""

    topic: TopicInfo


class ResetTopic(NamedTuple):
    """A topic, and the id of its new log."""

    topic: ShortText
    log_id: Identifier


class ClusterReset(Message, frozen=True, tag=15):
    """It is done on a majority: a node that has applied the entry `index` has done it too."""

    index: Place63
    topics: tuple[ResetTopic, ...]


AdminRequest: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | ListTopics
    | DescribeTopic
    | GetStatus
    | RetireSession
    | AddNode
    | RemoveNode
    | ReadmitNode
    | MoveLeadership
    | SetMaintenance
    | VoidRecords
    | AlterTopic
    | ResetCluster
    | ArchiveRequest
    | StageRequest
    | GroupRequest
)
AdminResponse: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | Topics
    | TopicDescription
    | Status
    | SessionRetired
    | NotLeader
    | Failed
    | NodeAdded
    | NodeRemoved
    | LeadershipMoved
    | MaintenanceSet
    | RecordsVoided
    | TopicAltered
    | ClusterReset
    | ArchiveResponse
    | StageResponse
    | GroupResponse
)

"""What can be asked of a node: the fields of each request, with their bounds and meanings.

A request is what its path, query and body say together; `samelog.admin.table` has the paths.
Invariant: a field that is called `topic`, `session` or `node` holds a valid name, and a decoded
field is within its bounds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from samelog.admin.answers import (
    ArchivePlan,
    ClusterReset,
    GroupDescription,
    GroupRows,
    LeadershipMoved,
    LevelRaised,
    LogHistoryPage,
    MaintenanceSet,
    NodeAdded,
    NodeRemoved,
    SchemaPage,
    SchemaSet,
    SessionDecided,
    SessionRetired,
    StageDropped,
    StageHeld,
    StagePublished,
    Status,
    TopicDescription,
    TopicInfo,
    Topics,
    TransactionDescription,
    TransactionRows,
    UpgradeStatus,
)
from samelog.admin.topic_answers import PartitionTruncated, RecordsVoided, TopicMade
from samelog.admin.views import (
    Access,
    DedupUsers,
    Elections,
    LatestPositions,
    MergeOrder,
    PublisherSessions,
    RaftStatus,
    RecordPage,
    Subscribers,
    Whoami,
)
from samelog.format.names import check_session_name, check_topic_name
from samelog.wire.bounds import Identifier, Place63, RunEnd, ShortText

MAX_31 = (1 << 31) - 1
MAX_63 = (1 << 63) - 1
STAGED_RUNS_MAX = 10_000
"""In one request."""
AnswerT_co = TypeVar("AnswerT_co", covariant=True)
"""What is answered if all goes well."""

TopicName = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}$", max_length=249, description="A topic's name.")
]
SessionName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128, description="A session.")
]
NodeHost = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", description="A host.")]
NodeName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", description="A node.")]
GroupName = Annotated[str, Meta(min_length=1, max_length=1024, description="A consumer group.")]
TransactionalId = Annotated[
    str, Meta(min_length=1, max_length=1024, description="A transactional id.")
]
StageName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128, description="A stage.")
]
PartitionNumber = Annotated[int, Meta(ge=0, le=MAX_31, description="A partition.")]
Offset = Annotated[int, Meta(ge=0, le=MAX_63)]
ResetTo = Literal["earliest", "latest", "offset", "time", "shift"]
"""Where a group goes on: `time` is that of the first record of it or later, or the end; `shift` is
by a distance from where the group is, but no further than the log.
"""
NAME_CHECKS = {
    "topic": check_topic_name,
    "session": check_session_name,
    "node": check_session_name,
}


class AdminRequest(msgspec.Struct, Generic[AnswerT_co], frozen=True, forbid_unknown_fields=True):
    """Base of all requests; its parameter is the type of the answer."""

    def __post_init__(self) -> None:
        """Raise InvalidName for a field that holds no name of its kind."""
        for field, check in NAME_CHECKS.items():
            name = getattr(self, field, UNSET)
            if name is not UNSET:
                check(name)


class ConfirmedRequest(AdminRequest[AnswerT_co], Generic[AnswerT_co], frozen=True, kw_only=True):
    """Base of requests that destroy data or end a membership: `confirm` repeats the name of their
    object, so that a mistyped or pasted request changes nothing.
    """

    CONFIRMS: ClassVar[str] = ""
    """The field that `confirm` repeats; empty: the name of the cluster."""
    confirm: Annotated[
        str,
        Meta(description="Repeats the name of the object: topics, session, node, group, cluster."),
    ]

    def __post_init__(self) -> None:
        """Raise ValueError unless `confirm` repeats the name; InvalidName as every request."""
        super().__post_init__()
        if self.CONFIRMS:
            named = getattr(self, self.CONFIRMS)
            self._compare(",".join(named) if isinstance(named, tuple) else str(named))

    def check_cluster(self, cluster: str) -> None:
        """Raise ValueError if the request has to confirm the cluster's name and does not."""
        if not self.CONFIRMS:
            self._compare(cluster)

    def _compare(self, wanted: str) -> None:
        if self.confirm != wanted:
            raise ValueError(f'"confirm" is {self.confirm!r}, not {wanted!r}; nothing was changed')


def answer_type(request: type[AdminRequest[Any]]) -> Any:
    """The type of the answer to a kind of request."""
    (base,) = (each for each in request.__orig_bases__ if get_args(each))  # type: ignore[attr-defined]
    return get_args(base)[0]


# --- the cluster --------------------------------------------------------------------------------


class GetStatus(AdminRequest[Status], frozen=True):
    """The cluster as the node sees it."""


class GetRaftStatus(AdminRequest[RaftStatus], frozen=True):
    """The Raft group as the node sees it."""


class GetElections(AdminRequest[Elections], frozen=True):
    """The newest elections that the node has seen."""


class GetAccess(AdminRequest[Access], frozen=True):
    """The node's grants and certificates."""


class GetIdentity(AdminRequest[Whoami], frozen=True):
    """Who asks, as the node sees it."""


class ResetCluster(ConfirmedRequest[ClusterReset], frozen=True):
    """Restart Raft's log, or (hard) the logs of all topics."""

    hard: Annotated[bool, Meta(description="Restart the logs of all topics, too: docs/resets.md.")]
    reset_id: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9A-Za-z-]{1,64}$",
                description="The same id asked for twice is one reset. Without it, a new id.",
            ),
        ]
        | UnsetType
    ) = UNSET


# --- topics -------------------------------------------------------------------------------------


class ListTopics(AdminRequest[Topics], frozen=True):
    """All topics that whoever asks may read."""


class DescribeTopic(AdminRequest[TopicDescription], frozen=True):
    """One topic and its partitions."""

    topic: TopicName


PARTITIONS_MAX = 10_000
"""Of a topic."""
PARTITION_S = 0.02
"""A node may take so much longer to answer for each partition that it makes or removes."""


class CreateTopic(AdminRequest[TopicMade], frozen=True):
    """Create a topic."""

    topic: TopicName
    partitions: Annotated[int, Meta(ge=1, le=MAX_31, description="How many; at most 10,000.")]
    settings: Annotated[dict[str, str], Meta(description="Settings that differ from the defaults.")]
    replication_factor: (
        Annotated[
            int,
            Meta(ge=1, le=7, description="How many copies of each partition; absent: the default."),
        ]
        | UnsetType
    ) = UNSET
    colocate_with: (
        Annotated[TopicName, Meta(description="A topic whose group it shares for good.")]
        | UnsetType
    ) = UNSET


class CreateView(AdminRequest[TopicInfo], frozen=True):
    """Create a view: a topic that stores nothing, and shows what passes of another one."""

    view: TopicName
    query: Annotated[
        str,
        Meta(max_length=16384, description="SELECT columns FROM topic WHERE condition."),
    ]


class CreatePartitions(AdminRequest[TopicInfo], frozen=True):
    """Let a topic have more partitions. Keys go elsewhere from then on, in every client."""

    topic: TopicName
    partitions: Annotated[
        int, Meta(ge=1, le=MAX_31, description="How many in all; at most 10,000.")
    ]


class AlterTopic(AdminRequest[TopicInfo], frozen=True):
    """Set and unset settings of a topic."""

    topic: TopicName
    settings: Annotated[dict[str, str], Meta(description="Settings to set.")]
    unset: Annotated[
        tuple[ShortText, ...], Meta(description="Settings to set back to their defaults.")
    ] = ()
    replication_factor: (
        Annotated[int, Meta(ge=1, le=7, description="How many nodes shall have each partition.")]
        | UnsetType
    ) = UNSET


class TruncatePartition(ConfirmedRequest[PartitionTruncated], frozen=True):
    """Empty a partition, for good: what is in it now can be read no more."""

    CONFIRMS = "topic"
    topic: TopicName
    partition: PartitionNumber


class DeleteTopic(ConfirmedRequest[TopicInfo], frozen=True):
    """Delete a topic for good; the answer is what it was. A topic that is in use stays: one with
    connected subscribers, members of groups, open runs of publishers, or a mirror.
    """

    CONFIRMS = "topic"
    topic: TopicName
    in_use: Annotated[bool, Meta(description="Delete it although it is in use.")] = False


SCHEMA_CHARACTERS = 64 << 10
"""Of a text."""


class ListSchemas(AdminRequest[SchemaPage], frozen=True):
    """The versions of a topic's schema, oldest first."""

    topic: TopicName
    from_version: Annotated[int, Meta(ge=1, le=MAX_31, description="The first that is wanted.")] = 1
    partition: PartitionNumber | UnsetType = UNSET


class SetSchema(AdminRequest[SchemaSet], frozen=True):
    """Let a topic's schema have another version, behind the newest."""

    topic: TopicName
    schema: Annotated[
        str, Meta(max_length=SCHEMA_CHARACTERS, description="A text of JSON: docs/typed.md.")
    ]
    follows: Annotated[
        int,
        Meta(ge=0, le=MAX_31, description="The newest version that you know; 0: there is none."),
    ]


class VoidRecords(ConfirmedRequest[RecordsVoided], frozen=True):
    """Fill offsets of a partition with void batches, because no node has these records."""

    CONFIRMS = "topic"
    topic: TopicName
    partition: PartitionNumber
    first_offset: Annotated[Offset, Meta(description="The first offset that is missing.")]
    next_offset: Annotated[Offset, Meta(description="The first offset after the missing ones.")]
    without: Annotated[
        tuple[ShortText, ...], Meta(description="Nodes that are lost and need not be asked.")
    ] = ()


class GetLatestPositions(AdminRequest[LatestPositions], frozen=True):
    """Where the partitions of all topics, or of one, end."""

    topic: TopicName | UnsetType = UNSET


class GetMergeOrder(AdminRequest[MergeOrder], frozen=True):
    """The newest merge instructions of a partition."""

    topic: TopicName
    partition: PartitionNumber = 0
    limit: Annotated[int, Meta(ge=1, le=500, description="How many at most.")] = 100


class PeekRecords(AdminRequest[RecordPage], frozen=True):
    """Some records of a partition: from an offset or a time on, or the last ones of it; else from
    the oldest on.
    """

    topic: TopicName
    partition: PartitionNumber = 0
    offset: Annotated[Offset, Meta(description="The first one.")] | UnsetType = UNSET
    at_ms: Annotated[Offset, Meta(description="The time of the first one.")] | UnsetType = UNSET
    last: (
        Annotated[int, Meta(ge=1, le=MAX_31, description="So many before the end.")] | UnsetType
    ) = UNSET
    key: (
        Annotated[str, Meta(max_length=1024, description="Only records with this key.")] | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=200, description="How many at most.")] = 50


class LogHistory(AdminRequest[LogHistoryPage], frozen=True):
    """Files of merged logs, of one topic or partition, from a position on."""

    topic: TopicName | UnsetType = UNSET
    partition: PartitionNumber | UnsetType = UNSET
    from_topic: TopicName | UnsetType = UNSET
    from_partition: PartitionNumber = 0
    from_offset: Annotated[
        Offset, Meta(description="Of an answer with `more`: the last file's `next_offset`.")
    ] = 0


class PlanArchive(AdminRequest[ArchivePlan], frozen=True):
    """What the next round of archiving would archive: in group 0, as its leader says, or in the
    data groups that the asked node leads.
    """

    data_groups: bool = False


# --- publishers and subscribers -----------------------------------------------------------------


class ListSessions(AdminRequest[PublisherSessions], frozen=True):
    """All sessions of publishers."""


class RetireSession(ConfirmedRequest[SessionRetired], frozen=True):
    """Fence a session, so that another directory may take the name."""

    CONFIRMS = "session"
    session: SessionName


class ContinueSession(AdminRequest[SessionDecided], frozen=True):
    """Let a session's held records continue into the next topics of their names."""

    session: SessionName


class DiscardSession(ConfirmedRequest[SessionDecided], frozen=True):
    """Discard a session's held records."""

    CONFIRMS = "session"
    session: SessionName


class ListDedupIds(AdminRequest[DedupUsers], frozen=True):
    """All dedup ids, and who uses them."""


class ListSubscribers(AdminRequest[Subscribers], frozen=True):
    """The connections that read merged logs from this node."""


class ListGroups(AdminRequest[GroupRows], frozen=True):
    """All consumer groups."""


class DescribeGroup(AdminRequest[GroupDescription], frozen=True):
    """One consumer group."""

    group: GroupName
    by_coordinator: Annotated[
        bool, Meta(description="Only the leader answers, which knows when members were heard of.")
    ] = False


class ResetGroup(AdminRequest[GroupDescription], frozen=True):
    """Set the offsets of a group without members, in all partitions of a topic or in one."""

    group: GroupName
    topic: TopicName
    to: ResetTo
    partition: PartitionNumber | UnsetType = UNSET
    offset: (
        Annotated[
            int,
            Meta(
                ge=-MAX_63,
                le=MAX_63,
                description="An offset, a time in ms, or a distance, if `to` is one of these.",
            ),
        ]
        | UnsetType
    ) = UNSET

    def __post_init__(self) -> None:
        """Raise ValueError unless there is an offset just where one is needed."""
        super().__post_init__()
        is_end = self.to in {"earliest", "latest"}
        if is_end != (self.offset is UNSET):
            raise ValueError(f'"to": "{self.to}" {"takes no" if is_end else "needs an"} "offset"')


# --- transactions -------------------------------------------------------------------------------


class ListTransactions(AdminRequest[TransactionRows], frozen=True):
    """All transactional ids."""


class DescribeTransaction(AdminRequest[TransactionDescription], frozen=True):
    """One transactional id."""

    transactional_id: TransactionalId


class AbortTransaction(AdminRequest[TransactionDescription], frozen=True):
    """Abort an open transaction, and fence its producer."""

    transactional_id: TransactionalId


# --- nodes --------------------------------------------------------------------------------------


class AddNode(AdminRequest[NodeAdded], frozen=True):
    """Add a node as a learner."""

    node: NodeName
    address: Annotated[ShortText, Meta(description="Where other nodes reach it: host:port.")]
    promote: Annotated[
        bool, Meta(description="Whether it becomes a voter when it has caught up.")
    ] = True
    replaces: (
        Annotated[str, Meta(max_length=256, description="A node that is removed after that.")]
        | UnsetType
    ) = UNSET


class RemoveNode(ConfirmedRequest[NodeRemoved], frozen=True):
    """Remove a node."""

    CONFIRMS = "node"
    node: NodeName


class ReadmitNode(ConfirmedRequest[NodeAdded], frozen=True):
    """Readmit a node that lost its directory."""

    CONFIRMS = "node"
    node: NodeName


class MoveLeadership(AdminRequest[LeadershipMoved], frozen=True):
    """Let a node lead; without a name, the most advanced one."""

    to: NodeName | UnsetType = UNSET


class GetUpgrade(AdminRequest[UpgradeStatus], frozen=True):
    """The feature level, and whether it can be raised."""


class FinalizeUpgrade(AdminRequest[LevelRaised], frozen=True):
    """Raise the feature level to the newest that members support, if all of them do."""


MaintenanceSeconds = Annotated[
    int,
    Meta(ge=0, le=10 * 365 * 86_400, description="How long from now; 0 ends the maintenance."),
]


class SetMaintenance(AdminRequest[MaintenanceSet], frozen=True):
    """Say how long a node is in maintenance."""

    node: NodeName
    seconds: MaintenanceSeconds


class SetHostMaintenance(AdminRequest[MaintenanceSet], frozen=True):
    """Say how long all nodes of a host are in maintenance."""

    host: NodeHost
    seconds: MaintenanceSeconds


# --- stages: records that their writers publish together (docs/state-machine.md, "Stages") ------


class StagedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One open run, and where it ends: all that is staged in it."""

    session: ShortText
    run_id: Identifier
    ends: Annotated[
        tuple[RunEnd, ...], Meta(description="[topic, partition, roll, byte] of each partition.")
    ]


StagedRuns = Annotated[tuple[StagedRun, ...], Meta(max_length=STAGED_RUNS_MAX)]


class HoldStage(AdminRequest[StageHeld], frozen=True):
    """Answered once a majority holds these runs durably."""

    stage: StageName
    runs: StagedRuns


class PublishStage(AdminRequest[StagePublished], frozen=True):
    """Publish these runs as a batch of the writer: all their records or none. Batches are numbered
    upwards; one that is published already is dropped.
    """

    stage: StageName
    writer: Annotated[ShortText, Meta(description="The writer, which numbers its batches.")]
    batch: Place63
    runs: StagedRuns


class DropStage(AdminRequest[StageDropped], frozen=True):
    """Give up what is staged in these runs, not what is published."""

    stage: StageName
    runs: StagedRuns


StageRequest = HoldStage | PublishStage | DropStage

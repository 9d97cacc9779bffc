"""The table of administrative requests: what nodes serve, commands make, docs/rest.md lists.

A request that is not in the table cannot be made; nodes refuse to start without a handler for each
that is. Invariant: whatever is not in a request's struct is refused; nothing reaches a handler
unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from string import Formatter
from typing import Any

from samelog.admin import group_requests as of_groups
from samelog.admin import mirror_requests as mirror
from samelog.admin import placement_requests as place
from samelog.admin import requests as ask
from samelog.admin import site_requests as site
from samelog.admin.requests import AdminRequest, answer_type
from samelog.wire.errors import FaultCode

CLUSTER_HEADER = "Samelog-Cluster"
"""Names the cluster that is meant; nodes of another one refuse."""
BODY_BYTES_MAX = 64 << 10
STAGE_BYTES_MAX = 4 << 20
SCHEMA_BYTES_MAX = 512 << 10
MEMBER_BYTES_MAX = 4 << 20
NOT_FOUND, CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
REFUSALS = (NOT_FOUND, CONFLICT, HTTPStatus.MISDIRECTED_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
STATUS_OF = {
    FaultCode.NOT_AUTHORISED: HTTPStatus.FORBIDDEN,
    FaultCode.INVALID_NAME: HTTPStatus.BAD_REQUEST,
    FaultCode.WRONG_CLUSTER: HTTPStatus.MISDIRECTED_REQUEST,
    FaultCode.OUT_OF_RANGE: HTTPStatus.UNPROCESSABLE_ENTITY,
    FaultCode.INVALID_BATCH: HTTPStatus.UNPROCESSABLE_ENTITY,
    FaultCode.TOO_MANY: HTTPStatus.UNPROCESSABLE_ENTITY,
    FaultCode.UNKNOWN_TOPIC: HTTPStatus.NOT_FOUND,
    FaultCode.UNKNOWN_GROUP: HTTPStatus.NOT_FOUND,
    FaultCode.UNKNOWN_SESSION: HTTPStatus.NOT_FOUND,
    FaultCode.NOT_A_MEMBER: HTTPStatus.NOT_FOUND,
    FaultCode.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    FaultCode.SESSION_CONFLICT: HTTPStatus.CONFLICT,
    FaultCode.CHANGE_PENDING: HTTPStatus.CONFLICT,
    FaultCode.GROUP_IN_USE: HTTPStatus.CONFLICT,
    FaultCode.TOPIC_IN_USE: HTTPStatus.CONFLICT,
    FaultCode.NOT_READY: HTTPStatus.SERVICE_UNAVAILABLE,
    FaultCode.NOT_LEADER: HTTPStatus.MISDIRECTED_REQUEST,
    FaultCode.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
}
"""The status of a refusal; its `code` says more."""


class WhoMayAsk(Enum):
    """On loopback without TLS everybody has an identity, and may read."""

    ANYBODY = "anybody"
    ANY_IDENTITY = "any certificate of the authority"
    TOPIC_USER = "who may read or write the topic, admin, or loopback"
    GROUP_USER = "who may use the group, or admin"
    SESSION_WRITER = "who may publish in some session"
    MIRROR = "who may mirror the topic"
    READER = "admin, or loopback"
    ADMIN = "admin"
    """It changes something: the audit log says who asked."""


FOR_CERTIFICATES = (WhoMayAsk.ANY_IDENTITY, WhoMayAsk.TOPIC_USER)
"""Who has one may ask; what else it takes, handlers look at."""
BY_PATH = (WhoMayAsk.GROUP_USER, WhoMayAsk.SESSION_WRITER, WhoMayAsk.MIRROR)
"""Rights that are checked before the body is read, which may be long. Handlers check the rest."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One row. The fields of `request` are those of the path, and else of the query (GET) or the
    body (POST).
    """

    method: str
    path: str
    summary: str
    who_may: WhoMayAsk
    request: type[AdminRequest[Any]]
    refusals: tuple[HTTPStatus, ...] = ()
    """What it may be answered besides success and what every request may."""
    repeatable: bool = True
    """Whether asking twice does the same as asking once."""
    body_bytes_max: int = BODY_BYTES_MAX
    for_browsers: bool = False
    """It belongs to the console's pages, not to programs: /openapi.json does not have it."""

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        return answer_type(self.request)

    @property
    def name(self) -> str:
        """An identifier: `get_topics_topic`."""
        words = [part.strip("{}").replace("-", "_") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *(word.replace(".", "_") for word in words)])

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of its path."""
        return tuple(name for _, name, _, _ in Formatter().parse(self.path) if name)

    @property
    def is_change(self) -> bool:
        """Whether the audit log says who asked."""
        return self.who_may is WhoMayAsk.ADMIN


def _read(
    path: str, summary: str, request: type[AdminRequest[Any]], who_may: WhoMayAsk = WhoMayAsk.READER
) -> Operation:
    return Operation("GET", path, summary, who_may, request, REFUSALS)


def _of_topic(path: str, summary: str, request: type[AdminRequest[Any]]) -> Operation:
    return Operation("GET", path, summary, WhoMayAsk.TOPIC_USER, request, REFUSALS)


def _change(
    path: str,
    summary: str,
    request: type[AdminRequest[Any]],
    *,
    repeatable: bool = False,
    limit: int = BODY_BYTES_MAX,
) -> Operation:
    admin = WhoMayAsk.ADMIN
    return Operation("POST", path, summary, admin, request, REFUSALS, repeatable, limit)


def _stage(path: str, summary: str, request: type[AdminRequest[Any]]) -> Operation:
    """Whose identity the sessions belong to may: handlers check that."""
    who_may, limit = WhoMayAsk.SESSION_WRITER, STAGE_BYTES_MAX
    return Operation("POST", path, summary, who_may, request, REFUSALS, body_bytes_max=limit)


def _mirror(
    path: str, summary: str, request: type[AdminRequest[Any]], limit: int = BODY_BYTES_MAX
) -> Operation:
    """Whose grant says `mirror` may: handlers check that."""
    who_may = WhoMayAsk.MIRROR if "{topic}" in path else WhoMayAsk.ANY_IDENTITY
    return Operation("POST", path, summary, who_may, request, REFUSALS, body_bytes_max=limit)


def _member(path: str, summary: str, request: type[AdminRequest[Any]]) -> Operation:
    """Who may use the group and read the topics may: handlers check that."""
    who_may, limit = WhoMayAsk.GROUP_USER, MEMBER_BYTES_MAX
    return Operation("POST", path, summary, who_may, request, REFUSALS, body_bytes_max=limit)


OPERATIONS = (
    _read("/status", "The cluster as this node sees it.", ask.GetStatus),
    _read("/topics", "All that who asks may read.", ask.ListTopics, WhoMayAsk.ANY_IDENTITY),
    _read("/topics/{topic}", "One topic.", ask.DescribeTopic),
    _read("/topics/{topic}/records", "Some records of a partition.", ask.PeekRecords),
    _read(
        "/topics/{topic}/merge-order",
        "The newest merge instructions of a partition, and checksums of its copies.",
        ask.GetMergeOrder,
    ),
    _of_topic(
        "/topics/{topic}/schemas",
        "The versions of a topic's schema, a page at a time.",
        ask.ListSchemas,
    ),
    _read("/sessions", "All sessions of publishers.", ask.ListSessions),
    _read("/dedup", "Dedup ids and their users.", ask.ListDedupIds),
    _read("/subscribers", "Connections that read merged logs from this node.", ask.ListSubscribers),
    _read(
        "/log-history",
        "All files of merged logs, archived ones too, a page at a time.",
        ask.LogHistory,
    ),
    _read("/latest-position", "Where the merged logs end.", ask.GetLatestPositions),
    _read("/groups", "All consumer groups and their lag.", ask.ListGroups),
    _read("/groups/{group}", "One consumer group: members, offsets, lag.", ask.DescribeGroup),
    Operation(
        "GET",
        "/groups/{group}/topics/{topic}",
        "How far a group, or a named subscriber, has come in a topic.",
        WhoMayAsk.ANY_IDENTITY,
        of_groups.GetProcessedOffset,
        REFUSALS,
    ),
    _read("/transactions", "All transactional ids of Kafka's producers.", ask.ListTransactions),
    _read(
        "/transactions/{transactional_id}",
        "One transactional id, and who takes part.",
        ask.DescribeTransaction,
    ),
    _change(
        "/transactions/{transactional_id}/abort",
        "Abort the open transaction of a transactional id, and fence its producer.",
        ask.AbortTransaction,
    ),
    _read("/raft", "The Raft group as this node sees it.", ask.GetRaftStatus),
    _read("/elections", "The newest elections that this node has seen.", ask.GetElections),
    _read("/access", "Grants and certificates of this node.", ask.GetAccess),
    _read("/whoami", "Who asks, as this node sees it.", ask.GetIdentity),
    _read("/placement", "Which groups there are, and what is where.", place.GetPlacement),
    _read("/tasks", "Tasks that move replicas; the leader answers.", place.ListTasks),
    _read("/standing", "What it would go on with if its site were promoted.", site.GetStanding),
    _read("/sites", "Sites, who is there, and how far they are behind.", site.ListSites),
    _read("/upgrade", "The feature level, and whether it can be raised.", ask.GetUpgrade),
    _read(
        "/archive/plan",
        "What the next round of archiving would do; the leader answers.",
        ask.PlanArchive,
    ),
    _change("/topics", "Create a topic.", ask.CreateTopic),
    Operation(
        "POST",
        "/views",
        "Create a view: docs/typed.md.",
        WhoMayAsk.ADMIN,
        ask.CreateView,
        REFUSALS,
        repeatable=False,
    ),
    _change(
        "/topics/{topic}/partitions",
        "Let a topic have more partitions.",
        ask.CreatePartitions,
        repeatable=True,
    ),
    _change("/topics/{topic}/alter", "Change settings of a topic.", ask.AlterTopic),
    _change(
        "/topics/{topic}/schemas",
        "Let a topic's schema have another version: docs/typed.md.",
        ask.SetSchema,
        repeatable=True,
        limit=SCHEMA_BYTES_MAX,
    ),
    _change(
        "/topics/{topic}/truncate",
        "Empty a partition of a topic, for good.",
        ask.TruncatePartition,
        repeatable=True,
    ),
    _change("/topics/{topic}/delete", "Delete a topic for good.", ask.DeleteTopic),
    _change(
        "/topics/{topic}/void",
        "Give up records that no node has any more: docs/operations.md.",
        ask.VoidRecords,
    ),
    _change(
        "/reset", "Restart Raft's log, or all topics' logs.", ask.ResetCluster, repeatable=True
    ),
    _change(
        "/groups/{group}/reset",
        "Set the offsets of a group without members.",
        ask.ResetGroup,
    ),
    _change("/nodes", "Add a node as a learner.", ask.AddNode),
    _change("/nodes/{node}/remove", "Remove a node.", ask.RemoveNode),
    _change("/nodes/{node}/readmit", "Readmit a node that lost its directory.", ask.ReadmitNode),
    _change(
        "/maintenance",
        "Say how long a node is in maintenance.",
        ask.SetMaintenance,
        repeatable=True,
    ),
    _change(
        "/hosts/{host}/maintenance",
        "Say how long all nodes of a host are in maintenance.",
        ask.SetHostMaintenance,
        repeatable=True,
    ),
    _change("/tasks/pause", "Let a task stand still, or begin none.", place.PauseTask),
    _change("/tasks/resume", "Let a task go on, or begin tasks again.", place.ResumeTask),
    _change("/tasks/cancel", "Undo a task.", place.CancelTask),
    _change("/nodes/{node}/drain", "Move all replicas away from a node.", place.DrainNode),
    _change("/hosts/{host}/drain", "Move all replicas away from a host.", place.DrainHost),
    _change(
        "/placement/recover",
        "Let a data group whose majority is lost go on with one replica.",
        place.RecoverDataGroup,
    ),
    _change("/balance", "Even out replicas and leaders.", place.BalanceCluster, repeatable=True),
    _change(
        "/cluster/alter", "Change settings of the cluster.", place.AlterCluster, repeatable=True
    ),
    _change("/sites", "Let the cluster have one more site.", site.CreateSite),
    _change("/sites/{site}/remove", "Remove a site without members.", site.DropSite),
    _change("/sites/{site}/alter", "Let members of a site vote, or only read.", site.AlterSite),
    _change("/sites/{site}/lead", "Have leaders in a site, or not any more.", site.LetSiteLead),
    _change(
        "/sites/{site}/promote",
        "Let this node's site go on alone, when the others are lost: docs/sites.md.",
        site.PromoteSite,
    ),
    _change(
        "/upgrade/finalize",
        "Raise the feature level, for good: docs/upgrades.md.",
        ask.FinalizeUpgrade,
        repeatable=True,
    ),
    _change("/leadership", "Let another node lead.", ask.MoveLeadership, repeatable=True),
    _change(
        "/sessions/{session}/retire",
        "Fence a session's directory, so that another may use the name.",
        ask.RetireSession,
    ),
    _change(
        "/sessions/{session}/continue",
        "Let records that are held for a deleted topic continue into the next one of its name.",
        ask.ContinueSession,
    ),
    _change(
        "/sessions/{session}/discard",
        "Discard records that are held for a deleted topic.",
        ask.DiscardSession,
    ),
    _member("/groups/{group}/beat", "Join a group, stay, commit, or leave.", of_groups.BeatGroup),
    _member(
        "/groups/{group}/positions",
        "Say how far a subscriber has come that is in no group.",
        of_groups.NotePositions,
    ),
    _stage("/stages/{stage}/hold", "Wait until staged records are safe.", ask.HoldStage),
    _stage("/stages/{stage}/publish", "Publish staged records.", ask.PublishStage),
    _stage("/stages/{stage}/drop", "Give up staged records.", ask.DropStage),
    _read(
        "/source",
        "What a mirror elsewhere needs to know of topics and groups here: docs/mirror.md.",
        mirror.GetSource,
        WhoMayAsk.ANY_IDENTITY,
    ),
    _read(
        "/mirrors",
        "All mirrors that who asks may bring records to.",
        mirror.ListMirrors,
        WhoMayAsk.ANY_IDENTITY,
    ),
    _mirror("/mirrors", "Have a mirror of another cluster's topic.", mirror.PutMirror),
    _mirror(
        "/mirrors/{topic}/gap",
        "Let a mirror go on behind offsets that its source has not.",
        mirror.LeaveGap,
    ),
    _mirror(
        "/mirrors/{topic}/schemas",
        "Let a mirror have the next version of its source's schema.",
        mirror.CopySchema,
        SCHEMA_BYTES_MAX,
    ),
    _mirror(
        "/mirrors/{topic}/positions",
        "Let consumer groups be where they are at the source.",
        mirror.FollowMirrored,
        STAGE_BYTES_MAX,
    ),
    _change(
        "/mirrors/promote",
        "Let mirrors be topics of their own, all at once.",
        mirror.PromoteTopics,
        repeatable=True,
    ),
)
OPERATION_OF = {operation.request: operation for operation in OPERATIONS}

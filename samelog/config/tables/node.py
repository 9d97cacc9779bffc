"""What a node can be told.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any

from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    FlatTable,
    Inlined,
    KeyProblem,
    OnlyWith,
    Reload,
    Subtable,
    TableSpec,
    Without,
)
from samelog.config.schema.kinds import (
    PATH,
    BadValue,
    check_distinct,
    checked_name,
    integer,
    list_of,
    path_or_url,
    seconds,
    size,
)
from samelog.config.tables.kafka import KafkaConfig
from samelog.config.tables.shared import (
    DISK_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    HttpConfig,
    LevelKey,
    LogLevel,
    TlsFiles,
)
from samelog.config.values import Address, check_copy_url, check_pattern, is_url
from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name

VOTER_COUNTS = (1, 3, 5, 7)
COPY_FORMATS = ("segments", "parquet")
HEARTBEATS = 3
"""Within an election timeout, so that one that is lost elects nobody."""
_RECORD_BYTES_MAX = 64 << 20
_EXPIRY_S_MAX = 10 * 365 * 24 * 3600
_NAME = checked_name(check_session_name)
_NODE = FlatTable("node", "The node itself")
_PUBLISH = FlatTable("publish", "What it may write")
_SUBSCRIBE = FlatTable("subscribe", "What it may read")


class Fsync(Enum):
    """When a node's data must be on disk."""

    ALWAYS = "always"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig(ConfigTable):
    """A voting node: its name, as in its certificate, and where the other nodes connect to."""

    name: Annotated[str, "A node's name", _NAME]
    address: Annotated[Address, "Where other nodes reach it"]


def _check_identity(text: str) -> str:
    if not check_pattern(text).startswith(("samelog://", "dns:")):
        allowed = '"samelog://<role>/<name>" or "dns:<name>"; either may end with *'
        raise InvalidName(f"{text!r} is not {allowed}")
    return text


def _patterns(
    meaning: str,
    name: str,
    table: FlatTable,
    without: str = "none",
    only_with: OnlyWith | None = None,
) -> ConfigKey:
    return ConfigKey(
        meaning,
        list_of(checked_name(check_pattern)),
        name,
        table,
        without,
        only_with,
        reload=Reload.YES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(ConfigTable):
    """What the identities that match `identity` may do.

    Every text is an exact value or a prefix followed by `*`. What no grant allows is denied.
    `subscribe_groups` are the consumer groups that whoever may read topics may use for it. `mirror`
    alone lets it bring records of another cluster, as they are.
    """

    identity: Annotated[
        str,
        "`samelog://<role>/<name>` or `dns:<name>`; may end with `*`, as all lists below",
        checked_name(_check_identity),
        Reload.YES,
    ]
    admin: Annotated[bool, "May see and change the cluster", Reload.YES] = False
    publish_sessions: Annotated[
        tuple[str, ...], _patterns("The sessions it may be the publisher of", "sessions", _PUBLISH)
    ] = ()
    publish_topics: Annotated[
        tuple[str, ...], _patterns("The topics it may write to in them", "topics", _PUBLISH)
    ] = ()
    publish_dedup_ids: Annotated[
        tuple[str, ...], _patterns("The dedup ids it may use", "dedup_ids", _PUBLISH)
    ] = ()
    subscribe_topics: Annotated[
        tuple[str, ...], _patterns("The topics it may read", "topics", _SUBSCRIBE)
    ] = ()
    subscribe_groups: Annotated[
        tuple[str, ...],
        _patterns(
            "The consumer groups it may use",
            "groups",
            _SUBSCRIBE,
            "all",
            OnlyWith("subscribe_topics", "topics"),
        ),
    ] = ("*",)
    mirror: Annotated[
        tuple[str, ...],
        "The topics that it may make as mirrors of another cluster's: docs/mirror.md",
        list_of(checked_name(check_pattern)),
        Without("none"),
        Reload.YES,
    ] = ()

    def check(self) -> None:
        both = bool(self.publish_sessions) and bool(self.publish_topics)
        if not both and (self.publish_sessions or self.publish_topics or self.publish_dedup_ids):
            raise KeyProblem("publish", "needs both sessions and topics, or it allows nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas(ConfigTable):
    """What one publisher's identity may have at most. `unmerged_bytes`: at each node, received and
    not merged yet; 0: a quarter of the node's disk.
    """

    sessions: Annotated[
        int,
        "Sessions with an open run; ten times as many that have ended are remembered",
        integer(1, 1_000_000),
        Reload.YES,
    ] = 20_000
    partitions: Annotated[
        int, "Partitions that its open sessions write to", integer(1, 1_000_000), Reload.YES
    ] = 200_000
    unmerged_bytes: Annotated[
        int,
        "Received by a node and not merged yet; 0: a quarter of its disk",
        size(0, DISK_BYTES_MAX),
        Reload.YES,
    ] = 0


_CONNECTIONS = integer(1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits(ConfigTable):
    """How many connections a node's port has at most: of nodes, publishers, subscribers and HTTP
    clients together. A connection whose peer is not known yet is a handshake. And how much of the
    logs it keeps in memory.
    """

    connections: Annotated[int, "Connections", _CONNECTIONS, Reload.YES] = 4096
    connections_per_identity: Annotated[
        int, "Connections of one certificate's identity", _CONNECTIONS, Reload.YES
    ] = 1024
    handshakes: Annotated[
        int, "Connections whose peer is yet unknown", _CONNECTIONS, Reload.YES
    ] = 256
    handshakes_per_host: Annotated[
        int, "Those that come from one address", _CONNECTIONS, Reload.YES
    ] = 64
    tail_bytes: Annotated[
        int,
        "Memory for the newest bytes of all partitions together; readers take older ones, and with "
        "0 all, from files, which the system caches: docs/operations.md",
        size(0, DISK_BYTES_MAX),
    ] = 0
    session_memory_bytes: Annotated[
        int,
        "Memory for the newest session bytes that are not merged on a majority; older ones are "
        "read from files",
        size(0, DISK_BYTES_MAX),
    ] = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry(ConfigTable):
    """How long the cluster remembers what nobody uses, in seconds: the sequences of idempotent
    producers, and the runs of sessions that have none open.
    """

    producers_s: Annotated[
        int, "Sequences of idempotent producers, in seconds", integer(60, _EXPIRY_S_MAX)
    ] = 7 * 24 * 3600
    sessions_s: Annotated[
        int, "Runs of sessions that have none open, in seconds", integer(60, _EXPIRY_S_MAX)
    ] = 30 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrub(ConfigTable):
    """How a node looks for damage at rest: it waits for so long, then reads all merged segments at
    this rate (0: never), and so on.
    """

    bytes_per_s: Annotated[
        int, "How fast merged logs are read; 0: never", size(0, DISK_BYTES_MAX)
    ] = 8 << 20
    interval_s: Annotated[
        int, "The pause between two rounds, in seconds", integer(1, _EXPIRY_S_MAX)
    ] = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings(ConfigTable):
    """After how long without a word of the leader, in milliseconds, the nodes elect another one,
    and how often a leader speaks. A node that is late itself waits up to ten times as long.
    """

    election_ms: Annotated[
        int,
        "So long without a word of the leader, or up to 1.4 times as long by chance, and a node "
        "asks for another one; up to ten times as long while it gets too little processor time "
        "itself",
        integer(100, 60_000),
    ] = 1_000
    heartbeat_ms: Annotated[
        int,
        "How often a leader speaks; at most a third of `election_ms`",
        integer(10, 10_000),
    ] = 100

    replace_after_s: Annotated[
        float,
        "So long without a word of a member that is not in maintenance, and the copies that it has "
        "of data groups are remade on other members",
        seconds(10, 30 * 86_400),
    ] = 600.0

    def check(self) -> None:
        if self.election_ms < HEARTBEATS * self.heartbeat_ms:
            least = HEARTBEATS * self.heartbeat_ms
            reason = f"must be at least {HEARTBEATS} times heartbeat_ms, that is {least}"
            raise KeyProblem("election_ms", reason)


def _check_copy_format(text: str) -> str:
    if text not in COPY_FORMATS:
        raise InvalidName(f"{text!r} is none of {', '.join(COPY_FORMATS)}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(ConfigTable):
    """Where the archiving policy is (None: there is none but topics' settings), and how often the
    leader looks; where segments are copied to before they are archived (a directory or a URL, None:
    nowhere), and in which formats where topics do not say.
    """

    policy: Annotated[
        str | None, "The policy, JSON", PATH, Without("topics' own settings only"), Reload.CONTENTS
    ] = None
    interval_s: Annotated[
        float,
        "How often the leader looks for segments to archive for segments to archive",
        seconds(0.1, 3600),
    ] = 10.0
    copy_to: Annotated[
        str | None,
        "Where segments are copied before they are archived: a directory, or a URL such as `s3://bucket/path`",
        path_or_url(check_copy_url),
        Without("nowhere"),
    ] = None
    copy_formats: Annotated[
        tuple[str, ...],
        "Formats of the copies: " + ", ".join(f"`{name}`" for name in COPY_FORMATS),
        list_of(checked_name(_check_copy_format), distinct=True),
        Without('`["segments"]`, if there is `copy_to`'),
        OnlyWith("copy_to", "copy_to"),
    ] = ()

    @classmethod
    def complete(cls, values: dict[str, Any]) -> None:
        if values.get("copy_to") and not values.get("copy_formats"):
            values["copy_formats"] = COPY_FORMATS[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePace(ConfigTable):
    """How fast a node copies what it lacks, and how often it writes the replicated state."""

    recovery_bytes_per_s: Annotated[
        int,
        "How fast the node copies what it lacks from others; 0: no limit",
        size(0, DISK_BYTES_MAX),
        _NODE,
    ] = 0
    snapshot_interval_s: Annotated[
        float, "How often the replicated state is written, if it changed", seconds(0.1, 3600), _NODE
    ] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlaces(ConfigTable):
    """Where the node is, with how many others, and where its Raft files are."""

    site: Annotated[
        str,
        "The site that the node is in, one of `samelog site list`",
        checked_name(check_session_name),
        _NODE,
        Without("none"),
    ] = ""
    host: Annotated[
        str,
        "What the node shares with others that fail with it, as a machine: copies of a partition "
        "are on different hosts",
        checked_name(check_session_name),
        _NODE,
        Without("the node's name"),
    ] = ""
    members_on_host: Annotated[
        int,
        "How many nodes with this `host` share its memory and disk; each takes its share of some "
        "limits: docs/configuration.md#several-nodes-on-a-host",
        integer(1, 64),
        _NODE,
    ] = 1
    raft_dir: Annotated[
        str,
        "A directory of its own for Raft's files, as on another disk: docs/operations.md",
        PATH,
        _NODE,
        Without("in `data`"),
    ] = ""

    def share(self, size: int) -> int:
        """A member's share of so many bytes of its host; 0, which may mean no limit, only of 0."""
        return -(-size // self.members_on_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(ConfigTable):
    """One node. `advertise` is what clients are told.

    `peers` are all voters of the cluster that is made from this configuration, the node included;
    or, if it is not among them, the nodes of the cluster that it joins. Once the node has a
    directory, they are only where it looks for other members first.
    """

    name: Annotated[str, "The node's name, as in its certificate's URI", _NAME, _NODE]
    cluster: Annotated[str, "The cluster's name, the same on every node", _NAME, _NODE]
    data: Annotated[str, "The directory for all data of the node", PATH, _NODE]
    listen: Annotated[Address, "Where nodes, publishers and subscribers connect", _NODE]
    advertise: Annotated[
        Address,
        "Where others reach the node",
        _NODE,
        Without("its own address in `[[peers]]`; a node that joins needs it"),
    ]
    fsync: Annotated[
        Fsync, "When acknowledged records are synced to disk: docs/reliability.md", _NODE
    ] = Fsync.ALWAYS
    fsync_interval_ms: Annotated[
        int,
        'How long it may take to get there; only with `fsync = "interval"`',
        integer(1, 60_000),
        _NODE,
        OnlyWith("fsync", 'fsync = "interval"', Fsync.INTERVAL),
    ] = 50
    segment_bytes: Annotated[
        int,
        "The size at which a segment of a merged log rolls",
        size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        _NODE,
    ] = 1 << 30
    disk_stop_percent: Annotated[
        int,
        "The node receives no records while its disk is fuller than this",
        integer(1, 100),
        _NODE,
    ] = 95
    auto_create_topics: Annotated[bool, "Publishing to a topic creates the topic", _NODE] = True
    place: Annotated[NodePlaces, Inlined()] = NodePlaces()
    max_record_bytes: Annotated[int, "The largest record", size(1, _RECORD_BYTES_MAX), _NODE] = (
        1 << 20
    )
    pace: Annotated[NodePace, Inlined()] = NodePace()
    tls: Annotated[TlsFiles, Subtable("The node's certificate")]
    peers: Annotated[
        tuple[PeerConfig, ...],
        Subtable(
            "The voters of a new cluster, this node included; of a node that joins, the nodes of "
            "the cluster. Once there is a directory, they are only where the node looks first"
        ),
    ]
    grants: Annotated[
        tuple[Grant, ...],
        Subtable("What identities may do; everything else is denied: docs/security.md"),
    ] = ()
    quotas: Annotated[Quotas, Subtable("What one publisher's identity may have at most")] = Quotas()
    limits: Annotated[
        ConnectionLimits,
        Subtable("How many connections the node's port has, and what it keeps in memory, at most"),
    ] = ConnectionLimits()
    expiry: Annotated[
        Expiry, Subtable("How long the cluster remembers what is not used any more")
    ] = Expiry()
    scrub: Annotated[Scrub, Subtable("Reading old segments to find damage")] = Scrub()
    raft: Annotated[
        RaftSettings,
        Subtable("How soon a leader is replaced: docs/operations.md; alike on all nodes"),
    ] = RaftSettings()
    archive: Annotated[ArchiveConfig, Subtable("docs/archiving.md")] = ArchiveConfig()
    kafka: Annotated[KafkaConfig, Subtable("Kafka clients: docs/kafka.md")] = field(
        default_factory=KafkaConfig
    )
    http: Annotated[
        HttpConfig | None, Subtable("The node answers HTTP if this table is there: docs/rest.md")
    ] = None
    log_level: LevelKey = LogLevel.INFO

    @classmethod
    def complete(cls, values: dict[str, Any]) -> None:
        if "advertise" in values:
            return
        own = [peer.address for peer in values["peers"] if peer.name == values["name"]]
        if not own:
            name = values["name"]
            reason = f"{name!r} is not among the peers, so it joins their cluster: needs advertise"
            raise KeyProblem("node.advertise", reason)
        values["advertise"] = own[0]

    def check(self) -> None:
        names = [peer.name for peer in self.peers]
        try:
            check_distinct(names)
            check_distinct(str(peer.address) for peer in self.peers)
        except BadValue as error:
            raise KeyProblem("peers", str(error)) from error
        self._check_raft_dir()
        copies = self.archive.copy_to
        if copies and not is_url(copies) and PurePath(copies).is_relative_to(self.data):
            reason = f"{copies} is in the data directory, {self.data}"
            raise KeyProblem("archive.copy_to", reason)

    def _check_raft_dir(self) -> None:
        raft, data = PurePath(self.place.raft_dir), PurePath(self.data)
        if self.place.raft_dir and (raft.is_relative_to(data) or data.is_relative_to(raft)):
            reason = f"{raft} and the data directory, {data}, are in each other: choose another one"
            raise KeyProblem("node.raft_dir", reason)


NODE_FILE = TableSpec("", "A node's file consists of tables").add(NodeConfig)

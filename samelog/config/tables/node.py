"""What a node can be told.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from samelog.config.tables.kafka import KafkaConfig
from samelog.config.tables.shared import HttpConfig, LogLevel, TlsFiles
from samelog.config.values import Address


class Fsync(Enum):
    """When a node's data must be on disk."""

    ALWAYS = "always"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """A voting node: its name, as in its certificate, and where the other nodes connect to."""

    name: str
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the identities that match `identity` may do.

    Every text is an exact value or a prefix followed by `*`. What no grant allows is denied.
    `subscribe_groups` are the consumer groups that whoever may read topics may use for it.
    """

    identity: str
    publish_sessions: tuple[str, ...] = ()
    publish_topics: tuple[str, ...] = ()
    publish_dedup_ids: tuple[str, ...] = ()
    subscribe_topics: tuple[str, ...] = ()
    subscribe_groups: tuple[str, ...] = ("*",)
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What one publisher's identity may have at most. `unmerged_bytes`: at each node, received and
    not merged yet; 0: a quarter of the node's disk.
    """

    sessions: int = 1_000
    partitions: int = 10_000
    unmerged_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """How long the cluster remembers what nobody uses, in seconds: the sequences of idempotent
    producers, and the runs of sessions that have none open.
    """

    producers_s: int = 7 * 24 * 3600
    sessions_s: int = 30 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrub:
    """How a node looks for damage at rest: it waits for so long, then reads all merged segments at
    this rate (0: never), and so on.
    """

    bytes_per_s: int = 8 << 20
    interval_s: int = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """Where the archiving policy is (None: there is none but topics' settings), and how often the
    leader looks; where segments are copied to before they are archived (a directory or a URL, None:
    nowhere), and in which formats where topics do not say.
    """

    policy: str | None = None
    interval_s: float = 10.0
    copy_to: str | None = None
    copy_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node. `advertise` is what clients are told.

    `peers` are all voters of the cluster that is made from this configuration, the node included;
    or, if it is not among them, the nodes of the cluster that it joins. Once the node has a
    directory, only what the cluster has agreed on counts.
    """

    name: str
    cluster: str
    data: str
    listen: Address
    advertise: Address
    tls: TlsFiles
    peers: tuple[PeerConfig, ...]
    grants: tuple[Grant, ...] = ()
    fsync: Fsync = Fsync.ALWAYS
    fsync_interval_ms: int = 50
    segment_bytes: int = 1 << 30
    auto_create_topics: bool = True
    max_record_bytes: int = 1 << 20
    snapshot_interval_s: float = 5.0
    disk_stop_percent: int = 95
    quotas: Quotas = Quotas()
    expiry: Expiry = Expiry()
    scrub: Scrub = Scrub()
    archive: ArchiveConfig = ArchiveConfig()
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    http: HttpConfig | None = None
    log_level: LogLevel = LogLevel.INFO

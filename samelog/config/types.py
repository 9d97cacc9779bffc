"""What a node and a client can be told, as values.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute; nothing else in the package reads a configuration file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from samelog.config.broker_defaults import BrokerDefaults
from samelog.config.group_limits import GroupLimits

if TYPE_CHECKING:
    from samelog.config.document import Document


class ConfigError(Exception):
    """The operator's configuration is unusable; the message says where, why and what is allowed."""


class Fsync(Enum):
    """When a node's data must be on disk."""

    ALWAYS = "always"
    INTERVAL = "interval"


class OnFull(Enum):
    """What a publisher does when its files fill the disk budget."""

    BLOCK = "block"
    RAISE = "raise"


class LogLevel(Enum):
    """The least important lines of a log that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Address(NamedTuple):
    """Where something listens; `host` is a name or an IP address (IPv6 without brackets)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of the PEM files for mutual TLS: authority, own certificate, its private key, and what
    the authority has revoked (None: nothing).
    """

    ca: str
    cert: str
    key: str
    crl: str | None = None
    crl_may_lack: ClassVar[bool] = False
    """Whether nothing is revoked, too, while there is no such file."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, for whoever watches them."""
        found = (self.ca, self.cert, self.key)
        return found if self.crl is None else (*found, self.crl)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles(TlsFiles):
    """Files that are replaced all at once, with the one of what is revoked or without it."""

    crl_may_lack: ClassVar[bool] = True


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


class Security(Enum):
    """How a Kafka listener's connections are protected."""

    PLAINTEXT = "plaintext"
    TLS = "tls"
    MTLS = "mtls"
    SASL_TLS = "sasl_tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListener:
    """Where Kafka clients connect. `advertise`: what they are told, on every node under the same
    `name`; `allow_plaintext_from_anywhere`: plaintext on an address other hosts may reach; `tls`:
    None for the node's own files.
    """

    name: str
    listen: Address
    advertise: Address
    security: Security = Security.PLAINTEXT
    allow_plaintext_from_anywhere: bool = False
    tls: TlsFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaUser:
    """Somebody who authenticates by name and password; the file holds nothing but the password."""

    name: str
    password_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """What each identity that matches may ask of one node per second: bytes of Produce requests, of
    fetched records, and requests. 0: as much as it can.
    """

    identity: str
    producer_byte_rate: int = 0
    consumer_byte_rate: int = 0
    request_rate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """A node's Kafka listeners, and what a client may have at each of them; `rack`: where the node
    is, for clients that say where they are, empty if nobody cares.
    """

    listeners: tuple[KafkaListener, ...] = ()
    users: tuple[KafkaUser, ...] = ()
    quotas: tuple[ClientQuota, ...] = ()
    rack: str = ""
    defaults: BrokerDefaults = field(default_factory=BrokerDefaults)
    groups: GroupLimits = field(default_factory=GroupLimits)
    max_request_bytes: int = 16 << 20
    max_memory_bytes: int = 256 << 20
    max_connections: int = 4096
    max_connections_per_host: int = 4096
    idle_s: float = 600.0
    request_s: float = 30.0


class HttpSecurity(Enum):
    """How HTTP connections are protected."""

    PLAINTEXT = "plaintext"
    MTLS = "mtls"


HTTP_ADDRESS = Address("127.0.0.1", 7080)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where operators and monitoring ask over HTTP; plaintext is on loopback only. `tls`: None for
    the process's own files.
    """

    listen: Address = HTTP_ADDRESS
    security: HttpSecurity = HttpSecurity.PLAINTEXT
    tls: TlsFiles | None = None


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
    kafka: KafkaConfig = KafkaConfig()
    http: HttpConfig | None = None
    log_level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherKafka:
    """Where the publisher sidecar takes records of Kafka clients, and the session they go into.
    `partitions`: of topics that do not have `num_partitions`.
    """

    listen: Address
    session: str
    num_partitions: int = 1
    partitions: Mapping[str, int] = field(default_factory=dict)
    message_max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberKafka:
    """Where the subscriber sidecar lets Kafka clients read its copies."""

    listen: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """A publisher's disk; `directory` holds its sessions (None: the caller names it)."""

    directory: str | None = None
    budget_bytes: int = 8 << 30
    roll_bytes: int = 1 << 30
    on_full: OnFull = OnFull.BLOCK
    kafka: PublisherKafka | None = None
    http: HttpConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberConfig:
    """A subscriber's disk; `directory` holds its copies (None: the caller names it) of `topics`
    (empty: the caller names them). `keep`: they keep what the cluster archives, as far as
    `budget_bytes` lets them (None: there is no limit).
    """

    directory: str | None = None
    topics: tuple[str, ...] = ()
    kafka: SubscriberKafka | None = None
    keep: bool = False
    budget_bytes: int | None = None
    http: HttpConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """A publisher, subscriber or administrator of one cluster.

    `node_names` is empty (any certificate of role node will do) or names each of `nodes`;
    `kafka_bootstrap` is what Kafka clients call bootstrap.servers, empty if there is none;
    `kafka_security`: of those listeners, for who connects to them on behalf of Kafka clients.
    `document`: what it was read from, for who reads it again (None: it was made otherwise).
    """

    nodes: tuple[Address, ...]
    cluster: str
    tls: TlsFiles
    node_names: tuple[str, ...] = ()
    kafka_bootstrap: str = ""
    kafka_security: Security = Security.PLAINTEXT
    publisher: PublisherConfig = PublisherConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    log_level: LogLevel = LogLevel.INFO
    document: Document | None = field(default=None, compare=False, repr=False)

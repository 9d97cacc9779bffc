"""What a publisher, subscriber or administrator can be told.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute. Kafka listeners of sidecars are on loopback, because whoever reaches them has
the sidecar's rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from samelog.config.document import ConfigDocument
from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    Inlined,
    KeyName,
    KeyProblem,
    NamedKeys,
    Reload,
    Subtable,
    TableSpec,
    Without,
)
from samelog.config.schema.kinds import ADDRESS, PATH, checked_name, list_of, seconds, size
from samelog.config.tables.kafka import BATCH_BYTES, PARTITION_COUNT, Security
from samelog.config.tables.shared import (
    DISK_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    HttpConfig,
    LevelKey,
    LogLevel,
    TlsFiles,
)
from samelog.config.values import Address, is_loopback
from samelog.format.names import check_copied_topic, check_session_name, check_topic_name

_NAME = checked_name(check_session_name)
_LISTEN = ConfigKey("Where; a loopback address")
_NODES_NEEDED = 'must name at least one node: ["host:port", …]'
_DIRECTORY = Without("`--dir` of the command line")


class OnFull(Enum):
    """What a publisher does when its files fill the disk budget."""

    BLOCK = "block"
    RAISE = "raise"


class OnRecreate(Enum):
    """What becomes of a publisher's unmerged records when their topic is deleted."""

    HOLD = "hold"
    CONTINUE = "continue"
    DISCARD = "discard"


class Compression(Enum):
    """How a publisher compresses its batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def _check_loopback(listen: Address) -> None:
    if not is_loopback(listen):
        reason = f"{listen} is not a loopback address: any client there has the sidecar's rights"
        raise KeyProblem("listen", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherKafka(ConfigTable):
    """Where the publisher sidecar takes records of Kafka clients, and the session they go into.
    `partitions`: of topics that do not have `num_partitions`.
    """

    listen: Annotated[Address, _LISTEN]
    session: Annotated[str, "The session for what Kafka clients write", _NAME]
    num_partitions: Annotated[int, PARTITION_COUNT] = 1
    message_max_bytes: Annotated[int, BATCH_BYTES] = 1 << 20
    partitions: Annotated[
        Mapping[str, int],
        NamedKeys(
            "Number of partitions by topic",
            ConfigKey("Partitions", PARTITION_COUNT.kind, without="`num.partitions`"),
            check_topic_name,
        ),
    ] = field(default_factory=dict)

    def check(self) -> None:
        _check_loopback(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberKafka(ConfigTable):
    """Where the subscriber sidecar lets Kafka clients read its copies."""

    listen: Annotated[Address, _LISTEN]

    def check(self) -> None:
        _check_loopback(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig(ConfigTable):
    """A publisher's disk; `directory` holds its sessions (None: the caller names it)."""

    directory: Annotated[
        str | None, "The directory of the sessions", PATH, KeyName("dir"), _DIRECTORY
    ] = None
    budget_bytes: Annotated[
        int, "Disk space for a publisher's files; at least `roll_bytes`", size(1, DISK_BYTES_MAX)
    ] = 8 << 30
    roll_bytes: Annotated[
        int,
        "The size at which a session log file rolls",
        size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    ] = 1 << 30
    on_full: Annotated[OnFull, "What `append` does when this space is used up"] = OnFull.BLOCK
    compression: Annotated[Compression, "How batches are compressed"] = Compression.NONE
    linger_s: Annotated[
        float,
        "How long records that follow each other closely are gathered before they are shipped; "
        "three quarters longer while they keep coming; 0: never",
        seconds(0, 1),
        Reload.YES,
    ] = 0.004
    kafka: Annotated[
        PublisherKafka | None,
        Subtable("The publisher sidecar's Kafka listener: docs/kafka-sidecars.md"),
    ] = None
    http: Annotated[
        HttpConfig | None,
        Subtable("The publisher sidecar answers HTTP if this table is there: docs/rest.md"),
    ] = None

    def check(self) -> None:
        if self.budget_bytes < self.roll_bytes:
            reason = f"{self.budget_bytes} is less than roll_bytes, {self.roll_bytes}"
            raise KeyProblem("budget_bytes", f"{reason}: only whole files are ever released")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberConfig(ConfigTable):
    """A subscriber's disk; `directory` holds its copies (None: the caller names it) of `topics`
    (empty: the caller names them). `keep`: they keep what the cluster archives, as far as
    `budget_bytes` lets them (None: there is no limit).
    """

    directory: Annotated[
        str | None, "The directory of the copies", PATH, KeyName("dir"), _DIRECTORY
    ] = None
    topics: Annotated[
        tuple[str, ...],
        "What is copied; at once in a sidecar without `--topic`",
        list_of(checked_name(check_copied_topic), distinct=True),
        Without("`--topic` of the command line"),
        Reload.YES,
    ] = ()
    keep: Annotated[bool, "Copies keep what the cluster archives"] = False
    budget_bytes: Annotated[
        int | None,
        "What the copies of all topics that are copied may take: beyond, the oldest closed "
        "files of them are emptied, read or not",
        size(SEGMENT_BYTES_MIN, DISK_BYTES_MAX),
        Without("they take what the cluster keeps"),
    ] = None
    kafka: Annotated[
        SubscriberKafka | None,
        Subtable("The subscriber sidecar's Kafka listener: docs/kafka-sidecars.md"),
    ] = None
    http: Annotated[
        HttpConfig | None,
        Subtable("The subscriber sidecar answers HTTP if this table is there: docs/rest.md"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PemTexts(ConfigTable):
    """Certificates and a key as texts within a configuration, instead of files beside it."""

    ca_pem: Annotated[
        str,
        "The authority's certificates as text instead of `ca`: docs/enrolment.md",
        Without("`ca` names the file"),
        Reload.YES,
    ]
    cert_pem: Annotated[
        str,
        "The certificate of this process as text, with its chain",
        Without("`cert` names the file"),
        Reload.YES,
    ]
    key_pem: Annotated[
        str,
        ConfigKey(
            "Its private key as text; the file that has it must be as private as a key file",
            without="`key` names the file",
            reload=Reload.YES,
            secret=True,
        ),
    ]
    crl_pem: Annotated[
        str,
        "The revocation lists as text",
        Without("`crl` names the file, or nobody is revoked"),
        Reload.YES,
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(ConfigTable):
    """A publisher, subscriber or administrator of one cluster.

    `node_names` is empty (any certificate of role node will do) or names each of `nodes`;
    `kafka_bootstrap` is what Kafka clients call bootstrap.servers, empty if there is none;
    `kafka_security`: of those listeners, for who connects to them on behalf of Kafka clients.
    `document`: what it was read from, for who reads it again (None: it was made otherwise).
    """

    nodes: Annotated[
        tuple[Address, ...],
        "The nodes, each `host:port`",
        list_of(ADDRESS, distinct=True, needed=_NODES_NEEDED),
        Reload.YES,
    ]
    node_names: Annotated[
        tuple[str, ...],
        "The name of each of `nodes`, as its certificate must say",
        list_of(_NAME, distinct=True),
        Without("any certificate of a node will do"),
        Reload.YES,
    ] = ()
    cluster: Annotated[str, "The cluster's name", _NAME]
    rack: Annotated[
        str,
        "Where this client is, a site or `site/rack`: nodes that are there are read from first",
        Without("none is preferred"),
        Reload.YES,
    ] = ""
    tls: Annotated[TlsFiles, Inlined(without="`{}_pem` has it", instead=PemTexts)]
    kafka_bootstrap: Annotated[
        str, "`bootstrap.servers` for Kafka clients", Without("there is none")
    ] = ""
    kafka_security: Annotated[
        Security, "Security of these listeners, for sidecars that connect to them; not `sasl_tls`"
    ] = Security.PLAINTEXT
    publisher: Annotated[PublisherConfig, Subtable("Publishers and their sidecar")] = (
        PublisherConfig()
    )
    subscriber: Annotated[SubscriberConfig, Subtable("Subscribers and their sidecar")] = (
        SubscriberConfig()
    )
    log_level: LevelKey = LogLevel.INFO
    document: ConfigDocument | None = field(default=None, compare=False, repr=False)

    def check(self) -> None:
        if self.node_names and len(self.node_names) != len(self.nodes):
            reason = f"{len(self.node_names)} names for {len(self.nodes)} nodes"
            raise KeyProblem("node_names", reason)
        if self.kafka_security is Security.SASL_TLS:
            reason = "sidecars have a certificate and no password: use mtls"
            raise KeyProblem("kafka_security", reason)


CLIENT_FILE = TableSpec("", "The keys at the top of the file, outside of tables").add(ClientConfig)

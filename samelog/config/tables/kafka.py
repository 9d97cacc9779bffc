"""What a node's configuration says of Kafka clients: [kafka] and the tables in it.

Invariant: everything a client can put into the replicated state through a group is bounded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address

NUM_PARTITIONS = "num.partitions"
AUTO_CREATE = "auto.create.topics.enable"
MESSAGE_MAX_BYTES = "message.max.bytes"
RACK = "broker.rack"
NAMES = (NUM_PARTITIONS, AUTO_CREATE, MESSAGE_MAX_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefaults:
    """`num_partitions`: of topics made without saying how many; `auto_create`: whether asking for a
    topic makes it (None: as the node's auto_create_topics); `message_max_bytes`: of a record batch,
    with its header (None: as long as the node's max_record_bytes allows).
    """

    num_partitions: int = 1
    auto_create: bool | None = None
    message_max_bytes: int | None = None

    def by_name(self) -> dict[str, int | bool]:
        """What is set, by Kafka's names."""
        values = (self.num_partitions, self.auto_create, self.message_max_bytes)
        named = zip(NAMES, values, strict=True)
        return {name: value for name, value in named if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """`group_bytes`: what all members of a group, or all their assignments, may take together: a
    group travels in one Raft entry, and that in one frame between nodes.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 1_000
    group_bytes: int = 2 << 20
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets stay that nobody uses."""
        return self.offsets_retention_minutes * 60_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which field a setting is, and which values make sense."""

    field: str
    least: int
    most: int


SETTINGS: Mapping[str, Bounds] = {
    "group.min.session.timeout.ms": Bounds("min_session_timeout_ms", 1, 1 << 31),
    "group.max.session.timeout.ms": Bounds("max_session_timeout_ms", 1, 1 << 31),
    "group.initial.rebalance.delay.ms": Bounds("initial_rebalance_delay_ms", 0, 1 << 31),
    "group.max.size": Bounds("max_size", 1, 10_000),
    "group.consumer.session.timeout.ms": Bounds("consumer_session_timeout_ms", 100, 1 << 31),
    "group.consumer.heartbeat.interval.ms": Bounds("consumer_heartbeat_interval_ms", 10, 1 << 31),
    "offset.metadata.max.bytes": Bounds("offset_metadata_max_bytes", 0, 4_096),
    "offsets.retention.minutes": Bounds("offsets_retention_minutes", 1, 1 << 31),
    "offsets.retention.check.interval.ms": Bounds(
        "offsets_retention_check_interval_ms", 1, 1 << 31
    ),
}
"""By Kafka's names."""


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

"""What a node's configuration says of Kafka clients: [kafka] and the tables in it.

Invariant: nothing listens without TLS beyond this host unless the file says so in so many words;
everything a client can put into the replicated state through a group is bounded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any

from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    Inlined,
    KeyName,
    KeyProblem,
    Reload,
    Subtable,
    Without,
    keys_of,
)
from samelog.config.schema.kinds import (
    FILE,
    PRIVATE_FILE,
    BadValue,
    check_distinct,
    checked_name,
    integer,
    path_or_url,
    seconds,
    size,
)
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import (
    Address,
    check_keys_url,
    check_pattern,
    is_loopback,
    is_unspecified,
)
from samelog.format.names import check_session_name

NUM_PARTITIONS = "num.partitions"
AUTO_CREATE = "auto.create.topics.enable"
MESSAGE_MAX_BYTES = "message.max.bytes"
RACK = "broker.rack"

_REQUEST_BYTES_MIN = 64 << 10
_REQUEST_BYTES_MAX = 256 << 20
_MEMORY_BYTES_MAX = 1 << 40
_CONNECTIONS = integer(1, 100_000)
_RATE_MAX = 1 << 50

PARTITION_COUNT = ConfigKey(
    "Partitions of a topic that is created without a number of partitions",
    integer(1, 10_000),
    NUM_PARTITIONS,
)
BATCH_BYTES = ConfigKey("The largest record batch", size(1 << 10, (1 << 31) - 1), MESSAGE_MAX_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefaults(ConfigTable):
    """What counts for topics that set nothing themselves. `auto_create`: whether asking for a topic
    makes it (None: as the node's auto_create_topics); `message_max_bytes`: of a record batch, with
    its header (None: as long as the node's max_record_bytes allows).
    """

    num_partitions: Annotated[int, PARTITION_COUNT] = 1
    auto_create: Annotated[
        bool | None,
        "Asking for the metadata of a topic creates the topic",
        KeyName(AUTO_CREATE),
        Without("as `node.auto_create_topics`"),
    ] = None
    message_max_bytes: Annotated[
        int | None, replace(BATCH_BYTES, without="as `node.max_record_bytes` allows")
    ] = None


def _limit(meaning: str, name: str, least: int = 1, most: int = 1 << 31) -> ConfigKey:
    return ConfigKey(meaning, integer(least, most), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits(ConfigTable):
    """How large consumer groups may be and how long they may take. `group_bytes`: what all members
    of a group, or all their assignments, may take together: a group travels in one Raft entry, and
    that in one frame between nodes.
    """

    min_session_timeout_ms: Annotated[
        int,
        _limit(
            "The shortest session timeout that a member may ask for", "group.min.session.timeout.ms"
        ),
    ] = 6_000
    max_session_timeout_ms: Annotated[
        int, _limit("The longest", "group.max.session.timeout.ms")
    ] = 1_800_000
    initial_rebalance_delay_ms: Annotated[
        int,
        _limit(
            "How long an empty group waits for more members",
            "group.initial.rebalance.delay.ms",
            least=0,
        ),
    ] = 3_000
    max_size: Annotated[int, _limit("Members of a group", "group.max.size", most=10_000)] = 1_000
    group_bytes: int = 2 << 20
    consumer_session_timeout_ms: Annotated[
        int,
        _limit(
            "Session timeout of the newer protocol (KIP-848)",
            "group.consumer.session.timeout.ms",
            least=100,
        ),
    ] = 45_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        _limit(
            "Heartbeat interval of that protocol", "group.consumer.heartbeat.interval.ms", least=10
        ),
    ] = 5_000
    offset_metadata_max_bytes: Annotated[
        int,
        _limit(
            "The longest metadata of a committed offset",
            "offset.metadata.max.bytes",
            least=0,
            most=4_096,
        ),
    ] = 4_096
    offsets_retention_minutes: Annotated[
        int, _limit("How long offsets of unused groups are kept", "offsets.retention.minutes")
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        int,
        _limit("How often expired offsets are looked for", "offsets.retention.check.interval.ms"),
    ] = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets of unused groups are kept."""
        return self.offsets_retention_minutes * 60_000

    def check(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            reason = f"longer than group.max.session.timeout.ms, {self.max_session_timeout_ms}"
            raise KeyProblem("group.min.session.timeout.ms", reason)


GROUP_SETTINGS: Mapping[str, str] = {key.name: key.attribute for key in keys_of(GroupLimits)}
"""Kafka's name of each limit -> the field of GroupLimits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(ConfigTable):
    """Everything that has a name of Kafka's, without tables, as a command line gives it."""

    defaults: Annotated[BrokerDefaults, Inlined()]
    groups: Annotated[GroupLimits, Inlined()]


class Security(Enum):
    """How a Kafka listener's connections are protected."""

    PLAINTEXT = "plaintext"
    TLS = "tls"
    MTLS = "mtls"
    SASL_TLS = "sasl_tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListener(ConfigTable):
    """Where Kafka clients connect. `advertise`: what they are told, on every node under the same
    `name`; `allow_plaintext_from_anywhere`: plaintext on an address other hosts may reach; `tls`:
    None for the node's own files.
    """

    name: Annotated[
        str, "The listener's name, the same on every node", checked_name(check_session_name)
    ]
    listen: Annotated[Address, "Where it listens"]
    advertise: Annotated[Address, "The address that clients are told", Without("as `listen`")]
    security: Annotated[Security, "How connections are protected"] = Security.PLAINTEXT
    allow_plaintext_from_anywhere: Annotated[
        bool, "Plaintext on an address that other hosts may reach"
    ] = False
    tls: Annotated[
        TlsFiles | None, Subtable("Other PEM files than the node's own, for this listener")
    ] = None

    @classmethod
    def complete(cls, values: dict[str, Any]) -> None:
        values.setdefault("advertise", values["listen"])

    def check(self) -> None:
        is_allowed = self.allow_plaintext_from_anywhere or is_loopback(self.listen)
        if self.security is Security.PLAINTEXT and not is_allowed:
            reason = f"{self.listen} is not a loopback address, and nothing protects plaintext: "
            remedy = 'security = "tls" or "mtls", or set allow_plaintext_from_anywhere = true'
            raise KeyProblem("security", f"{reason}choose {remedy}")
        if is_unspecified(self.advertise):
            reason = f"clients cannot connect to {self.advertise}: name this host"
            raise KeyProblem("advertise", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaUser(ConfigTable):
    """Somebody who authenticates by name and password; the file holds nothing but the password."""

    name: Annotated[
        str,
        "The user's name; the identity is `samelog://user/<name>`",
        checked_name(check_session_name),
    ]
    password_file: Annotated[
        str,
        "A file with the password and nothing else, readable by its owner alone",
        PRIVATE_FILE,
        Reload.CONTENTS,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer(ConfigTable):
    """Whose tokens let clients in (OpenID Connect), and which of them."""

    jwks: Annotated[
        str,
        "The issuer's public keys: a file, or an https URL that is read every five minutes",
        path_or_url(check_keys_url),
        Reload.CONTENTS,
    ]
    issuer: Annotated[str, "Who must have made a token (`iss`)"]
    audience: Annotated[str, "For whom it must have been made (`aud`)"]
    claim: Annotated[
        str, "Where the user's name is in it; the identity is `samelog://user/<name>`"
    ] = "sub"
    ca: Annotated[
        str | None,
        "The authorities that the URL's certificate may be of, PEM",
        FILE,
        Without("those of the system"),
        Reload.CONTENTS,
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota(ConfigTable):
    """What each identity that matches may ask of one node per second: bytes of Produce requests, of
    fetched records, and requests. 0: as much as it can.
    """

    identity: Annotated[
        str,
        "The identity; may end with `*`; the first table that fits counts",
        checked_name(check_pattern),
        Reload.YES,
    ]
    producer_byte_rate: Annotated[
        int, "Bytes produced per second; 0: no limit", size(0, _RATE_MAX), Reload.YES
    ] = 0
    consumer_byte_rate: Annotated[
        int, "Bytes fetched per second; 0: no limit", size(0, _RATE_MAX), Reload.YES
    ] = 0
    request_rate: Annotated[
        int,
        "Requests per second, each 100 elements one more; 0: no limit",
        integer(0, _RATE_MAX),
        Reload.YES,
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig(ConfigTable):
    """A node's Kafka listeners, and what a client may have at each of them; `rack`: where the node
    is, for clients that say where they are, empty if nobody cares.
    """

    rack: Annotated[
        str,
        "The node's rack, for clients that name theirs",
        KeyName(RACK),
        Without("none"),
    ] = ""
    defaults: Annotated[BrokerDefaults, Inlined()] = field(default_factory=BrokerDefaults)
    max_request_bytes: Annotated[
        int, "The largest request", size(_REQUEST_BYTES_MIN, _REQUEST_BYTES_MAX)
    ] = 16 << 20
    max_memory_bytes: Annotated[
        int,
        "Memory for all requests and answers together; at least `max_request_bytes`",
        size(_REQUEST_BYTES_MIN, _MEMORY_BYTES_MAX),
    ] = 256 << 20
    max_connections: Annotated[int, "Connections of a listener", _CONNECTIONS] = 4096
    max_connections_per_host: Annotated[int, "Connections of one address to it", _CONNECTIONS] = (
        4096
    )
    idle_s: Annotated[float, "How long a connection may be silent", seconds(1, 86_400)] = 600.0
    request_s: Annotated[
        float,
        "How long a request may take to arrive, and its answer to be read",
        seconds(0.1, 3600),
    ] = 30.0
    listeners: Annotated[tuple[KafkaListener, ...], Subtable("Where Kafka clients connect")] = ()
    users: Annotated[
        tuple[KafkaUser, ...], Subtable("Users that authenticate by name and password (`sasl_tls`)")
    ] = ()
    oauth: Annotated[
        TokenIssuer | None, Subtable("Users that authenticate by tokens (`sasl_tls`, OAUTHBEARER)")
    ] = None
    quotas: Annotated[
        tuple[ClientQuota, ...], Subtable("What identities may ask of this node")
    ] = ()
    groups: Annotated[GroupLimits, Subtable("Consumer groups, by Kafka's own names")] = field(
        default_factory=GroupLimits
    )

    def check(self) -> None:
        try:
            check_distinct(each.name for each in self.listeners)
            check_distinct(str(each.listen) for each in self.listeners)
        except BadValue as error:
            raise KeyProblem("listeners", str(error)) from error
        is_asked = any(each.security is Security.SASL_TLS for each in self.listeners)
        if is_asked and not self.users and self.oauth is None:
            reason = 'a listener has security = "sasl_tls", and there is nobody'
            raise KeyProblem("users", reason)
        if self.max_memory_bytes < self.max_request_bytes:
            reason = f"{self.max_memory_bytes} is not a size from {self.max_request_bytes} bytes on"
            raise KeyProblem("max_memory_bytes", f"{reason}, which is max_request_bytes")

"""Every key of a node's configuration that is about Kafka clients: [kafka] and what is in it."""

from __future__ import annotations

from samelog.config.schema import Key, Kind, Reload, Section, default_of
from samelog.config.shared_keys import TLS
from samelog.config.tables.kafka import (
    AUTO_CREATE,
    MESSAGE_MAX_BYTES,
    NUM_PARTITIONS,
    RACK,
    SETTINGS,
    ClientQuota,
    GroupLimits,
    KafkaConfig,
    KafkaListener,
    Security,
)

PARTITIONS_MAX = 10_000
MESSAGE_BYTES_MIN = 1 << 10
MESSAGE_BYTES_MAX = (1 << 31) - 1
RATE_MAX = 1 << 50
REQUEST_BYTES_MIN = 64 << 10
REQUEST_BYTES_MAX = 256 << 20
MEMORY_BYTES_MAX = 1 << 40
CONNECTIONS_MAX = 100_000

PARTITIONS = Key(
    kind=Kind.INTEGER,
    meaning="Partitions of topics that are made without saying how many",
    default=1,
    least=1,
    most=PARTITIONS_MAX,
)
DEFAULTS = {
    NUM_PARTITIONS: PARTITIONS,
    AUTO_CREATE: Key(
        kind=Kind.BOOLEAN,
        meaning="Asking for a topic makes it",
        without="as `node.auto_create_topics`",
    ),
    MESSAGE_MAX_BYTES: Key(
        kind=Kind.SIZE,
        meaning="How long a record batch may be",
        without="as `node.max_record_bytes` allows",
        least=MESSAGE_BYTES_MIN,
        most=MESSAGE_BYTES_MAX,
    ),
}


def _limit(name: str, meaning: str, least: int, most: int, kind: Kind = Kind.SIZE) -> Key:
    default = default_of(KafkaConfig, name)
    return Key(kind=kind, meaning=meaning, default=default, least=least, most=most)


_KAFKA = {
    RACK: Key(
        kind=Kind.TEXT,
        meaning="Where the node is, for clients that say where they are",
        without="nobody cares",
    ),
    **DEFAULTS,
    "max_request_bytes": _limit(
        "max_request_bytes", "How long a request may be", REQUEST_BYTES_MIN, REQUEST_BYTES_MAX
    ),
    "max_memory_bytes": _limit(
        "max_memory_bytes",
        "What all requests and answers may take together; at least `max_request_bytes`",
        REQUEST_BYTES_MIN,
        MEMORY_BYTES_MAX,
    ),
    "max_connections": _limit(
        "max_connections", "Connections of a listener", 1, CONNECTIONS_MAX, Kind.INTEGER
    ),
    "max_connections_per_host": _limit(
        "max_connections_per_host",
        "Connections of one address to it",
        1,
        CONNECTIONS_MAX,
        Kind.INTEGER,
    ),
    "idle_s": _limit("idle_s", "A silent connection ends after", 1, 86_400, Kind.SECONDS),
    "request_s": Key(
        kind=Kind.SECONDS,
        meaning="A request must have come, and its answer be taken, within",
        default=default_of(KafkaConfig, "request_s"),
        least=0.1,
        most=3600,
    ),
}
_LISTENERS = {
    "name": Key(kind=Kind.TEXT, meaning="Of the listener, the same on every node"),
    "listen": Key(kind=Kind.ADDRESS, meaning="Where it listens"),
    "advertise": Key(
        kind=Kind.ADDRESS, meaning="Where clients are told to connect", without="as `listen`"
    ),
    "security": Key(
        kind=Kind.CHOICE,
        meaning="How connections are protected",
        choices=Security,
        default=default_of(KafkaListener, "security"),
    ),
    "allow_plaintext_from_anywhere": Key(
        kind=Kind.BOOLEAN,
        meaning="Plaintext on an address that other hosts may reach",
        default=default_of(KafkaListener, "allow_plaintext_from_anywhere"),
    ),
}
_USERS = {
    "name": Key(kind=Kind.TEXT, meaning="Who: `samelog://user/<name>` in grants"),
    "password_file": Key(
        kind=Kind.FILE,
        meaning="Holds nothing but the password, for nobody else to read",
        reload=Reload.CONTENTS,
    ),
}


def _rate(name: str, meaning: str, kind: Kind = Kind.SIZE) -> Key:
    default = default_of(ClientQuota, name)
    return Key(kind=kind, meaning=meaning, default=default, most=RATE_MAX, reload=Reload.YES)


_QUOTAS = {
    "identity": Key(
        kind=Kind.TEXT, meaning="Whose; may end with `*`; the first that fits", reload=Reload.YES
    ),
    "producer_byte_rate": _rate("producer_byte_rate", "Produced per second; 0: any"),
    "consumer_byte_rate": _rate("consumer_byte_rate", "Fetched per second; 0: any"),
    "request_rate": _rate("request_rate", "Requests per second; 0: any", Kind.INTEGER),
}
_GROUP_MEANINGS = {
    "group.min.session.timeout.ms": "The shortest session timeout a member may ask for",
    "group.max.session.timeout.ms": "The longest",
    "group.initial.rebalance.delay.ms": "How long an empty group waits for more members",
    "group.max.size": "Members of a group",
    "group.consumer.session.timeout.ms": "Session timeout of the newer protocol (KIP-848)",
    "group.consumer.heartbeat.interval.ms": "How often its members report",
    "offset.metadata.max.bytes": "How long the text beside a committed offset may be",
    "offsets.retention.minutes": "How long offsets stay that nobody uses",
    "offsets.retention.check.interval.ms": "How often that is looked at",
}
GROUPS = {
    name: Key(
        kind=Kind.INTEGER,
        meaning=_GROUP_MEANINGS[name],
        default=getattr(GroupLimits(), bounds.field),
        least=bounds.least,
        most=bounds.most,
    )
    for name, bounds in SETTINGS.items()
}

KAFKA = (
    Section(name="kafka", meaning="Kafka clients: docs/kafka.md", keys=_KAFKA),
    Section(name="kafka.listeners", meaning="Where they connect", keys=_LISTENERS, many=True),
    Section(
        name="kafka.listeners.tls",
        meaning="Other PEM files than the node's own, for this listener",
        keys=TLS,
    ),
    Section(
        name="kafka.users",
        meaning="Who authenticates by name and password (`sasl_tls`)",
        keys=_USERS,
        many=True,
    ),
    Section(
        name="kafka.quotas",
        meaning="What identities may ask of this node",
        keys=_QUOTAS,
        many=True,
    ),
    Section(name="kafka.groups", meaning="Consumer groups, by Kafka's own names", keys=GROUPS),
)

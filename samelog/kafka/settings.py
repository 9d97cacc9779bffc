"""The settings of topics, nodes and groups, under Kafka's names and with Kafka's types.

Invariant: what is listed as a topic's is what counts for it, set or by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from samelog.archiver.copies.manifests import ARCHIVE_COPY, NO_COPY
from samelog.archiver.copies.value_schema import VALUE_SCHEMA
from samelog.archiver.policy import (
    CLEANUP_POLICY,
    DELETE,
    FOR_EVER,
    HOLD_GROUPS,
    HOLD_MAX_BYTES,
    HOLD_MAX_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    rules_of,
)
from samelog.config.tables.kafka import (
    AUTO_CREATE,
    GROUP_SETTINGS,
    MESSAGE_MAX_BYTES,
    NUM_PARTITIONS,
    RACK,
    GroupLimits,
    KafkaListener,
    Security,
)
from samelog.config.tables.node import NodeConfig
from samelog.kafka.broker import Broker
from samelog.placement.defaults import AS_SHIPPED, DEFAULT_COPIES
from samelog.placement.values import REPLICAS_MOST
from samelog.sequencer.state.tables.access import HEARTBEAT_MS, SESSION_MS
from samelog.sequencer.state.tables.feeds import PARTITIONS as FEED_PARTITIONS
from samelog.sequencer.state.tables.keys import DEDUP_KEY, DEDUP_KEY_HORIZON, NONE, UNLIMITED
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.transactions import TIMEOUT_MS_MAX
from samelog.sequencer.state.topic_settings import (
    ADVICE,
    COMPRESSION_TYPE,
    CREATE_TIME,
    FIXED,
    MAX_MESSAGE_BYTES,
    MIN_INSYNC,
    PRODUCER,
    SEGMENT_BYTES,
    SEGMENT_MS,
    SEGMENT_MS_DEFAULT,
    TIMESTAMP_TYPE,
)
from samelog.typed.compatibility import BY_DEFAULT, COMPATIBILITY
from samelog.typed.enforcing import ACCEPT, ENFORCE, Enforce


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    CLUSTER = 3
    FILE = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """What a value is (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigEntry(NamedTuple):
    """One setting, with its value as text."""

    name: str
    value: str
    config_source: ConfigSource
    config_type: ConfigType
    read_only: bool


GOAL = "samelog.goal"
"""How many copies each partition of a topic is to have: fewer where hosts are lacking."""
LISTS = (
    CLEANUP_POLICY,
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    HOLD_GROUPS,
)
"""Settings to whose values others can be added, and taken away."""
_BOOLEANS = (
    "unclean.leader.election.enable",
    "preallocate",
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
)
_LONGS = (
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "local.retention.ms",
    "local.retention.bytes",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "segment.jitter.ms",
)
_INTS = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "index.interval.bytes",
    "segment.index.bytes",
)
_BOUNDS = (
    "max.connections",
    "max.connections.per.ip",
    "offsets.topic.num.partitions",
    "producer.id.expiration.ms",
    "socket.request.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.num.partitions",
    "transactional.id.expiration.ms",
)
_TYPES: Mapping[str, ConfigType] = {
    SEGMENT_BYTES: ConfigType.INT,
    MAX_MESSAGE_BYTES: ConfigType.INT,
    MIN_INSYNC: ConfigType.INT,
    SEGMENT_MS: ConfigType.LONG,
    **dict.fromkeys(LISTS, ConfigType.LIST),
    **dict.fromkeys(_BOOLEANS, ConfigType.BOOLEAN),
    **dict.fromkeys(_LONGS, ConfigType.LONG),
    **dict.fromkeys(_INTS, ConfigType.INT),
    "min.cleanable.dirty.ratio": ConfigType.DOUBLE,
    RETENTION_BYTES: ConfigType.LONG,
    RETENTION_MS: ConfigType.LONG,
    AUTO_CREATE: ConfigType.BOOLEAN,
    MESSAGE_MAX_BYTES: ConfigType.INT,
    NUM_PARTITIONS: ConfigType.INT,
    "log.segment.bytes": ConfigType.INT,
    "log.roll.ms": ConfigType.LONG,
    "log.retention.ms": ConfigType.LONG,
    "log.retention.bytes": ConfigType.LONG,
    "log.cleanup.policy": ConfigType.LIST,
    "delete.topic.enable": ConfigType.BOOLEAN,
    "broker.id": ConfigType.INT,
    "node.id": ConfigType.INT,
    DEFAULT_COPIES: ConfigType.INT,
    GOAL: ConfigType.INT,
    **dict.fromkeys((*GROUP_SETTINGS, HEARTBEAT_MS, SESSION_MS), ConfigType.INT),
    "connections.max.idle.ms": ConfigType.LONG,
    "group.coordinator.rebalance.protocols": ConfigType.LIST,
    **dict.fromkeys(_BOUNDS, ConfigType.INT),
}


PROTOCOL_VERSION = "4.1"
"""The release of Kafka up to whose versions requests are answered."""
_NODE_NAMES: Mapping[str, str] = {
    "compression.type": COMPRESSION_TYPE,
    "log.cleanup.policy": CLEANUP_POLICY,
    "log.message.timestamp.type": TIMESTAMP_TYPE,
    "log.retention.bytes": RETENTION_BYTES,
    "log.retention.ms": RETENTION_MS,
    "log.roll.ms": SEGMENT_MS,
    "log.segment.bytes": SEGMENT_BYTES,
    MIN_INSYNC: MIN_INSYNC,
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""What Kafka calls a node's default of a topic's setting."""
_PROTOCOLS: Mapping[Security, str] = {
    Security.PLAINTEXT: "PLAINTEXT",
    Security.TLS: "SSL",
    Security.MTLS: "SSL",
    Security.SASL_TLS: "SASL_SSL",
}


def topic_defaults(broker: Broker, topic: Topic | None = None) -> dict[str, str]:
    """The settings of a topic that sets none itself. `topic`: whose copies count."""
    majority = broker.majority if topic is None else broker.majority_of(topic)
    return {
        CLEANUP_POLICY: DELETE,
        **FIXED,
        **{key: default for key, (default, _) in ADVICE.items()},
        COMPRESSION_TYPE: PRODUCER,
        SEGMENT_MS: str(SEGMENT_MS_DEFAULT),
        MAX_MESSAGE_BYTES: str(broker.max_message_bytes(None)),
        **_archiving(broker),
        TIMESTAMP_TYPE: CREATE_TIME,
        SEGMENT_BYTES: str(broker.config.segment_bytes),
        MIN_INSYNC: str(majority),
        DEDUP_KEY: NONE,
        DEDUP_KEY_HORIZON: UNLIMITED,
    }


def _archiving(broker: Broker) -> dict[str, str]:
    """What the node's archiving policy means for a topic that sets nothing."""
    time_ms = rules_of(broker.parts.archive_policy(), {}).time_ms
    return {
        RETENTION_MS: FOR_EVER if time_ms is None else str(time_ms),
        RETENTION_BYTES: FOR_EVER,
        HOLD_GROUPS: "",
        HOLD_MAX_MS: "",
        HOLD_MAX_BYTES: "",
        VALUE_SCHEMA: "",
        COMPATIBILITY: BY_DEFAULT.value,
        ENFORCE: Enforce.OFF.value,
        ACCEPT: "1",
        ARCHIVE_COPY: ",".join(broker.config.archive.copy_formats) or NO_COPY,
    }


def of_topic(broker: Broker, topic: Topic) -> list[ConfigEntry]:
    """All settings of a topic."""
    defaults, own = topic_defaults(broker, topic), dict(topic.settings)
    if int(own.get(MIN_INSYNC, 0)) > int(defaults[MIN_INSYNC]):  # there were more when it was set
        own[MIN_INSYNC] = defaults[MIN_INSYNC]
    if MAX_MESSAGE_BYTES in own:
        own[MAX_MESSAGE_BYTES] = str(broker.max_message_bytes(topic))
    found = [
        _entry(
            key,
            own.get(key, default),
            ConfigSource.TOPIC if key in own else ConfigSource.DEFAULT,
            read_only=False,
        )
        for key, default in sorted(defaults.items())
    ]
    if goal := broker.goal_of(topic):
        found.append(_entry(GOAL, str(goal), ConfigSource.DEFAULT, read_only=True))
    return found


def cluster_defaults(broker: Broker) -> dict[str, str]:
    """The settings of a cluster whose operators set none."""
    return {DEFAULT_COPIES: str(AS_SHIPPED or len(broker.nodes()))}


def of_cluster(broker: Broker) -> list[ConfigEntry]:
    """The settings that operators gave to all nodes at once."""
    copies = broker.machine.state.placement.default_copies
    if not copies:
        return []
    return [_entry(DEFAULT_COPIES, str(copies), ConfigSource.CLUSTER, read_only=False)]


def of_node(broker: Broker) -> list[ConfigEntry]:
    """What this node's file says, under Kafka's names, and the settings of the cluster."""
    config: NodeConfig = broker.config
    values = {
        AUTO_CREATE: str(broker.auto_creates).lower(),
        "broker.id": str(broker.number),
        "node.id": str(broker.number),
        "delete.topic.enable": "true",
        "inter.broker.protocol.version": PROTOCOL_VERSION,
        "log.dir": config.data,
        "log.dirs": config.data,
        MESSAGE_MAX_BYTES: str(broker.max_message_bytes(None)),
        NUM_PARTITIONS: str(broker.defaults.num_partitions),
        **_topic_defaults_of_node(broker),
        **_listeners(config.kafka.listeners),
        **_group_limits(config.kafka.groups),
        **_bounds(config),
    }
    if config.kafka.rack:
        values[RACK] = config.kafka.rack
    found = [_entry(key, each, ConfigSource.FILE, read_only=True) for key, each in values.items()]
    return found + (of_cluster(broker) or _as_shipped(broker))


def _as_shipped(broker: Broker) -> list[ConfigEntry]:
    defaults = cluster_defaults(broker).items()
    return [_entry(key, each, ConfigSource.DEFAULT, read_only=False) for key, each in defaults]


def _bounds(config: NodeConfig) -> dict[str, str]:
    """What a client may have at this node, and how long things are remembered."""
    kafka, forgotten_ms = config.kafka, str(1000 * config.expiry.producers_s)
    return {
        "connections.max.idle.ms": str(int(1000 * kafka.idle_s)),
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "max.connections": str(kafka.max_connections),
        "max.connections.per.ip": str(kafka.max_connections_per_host),
        "offsets.topic.num.partitions": str(FEED_PARTITIONS),
        "producer.id.expiration.ms": forgotten_ms,
        "socket.request.max.bytes": str(kafka.max_request_bytes),
        "transaction.max.timeout.ms": str(TIMEOUT_MS_MAX),
        "transaction.state.log.num.partitions": str(FEED_PARTITIONS),
        "transactional.id.expiration.ms": forgotten_ms,
    }


def _topic_defaults_of_node(broker: Broker) -> dict[str, str]:
    defaults = topic_defaults(broker)
    return {node_name: defaults[name] for node_name, name in _NODE_NAMES.items()}


def _listeners(listeners: Sequence[KafkaListener]) -> dict[str, str]:
    """Where they listen, what clients are told, and how they are protected."""
    named = [(each.name.upper(), each) for each in listeners]
    return {
        "listeners": ",".join(f"{name}://{each.listen}" for name, each in named),
        "advertised.listeners": ",".join(f"{name}://{each.advertise}" for name, each in named),
        "listener.security.protocol.map": ",".join(
            f"{name}:{_PROTOCOLS[each.security]}" for name, each in named
        ),
    }


def _group_limits(limits: GroupLimits) -> dict[str, str]:
    return {name: str(getattr(limits, field)) for name, field in GROUP_SETTINGS.items()}


CLUSTER_BOUNDS: Mapping[str, range] = {DEFAULT_COPIES: range(1, REPLICAS_MOST + 1)}
"""What operators may set for all nodes at once."""
GROUP_BOUNDS: Mapping[str, range] = {
    HEARTBEAT_MS: range(10, 1 << 31),
    SESSION_MS: range(100, 1 << 31),
}
"""What a group of the consumer protocol may set itself."""


def group_defaults(broker: Broker) -> dict[str, str]:
    """The settings of a group that sets none itself."""
    limits = broker.config.kafka.groups
    return {
        HEARTBEAT_MS: str(limits.consumer_heartbeat_interval_ms),
        SESSION_MS: str(limits.consumer_session_timeout_ms),
    }


def of_group(broker: Broker, group: str) -> list[ConfigEntry]:
    """All settings of a group of the consumer protocol."""
    own = broker.access.groups.get(group, {})
    return [
        _entry(
            key,
            own.get(key, default),
            ConfigSource.GROUP if key in own else ConfigSource.FILE,
            read_only=False,
        )
        for key, default in group_defaults(broker).items()
    ]


def _entry(key: str, value: str, source: ConfigSource, *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(key, value, source, _TYPES.get(key, ConfigType.STRING), read_only)

"""Settings of topics and nodes, as DescribeConfigs lists them.

Invariant: what is listed as a topic's is what counts for it, set or by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from samelog.archiver.copies.manifests import ARCHIVE_COPY, NO_COPY
from samelog.archiver.copies.value_schema import VALUE_SCHEMA
from samelog.archiver.policy import (
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
)
from samelog.config.tables.node import NodeConfig
from samelog.kafka.broker import Broker
from samelog.sequencer.state.topic_settings import (
    CREATE_TIME,
    FIXED,
    MAX_MESSAGE_BYTES,
    SEGMENT_BYTES,
    TIMESTAMP_TYPE,
)
from samelog.sequencer.state.types import Topic


class ResourceType(IntEnum):
    """What settings belong to (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def topics_of(request: Any) -> list[str]:
    """The names of the topics among a request's resources."""
    topics = (each for each in request.resources if each.resource_type == ResourceType.TOPIC)
    return [each.resource_name for each in topics]


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    FILE = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """What a value is (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class ConfigEntry(NamedTuple):
    """One setting, with its value as text."""

    name: str
    value: str
    config_source: ConfigSource
    config_type: ConfigType
    read_only: bool


HEARTBEAT_MS, SESSION_MS = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
_TYPES: Mapping[str, ConfigType] = {
    SEGMENT_BYTES: ConfigType.INT,
    MAX_MESSAGE_BYTES: ConfigType.INT,
    "cleanup.policy": ConfigType.LIST,
    "min.insync.replicas": ConfigType.INT,
    RETENTION_BYTES: ConfigType.LONG,
    RETENTION_MS: ConfigType.LONG,
    AUTO_CREATE: ConfigType.BOOLEAN,
    MESSAGE_MAX_BYTES: ConfigType.INT,
    NUM_PARTITIONS: ConfigType.INT,
    "log.segment.bytes": ConfigType.INT,
    "broker.id": ConfigType.INT,
    "default.replication.factor": ConfigType.INT,
    **dict.fromkeys((*GROUP_SETTINGS, HEARTBEAT_MS, SESSION_MS), ConfigType.INT),
}


def topic_defaults(broker: Broker) -> dict[str, str]:
    """The settings of a topic that sets none itself."""
    return {
        **FIXED,
        MAX_MESSAGE_BYTES: str(broker.max_message_bytes(None)),
        **_archiving(broker),
        TIMESTAMP_TYPE: CREATE_TIME,
        SEGMENT_BYTES: str(broker.config.segment_bytes),
        "min.insync.replicas": str(len(broker.parts.raft.group.raft.voters) // 2 + 1),
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
        ARCHIVE_COPY: ",".join(broker.config.archive.copy_formats) or NO_COPY,
    }


def of_topic(broker: Broker, topic: Topic) -> list[ConfigEntry]:
    """All settings of a topic."""
    defaults = topic_defaults(broker)
    return [
        _entry(
            key,
            topic.settings.get(key, default),
            ConfigSource.TOPIC if key in topic.settings else ConfigSource.DEFAULT,
            read_only=key == "min.insync.replicas",
        )
        for key, default in sorted(defaults.items())
    ]


def of_node(broker: Broker) -> list[ConfigEntry]:
    """What this node's configuration file says, under Kafka's names."""
    config: NodeConfig = broker.config
    values = {
        AUTO_CREATE: str(broker.auto_creates).lower(),
        "broker.id": str(broker.number),
        "default.replication.factor": str(len(broker.nodes())),
        "log.segment.bytes": str(config.segment_bytes),
        MESSAGE_MAX_BYTES: str(broker.max_message_bytes(None)),
        NUM_PARTITIONS: str(broker.defaults.num_partitions),
        **_group_limits(config.kafka.groups),
    }
    if config.kafka.rack:
        values[RACK] = config.kafka.rack
    return [_entry(key, value, ConfigSource.FILE, read_only=True) for key, value in values.items()]


def _group_limits(limits: GroupLimits) -> dict[str, str]:
    return {name: str(getattr(limits, field)) for name, field in GROUP_SETTINGS.items()}


def of_group(broker: Broker) -> list[ConfigEntry]:
    """What counts for every group of the consumer protocol, under the names of a group's own."""
    limits = broker.config.kafka.groups
    values = {
        HEARTBEAT_MS: limits.consumer_heartbeat_interval_ms,
        SESSION_MS: limits.consumer_session_timeout_ms,
    }
    return [
        _entry(key, str(value), ConfigSource.FILE, read_only=True) for key, value in values.items()
    ]


def _entry(key: str, value: str, source: ConfigSource, *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(key, value, source, _TYPES.get(key, ConfigType.STRING), read_only)

"""Settings of topics and nodes, as DescribeConfigs lists them.

Invariant: what is listed as a topic's is what counts for it, set or by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

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
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_each, check_name, denied, unknown
from samelog.kafka.broker import Broker
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.topic_settings import (
    CREATE_TIME,
    FIXED,
    MAX_MESSAGE_BYTES,
    SEGMENT_BYTES,
    TIMESTAMP_TYPE,
)
from samelog.sequencer.state.types import Topic
from samelog.typed.compatibility import BY_DEFAULT, COMPATIBILITY


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
        COMPATIBILITY: BY_DEFAULT.value,
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


class DescribeConfigsResponseSynonym(Entity, frozen=True):
    """Where a value comes from; here always from one place."""

    name: str
    value: str
    source: ConfigSource


class DescribeConfigsResponseConfig(Entity, frozen=True):
    """One setting."""

    name: str
    value: str
    read_only: bool
    config_source: ConfigSource
    config_type: ConfigType
    synonyms: Sequence[DescribeConfigsResponseSynonym] = ()
    is_sensitive: bool = False
    documentation: str | None = None


class DescribeConfigsResponseResult(Entity, frozen=True):
    """One resource's settings."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    configs: Sequence[DescribeConfigsResponseConfig] = ()


class DescribeConfigsResponse(ResponseBody, frozen=True):
    """The response of `describe_configs`."""

    results: Sequence[DescribeConfigsResponseResult]


@kafka_api(
    32,
    "DescribeConfigs",
    1,
    4,
    flexible_from=4,
    notes="Settings of topics. Settings of the node that is asked and of groups are read-only.",
)
async def describe_configs(call: NodeCall, request: Any) -> DescribeConfigsResponse:
    """The settings of topics, of the node that is asked, and of groups.

    Those of a node come from its configuration file, thus can be read of that node only, and not
    changed; those of groups are the same for all, by the file of the node that is asked.
    """
    await call.broker.look_for(topics_of(request))
    with_synonyms = getattr(request, "include_synonyms", False)

    async def describe(asked: Any) -> DescribeConfigsResponseResult:
        keys = asked.configuration_keys
        return DescribeConfigsResponseResult(
            asked.resource_type,
            asked.resource_name,
            configs=[
                _config(setting, with_synonyms=with_synonyms)
                for setting in _settings(call, asked)
                if keys is None or setting.name in keys
            ],
        )

    return DescribeConfigsResponse(await answer_each(request.resources, describe, _refuse))


def _refuse(asked: Any, error: ApiError) -> DescribeConfigsResponseResult:
    return DescribeConfigsResponseResult(
        asked.resource_type, asked.resource_name, error.code, error.message
    )


def _config(setting: ConfigEntry, *, with_synonyms: bool) -> DescribeConfigsResponseConfig:
    source = setting.config_source
    own = DescribeConfigsResponseSynonym(setting.name, setting.value, source)
    return DescribeConfigsResponseConfig(
        setting.name,
        setting.value,
        setting.read_only,
        source,
        setting.config_type,
        (own,) if with_synonyms else (),
    )


def _settings(call: NodeCall, asked: Any) -> list[ConfigEntry]:
    """Raises ApiError."""
    broker, name = call.broker, asked.resource_name
    if asked.resource_type == ResourceType.TOPIC:
        check_name(name)
        if not broker.may_describe(call.client, name):
            raise denied(name)
        topic = broker.topic(name)
        if topic is None:
            raise unknown(name)
        return of_topic(broker, topic)
    if asked.resource_type == ResourceType.GROUP:
        if not broker.may_use_group(call.client, name):
            raise ApiError(ErrorCode.group_authorization_failed, f"no right to group {name!r}")
        return of_group(broker)
    if asked.resource_type != ResourceType.BROKER:
        text = "only topics, brokers and groups have settings here"
        raise ApiError(ErrorCode.invalid_request, text)
    if not broker.may_administer(call.client):
        raise ApiError(ErrorCode.cluster_authorization_failed, "for administrators only")
    if name not in ("", str(broker.number)):
        raise ApiError(ErrorCode.invalid_request, f"ask node {name} itself")
    return of_node(broker) if name else []

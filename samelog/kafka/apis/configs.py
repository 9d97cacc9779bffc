"""DescribeConfigs (32): the settings of topics, nodes and groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_each, check_name, denied, unknown
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts
from samelog.kafka.settings import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    of_cluster,
    of_group,
    of_node,
    of_topic,
)


class ResourceType(IntEnum):
    """What settings belong to (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


CLIENT_METRICS = 16
"""A type of Kafka's, of which nothing has settings here."""


def topics_of(request: Any) -> list[str]:
    """The names of the topics among a request's resources."""
    topics = (each for each in request.resources if each.resource_type == ResourceType.TOPIC)
    return [each.resource_name for each in topics]


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
    parts=Parts(("resources",), ("results",)),
    notes="Settings of topics, groups and the cluster. A node's own are read-only.",
)
async def describe_configs(call: NodeCall, request: Any) -> DescribeConfigsResponse:
    """The settings of topics, of groups, of the node that is asked, and of the cluster (the broker
    without a name).

    Those of a node come from its configuration file, thus can be read of that node only, and not
    changed; so do those that a group does not set itself.
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
    of = {
        ResourceType.TOPIC: _of_topic,
        ResourceType.GROUP: _of_group,
        ResourceType.BROKER: _of_node,
    }.get(asked.resource_type)
    if of is None:
        text = "only topics, brokers and groups have settings here"
        raise ApiError(ErrorCode.invalid_request, text)
    return of(call, asked.resource_name)


def _of_topic(call: NodeCall, name: str) -> list[ConfigEntry]:
    check_name(name)
    broker, look = call.broker, AclOperation.DESCRIBE_CONFIGS
    may_look = broker.may(call.client, look, AclResource.TOPIC, name)
    if not (may_look or broker.may_describe(call.client, name)):
        raise denied(name)
    topic = broker.shown(name)
    if topic is None:
        raise unknown(name)
    return of_topic(broker, topic)


def _of_group(call: NodeCall, name: str) -> list[ConfigEntry]:
    broker, look = call.broker, AclOperation.DESCRIBE_CONFIGS
    may_look = broker.may(call.client, look, AclResource.GROUP, name)
    if not (may_look or broker.may_use_group(call.client, name)):
        raise ApiError(ErrorCode.group_authorization_failed, f"no right to group {name!r}")
    return of_group(broker, name)


def _of_node(call: NodeCall, name: str) -> list[ConfigEntry]:
    broker = call.broker
    if not broker.may(call.client, AclOperation.DESCRIBE_CONFIGS):
        raise ApiError(ErrorCode.cluster_authorization_failed, "for administrators only")
    if name not in ("", str(broker.number)):
        raise ApiError(ErrorCode.invalid_request, f"ask node {name} itself")
    return of_node(broker) if name else of_cluster(broker)

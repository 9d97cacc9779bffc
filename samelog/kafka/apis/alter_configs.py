"""Settings of topics are changed: AlterConfigs, and the newer IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import administered, answer_each, check_name, check_settings
from samelog.kafka.apis.configs import ResourceType, topics_of
from samelog.kafka.broker import Broker
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.settings import LISTS, topic_defaults
from samelog.sequencer.state.setting_commands import AlterTopicCommand
from samelog.sequencer.state.types import Topic


class AlterConfigsResponseResource(Entity, frozen=True):
    """What became of one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterConfigsResponse(ResponseBody, frozen=True):
    """Also that of IncrementalAlterConfigs."""

    responses: Sequence[AlterConfigsResponseResource]


@kafka_api(33, "AlterConfigs", 0, 2, flexible_from=2, notes="Topics only.")
async def alter_configs(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Sets all settings of topics anew; those not named have their default again.

    The older of two ways, see IncrementalAlterConfigs (44). A topic's settings are changed all or
    not at all.
    """
    return await alter_each(call, request, _set_anew)


async def alter_each(
    call: NodeCall, request: Any, command_of: Callable[[Broker, Topic, Any], AlterTopicCommand]
) -> AlterConfigsResponse:
    """Change every resource of a request by itself. `command_of` the topic and what is wanted of
    it may raise ApiError.
    """
    await call.broker.look_for(topics_of(request))

    async def alter(resource: Any) -> AlterConfigsResponseResource:
        command = command_of(call.broker, _alterable(call, resource), resource)
        if not request.validate_only:
            await call.broker.propose(command)
        return AlterConfigsResponseResource(resource.resource_type, resource.resource_name)

    return AlterConfigsResponse(await answer_each(request.resources, alter, _refuse))


def _refuse(resource: Any, error: ApiError) -> AlterConfigsResponseResource:
    return AlterConfigsResponseResource(
        resource.resource_type, resource.resource_name, error.code, error.message
    )


def _alterable(call: NodeCall, resource: Any) -> Topic:
    """The topic that is to be changed. Raises ApiError."""
    if resource.resource_type != ResourceType.TOPIC:
        text = "a node's settings are in its configuration file"
        raise ApiError(ErrorCode.invalid_request, text)
    check_name(resource.resource_name)
    return administered(
        call.broker, call.client, AclOperation.ALTER_CONFIGS, resource.resource_name
    )


def _set_anew(broker: Broker, topic: Topic, resource: Any) -> AlterTopicCommand:
    """Raises ApiError."""
    given = {each.name: each.value for each in resource.configs}
    settings = check_settings(given, broker.majority)
    unset = [key for key in topic.settings if key not in settings]
    return AlterTopicCommand(topic.topic_id, settings, unset)


class ConfigOperation(IntEnum):
    """What becomes of a setting (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@kafka_api(44, "IncrementalAlterConfigs", 0, 1, flexible_from=1, notes="Topics only.")
async def incremental_alter_configs(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Sets some settings of topics, gives them back their default, or changes lists."""
    return await alter_each(call, request, _set_some)


def _set_some(broker: Broker, topic: Topic, resource: Any) -> AlterTopicCommand:
    """Raises ApiError."""
    names = [each.name for each in resource.configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.invalid_request, "a setting is there twice")
    given: dict[str, str | None] = {}
    unset: list[str] = []
    for each in resource.configs:
        if each.config_operation == ConfigOperation.DELETE:
            check_settings({each.name: None}, broker.majority)
            unset.append(each.name)
        else:
            given[each.name] = _value(broker, topic, each)
    return AlterTopicCommand(topic.topic_id, check_settings(given, broker.majority), unset)


def _value(broker: Broker, topic: Topic, wanted: Any) -> str:
    """What a setting is to be. Raises ApiError."""
    name, value = wanted.name, wanted.value or ""
    if wanted.config_operation == ConfigOperation.SET:
        return value
    if name not in LISTS:
        check_settings({name: None}, broker.majority)
        text = f"{name} is no list: it can only be set or deleted"
        raise ApiError(ErrorCode.invalid_config, text)
    now = topic.settings.get(name, topic_defaults(broker)[name])
    before, named = ([part for part in text.split(",") if part] for text in (now, value))
    if wanted.config_operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*before, *named]))
    if wanted.config_operation == ConfigOperation.SUBTRACT:
        return ",".join(part for part in before if part not in named)
    raise ApiError(ErrorCode.invalid_request, f"operation {wanted.config_operation} on {name}")

"""Settings of topics are changed: AlterConfigs, and the newer IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import administered, answer_each, check_name, check_settings
from samelog.kafka.apis.configs import ResourceType, topics_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.setting_commands import AlterTopicCommand
from samelog.sequencer.state.topic_settings import KNOWN
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
    call: NodeCall, request: Any, command_of: Callable[[Topic, Any], AlterTopicCommand]
) -> AlterConfigsResponse:
    """Change every resource of a request by itself. `command_of` the topic and what is wanted of
    it may raise ApiError.
    """
    await call.broker.look_for(topics_of(request))

    async def alter(resource: Any) -> AlterConfigsResponseResource:
        command = command_of(_alterable(call, resource), resource)
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
    return administered(call.broker, call.client, resource.resource_name)


def _set_anew(topic: Topic, resource: Any) -> AlterTopicCommand:
    """Raises ApiError."""
    settings = check_settings({each.name: each.value for each in resource.configs})
    unset = [key for key in topic.settings if key not in settings]
    return AlterTopicCommand(topic.topic_id, settings, unset)


SET, DELETE = 0, 1


@kafka_api(
    44, "IncrementalAlterConfigs", 0, 1, flexible_from=1, notes="Topics only; set and delete."
)
async def incremental_alter_configs(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Sets some settings of topics, or gives them back their default."""
    return await alter_each(call, request, _set_some)


def _set_some(topic: Topic, resource: Any) -> AlterTopicCommand:
    """Raises ApiError."""
    names = [each.name for each in resource.configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.invalid_request, "a setting is there twice")
    given: dict[str, str | None] = {}
    unset: list[str] = []
    for each in resource.configs:
        if each.name not in KNOWN:
            check_settings({each.name: each.value})
        if each.config_operation == DELETE:
            unset.append(each.name)
        elif each.config_operation == SET:
            given[each.name] = "" if each.value is None else each.value
        else:
            text = f"{each.name} is no list: it can only be set or deleted"
            raise ApiError(ErrorCode.invalid_config, text)
    return AlterTopicCommand(topic.topic_id, check_settings(given), unset)

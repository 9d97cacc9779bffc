"""What both ways to change settings have in common.

Invariant: a resource's settings are changed all or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import NodeCall
from samelog.kafka.apis.topics.configs import ResourceType, topics_of
from samelog.kafka.apis.topics.topics import check_name, denied, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.setting_commands import AlterTopic
from samelog.sequencer.state.types import Topic


async def alter_all(
    call: NodeCall, request: Any, command_of: Callable[[NodeCall, Any], AlterTopic]
) -> Tree:
    """Change every resource of a request, each by itself."""
    await call.broker.look_for(topics_of(request))
    responses = []
    for resource in request.resources:
        error: tuple[ErrorCode, str | None] = ErrorCode.none, None
        try:
            command = command_of(call, resource)
            if not request.validate_only:
                await call.broker.propose(command)
        except ApiError as refusal:
            error = refusal.code, refusal.message
        responses.append(
            {
                "error_code": error[0],
                "error_message": error[1],
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return {"responses": responses}


def alterable(call: NodeCall, resource: Any) -> Topic:
    """The topic that is to be changed. Raises ApiError."""
    broker, name = call.broker, resource.resource_name
    if resource.resource_type != ResourceType.TOPIC:
        text = "a node's settings are in its configuration file"
        raise ApiError(ErrorCode.invalid_request, text)
    check_name(name)
    if not broker.may_administer(call.client):
        raise denied(name)
    topic = broker.topic(name)
    if topic is None:
        raise unknown(name)
    return topic

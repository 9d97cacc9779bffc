"""IncrementalAlterConfigs (44): sets some settings of topics, or gives them back their default."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.checks import check_settings
from samelog.kafka.apis.topics.alter_configs import AlterConfigsResponse, alter_each
from samelog.kafka.codec.errors import ApiError
from samelog.sequencer.state.setting_commands import AlterTopicCommand
from samelog.sequencer.state.topic_settings import KNOWN
from samelog.sequencer.state.types import Topic

SET, DELETE = 0, 1


async def handle(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Answer a request of this API."""
    return await alter_each(call, request, _command)


def _command(topic: Topic, resource: Any) -> AlterTopicCommand:
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


API = KafkaApi(
    key=44,
    name="IncrementalAlterConfigs",
    first=0,
    last=1,
    flexible_from=1,
    handle=handle,
    notes="Topics only; set and delete.",
)

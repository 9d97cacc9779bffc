"""AlterConfigs (33): sets all settings of topics anew; those not named have their default again.

The older of two ways, see IncrementalAlterConfigs (44).
"""

from __future__ import annotations

from typing import Any

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics.altering import alter_all, alterable
from samelog.kafka.apis.topics.topics import check_settings
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.setting_commands import AlterTopic


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    return await alter_all(call, request, _command)


def _command(call: NodeCall, resource: Any) -> AlterTopic:
    """Raises ApiError."""
    topic = alterable(call, resource)
    settings = check_settings({each.name: each.value for each in resource.configs})
    unset = [key for key in topic.settings if key not in settings]
    return AlterTopic(topic.topic_id, settings, unset)


API = KafkaApi(
    key=33,
    name="AlterConfigs",
    first=0,
    last=2,
    flexible_from=2,
    handle=handle,
    notes="Topics only.",
)

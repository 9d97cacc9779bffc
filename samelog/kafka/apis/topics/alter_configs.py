"""AlterConfigs (33): sets all settings of topics anew; those not named have their default again.

The older of two ways, see IncrementalAlterConfigs (44).
"""

from __future__ import annotations

from typing import Any

from samelog.kafka.api import Api, Call
from samelog.kafka.apis.topics.altering import alter_all, alterable
from samelog.kafka.apis.topics.topics import check_settings
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.setting_commands import AlterTopic


async def handle(call: Call, request: Any) -> Tree:
    """Answer a request."""
    return await alter_all(call, request, _command)


def _command(call: Call, resource: Any) -> AlterTopic:
    """Raises Refusal."""
    topic = alterable(call, resource)
    settings = check_settings({each.name: each.value for each in resource.configs})
    unset = [key for key in topic.settings if key not in settings]
    return AlterTopic(topic.topic_id, settings, unset)


API = Api(
    key=33,
    name="AlterConfigs",
    first=0,
    last=2,
    flexible_from=2,
    handle=handle,
    notes="Topics only.",
)

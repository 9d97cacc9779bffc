"""DescribeConfigs (32): the settings of topics, of the node that is asked, and of groups.

Those of a node come from its configuration file, thus can be read of that node only, and not
changed; those of groups are the same for all, by the file of the node that is asked.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics import configs
from samelog.kafka.apis.topics.configs import ResourceType
from samelog.kafka.apis.topics.topics import check_name, denied, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    await call.broker.look_for(configs.topics_of(request))
    with_synonyms = getattr(request, "include_synonyms", False)
    results = [_result(call, each, with_synonyms=with_synonyms) for each in request.resources]
    return {"results": results}


def _result(call: NodeCall, asked: Any, *, with_synonyms: bool) -> Tree:
    head = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    try:
        found = _configs(call, asked)
    except ApiError as refusal:
        return head | {
            "error_code": refusal.code,
            "error_message": refusal.message,
            "configs": [],
        }
    keys = asked.configuration_keys
    listed = [each for each in found if keys is None or each["name"] in keys]
    if not with_synonyms:
        listed = [each | {"synonyms": []} for each in listed]
    return head | {"error_code": ErrorCode.none, "error_message": None, "configs": listed}


def _configs(call: NodeCall, asked: Any) -> list[dict[str, Any]]:
    broker, name = call.broker, asked.resource_name
    if asked.resource_type == ResourceType.TOPIC:
        check_name(name)
        if not broker.may_describe(call.client, name):
            raise denied(name)
        topic = broker.topic(name)
        if topic is None:
            raise unknown(name)
        return configs.of_topic(broker, topic)
    if asked.resource_type == ResourceType.GROUP:
        if not broker.may_use_group(call.client, name):
            raise ApiError(ErrorCode.group_authorization_failed, f"no right to group {name!r}")
        return configs.of_group(broker)
    if asked.resource_type != ResourceType.BROKER:
        text = "only topics, brokers and groups have settings here"
        raise ApiError(ErrorCode.invalid_request, text)
    if not broker.may_administer(call.client):
        raise ApiError(ErrorCode.cluster_authorization_failed, "for administrators only")
    if name not in ("", str(broker.node.number)):
        raise ApiError(ErrorCode.invalid_request, f"ask node {name} itself")
    return configs.of_node(broker) if name else []


API = KafkaApi(
    key=32,
    name="DescribeConfigs",
    first=1,
    last=4,
    flexible_from=4,
    handle=handle,
    notes="Of topics; read-only of the node that is asked, and of groups.",
)

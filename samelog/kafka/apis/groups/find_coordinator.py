"""FindCoordinator (10): which node coordinates a group: the Raft leader, whatever the group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import BrokerEndpoint
from samelog.kafka.api import AnyCall, KafkaApi, NodeCall
from samelog.kafka.apis.groups.answering import problem
from samelog.kafka.codec.schemas import Tree

GROUP = 0
"""The kind of key that is served; there are no transactions and no share groups."""
MANY_FROM = 4
"""From this version on a request may name many groups."""
NOBODY = BrokerEndpoint(-1, "", -1)


def _handle(call: NodeCall, request: Any) -> Tree:
    kind = getattr(request, "key_type", GROUP)
    return answer(call.version, [(key, *_found(call, kind, key)) for key in keys_of(call, request)])


def keys_of(call: AnyCall, request: Any) -> Sequence[str]:
    """What is asked about."""
    return request.coordinator_keys if call.version >= MANY_FROM else (request.key,)


def _found(call: NodeCall, kind: int, group: str) -> tuple[BrokerEndpoint, ErrorCode, str | None]:
    if kind != GROUP:
        return NOBODY, ErrorCode.invalid_request, "only groups have coordinators here"
    if problem(call, group) is not ErrorCode.none:
        message = "a grant to subscribe with this group is missing"
        return NOBODY, ErrorCode.group_authorization_failed, message
    for end in call.broker.endpoints(call.client.listener):
        if end.number == call.broker.leader:
            return end, ErrorCode.none, None
    return NOBODY, ErrorCode.coordinator_not_available, "there is no leader: ask again"


def answer(
    version: int, found: Iterable[tuple[str, BrokerEndpoint, ErrorCode, str | None]]
) -> Tree:
    """(key, coordinator, error, message) of each key; older versions have just one."""
    trees = [
        {
            "key": key,
            "node_id": end.number,
            "host": end.host,
            "port": end.port,
            "error_code": error,
            "error_message": message,
        }
        for key, end, error, message in found
    ]
    return trees[0] if version < MANY_FROM else {"coordinators": trees}


API = KafkaApi(
    key=10,
    name="FindCoordinator",
    first=0,
    last=6,
    flexible_from=3,
    handle=_handle,
    notes="The Raft leader coordinates all groups. Groups only: there are no transactions.",
)

"""ConsumerGroupHeartbeat (68): the whole membership protocol of KIP-848."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import NodeCall, Reply, kafka_api
from samelog.kafka.apis.checks import id_of
from samelog.kafka.apis.group_answers import ask_coordinator, by_topic_id, check_group
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.patterns import InvalidPattern, compiled
from samelog.kafka.groups.requests import Beat, Beaten, Caller

OWN_ID_FROM = 1
"""From this version on a member makes its id itself."""
JOIN = 0


class ConsumerGroupHeartbeatResponsePartitions(Entity, frozen=True):
    """Partitions of one topic."""

    topic_id: uuid.UUID
    partitions: Sequence[int]


class ConsumerGroupHeartbeatResponseAssignment(Entity, frozen=True):
    """What the member is to have."""

    topic_partitions: Sequence[ConsumerGroupHeartbeatResponsePartitions]


class ConsumerGroupHeartbeatResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval: int
    """In ms."""
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = None
    """None: it has not changed."""


@kafka_api(
    68,
    "ConsumerGroupHeartbeat",
    0,
    1,
    flexible_from=0,
    notes="Assignors `uniform` and `range`. Regular expressions are RE2's.",
)
def consumer_group_heartbeat(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""

    def refuse(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            error, message, request.member_id, request.member_epoch, _interval_ms(call)
        )

    def make(answer: Beaten) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            answer.error,
            answer.message,
            answer.member_id,
            answer.epoch,
            _interval_ms(call),
            _assignment(call, answer.assigned),
        )

    try:
        _check(call, request)
    except ApiError as error:
        return refuse(error.code, error.message)
    beat = _beat(call, request)
    return ask_coordinator(call, lambda c, requester: c.beat(beat, requester), make, refuse)


def _beat(call: NodeCall, request: Any) -> Beat:
    owned = request.topic_partitions
    return Beat(
        caller=Caller(
            request.group_id,
            request.member_id or uuid.uuid4().hex,
            request.instance_id,
            request.member_epoch,
        ),
        client_id=call.client_id,
        client_host=f"/{call.client.host}",
        rebalance_timeout_ms=round(request.rebalance_timeout.total_seconds() * 1000),
        topics=request.subscribed_topic_names,
        assignor=request.server_assignor,
        owned=None if owned is None else tuple(_numbers(call, owned)),
        pattern=getattr(request, "subscribed_topic_regex", None),
        find=partial(_topics, call),
    )


def _check(call: NodeCall, request: Any) -> None:
    """Raises ApiError."""
    error = check_group(call, request.group_id)
    if error is not ErrorCode.none:
        raise ApiError(error, "a grant to subscribe with this group is missing")
    if not request.member_id and (call.version >= OWN_ID_FROM or request.member_epoch != JOIN):
        raise ApiError(ErrorCode.invalid_request, "a member id is missing")
    try:
        compiled(getattr(request, "subscribed_topic_regex", None) or "")
    except InvalidPattern as fault:
        raise ApiError(ErrorCode.invalid_regular_expression, str(fault)) from fault
    for name in request.subscribed_topic_names or ():
        if not call.broker.may_read(call.client, name):
            text = f"topic {name!r} may not be read"
            raise ApiError(ErrorCode.topic_authorization_failed, text)


def _topics(call: NodeCall, pattern: str) -> list[str]:
    """The topics that an expression means, of those that the client may read."""
    found = call.broker.patterns.topics(pattern)
    return [topic for topic in found if call.broker.may_read(call.client, topic)]


def _numbers(call: NodeCall, owned: Iterable[Any]) -> Iterable[int]:
    """The cluster-wide numbers of partitions, as far as there still are such."""
    for each in owned:
        if each.topic_id is not None:
            found = (call.broker.partition_number(each.topic_id, i) for i in each.partitions)
            yield from (number for number in found if number is not None)


def _assignment(
    call: NodeCall, numbers: Iterable[int] | None
) -> ConsumerGroupHeartbeatResponseAssignment | None:
    if numbers is None:
        return None
    topics = call.broker.machine.state.topics
    return ConsumerGroupHeartbeatResponseAssignment(
        [
            ConsumerGroupHeartbeatResponsePartitions(id_of(topics[topic]), found)
            for topic, found in by_topic_id(call, numbers)
        ]
    )


def _interval_ms(call: NodeCall) -> int:
    return call.broker.config.kafka.groups.consumer_heartbeat_interval_ms

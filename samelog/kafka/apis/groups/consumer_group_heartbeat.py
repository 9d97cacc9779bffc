"""ConsumerGroupHeartbeat (68): the whole membership protocol of KIP-848."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered, by_topic_id, problem
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.patterns import InvalidPattern, compiled
from samelog.kafka.groups.requests import Beat, Beaten, Caller

OWN_ID_FROM = 1
"""From this version on a member makes its id itself."""
JOIN = 0


def _handle(call: NodeCall, request: Any) -> Outcome:
    refusal, message = _problem(call, request)
    if refusal is not ErrorCode.none:
        return _lost(call, request, refusal, message)
    owned = request.topic_partitions
    beat = Beat(
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

    def made(answer: Beaten) -> Tree:
        return {
            "error_code": ErrorCode(int(answer.error)),
            "error_message": answer.message,
            "member_id": answer.member_id,
            "member_epoch": answer.epoch,
            "heartbeat_interval": _interval_ms(call),
            "assignment": _assignment(call, answer.assigned),
        }

    def lost(error: ErrorCode) -> Tree:
        return _lost(call, request, error, None)

    group = request.group_id
    return answered(call, group, lambda c, waiter: c.beat(beat, waiter), made, lost)


def _problem(call: NodeCall, request: Any) -> tuple[ErrorCode, str | None]:
    refusal = problem(call, request.group_id)
    if refusal is not ErrorCode.none:
        return refusal, "a grant to subscribe with this group is missing"
    if not request.member_id and (call.version >= OWN_ID_FROM or request.member_epoch != JOIN):
        return ErrorCode.invalid_request, "a member id is missing"
    try:
        compiled(getattr(request, "subscribed_topic_regex", None) or "")
    except InvalidPattern as error:
        return ErrorCode.invalid_regular_expression, str(error)
    for name in request.subscribed_topic_names or ():
        if not call.broker.may_read(call.client, name):
            return ErrorCode.topic_authorization_failed, f"topic {name!r} may not be read"
    return ErrorCode.none, None


def _topics(call: NodeCall, pattern: str) -> list[str]:
    """What an expression means to a client: of what it does not know of it learns nothing."""
    found = call.broker.patterns.topics(pattern)
    return [topic for topic in found if call.broker.may_read(call.client, topic)]


def _numbers(call: NodeCall, owned: Iterable[Any]) -> Iterable[int]:
    """The cluster-wide numbers of partitions, as far as there still are such."""
    for each in owned:
        topic = call.broker.topic(each.topic_id) if each.topic_id is not None else None
        for index in each.partitions:
            if topic is not None and 0 <= index < topic.partitions:
                yield topic.partition_numbers[index]


def _assignment(call: NodeCall, numbers: Iterable[int] | None) -> Tree | None:
    if numbers is None:
        return None
    return {"topic_partitions": by_topic_id(call, numbers)}


def _interval_ms(call: NodeCall) -> int:
    return call.broker.node.config.kafka.groups.consumer_heartbeat_interval_ms


def _lost(call: NodeCall, request: Any, error: ErrorCode, message: str | None) -> Tree:
    return {
        "error_code": error,
        "error_message": message,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "heartbeat_interval": _interval_ms(call),
        "assignment": None,
    }


API = KafkaApi(
    key=68,
    name="ConsumerGroupHeartbeat",
    first=0,
    last=1,
    flexible_from=0,
    handle=_handle,
    notes="Assignors `uniform` and `range`. Regular expressions are RE2's.",
)

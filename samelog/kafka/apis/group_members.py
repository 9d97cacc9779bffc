"""Membership of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup by the classic protocol;
ConsumerGroupHeartbeat is the whole of the consumer protocol (KIP-848).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from samelog.config.expressions import InvalidPattern, compiled
from samelog.format.steps import StepWork
from samelog.kafka.api import NodeCall, Reply, kafka_api
from samelog.kafka.apis.checks import id_of
from samelog.kafka.apis.group_answers import as_it_is, ask_coordinator, check_group, with_topics
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import (
    Beaten,
    Caller,
    GroupBeat,
    Join,
    Joined,
    Sync,
    SyncGroupResponse,
)
from samelog.kafka.parts import Parts
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.access import HEARTBEAT_MS

KNOWN_ID_FROM, PROTOCOL_TYPE_FROM, SKIP_FROM = 4, 7, 9


class JoinGroupResponseMember(Entity, frozen=True):
    """A member, for the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(ResponseBody, frozen=True):
    """The response of `join_group`."""

    error_code: ErrorCode
    member_id: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    members: Sequence[JoinGroupResponseMember]


@kafka_api(11, "JoinGroup", 0, 9, flexible_from=6, notes="Static members are supported.")
def join_group(call: NodeCall, request: Any) -> Reply:
    """Be a member of the next generation. Answered when that begins."""

    def make(answer: Joined) -> JoinGroupResponse:
        missing = None if call.version >= PROTOCOL_TYPE_FROM else ""
        return JoinGroupResponse(
            answer.error_code,
            answer.member_id,
            answer.generation,
            answer.protocol_type,
            missing if answer.protocol is None else answer.protocol,
            answer.leader,
            answer.skip_assignment,
            [JoinGroupResponseMember(*member) for member in answer.members],
        )

    def refuse(error: ErrorCode) -> JoinGroupResponse:
        return make(Joined(error, request.member_id))

    join = _join(call, request)
    return ask_coordinator(
        call, lambda c, requester: c.join(join, requester), make, refuse, group=request.group_id
    )


def _join(call: NodeCall, request: Any) -> Join:
    instance_id = getattr(request, "group_instance_id", None)
    prefix = call.client_id if instance_id is None else instance_id
    return Join(
        caller=Caller(request.group_id, request.member_id, instance_id),
        fresh_id=f"{prefix}-{uuid.uuid4()}",
        client_id=call.client_id,
        client_host=f"/{call.client.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout_ms", request.session_timeout_ms),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        needs_known_id=call.version >= KNOWN_ID_FROM,
        may_skip_assignment=call.version >= SKIP_FROM,
    )


@kafka_api(14, "SyncGroup", 0, 5, flexible_from=4)
def sync_group(call: NodeCall, request: Any) -> Reply:
    """The leader gives the assignments, everybody gets its own."""
    group, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    sync = Sync(
        caller=Caller(group, request.member_id, instance_id, request.generation_id),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )

    return ask_coordinator(
        call, lambda c, requester: c.sync(sync, requester), as_it_is, SyncGroupResponse, group=group
    )


class HeartbeatResponse(ResponseBody, frozen=True):
    """The response of `heartbeat`."""

    error_code: ErrorCode


@kafka_api(
    12,
    "Heartbeat",
    0,
    4,
    flexible_from=4,
    notes="Heartbeats are not replicated. A new coordinator gives a whole session timeout.",
)
def heartbeat(call: NodeCall, request: Any) -> Reply:
    """A member lives; it learns whether the group rebalances."""
    group, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    caller = Caller(group, request.member_id, instance_id, request.generation_id)
    return ask_coordinator(
        call,
        lambda c, requester: c.heartbeat(caller, requester),
        HeartbeatResponse,
        HeartbeatResponse,
        group=group,
    )


MANY_FROM = 3
"""From this version on a request may name many members, and each has an error of its own."""


class LeaveGroupResponseMember(Entity, frozen=True):
    """What became of one member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class LeaveGroupResponse(ResponseBody, frozen=True):
    """The response of `leave_group`."""

    error_code: ErrorCode
    members: Sequence[LeaveGroupResponseMember] = ()


@kafka_api(
    13, "LeaveGroup", 0, 5, flexible_from=4, parts=Parts(("members",), ("members",), size=100)
)
def leave_group(call: NodeCall, request: Any) -> Reply:
    """Members go at once, without their session timeout."""
    group = request.group_id
    if call.version >= MANY_FROM:
        callers = [
            Caller(group, each.member_id, each.group_instance_id) for each in request.members
        ]
    else:
        callers = [Caller(group, request.member_id)]

    def make(errors: tuple[ErrorCode, ...]) -> LeaveGroupResponse:
        if call.version < MANY_FROM:
            return LeaveGroupResponse(errors[0])
        members = [
            LeaveGroupResponseMember(caller.member_id, caller.instance_id, error)
            for caller, error in zip(callers, errors, strict=True)
        ]
        return LeaveGroupResponse(ErrorCode.none, members)

    return ask_coordinator(
        call,
        lambda c, requester: c.leave(callers, requester),
        make,
        LeaveGroupResponse,
        group=group,
    )


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
    heartbeat_interval_ms: int
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
async def consumer_group_heartbeat(call: NodeCall, request: Any) -> ConsumerGroupHeartbeatResponse:
    """A member joins, stays, moves to another assignment, or leaves."""
    interval_ms = _interval_ms(call, request.group_id)
    unchanged = request.member_id, request.member_epoch, None
    try:
        _check(call, request)
        beat = await paced(_beat(call, request))
        answer: Any = await call.broker.groups.ask(lambda c, waiter: c.beat(beat, waiter))
    except ApiError as error:
        answer = Beaten(error.code, *unchanged, error.message)
    if answer is None:
        answer = Beaten(ErrorCode.not_coordinator, *unchanged)
    return ConsumerGroupHeartbeatResponse(
        answer.error,
        answer.message,
        answer.member_id,
        answer.epoch,
        interval_ms,
        await paced(_assignment(call, answer.assigned)),
    )


def _beat(call: NodeCall, request: Any) -> StepWork[GroupBeat]:
    """What a member says. Raises ApiError."""
    for name in request.subscribed_topic_names or ():
        if not call.broker.may_read(call.client, name):
            text = f"topic {name!r} may not be read"
            raise ApiError(ErrorCode.topic_authorization_failed, text)
        yield
    found = yield from _topics(call, _pattern(call, request))
    owned = None
    if request.topic_partitions is not None:
        owned = yield from _numbers(call, request.topic_partitions)
    return GroupBeat(
        caller=Caller(
            request.group_id,
            request.member_id or uuid.uuid4().hex,
            request.instance_id,
            request.member_epoch,
        ),
        client_id=call.client_id,
        client_host=f"/{call.client.host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        assignor=request.server_assignor,
        owned=owned,
        pattern=getattr(request, "subscribed_topic_regex", None),
        find=found.get,
    )


def _pattern(call: NodeCall, request: Any) -> str:
    """The expression by which a member subscribes, as it says now or said before."""
    said: str | None = getattr(request, "subscribed_topic_regex", None)
    return call.broker.groups.pattern(request.group_id, request.member_id) if said is None else said


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


def _topics(call: NodeCall, pattern: str) -> StepWork[dict[str, list[str]]]:
    """By an expression, if there is one, the topics that it means and the client may read."""
    if not pattern:
        return {}
    known, found = (yield from call.broker.patterns.topics(pattern)), []
    for topic in known:
        if call.broker.may_read(call.client, topic):
            found.append(topic)
        yield
    return {pattern: found}


def _numbers(call: NodeCall, owned: Iterable[Any]) -> StepWork[tuple[int, ...]]:
    """The cluster-wide numbers of partitions, as far as there still are such."""
    numbers: dict[int, None] = {}
    for each in owned:
        for index in each.partitions if each.topic_id is not None else ():
            number = call.broker.partition_number(each.topic_id, index)
            if number is not None:
                numbers[number] = None
            yield
        yield
    return tuple(numbers)


def _assignment(
    call: NodeCall, numbers: Iterable[int] | None
) -> StepWork[ConsumerGroupHeartbeatResponseAssignment | None]:
    if numbers is None:
        return None
    told = []
    for topic, indexes in (yield from with_topics(call, numbers)):
        told.append(ConsumerGroupHeartbeatResponsePartitions(id_of(topic), indexes))
        yield
    return ConsumerGroupHeartbeatResponseAssignment(told)


def _interval_ms(call: NodeCall, group: str) -> int:
    by_default = call.broker.config.kafka.groups.consumer_heartbeat_interval_ms
    return call.broker.access.group_ms(group, HEARTBEAT_MS, by_default)

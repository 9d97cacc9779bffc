"""JoinGroup (11): be a member of the next generation. Answered when that begins."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Caller, Join, Joined

KNOWN_ID_FROM, PROTOCOL_TYPE_FROM, SKIP_FROM = 4, 7, 9


class JoinGroupResponseMember(Entity, frozen=True):
    """A member, for the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    member_id: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    members: Sequence[JoinGroupResponseMember]


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""

    def make(answer: Joined) -> JoinGroupResponse:
        missing = None if call.version >= PROTOCOL_TYPE_FROM else ""
        return JoinGroupResponse(
            answer.error,
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
        session_timeout_ms=_ms(request.session_timeout),
        rebalance_timeout_ms=_ms(getattr(request, "rebalance_timeout", request.session_timeout)),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        needs_known_id=call.version >= KNOWN_ID_FROM,
        may_skip_assignment=call.version >= SKIP_FROM,
    )


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


API = KafkaApi(
    key=11,
    name="JoinGroup",
    first=0,
    last=9,
    flexible_from=6,
    handle=handle,
    notes="Static members are supported.",
)

"""LeaveGroup (13): members go at once, without their session timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Caller

MANY_FROM = 3
"""From this version on a request may name many members, and each has an error of its own."""


class LeaveGroupResponseMember(Entity, frozen=True):
    """What became of one member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class LeaveGroupResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    members: Sequence[LeaveGroupResponseMember] = ()


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
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


API = KafkaApi(
    key=13,
    name="LeaveGroup",
    first=0,
    last=5,
    flexible_from=4,
    handle=handle,
    notes="",
)

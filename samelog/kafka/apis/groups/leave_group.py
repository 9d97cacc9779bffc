"""LeaveGroup (13): members go at once, without their session timeout."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller

MANY_FROM = 3
"""From this version on a request may name many members, and each has an error of its own."""


def _handle(call: NodeCall, request: Any) -> Outcome:
    if call.version >= MANY_FROM:
        callers = [
            Caller(request.group_id, member.member_id, member.group_instance_id)
            for member in request.members
        ]
    else:
        callers = [Caller(request.group_id, request.member_id)]

    def made(errors: tuple[ErrorCode, ...]) -> Tree:
        if call.version < MANY_FROM:
            return _tree(errors[0])
        members = [
            {
                "member_id": caller.member_id,
                "group_instance_id": caller.instance_id,
                "error_code": error,
            }
            for caller, error in zip(callers, errors, strict=True)
        ]
        return {**_tree(ErrorCode.none), "members": members}

    group = request.group_id
    return answered(call, group, lambda c, waiter: c.leave(callers, waiter), made, _tree)


def _tree(error: ErrorCode) -> Tree:
    return {"throttle_time": 0, "error_code": error, "members": []}


API = KafkaApi(
    key=13,
    name="LeaveGroup",
    first=0,
    last=5,
    flexible_from=4,
    handle=_handle,
    notes="",
)

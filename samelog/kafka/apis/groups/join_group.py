"""JoinGroup (11): be a member of the next generation. Answered when that begins."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller, Join, Joined

KNOWN_ID_FROM, PROTOCOL_TYPE_FROM, SKIP_FROM = 4, 7, 9


def _handle(call: NodeCall, request: Any) -> Outcome:
    instance_id = getattr(request, "group_instance_id", None)
    session_ms = _ms(request.session_timeout)
    prefix = call.client_id if instance_id is None else instance_id
    join = Join(
        caller=Caller(request.group_id, request.member_id, instance_id),
        fresh_id=f"{prefix}-{uuid.uuid4()}",
        client_id=call.client_id,
        client_host=f"/{call.client.host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=_ms(getattr(request, "rebalance_timeout", request.session_timeout)),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        needs_known_id=call.version >= KNOWN_ID_FROM,
        may_skip_assignment=call.version >= SKIP_FROM,
    )

    def made(answer: Joined) -> Tree:
        return _tree(call, answer)

    def lost(error: ErrorCode) -> Tree:
        return {**_tree(call, Joined(ErrorCode.none, request.member_id)), "error_code": error}

    group = request.group_id
    return answered(call, group, lambda c, waiter: c.join(join, waiter), made, lost)


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _tree(call: NodeCall, answer: Joined) -> Tree:
    members = [
        {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
        for member_id, instance_id, metadata in answer.members
    ]
    missing = None if call.version >= PROTOCOL_TYPE_FROM else ""
    return {
        "throttle_time": 0,
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": missing if answer.protocol is None else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": members,
    }


API = KafkaApi(
    key=11,
    name="JoinGroup",
    first=0,
    last=9,
    flexible_from=6,
    handle=_handle,
    notes="Static members are supported.",
)

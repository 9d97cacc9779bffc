"""Heartbeat (12): a member lives; learns whether the group divides its partitions anew."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller


def _handle(call: NodeCall, request: Any) -> Outcome:
    instance_id = getattr(request, "group_instance_id", None)
    caller = Caller(request.group_id, request.member_id, instance_id, request.generation_id)
    group = request.group_id
    return answered(call, group, lambda c, waiter: c.heartbeat(caller, waiter), _tree, _tree)


def _tree(error: int) -> Tree:
    return {"throttle_time": 0, "error_code": ErrorCode(int(error))}


API = KafkaApi(
    key=12,
    name="Heartbeat",
    first=0,
    last=4,
    flexible_from=4,
    handle=_handle,
    notes="Heartbeats are not replicated: a new coordinator gives a whole session timeout.",
)

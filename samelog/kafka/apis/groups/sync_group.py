"""SyncGroup (14): the leader gives the assignments, everybody gets its own."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller, Sync, Synced


def _handle(call: NodeCall, request: Any) -> Outcome:
    instance_id = getattr(request, "group_instance_id", None)
    sync = Sync(
        caller=Caller(request.group_id, request.member_id, instance_id, request.generation_id),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    group = request.group_id
    return answered(call, group, lambda c, waiter: c.sync(sync, waiter), _made, _lost)


def _made(answer: Synced) -> Tree:
    return {
        "throttle_time": 0,
        "error_code": ErrorCode(int(answer.error)),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


def _lost(error: ErrorCode) -> Tree:
    return {"throttle_time": 0, "error_code": error, "assignment": b""}


API = KafkaApi(
    key=14,
    name="SyncGroup",
    first=0,
    last=5,
    flexible_from=4,
    handle=_handle,
    notes="",
)

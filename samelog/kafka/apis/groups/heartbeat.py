"""Heartbeat (12): a member lives; learns whether the group divides its partitions anew."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import ResponseBody
from samelog.kafka.groups.requests import Caller


class HeartbeatResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    group, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    caller = Caller(group, request.member_id, instance_id, request.generation_id)
    return ask_coordinator(
        call,
        lambda c, requester: c.heartbeat(caller, requester),
        HeartbeatResponse,
        HeartbeatResponse,
        group=group,
    )


API = KafkaApi(
    key=12,
    name="Heartbeat",
    first=0,
    last=4,
    flexible_from=4,
    handle=handle,
    notes="Heartbeats are not replicated. A new coordinator gives a whole session timeout.",
)

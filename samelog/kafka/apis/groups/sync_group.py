"""SyncGroup (14): the leader gives the assignments, everybody gets its own."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import ResponseBody
from samelog.kafka.groups.requests import Caller, Sync, Synced


class SyncGroupResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    group, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    sync = Sync(
        caller=Caller(group, request.member_id, instance_id, request.generation_id),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )

    def make(answer: Synced) -> SyncGroupResponse:
        return SyncGroupResponse(
            answer.error, answer.protocol_type, answer.protocol, answer.assignment
        )

    return ask_coordinator(
        call, lambda c, requester: c.sync(sync, requester), make, SyncGroupResponse, group=group
    )


API = KafkaApi(
    key=14,
    name="SyncGroup",
    first=0,
    last=5,
    flexible_from=4,
    handle=handle,
    notes="",
)

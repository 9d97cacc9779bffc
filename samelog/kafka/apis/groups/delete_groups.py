"""DeleteGroups (42): groups without members, with their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import Entity, ResponseBody


class DeleteGroupsResponseResult(Entity, frozen=True):
    """What became of one group."""

    group_id: str
    error_code: ErrorCode


class DeleteGroupsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    results: Sequence[DeleteGroupsResponseResult]


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    names = list(request.groups_names)

    def make(errors: Sequence[ErrorCode]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(list(map(DeleteGroupsResponseResult, names, errors)))

    def refuse(error: ErrorCode) -> DeleteGroupsResponse:
        return make([error] * len(names))

    if not call.broker.may_administer(call.client):
        return refuse(ErrorCode.group_authorization_failed)
    return ask_coordinator(call, lambda c, requester: c.delete(names, requester), make, refuse)


API = KafkaApi(
    key=42,
    name="DeleteGroups",
    first=0,
    last=2,
    flexible_from=2,
    handle=handle,
    notes="Needs the right `admin`.",
)

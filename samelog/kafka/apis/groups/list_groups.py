"""ListGroups (16): the groups that a node coordinates: all on the leader, none elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Listed


class ListGroupsResponseGroup(Entity, frozen=True):
    """A group."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    groups: Sequence[ListGroupsResponseGroup] = ()


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}

    def is_wanted(group: Listed) -> bool:
        return (
            call.broker.may_use_group(call.client, group.group)
            and (not states or group.state.lower() in states)
            and (not kinds or group.kind in kinds)
        )

    def make(groups: tuple[Listed, ...]) -> ListGroupsResponse:
        wanted = [
            ListGroupsResponseGroup(group.group, group.protocol_type, group.state, group.kind)
            for group in groups
            if is_wanted(group)
        ]
        return ListGroupsResponse(ErrorCode.none, wanted)

    def refuse(error: ErrorCode) -> ListGroupsResponse:
        is_elsewhere = error is ErrorCode.not_coordinator
        return ListGroupsResponse(ErrorCode.none if is_elsewhere else error)

    return ask_coordinator(call, lambda c, requester: c.list_groups(requester), make, refuse)


API = KafkaApi(
    key=16,
    name="ListGroups",
    first=0,
    last=5,
    flexible_from=3,
    handle=handle,
    notes="A node lists the groups that it coordinates: the leader all, other nodes none.",
)

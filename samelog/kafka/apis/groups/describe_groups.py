"""DescribeGroups (15): groups of the classic protocol, with their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Described


class DescribeGroupsResponseMember(Entity, frozen=True):
    """A member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribeGroupsResponseGroup(Entity, frozen=True):
    """A group. One that does not exist is dead, and that is no error before version 6."""

    group_id: str
    error_code: ErrorCode = ErrorCode.none
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribeGroupsResponseMember] = ()


class DescribeGroupsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    groups: Sequence[DescribeGroupsResponseGroup]


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    names = list(request.groups)
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def make(groups: tuple[Described, ...]) -> DescribeGroupsResponse:
        found = {group.group: _group(group) for group in groups}
        denied = ErrorCode.group_authorization_failed
        return DescribeGroupsResponse(
            [found.get(name) or DescribeGroupsResponseGroup(name, denied) for name in names]
        )

    def refuse(error: ErrorCode) -> DescribeGroupsResponse:
        return DescribeGroupsResponse([DescribeGroupsResponseGroup(name, error) for name in names])

    return ask_coordinator(call, lambda c, requester: c.describe(allowed, requester), make, refuse)


def _group(group: Described) -> DescribeGroupsResponseGroup:
    return DescribeGroupsResponseGroup(
        group.group,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribeGroupsResponseMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in group.members
        ],
    )


API = KafkaApi(
    key=15,
    name="DescribeGroups",
    first=0,
    last=5,
    flexible_from=5,
    handle=handle,
    notes="Authorized operations are not returned.",
)

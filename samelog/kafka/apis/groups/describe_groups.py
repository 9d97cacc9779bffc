"""DescribeGroups (15): groups of the classic protocol, with their members."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Described, DescribedMember


def _handle(call: NodeCall, request: Any) -> Outcome:
    names = list(request.groups)
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def made(groups: tuple[Described, ...]) -> Tree:
        found = {group.group: _group(group) for group in groups}
        denied = ErrorCode.group_authorization_failed
        trees = [found.get(name) or _lost(name, denied) for name in names]
        return {"throttle_time": 0, "groups": trees}

    def lost(error: ErrorCode) -> Tree:
        return {"throttle_time": 0, "groups": [_lost(name, error) for name in names]}

    return answered(call, None, lambda c, waiter: c.describe(allowed, waiter), made, lost)


def _group(group: Described) -> Tree:
    """A group that does not exist is dead, and that is no error before version 6."""
    return {
        "error_code": ErrorCode.none,
        "group_id": group.group,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [_member(member) for member in group.members],
    }


def _member(member: DescribedMember) -> Tree:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


def _lost(name: str, error: ErrorCode) -> Tree:
    return {
        "error_code": error,
        "group_id": name,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


API = KafkaApi(
    key=15,
    name="DescribeGroups",
    first=0,
    last=5,
    flexible_from=5,
    handle=_handle,
    notes="Authorized operations are not told.",
)

"""ConsumerGroupDescribe (69): groups of the consumer protocol, with members and their targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered, by_topic_id
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import DescribedConsumers
from samelog.sequencer.state.group_commands import ConsumerMember

CONSUMER_MEMBER = 1
"""A member by the consumer protocol (KIP-1099)."""


def _handle(call: NodeCall, request: Any) -> Outcome:
    names = list(request.group_ids)
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def made(groups: tuple[DescribedConsumers, ...]) -> Tree:
        found = {group.group: _group(call, group) for group in groups}
        denied = ErrorCode.group_authorization_failed
        return {"groups": [found.get(name) or _empty(name, denied) for name in names]}

    def lost(error: ErrorCode) -> Tree:
        return {"groups": [_empty(name, error) for name in names]}

    return answered(call, None, lambda c, waiter: c.describe_consumers(allowed, waiter), made, lost)


def _empty(name: str, error: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": error,
        "group_id": name,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _group(call: NodeCall, group: DescribedConsumers) -> Tree:
    return {
        **_empty(group.group, ErrorCode(int(group.error))),
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.epoch,
        "assignor_name": group.assignor,
        "members": [_member(call, member, target) for member, target in group.members],
    }


def _member(call: NodeCall, member: ConsumerMember, target: Iterable[int]) -> Tree:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": None,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": member.pattern or None,
        "assignment": {"topic_partitions": by_topic_id(call, member.assigned)},
        "target_assignment": {"topic_partitions": by_topic_id(call, target)},
        "member_type": CONSUMER_MEMBER,
    }


API = KafkaApi(
    key=69,
    name="ConsumerGroupDescribe",
    first=0,
    last=1,
    flexible_from=0,
    handle=_handle,
    notes="Authorized operations are not told.",
)

"""ConsumerGroupDescribe (69): groups of the consumer protocol, with members and their targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.checks import id_of
from samelog.kafka.apis.groups.answering import ask_coordinator, by_topic_id
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import DescribedConsumers
from samelog.sequencer.state.group_commands import ConsumerMember

CONSUMER_MEMBER = 1
"""A member by the consumer protocol (KIP-1099)."""


class ConsumerGroupDescribeResponsePartitions(Entity, frozen=True):
    """Partitions of one topic."""

    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]


class ConsumerGroupDescribeResponseAssignment(Entity, frozen=True):
    """What a member has, or is to have."""

    topic_partitions: Sequence[ConsumerGroupDescribeResponsePartitions]


class ConsumerGroupDescribeResponseMember(Entity, frozen=True):
    """A member."""

    member_id: str
    instance_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: int = CONSUMER_MEMBER


class ConsumerGroupDescribeResponseGroup(Entity, frozen=True):
    """A group."""

    group_id: str
    error_code: ErrorCode
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[ConsumerGroupDescribeResponseMember] = ()


class ConsumerGroupDescribeResponse(ResponseBody, frozen=True):
    """The response of this API."""

    groups: Sequence[ConsumerGroupDescribeResponseGroup]


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    names = list(request.group_ids)
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def make(groups: tuple[DescribedConsumers, ...]) -> ConsumerGroupDescribeResponse:
        found = {group.group: _group(call, group) for group in groups}
        denied = ErrorCode.group_authorization_failed
        return ConsumerGroupDescribeResponse(
            [found.get(name) or ConsumerGroupDescribeResponseGroup(name, denied) for name in names]
        )

    def refuse(error: ErrorCode) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            [ConsumerGroupDescribeResponseGroup(name, error) for name in names]
        )

    return ask_coordinator(
        call, lambda c, requester: c.describe_consumers(allowed, requester), make, refuse
    )


def _group(call: NodeCall, group: DescribedConsumers) -> ConsumerGroupDescribeResponseGroup:
    return ConsumerGroupDescribeResponseGroup(
        group.group,
        group.error,
        group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=[_member(call, member, target) for member, target in group.members],
    )


def _member(
    call: NodeCall, member: ConsumerMember, target: Iterable[int]
) -> ConsumerGroupDescribeResponseMember:
    return ConsumerGroupDescribeResponseMember(
        member.member_id,
        member.instance_id,
        member.epoch,
        member.client_id,
        member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(call, member.assigned),
        target_assignment=_assignment(call, target),
    )


def _assignment(call: NodeCall, numbers: Iterable[int]) -> ConsumerGroupDescribeResponseAssignment:
    topics = call.broker.machine.state.topics
    return ConsumerGroupDescribeResponseAssignment(
        [
            ConsumerGroupDescribeResponsePartitions(id_of(topics[topic]), topics[topic].name, found)
            for topic, found in by_topic_id(call, numbers)
        ]
    )


API = KafkaApi(
    key=69,
    name="ConsumerGroupDescribe",
    first=0,
    last=1,
    flexible_from=0,
    handle=handle,
    notes="Authorized operations are not returned.",
)

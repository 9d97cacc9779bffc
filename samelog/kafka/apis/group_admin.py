"""Groups seen from outside: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from samelog.format.steps import StepWork, mapped
from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import KafkaResponse, NodeCall, Reply, kafka_api
from samelog.kafka.apis.checks import NO_OPERATIONS, id_of
from samelog.kafka.apis.group_answers import ask_coordinator, ask_in_steps, with_topics
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.classic_group import DEAD
from samelog.kafka.groups.requests import Described, DescribedConsumers, Listed
from samelog.kafka.parts import Parts
from samelog.sequencer.state.tables.groups import ConsumerMember

DEAD_IS_AN_ERROR_FROM = 6
_CHANGES = AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


class DescribeGroupsResponse(ResponseBody, frozen=True):
    """The response of `describe_groups`."""

    groups: Sequence[Described]


@kafka_api(
    15, "DescribeGroups", 0, 6, flexible_from=5, parts=Parts(("groups",), ("groups",), size=20)
)
def describe_groups(call: NodeCall, request: Any) -> Reply:
    """Groups of the classic protocol, with their members."""
    names = list(dict.fromkeys(request.groups))
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def make(groups: Sequence[Described]) -> StepWork[KafkaResponse]:
        told = yield from mapped(partial(_told, call, request), groups)
        found = {group.group_id: group for group in told}
        denied = ErrorCode.group_authorization_failed
        return DescribeGroupsResponse(
            [found.get(name) or Described(name, denied) for name in names]
        )

    def refuse(error: ErrorCode) -> DescribeGroupsResponse:
        return DescribeGroupsResponse([Described(name, error) for name in names])

    return ask_in_steps(call, lambda c, requester: c.describe(allowed, requester), make, refuse)


def _told(call: NodeCall, request: Any, group: Described) -> Described:
    """From version 6 on it is an error to ask for a group that does not exist."""
    if wants_operations(request):
        group = replace(group, authorized_operations=_operations(call, group.group_id))
    if call.version < DEAD_IS_AN_ERROR_FROM or group.error_code or group.group_state != DEAD:
        return group
    text = f"there is no group {group.group_id!r}"
    return replace(group, error_code=ErrorCode.group_id_not_found, error_message=text)


def wants_operations(request: Any) -> bool:
    """Whether a request asks what the client may do."""
    return bool(getattr(request, "include_authorized_operations", False))


def _operations(call: NodeCall, group: str) -> int:
    """What a client may do with a group, as a bit field."""
    may = partial(call.broker.may, call.client, kind=AclResource.GROUP, name=group)
    found = [each for each in _CHANGES if may(each)]
    if call.broker.may_use_group(call.client, group):
        found += AclOperation.READ, AclOperation.DESCRIBE
    return sum(1 << each for each in found)


class ListGroupsResponse(ResponseBody, frozen=True):
    """The response of `list_groups`."""

    error_code: ErrorCode
    groups: Sequence[Listed] = ()


@kafka_api(
    16,
    "ListGroups",
    0,
    5,
    flexible_from=3,
    notes="A node lists the groups that it coordinates: the leader all, other nodes none.",
)
def list_groups(call: NodeCall, request: Any) -> Reply:
    """The groups that a node coordinates: all on the leader, none elsewhere."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}

    def is_wanted(group: Listed | None) -> bool:
        return (
            group is not None
            and call.broker.may_use_group(call.client, group.group_id)
            and (not states or group.group_state.lower() in states)
            and (not kinds or group.group_type in kinds)
        )

    def make(groups: Sequence[Listed | None]) -> StepWork[KafkaResponse]:
        wanted = yield from mapped(is_wanted, groups)
        found = filter(None, compress(groups, wanted))
        return ListGroupsResponse(ErrorCode.none, list(found))

    def refuse(error: ErrorCode) -> ListGroupsResponse:
        is_elsewhere = error is ErrorCode.not_coordinator
        return ListGroupsResponse(ErrorCode.none if is_elsewhere else error)

    return ask_in_steps(call, lambda c, requester: c.list_groups(requester), make, refuse)


class DeleteGroupsResponseResult(Entity, frozen=True):
    """What became of one group."""

    group_id: str
    error_code: ErrorCode


class DeleteGroupsResponse(ResponseBody, frozen=True):
    """The response of `delete_groups`."""

    results: Sequence[DeleteGroupsResponseResult]


@kafka_api(
    42,
    "DeleteGroups",
    0,
    2,
    flexible_from=2,
    parts=Parts(("groups_names",), ("results",)),
    notes="Needs `admin` or an ACL.",
)
def delete_groups(call: NodeCall, request: Any) -> Reply:
    """Groups without members, with their offsets."""
    names = list(request.groups_names)

    def make(errors: Sequence[ErrorCode]) -> DeleteGroupsResponse:
        found = dict(zip(allowed, errors, strict=True))
        denied = ErrorCode.group_authorization_failed
        return DeleteGroupsResponse(
            [DeleteGroupsResponseResult(name, found.get(name, denied)) for name in names]
        )

    def refuse(error: ErrorCode) -> DeleteGroupsResponse:
        return make([error] * len(allowed))

    may = partial(call.broker.may, call.client, AclOperation.DELETE, AclResource.GROUP)
    allowed = [name for name in names if may(name)]
    return ask_coordinator(call, lambda c, requester: c.delete(allowed, requester), make, refuse)


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
    authorized_operations: int = NO_OPERATIONS


class ConsumerGroupDescribeResponse(ResponseBody, frozen=True):
    """The response of `consumer_group_describe`."""

    groups: Sequence[ConsumerGroupDescribeResponseGroup]


@kafka_api(
    69,
    "ConsumerGroupDescribe",
    0,
    1,
    flexible_from=0,
    parts=Parts(("group_ids",), ("groups",), size=20),
)
def consumer_group_describe(call: NodeCall, request: Any) -> Reply:
    """Groups of the consumer protocol, with members and their targets."""
    names = list(dict.fromkeys(request.group_ids))
    allowed = [name for name in names if call.broker.may_use_group(call.client, name)]

    def make(groups: Sequence[DescribedConsumers]) -> StepWork[KafkaResponse]:
        found = {}
        for group in groups:
            found[group.group] = yield from _group(call, request, group)
            yield
        denied = ErrorCode.group_authorization_failed
        return ConsumerGroupDescribeResponse(
            [found.get(name) or ConsumerGroupDescribeResponseGroup(name, denied) for name in names]
        )

    def refuse(error: ErrorCode) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            [ConsumerGroupDescribeResponseGroup(name, error) for name in names]
        )

    return ask_in_steps(
        call, lambda c, requester: c.describe_consumers(allowed, requester), make, refuse
    )


def _group(
    call: NodeCall, request: Any, group: DescribedConsumers
) -> StepWork[ConsumerGroupDescribeResponseGroup]:
    is_asked, members = wants_operations(request), []
    for member, target in group.members:
        has = yield from _assignment(call, member.assigned)
        wants = yield from _assignment(call, target)
        members.append(_member(member, has, wants))
    return ConsumerGroupDescribeResponseGroup(
        group.group,
        group.error,
        group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=_operations(call, group.group) if is_asked else NO_OPERATIONS,
    )


def _member(
    member: ConsumerMember,
    has: ConsumerGroupDescribeResponseAssignment,
    wants: ConsumerGroupDescribeResponseAssignment,
) -> ConsumerGroupDescribeResponseMember:
    return ConsumerGroupDescribeResponseMember(
        member.member_id,
        member.instance_id,
        member.epoch,
        member.client_id,
        member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern or None,
        assignment=has,
        target_assignment=wants,
    )


def _assignment(
    call: NodeCall, numbers: Iterable[int]
) -> StepWork[ConsumerGroupDescribeResponseAssignment]:
    told = []
    for topic, indexes in (yield from with_topics(call, numbers)):
        told.append(ConsumerGroupDescribeResponsePartitions(id_of(topic), topic.name, indexes))
        yield
    return ConsumerGroupDescribeResponseAssignment(told)

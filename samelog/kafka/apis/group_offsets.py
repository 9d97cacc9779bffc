"""What groups commit: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import NodeCall, Reply, kafka_api
from samelog.kafka.apis.checks import Turn, id_of
from samelog.kafka.apis.group_answers import NEVER_FLEXIBLE, ask_coordinator, by_topic, check_group
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import (
    Entity,
    PartitionError,
    ResponseBody,
    TopicAnswers,
)
from samelog.kafka.groups.requests import Caller, OffsetCommit
from samelog.kafka.parts import Parts
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.groups import CommittedOffset

PartT = TypeVar("PartT")


class TopicIdAnswers(Entity, Generic[PartT], frozen=True):
    """The partitions of a topic, as newer versions name it."""

    topic_id: UUID
    partitions: Sequence[PartT]


OffsetTopics = Sequence[TopicAnswers[PartT] | TopicIdAnswers[PartT]]


def _nested(partitions: Iterable[tuple[str | UUID, PartT]]) -> OffsetTopics[PartT]:
    """(name or id of a topic, what is answered of a partition), as the protocol nests them."""
    topics: dict[str | UUID, list[PartT]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [
        TopicIdAnswers(key, found) if isinstance(key, UUID) else TopicAnswers(key, found)
        for key, found in topics.items()
    ]


class OffsetCommitResponse(ResponseBody, frozen=True):
    """The response of `offset_commit`."""

    topics: OffsetTopics[PartitionError]


@kafka_api(
    8,
    "OffsetCommit",
    2,
    10,
    flexible_from=8,
    parts=Parts(("topics", "partitions"), ("topics", "partitions"), size=100),
    notes="`retention_time_ms` is ignored. `offsets.retention.minutes` counts.",
)
def offset_commit(call: NodeCall, request: Any) -> Reply:
    """How far a group, or a consumer without one, has come.

    Kafka's per-request retention (versions 2 to 4) is not honoured: offsets stay as long as
    `offsets.retention.minutes` says.
    """
    asked = [(_key(topic), partition) for topic in request.topics for partition in topic.partitions]
    refused = {topic: _refusal(call, topic) for topic in dict.fromkeys(topic for topic, _ in asked)}
    commits = [_commit(call, topic, each) for topic, each in asked if not refused[topic]]
    caller = Caller(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
    )

    def respond(errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
        answers = (
            (topic, PartitionError(partition.partition_index, error))
            for (topic, partition), error in zip(asked, errors, strict=True)
        )
        return OffsetCommitResponse(_nested(answers))

    def make(errors: tuple[ErrorCode, ...]) -> OffsetCommitResponse:
        following = iter(errors)
        return respond(refused[topic] or next(following) for topic, _ in asked)

    def refuse(error: ErrorCode) -> OffsetCommitResponse:
        return respond([error] * len(asked))

    return ask_coordinator(
        call,
        lambda c, requester: c.commit(caller, commits, requester),
        make,
        refuse,
        group=request.group_id,
    )


def _key(topic: Any) -> str | UUID:
    """The id of a topic in newer versions, or its name."""
    topic_id: UUID | None = getattr(topic, "topic_id", None)
    return topic_id or str(getattr(topic, "name", ""))


def _refusal(call: NodeCall, key: str | UUID) -> ErrorCode:
    """Why a client gets nothing of a topic; 0 if it may."""
    topic = call.broker.topic(key) if isinstance(key, UUID) else None
    if isinstance(key, UUID) and topic is None:
        return ErrorCode.unknown_topic_id
    may = call.broker.may_read(call.client, str(key) if topic is None else topic.name)
    return ErrorCode.none if may else ErrorCode.topic_authorization_failed


def _commit(call: NodeCall, topic: str | UUID, partition: Any) -> OffsetCommit:
    return OffsetCommit(
        call.broker.partition_number(topic, partition.partition_index),
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", -1),
        partition.committed_metadata or "",
    )


MANY_FROM, IDS_FROM = 8, 10
"""From these versions on a request may ask about many groups, and topics have ids, not names."""


class OffsetFetchResponsePartition(Entity, frozen=True):
    """The offset of a partition; -1: none was committed."""

    partition_index: int
    error_code: ErrorCode
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""


class OffsetFetchResponseGroup(Entity, frozen=True):
    """The offsets of a group."""

    group_id: str
    topics: OffsetTopics[OffsetFetchResponsePartition]
    error_code: ErrorCode


class OffsetFetchResponse(ResponseBody, frozen=True):
    """The list of groups is of newer versions, the rest of older ones."""

    groups: Sequence[OffsetFetchResponseGroup] = ()
    topics: OffsetTopics[OffsetFetchResponsePartition] = ()
    error_code: ErrorCode = ErrorCode.none


@kafka_api(
    9,
    "OffsetFetch",
    1,
    10,
    flexible_from=6,
    notes="Answered once a majority confirms that the coordinator still leads. A request "
    "for stable offsets is answered with UNSTABLE_OFFSET_COMMIT while a transaction may move one.",
)
async def offset_fetch(call: NodeCall, request: Any) -> OffsetFetchResponse:
    """What was committed. A group that nobody knows has committed nothing (-1)."""
    is_current = await call.broker.groups.is_current()
    error = ErrorCode.none if is_current else ErrorCode.not_coordinator
    if call.version >= MANY_FROM:
        turn, found = Turn(), []
        for group in request.groups:
            await turn.give_way()
            name, unstable = group.group_id, _unstable(call, request, group.group_id)
            refusal = error or _check_member(call, group)
            found.append(await _group(call, name, group.topics, refusal, unstable, turn=turn))
        return OffsetFetchResponse(found)
    unstable = _unstable(call, request, request.group_id)
    only = await _group(call, request.group_id, request.topics, error, unstable, turn=Turn())
    return OffsetFetchResponse(topics=only.topics, error_code=error)


def _check_member(call: NodeCall, group: Any) -> ErrorCode:
    """From version 9 on a member of a group of the consumer protocol says that it is one."""
    member_id, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    return call.broker.groups.may_fetch(Caller(group.group_id, member_id or "", None, epoch))


def _unstable(call: NodeCall, request: Any, group_id: str) -> Collection[int]:
    """The partitions of which a client must not be told yet how far a group is (KIP-447)."""
    if not getattr(request, "require_stable", False):
        return ()
    return call.broker.machine.state.transactions.undecided_offsets(group_id)


async def _group(
    call: NodeCall,
    group_id: str,
    topics: Any,
    error: ErrorCode,
    unstable: Collection[int],
    *,
    turn: Turn,
) -> OffsetFetchResponseGroup:
    asked = () if topics is None else _named(topics)
    offsets: Mapping[int, CommittedOffset] = {}
    error = check_group(call, group_id) or error
    if error is ErrorCode.none:
        group = call.broker.machine.state.groups.by_id.get(group_id)
        offsets = {} if group is None else group.offsets
        asked = _all(call, {*offsets, *unstable}) if topics is None else asked
    answers: list[tuple[str | UUID, OffsetFetchResponsePartition]] = []
    for topic, index in asked:
        await turn.give_way()
        found = _partition(call, topic, index, offsets, error, unstable=unstable)
        answers.append((topic, found))
    return OffsetFetchResponseGroup(group_id, _nested(answers), error)


def _named(topics: Iterable[Any]) -> Iterator[tuple[str | UUID, int]]:
    return ((_key(topic), index) for topic in topics for index in topic.partition_indexes)


def _all(call: NodeCall, numbers: Iterable[int]) -> Iterator[tuple[str | UUID, int]]:
    state = call.broker.machine.state
    for number in numbers:
        place = place_of(state, number)
        if place is not None and call.broker.may_read(call.client, place[0].name):
            yield id_of(place[0]) if call.version >= IDS_FROM else place[0].name, place[1]


def _partition(
    call: NodeCall,
    topic: str | UUID,
    index: int,
    offsets: Mapping[int, CommittedOffset],
    error: ErrorCode,
    *,
    unstable: Collection[int],
) -> OffsetFetchResponsePartition:
    error = error or _refusal(call, topic)
    number = call.broker.partition_number(topic, index)
    if not error and number in unstable:
        error = ErrorCode.unstable_offset_commit
    known = offsets.get(number) if number is not None and error is ErrorCode.none else None
    if known is None:
        return OffsetFetchResponsePartition(index, error)
    return OffsetFetchResponsePartition(
        index, error, known.offset, known.leader_epoch, known.metadata
    )


WHOLE_GROUP = (ErrorCode.group_id_not_found, ErrorCode.non_empty_group)
"""Errors that are the group's, not one partition's."""


class OffsetDeleteResponse(ResponseBody, frozen=True):
    """The response of `offset_delete`."""

    error_code: ErrorCode
    topics: Sequence[TopicAnswers[PartitionError]] = ()


@kafka_api(
    47,
    "OffsetDelete",
    0,
    0,
    flexible_from=NEVER_FLEXIBLE,
    parts=Parts(("topics", "partitions"), ("topics", "partitions"), size=100),
    notes="Needs `admin` or an ACL.",
)
def offset_delete(call: NodeCall, request: Any) -> Reply:
    """Forget what a group committed in topics that it does not subscribe to."""
    if not call.broker.may(call.client, AclOperation.DELETE, AclResource.GROUP, request.group_id):
        return OffsetDeleteResponse(ErrorCode.group_authorization_failed)
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    numbers = {each: call.broker.partition_number(*each) for each in asked}
    known = [number for number in numbers.values() if number is not None]

    def make(errors: tuple[ErrorCode, ...]) -> OffsetDeleteResponse:
        if errors and errors[0] in WHOLE_GROUP:
            return OffsetDeleteResponse(errors[0])
        said: dict[int | None, ErrorCode] = dict(zip(known, errors, strict=True))
        unknown = ErrorCode.unknown_topic_or_partition
        answers = (
            (topic, PartitionError(index, said.get(numbers[topic, index], unknown)))
            for topic, index in asked
        )
        return OffsetDeleteResponse(ErrorCode.none, by_topic(answers))

    return ask_coordinator(
        call,
        lambda c, requester: c.delete_offsets(request.group_id, known, requester),
        make,
        OffsetDeleteResponse,
    )

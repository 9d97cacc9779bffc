"""What becomes of topics: CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from samelog.archiver.command import ArchiveCommand
from samelog.format.errors import InvariantError
from samelog.format.nouns import counted
from samelog.format.steps import mapped
from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import (
    PARTITIONS_MAX,
    administered,
    answer_each,
    answer_topics,
    catch_up,
    check_name,
    check_no_mirror,
    check_partitions,
    check_replicas,
    check_settings,
    denied,
    id_of,
    no_partition,
    unknown,
)
from samelog.kafka.apis.placing import (
    LONGEST_S,
    NewPartitions,
    done_in_one_entry,
    left_ms,
    once_open,
    over_at_of,
    placement_of,
)
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicsResponse
from samelog.kafka.parts import Parts
from samelog.kafka.settings import ConfigSource, of_topic
from samelog.runtime.slices import give_way, paced
from samelog.sequencer.admin.deletions import groups_of, lag_text, until_dropped
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    CreateTopicCommand,
    DeleteTopicCommand,
    Topic,
)
from samelog.sequencer.state.tables.views import DropViewCommand


class CreateTopicsResponseConfig(Entity, frozen=True):
    """A setting of a topic."""

    name: str
    value: str
    read_only: bool
    config_source: ConfigSource
    is_sensitive: bool = False


class CreateTopicsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreateTopicsResponseConfig] = ()


class CreateTopicsResponse(ResponseBody, frozen=True):
    """The response of `create_topics`."""

    topics: Sequence[CreateTopicsResponseTopic]


@kafka_api(
    19,
    "CreateTopics",
    2,
    7,
    flexible_from=5,
    creates=True,
    notes="Without a replication factor, `default.replication.factor` counts. A factor, or an "
    "assignment, means what it says: placement.md.",
)
async def create_topics(call: NodeCall, request: Any) -> CreateTopicsResponse:
    """Makes topics. Any node takes the request. `samelog.placement.defaults` says whether a topic's
    partitions are in data groups.
    """
    counts = Counter(topic.name for topic in request.topics)

    def prepare(wanted: Any) -> CreateTopicCommand:
        if counts[wanted.name] > 1:
            raise ApiError(ErrorCode.invalid_request, "the topic is there twice")
        return _new_topic(call, wanted)

    over_at = over_at_of(request)
    prepared = await _prepared(request.topics, prepare)
    if not request.validate_only:
        prepared = await _create_all(call.broker, request.topics, prepared, over_at)

    def told(pair: tuple[Any, CreateTopicCommand | ApiError]) -> CreateTopicsResponseTopic:
        wanted, made = pair
        if isinstance(made, ApiError):
            return CreateTopicsResponseTopic(wanted.name, made.code, made.message)
        return _created(call, made, validate_only=request.validate_only)

    pairs = zip(request.topics, prepared, strict=True)
    return CreateTopicsResponse(await paced(mapped(told, pairs)))


async def _create_all(
    broker: Broker,
    topics: Sequence[Any],
    prepared: Sequence[CreateTopicCommand | ApiError],
    over_at: float,
) -> list[CreateTopicCommand | ApiError]:
    """Those that are created, each in its place, and errors for all else."""
    sound = [each for each in prepared if not isinstance(each, ApiError)]
    if sum(each.partitions for each in sound) > PARTITIONS_MAX:
        text = f"more than {PARTITIONS_MAX} partitions in one request"
        refusal = ApiError(ErrorCode.policy_violation, text)
        return [each if isinstance(each, ApiError) else refusal for each in prepared]
    plans = await paced(mapped(partial(placement_of, broker), topics))

    def command_of(plan: PlacementPlan, place: int) -> AnyCommand:
        command, wanted = prepared[place], plans[place]
        if isinstance(command, ApiError):
            raise InvariantError(f"topic {topics[place].name} was refused, and is proposed")
        return command if wanted is None else plan.topic(command, wanted)

    created = await done_in_one_entry(broker, prepared, command_of, over_at)
    return await once_open(
        broker, created, lambda place: NewPartitions(topics[place].name, 0), over_at
    )


IN_ENTRY = 100
"""Deletions that nodes carry out together: each takes a node some time."""
CommandT = TypeVar("CommandT", bound=AnyCommand)
WantedT = TypeVar("WantedT")


async def _prepared(
    wanted: Iterable[WantedT], prepare: Callable[[WantedT], CommandT]
) -> list[CommandT | ApiError]:
    """A command for each part of a request, or what is wrong with it."""

    async def command(each: WantedT) -> CommandT | ApiError:
        return prepare(each)

    return await answer_each(wanted, command, lambda _, error: error)


async def _done(
    call: NodeCall, request: Any, wanted: Iterable[WantedT], prepare: Callable[[WantedT], CommandT]
) -> list[CommandT | ApiError]:
    """A command for each part of a request, done unless it is only to be looked at; or why not."""
    prepared = await _prepared(wanted, prepare)
    if getattr(request, "validate_only", False):
        return prepared
    return await done_together(call.broker, prepared, request.timeout_ms)


async def done_together(
    broker: Broker, prepared: Sequence[CommandT | ApiError], timeout_ms: int
) -> list[CommandT | ApiError]:
    """Have all commands carried out, `IN_ENTRY` in an entry. Returns those that are done, each in
    its place, and errors for all else. `timeout_ms`: the request's.
    """
    wanted = [each for each in prepared if not isinstance(each, ApiError)]
    over_at = asyncio.get_running_loop().time() + min(LONGEST_S, timeout_ms / 1000)
    found: list[ApiError | None] = []
    for start in range(0, len(wanted), IN_ENTRY):
        await give_way()
        together = wanted[start : start + IN_ENTRY]
        found += await broker.propose_all(together, left_ms(over_at) / 1000)
    errors = iter(found)
    return [each if isinstance(each, ApiError) else next(errors) or each for each in prepared]


def _new_topic(call: NodeCall, wanted: Any) -> CreateTopicCommand:
    """Raises ApiError."""
    broker = call.broker
    check_name(wanted.name)
    if not broker.may_create(call.client, wanted.name):
        raise denied(wanted.name)
    partitions = check_partitions(_partitions(call, wanted))
    given = {each.name: each.value for each in wanted.configs}
    settings = check_settings(given, _majority(broker, wanted), broker.longest_batch)
    broker.check_libraries(settings)
    if broker.topic(wanted.name) is not None:
        text = f"topic {wanted.name!r} exists already"
        raise ApiError(ErrorCode.topic_already_exists, text)
    now_ms = broker.clock.wall_ms()
    return CreateTopicCommand(uuid.uuid4().hex, wanted.name, partitions, settings, now_ms)


def _majority(broker: Broker, wanted: Any) -> int:
    """On how many nodes records of a new topic will be before they are acknowledged."""
    plan = placement_of(broker, wanted)
    if plan is None:
        return broker.majority
    return (plan if isinstance(plan, int) else min(map(len, plan))) // 2 + 1


def _created(
    call: NodeCall, made: CreateTopicCommand, *, validate_only: bool
) -> CreateTopicsResponseTopic:
    return CreateTopicsResponseTopic(
        made.name,
        topic_id=None if validate_only else uuid.UUID(made.topic_id),
        num_partitions=made.partitions,
        replication_factor=_replicas(call.broker, made.name),
        configs=_configs(call, made.name),
    )


def _replicas(broker: Broker, name: str) -> int:
    topic = broker.topic(name)
    return len(broker.nodes() if topic is None else broker.nodes_of(topic, 0))


def _configs(call: NodeCall, name: str) -> list[CreateTopicsResponseConfig]:
    topic = call.broker.topic(name)
    return [
        CreateTopicsResponseConfig(each.name, each.value, each.read_only, each.config_source)
        for each in (() if topic is None else of_topic(call.broker, topic))
    ]


def _partitions(call: NodeCall, wanted: Any) -> int:
    """How many partitions are wanted. Raises ApiError."""
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            text = "either an assignment, or numbers of partitions and replicas"
            raise ApiError(ErrorCode.invalid_request, text)
        indexes = sorted(each.partition_index for each in wanted.assignments)
        if indexes != list(range(len(indexes))):
            text = "an assignment must name partitions from 0 on, each once"
            raise ApiError(ErrorCode.invalid_replica_assignment, text)
        return len(indexes)
    check_replicas(call.broker.machine.state, wanted.replication_factor)
    if wanted.num_partitions == -1:
        return call.broker.defaults.num_partitions
    return int(wanted.num_partitions)


class CreatePartitionsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreatePartitionsResponse(ResponseBody, frozen=True):
    """The response of `create_partitions`."""

    results: Sequence[CreatePartitionsResponseTopic]


@kafka_api(
    37,
    "CreatePartitions",
    0,
    3,
    flexible_from=2,
    creates=True,
    notes="Assignments count for topics whose partitions are in data groups.",
)
async def create_partitions(call: NodeCall, request: Any) -> CreatePartitionsResponse:
    """Lets topics have more partitions."""
    await call.broker.look_for(topic.name for topic in request.topics)

    prepared = await _prepared(request.topics, partial(_command, call))
    done = prepared
    if not request.validate_only:
        done = await _add_all(call.broker, request, prepared)
    return CreatePartitionsResponse(
        [
            CreatePartitionsResponseTopic(wanted.name, made.code, made.message)
            if isinstance(made, ApiError)
            else CreatePartitionsResponseTopic(wanted.name)
            for wanted, made in zip(request.topics, done, strict=True)
        ]
    )


async def _add_all(
    broker: Broker, request: Any, prepared: Sequence[AddPartitions | ApiError]
) -> list[AddPartitions | ApiError]:
    """As `_create_all`."""
    news: dict[int, NewPartitions] = {}

    def command_of(plan: PlacementPlan, place: int) -> AnyCommand:
        command, wanted = prepared[place], request.topics[place]
        topic = broker.topic(wanted.name)
        if isinstance(command, ApiError):
            raise InvariantError(f"topic {wanted.name} was refused, and is proposed")
        news[place] = NewPartitions(wanted.name, 0 if topic is None else topic.partitions)
        if topic is None or not topic.is_placed or topic.partitions >= command.partitions:
            return command
        lists = [list(each.broker_ids) for each in wanted.assignments or ()]
        return plan.partitions(topic, command.partitions, by_hand=lists or None)

    over_at = over_at_of(request)
    added = await done_in_one_entry(broker, prepared, command_of, over_at)
    return await once_open(broker, added, news.__getitem__, over_at)


def _command(call: NodeCall, wanted: Any) -> AddPartitions:
    """Raises ApiError."""
    topic = administered(call.broker, call.client, AclOperation.ALTER, wanted.name)
    check_no_mirror(call.broker.machine.state, topic)
    call.broker.views.refuse_writes(topic)
    if wanted.count <= topic.partitions:
        text = f"topic {topic.name!r} has {counted(topic.partitions, 'partition')} already"
        raise ApiError(ErrorCode.invalid_partitions, text)
    check_partitions(wanted.count)
    added = wanted.count - topic.partitions
    if wanted.assignments is not None and len(wanted.assignments) != added:
        text = f"{len(wanted.assignments)} assignments for {added} new partitions"
        raise ApiError(ErrorCode.invalid_replica_assignment, text)
    return AddPartitions(topic.topic_id, wanted.count)


IDS_FROM = 6
"""From this version on a request may name topics by id."""


class DeleteTopicsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteTopicsResponse(ResponseBody, frozen=True):
    """The response of `delete_topics`."""

    responses: Sequence[DeleteTopicsResponseTopic]


class _WantedTopic(NamedTuple):
    """One of the two is not None."""

    name: str | None
    topic_id: uuid.UUID | None


@kafka_api(
    20,
    "DeleteTopics",
    1,
    6,
    flexible_from=4,
    notes="The name is free at once, and a new topic of it shares nothing with the old one. The "
    "answer waits until majorities of the topic's data groups have dropped it; if one does not do "
    "so in time, it is REQUEST_TIMED_OUT, and `samelog topic list` names the group.",
)
async def delete_topics(call: NodeCall, request: Any) -> DeleteTopicsResponse:
    """Ends topics, by name or by id; their names are free again at once."""
    over_at = over_at_of(request)
    if call.version >= IDS_FROM:
        topics = [_WantedTopic(each.name, each.topic_id) for each in request.topics]
    else:
        topics = [_WantedTopic(name, None) for name in request.topic_names]
    await call.broker.look_for(each.topic_id or each.name for each in topics)
    look = call.broker.topic
    found = await paced(mapped(lambda each: look(each.topic_id or each.name or ""), topics))

    def prepare(place: int) -> DeleteTopicCommand | DropViewCommand:
        return _deletion(call, topics[place], found[place])

    groups = {
        each.topic_id: groups_of(call.broker.machine.state, each)
        for each in found
        if each is not None
    }
    deleted = await _done(call, request, range(len(topics)), prepare)
    done = await _until_dropped(call.broker, groups, found, deleted, over_at)
    return DeleteTopicsResponse(list(map(_deleted, topics, found, done)))


DeletedOrNot = DeleteTopicCommand | DropViewCommand | ApiError


async def _until_dropped(
    broker: Broker,
    groups: Mapping[str, Collection[int]],
    found: Sequence[Topic | None],
    done: Sequence[DeletedOrNot],
    over_at: float,
) -> list[DeletedOrNot]:
    """What became of each topic once its data groups have dropped it, or the time is over."""
    deleted = {each.topic_id for each in done if isinstance(each, DeleteTopicCommand)}
    wanted = {topic_id: groups[topic_id] for topic_id in deleted}
    left = await until_dropped(broker.parts.raft.replica, wanted, over_at)

    def outcome(topic: Topic | None, known: DeletedOrNot) -> DeletedOrNot:
        lagging = None if topic is None or isinstance(known, ApiError) else left.get(topic.topic_id)
        if topic is None or lagging is None:
            return known
        return ApiError(ErrorCode.request_timed_out, lag_text(topic.name, lagging))

    return list(map(outcome, found, done))


def _deletion(
    call: NodeCall, wanted: _WantedTopic, topic: Topic | None
) -> DeleteTopicCommand | DropViewCommand:
    """Raises ApiError."""
    name, topic_id = wanted
    known = name or ("" if topic is None else topic.name)
    if not call.broker.may(call.client, AclOperation.DELETE, AclResource.TOPIC, known):
        raise denied(name or str(topic_id))
    if topic is None and topic_id is not None:
        raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
    if topic is None:
        raise unknown(name or "")
    if call.broker.views.of(topic) is not None:
        return DropViewCommand(topic.topic_id)
    return DeleteTopicCommand(topic.topic_id)


def _deleted(
    wanted: _WantedTopic,
    topic: Topic | None,
    outcome: DeleteTopicCommand | DropViewCommand | ApiError,
) -> DeleteTopicsResponseTopic:
    """A topic that was there and is gone was deleted, whoever did it."""
    gone = ErrorCode.unknown_topic_or_partition
    if isinstance(outcome, ApiError) and (topic is None or outcome.code is not gone):
        return DeleteTopicsResponseTopic(*wanted, outcome.code, outcome.message)
    name, topic_id = (None, None) if topic is None else (topic.name, id_of(topic))
    return DeleteTopicsResponseTopic(name, topic_id)


HIGH_WATERMARK = -1
NO_LOG_START = -1
POLL_S = 0.02


class DeleteRecordsResponsePartition(Entity, frozen=True):
    """Where a partition begins afterwards."""

    partition_index: int
    low_watermark: int
    error_code: ErrorCode = ErrorCode.none


DeleteRecordsResponse = TopicsResponse[DeleteRecordsResponsePartition]


@kafka_api(
    21,
    "DeleteRecords",
    0,
    2,
    flexible_from=2,
    parts=Parts(("topics", "partitions"), ("topics", "partitions")),
    notes="Records below the offset cannot be read from then on. Segments that are wholly below it "
    "are truncated. Every node accepts the request.",
)
async def delete_records(call: NodeCall, request: Any) -> DeleteRecordsResponse:
    """Archives what is below an offset, on all nodes, for ever. Only the log start is raised here;
    the leader's next round of archiving truncates the files.
    """
    places = [
        (each.name, part.partition_index) for each in request.topics for part in each.partitions
    ]
    failure = await catch_up(call.broker, places)
    wait_s = min(LONGEST_S, max(0.0, request.timeout_ms / 1000))
    deadline = asyncio.get_running_loop().time() + wait_s
    topics = ((topic.name, topic.partitions) for topic in request.topics)
    return await answer_topics(
        topics, partial(_delete_below, call, deadline), _refuse_below, failure=failure
    )


def _refuse_below(asked: Any, error: ApiError) -> DeleteRecordsResponsePartition:
    return DeleteRecordsResponsePartition(asked.partition_index, NO_LOG_START, error.code)


async def _delete_below(
    call: NodeCall, deadline: float, topic: str, asked: Any
) -> DeleteRecordsResponsePartition:
    """Raises ApiError."""
    broker = call.broker
    if not broker.may(call.client, AclOperation.DELETE, AclResource.TOPIC, topic):
        raise denied(topic)
    known = broker.topic(topic)
    if known is None or not 0 <= asked.partition_index < known.partitions:
        raise no_partition(topic, asked.partition_index)
    check_no_mirror(broker.machine.state, known)
    broker.views.refuse_writes(known)
    raft = broker.raft_of(known, asked.partition_index)
    number = known.partition_numbers[asked.partition_index]
    state = raft.replica.machine.state.partitions.by_number[number]
    offset = state.next_offset if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= state.next_offset:
        text = f"offset {offset} is not in [{state.log_start}, {state.next_offset}]"
        raise ApiError(ErrorCode.offset_out_of_range, text)
    if offset > state.log_start:
        await _until_merged(raft, state, offset, deadline)
        reason = f"deleted by {call.client.identity}"
        kept = state.start_segment, state.start_checksum
        now_ms = broker.clock.wall_ms()
        command = ArchiveCommand(state.number, offset, *kept, now_ms, reason)
        await broker.propose(command, raft)
    return DeleteRecordsResponsePartition(asked.partition_index, state.log_start)


async def _until_merged(raft: RaftParts, state: Partition, offset: int, deadline: float) -> None:
    """Nothing is archived that a majority has not merged durably. Raises ApiError."""
    while raft.coordinator.cursors.get(state.number, 0) < offset:
        if asyncio.get_running_loop().time() > deadline:
            raise ApiError(ErrorCode.request_timed_out, "a majority has not merged it yet")
        await asyncio.sleep(POLL_S)

"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): partitions on other nodes.

A wish becomes tasks of placement. Partitions that are in no data group are on all nodes, and stay.

Invariant: a partition that cannot be where it is wanted is refused by itself, before anything is
changed for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from samelog.format.steps import StepWork
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_topics, no_partition
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicAnswers
from samelog.kafka.placement.table import change, error_unless, in_kafkas_words, table_of
from samelog.placement.changes import AnyChange
from samelog.placement.reassigning import reassign, stop_reassigning, under_way
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.topics import check_assignment
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.topics import Topic


class ReassignedPartition(Entity, frozen=True):
    """What became of one wish."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterPartitionReassignmentsResponse(ResponseBody, frozen=True):
    """The response of `alter_partition_reassignments`."""

    error_code: ErrorCode
    error_message: str | None = None
    allow_replication_factor_change: bool = True
    responses: Sequence[TopicAnswers[ReassignedPartition]] = ()


@kafka_api(
    45,
    "AlterPartitionReassignments",
    0,
    1,
    flexible_from=0,
    notes="Partitions of data groups move by tasks (docs/placement.md). Other partitions are on "
    "every node: a request for all nodes succeeds, others are refused. Stopping one partition "
    "stops all of its group if the group moves as a whole.",
)
async def alter_partition_reassignments(
    call: NodeCall, request: Any
) -> AlterPartitionReassignmentsResponse:
    """Says of each partition whether it will be where it is wanted."""
    error = error_unless(call, AclOperation.ALTER)
    if error is not ErrorCode.none:
        return AlterPartitionReassignmentsResponse(error)
    may_differ = getattr(request, "allow_replication_factor_change", True)
    wishes = _Wishes(call.broker, may_differ=may_differ)
    topics = [(each.name, each.partitions) for each in request.topics]
    answer = await answer_topics(topics, wishes.note, _refuse)
    failure = await change(call.broker, wishes.planned)
    return AlterPartitionReassignmentsResponse(
        error,
        allow_replication_factor_change=may_differ,
        responses=[*_failed(answer.topics, failure)],
    )


class _Wishes:
    """What of a request can be."""

    def __init__(self, broker: Broker, *, may_differ: bool) -> None:
        """`may_differ`: there may be more copies then, or fewer."""
        self._broker = broker
        self._table = table_of(broker)
        self._may_differ = may_differ
        self._moved: dict[int, list[int]] = {}
        self._stopped: list[int] = []

    async def note(self, name: str, wanted: Any) -> ReassignedPartition:
        """Raises ApiError for what cannot be."""
        index, topic = wanted.partition_index, self._broker.topic(name)
        number = self._broker.partition_number(name, index)
        if number is None or topic is None:
            raise no_partition(name, index)
        self._broker.views.refuse_writes(topic)
        if not self._broker.machine.state.placement.group_of(number):
            _check_everywhere(self._broker.nodes(), wanted.replicas)
        else:
            with in_kafkas_words():
                self._note_placed(number, wanted.replicas)
        return ReassignedPartition(index)

    def _note_placed(self, number: int, members: Sequence[int] | None) -> None:
        """Raises PlacementRefused."""
        if members is None:
            stop_reassigning(self._table, number)
            self._stopped.append(number)
            return
        check_assignment(self._table, members)
        goal = self._table.groups[self._table.partitions[number].group].goal
        if not self._may_differ and len(members) != goal:
            text = f"{len(members)} replicas are wanted, and there are {goal}"
            raise PlacementRefused("INVALID_REPLICATION_FACTOR", text)
        self._moved[number] = list(members)

    def planned(self, table: PlacementTable) -> list[AnyChange]:
        """Raises PlacementRefused."""
        changes = reassign(table, self._moved)
        for number in self._stopped:
            changes += stop_reassigning(table, number)
        return changes


def _check_everywhere(nodes: Sequence[int], wanted: Sequence[int] | None) -> None:
    """Raises ApiError."""
    if wanted is None:
        raise ApiError(ErrorCode.no_reassignment_in_progress, "it is not on its way")
    if sorted(wanted) != nodes:
        text = (
            f"this topic is on every node: {', '.join(map(str, nodes))}; samelog topic alter "
            "--replication-factor moves it to fewer"
        )
        raise ApiError(ErrorCode.invalid_replica_assignment, text)


def _refuse(wanted: Any, error: ApiError) -> ReassignedPartition:
    return ReassignedPartition(wanted.partition_index, error.code, error.message)


def _failed(
    topics: Iterable[TopicAnswers[ReassignedPartition]], failure: ApiError | None
) -> Iterator[TopicAnswers[ReassignedPartition]]:
    """What could be, but was not done."""
    for topic in topics:
        told = [
            ReassignedPartition(each.partition_index, failure.code, failure.message)
            if failure is not None and each.error_code is ErrorCode.none
            else each
            for each in topic.partitions
        ]
        yield TopicAnswers(topic.name, told)


# --- what is under way ----------------------------------------------------------------------------


class PartitionReassignment(Entity, frozen=True):
    """A partition on its way."""

    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class ListPartitionReassignmentsResponse(ResponseBody, frozen=True):
    """The response of `list_partition_reassignments`."""

    error_code: ErrorCode
    error_message: str | None = None
    topics: Sequence[TopicAnswers[PartitionReassignment]] = ()


@kafka_api(
    46,
    "ListPartitionReassignments",
    0,
    0,
    flexible_from=0,
    notes="Lists the moves of all placement tasks, not only those that a client requested.",
)
async def list_partition_reassignments(
    call: NodeCall, request: Any
) -> ListPartitionReassignmentsResponse:
    """Which partitions are on their way to other nodes."""
    error = error_unless(call, AclOperation.DESCRIBE)
    if error is not ErrorCode.none:
        return ListPartitionReassignmentsResponse(error)
    broker = call.broker
    table, topics = table_of(broker), list[TopicAnswers[PartitionReassignment]]()
    for name, only in await paced(_asking(broker, request)):
        partitions = await paced(_moving(broker, table, name, only))
        if partitions:
            topics.append(TopicAnswers(name, partitions))
    return ListPartitionReassignmentsResponse(error, topics=topics)


def _asking(broker: Broker, request: Any) -> StepWork[list[tuple[str, Sequence[int] | None]]]:
    """Topics of data groups, with the partitions of them; None: all."""
    found: list[tuple[str, Sequence[int] | None]] = []
    if request.topics is None:
        for topic in [*broker.topics()]:
            if _is_placed(broker, topic):
                found.append((topic.name, None))
            yield
        return found
    for asked in request.topics:
        known = broker.topic(asked.name)
        if known is not None and _is_placed(broker, known):
            found.append((asked.name, asked.partition_indexes))
        yield
    return found


def _is_placed(broker: Broker, topic: Topic) -> bool:
    """Whether it has partitions in data groups; a view has none."""
    return topic.is_placed and broker.views.of(topic) is None


def _moving(
    broker: Broker, table: PlacementTable, name: str, indexes: Sequence[int] | None
) -> StepWork[list[PartitionReassignment]]:
    topic, moving = broker.topic(name), list[PartitionReassignment]()
    wanted = None if indexes is None else frozenset(indexes)
    for index, number in enumerate(() if topic is None else [*topic.partition_numbers]):
        found = under_way(table, number) if wanted is None or index in wanted else None
        if found is not None:
            known = found.replicas, found.adding, found.removing
            moving.append(PartitionReassignment(index, *known))
        yield
    return moving

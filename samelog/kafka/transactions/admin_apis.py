"""What tools ask about transactions: DescribeTransactions, ListTransactions, DescribeProducers.

Invariant: what is answered was committed, on the node that leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from samelog.config.expressions import InvalidPattern, compiled
from samelog.format.steps import StepWork
from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import Turn, answer_topics, readable
from samelog.kafka.apis.group_answers import with_topics
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicsResponse
from samelog.kafka.parts import Parts
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.open_transactions import LogTransactions
from samelog.sequencer.state.tables.transactions import Transaction

STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


def may_describe(call: NodeCall, transactional_id: str) -> bool:
    """Whether a client may look at a transactional id."""
    describe, kind = AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID
    return call.broker.may_use_transactions(call.client, transactional_id) or call.broker.may(
        call.client, describe, kind, transactional_id
    )


# --- DescribeTransactions -------------------------------------------------------------------------


class TopicData(Entity, frozen=True):
    """The partitions of a topic."""

    topic: str
    partitions: Sequence[int]


class DescribedTransaction(Entity, frozen=True):
    """A transactional id and its newest transaction."""

    error_code: ErrorCode
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(ResponseBody, frozen=True):
    """The response of `describe_transactions`."""

    transaction_states: Sequence[DescribedTransaction]


@kafka_api(
    65,
    "DescribeTransactions",
    0,
    0,
    flexible_from=0,
    parts=Parts(("transactional_ids",), ("transaction_states",)),
    notes="The Raft leader answers.",
)
async def describe_transactions(call: NodeCall, request: Any) -> DescribeTransactionsResponse:
    """What is known of transactional ids."""
    asked = request.transactional_ids
    return DescribeTransactionsResponse([await paced(_state(call, each)) for each in asked])


def _state(call: NodeCall, transactional_id: str) -> StepWork[DescribedTransaction]:
    transactions = call.broker.transactions
    if not may_describe(call, transactional_id):
        denied = ErrorCode.transactional_id_authorization_failed
        return DescribedTransaction(denied, transactional_id)
    known = transactions.known.by_id.get(transactional_id)
    if not transactions.leads:
        return DescribedTransaction(ErrorCode.not_coordinator, transactional_id)
    if known is None:
        return DescribedTransaction(ErrorCode.transactional_id_not_found, transactional_id)
    began_ms = known.unit.began_ms if known.unit is not None and known.is_open else -1
    topics = yield from _topics(call, known)
    return DescribedTransaction(
        ErrorCode.none,
        transactional_id,
        known.state_name,
        known.timeout_ms,
        began_ms,
        known.producer_id,
        known.epoch,
        topics,
    )


def _topics(call: NodeCall, known: Transaction) -> StepWork[list[TopicData]]:
    """The partitions that take part, as far as the client may know of their topics."""
    numbers = () if known.unit is None else known.unit.unfinished()
    told = []
    for topic, indexes in (yield from with_topics(call, numbers)):
        if call.broker.may_describe(call.client, topic.name):
            told.append(TopicData(topic.name, indexes))
        yield
    return told


# --- ListTransactions -----------------------------------------------------------------------------


class ListedTransaction(Entity, frozen=True):
    """A transactional id."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(ResponseBody, frozen=True):
    """The response of `list_transactions`."""

    error_code: ErrorCode = ErrorCode.none
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListedTransaction] = ()


@kafka_api(
    66,
    "ListTransactions",
    0,
    2,
    flexible_from=0,
    notes="Tools ask every node: those that do not lead have none.",
)
async def list_transactions(call: NodeCall, request: Any) -> ListTransactionsResponse:
    """The transactional ids that a tool asks for."""
    states = frozenset(request.state_filters) or STATES
    try:
        pattern = compiled(getattr(request, "transactional_id_pattern", None) or ".*")
    except InvalidPattern:
        return ListTransactionsResponse(ErrorCode.invalid_regular_expression)
    producers = frozenset(request.producer_id_filters)
    turn, found = Turn(), []
    for name, known in [*_known(call)]:
        await turn.give_way()
        is_wanted = known.state_name in states and _passes(known, producers)
        is_wanted = is_wanted and _is_long(call, request, known)
        if is_wanted and pattern.fullmatch(name) and may_describe(call, name):
            found.append(ListedTransaction(name, known.producer_id, known.state_name))
    return ListTransactionsResponse(ErrorCode.none, sorted(states - STATES), found)


def _known(call: NodeCall) -> Iterable[tuple[str, Transaction]]:
    transactions = call.broker.transactions
    return transactions.known.by_id.items() if transactions.leads else ()


def _passes(known: Transaction, producers: frozenset[int]) -> bool:
    """Whether a transaction is one of these producers'; of any, if none is named."""
    return not producers or known.producer_id in producers


def _is_long(call: NodeCall, request: Any, known: Transaction) -> bool:
    """Whether a transaction has been open for as long as is asked for."""
    longer_ms = getattr(request, "duration_filter", -1)
    if longer_ms < 0:
        return True
    began_ms = known.unit.began_ms if known.unit is not None and known.is_open else None
    return began_ms is not None and call.broker.clock.wall_ms() - began_ms > longer_ms


# --- DescribeProducers ----------------------------------------------------------------------------


class DescribeProducersResponseProducer(Entity, frozen=True):
    """A producer, and where its open transaction begins (-1: it has none)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


class DescribeProducersResponsePartition(Entity, frozen=True):
    """The producers of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    active_producers: Sequence[DescribeProducersResponseProducer] = ()


DescribeProducersResponse = TopicsResponse[DescribeProducersResponsePartition]


@kafka_api(
    61,
    "DescribeProducers",
    0,
    0,
    flexible_from=0,
    parts=Parts(("topics", "partition_indexes"), ("topics", "partitions")),
    notes="The time of a producer's last batch is not returned.",
)
async def describe_producers(call: NodeCall, request: Any) -> DescribeProducersResponse:
    """The producers that a partition remembers."""
    topics = ((topic.name, topic.partition_indexes) for topic in request.topics)
    return await answer_topics(topics, partial(_describe, call), _refuse)


async def _describe(call: NodeCall, topic: str, index: int) -> DescribeProducersResponsePartition:
    """Raises ApiError."""
    readable(call, topic, index)
    broker, known = call.broker, call.broker.topic(topic)
    number = broker.partition_number(topic, index)
    state = broker.machine.state if known is None else broker.machine_of(known, index).state
    log = LogTransactions() if number is None else state.open_transactions.in_log(number)
    producers = [
        _producer(log, producer_id, (batches[-1].epoch, batches[-1].last))
        for producer_id, partitions in state.producers.batches.items()
        if number is not None and (batches := partitions.get(number))
    ]
    return DescribeProducersResponsePartition(index, active_producers=producers)


def _producer(
    log: LogTransactions, producer_id: int, newest: tuple[int, int]
) -> DescribeProducersResponseProducer:
    opened, ended = log.open.get(producer_id), log.ended.get(producer_id)
    return DescribeProducersResponseProducer(
        producer_id,
        *newest,
        coordinator_epoch=-1 if ended is None else ended.coordinator_epoch,
        current_txn_start_offset=-1 if opened is None else opened.first_offset,
    )


def _refuse(index: int, error: ApiError) -> DescribeProducersResponsePartition:
    return DescribeProducersResponsePartition(index, error.code, error.message)

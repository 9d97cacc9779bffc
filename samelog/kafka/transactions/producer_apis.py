"""What a transactional producer asks of its coordinator: InitProducerId, AddPartitionsToTxn,
AddOffsetsToTxn, EndTxn. And WriteTxnMarkers, by which tools abort.

Invariant: a request that is refused in part has changed nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from samelog.format.steps import mapped
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import AnyCall, NodeCall, kafka_api
from samelog.kafka.apis.checks import catch_up, check_no_mirror
from samelog.kafka.apis.group_answers import by_topic, check_group
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, PartitionError, ResponseBody, TopicAnswers
from samelog.kafka.parts import Parts
from samelog.kafka.transactions.coordinator import TransactionCoordinator
from samelog.runtime.slices import give_way, paced
from samelog.sequencer.state.tables.transactions import (
    NO_PRODUCER,
    TIMEOUT_MS_MAX,
    AddToTransaction,
    EndTransaction,
    InitProducer,
    TimeOutTransaction,
)

FENCED_FROM = {22: 4, 24: 2, 25: 2, 26: 2}
"""From these versions on clients know PRODUCER_FENCED."""
NO_EPOCH = -1


def known_error(key: int, version: int, error: ErrorCode) -> ErrorCode:
    """The error as clients of this version know it."""
    if error is ErrorCode.producer_fenced and version < FENCED_FROM[key]:
        return ErrorCode.invalid_producer_epoch
    return error


def check_right(call: AnyCall, transactional_id: str) -> None:
    """Raises ApiError unless a client may be the producer of this transactional id."""
    if not call.broker.may_use_transactions(call.client, transactional_id):
        text = f"no right to the transactional id {transactional_id!r}"
        raise ApiError(ErrorCode.transactional_id_authorization_failed, text)


def new_producer_id() -> int:
    """A random number of 63 bits: no two producers ever get the same, whichever nodes they ask."""
    return secrets.randbits(63)


# --- InitProducerId -------------------------------------------------------------------------------


class InitProducerIdResponse(ResponseBody, frozen=True):
    """The response of `init_producer_id`."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_EPOCH


@kafka_api(
    22,
    "InitProducerId",
    0,
    6,
    flexible_from=2,
    notes="A producer with a transactional id asks the Raft leader. Transactions last 15 minutes "
    "at most. There is no two-phase commit with other systems (KIP-939).",
)
async def init_producer_id(call: AnyCall, request: Any) -> InitProducerIdResponse:
    """Gives a producer its id. As with Kafka's broker, an idempotent producer gets a new one with
    epoch 0 every time; a transactional one keeps its id, and its epoch fences all before it.
    """
    if request.transactional_id is None:
        return InitProducerIdResponse(ErrorCode.none, new_producer_id(), 0)
    coordinator = call.broker.transactions
    if not isinstance(coordinator, TransactionCoordinator):  # a sidecar
        return InitProducerIdResponse(ErrorCode.unsupported_version)
    try:
        return await _init(call, coordinator, request)
    except ApiError as error:
        return InitProducerIdResponse(known_error(22, call.version, error.code))


async def _init(
    call: AnyCall, coordinator: TransactionCoordinator, request: Any
) -> InitProducerIdResponse:
    """Raises ApiError."""
    name, timeout_ms = request.transactional_id, request.transaction_timeout_ms
    if not name:
        raise ApiError(ErrorCode.invalid_request, "an empty transactional id")
    check_right(call, name)
    if getattr(request, "enable2_pc", False) or getattr(request, "keep_prepared_txn", False):
        text = "there is no two-phase commit with other systems"
        raise ApiError(ErrorCode.transactional_id_authorization_failed, text)
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        text = f"a timeout of {timeout_ms} ms; at most {TIMEOUT_MS_MAX}"
        raise ApiError(ErrorCode.invalid_transaction_timeout, text)
    claimed = getattr(request, "producer_id", NO_PRODUCER)
    command = InitProducer(
        name,
        timeout_ms,
        claimed,
        getattr(request, "producer_epoch", NO_EPOCH),
        new_producer_id(),
        coordinator.clock.wall_ms(),
        call.client.identity,
        call.broker.is_granted_transactions(call.client, name),
    )
    producer = await coordinator.decide(command)
    return InitProducerIdResponse(ErrorCode.none, producer.producer_id, producer.epoch)


# --- taking part ----------------------------------------------------------------------------------


class PartitionResult(Entity, frozen=True):
    """What became of one partition."""

    partition_index: int
    partition_error_code: ErrorCode


class TopicResult(Entity, frozen=True):
    """The partitions of a topic."""

    name: str
    results_by_partition: Sequence[PartitionResult]


class AddPartitionsToTxnResponse(ResponseBody, frozen=True):
    """The response of `add_partitions_to_txn`."""

    results_by_topic_v3_and_below: Sequence[TopicResult]


@kafka_api(
    24,
    "AddPartitionsToTxn",
    0,
    3,
    flexible_from=3,
    notes="Newer versions are for brokers.",
)
async def add_partitions_to_txn(call: NodeCall, request: Any) -> AddPartitionsToTxnResponse:
    """Partitions take part in a producer's transaction: all of them or none."""
    asked = [
        (topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions
    ]
    errors = await paced(mapped(lambda each: _refusal(call, *each), asked))
    if any(errors):
        errors = [each or ErrorCode.operation_not_attempted for each in errors]
    else:
        errors = [await _add(call, request, asked)] * len(asked)
    found: dict[str, list[PartitionResult]] = {}
    for (topic, index), error in zip(asked, errors, strict=True):
        found.setdefault(topic, []).append(PartitionResult(index, error))
    return AddPartitionsToTxnResponse([TopicResult(*each) for each in found.items()])


def _refusal(call: NodeCall, topic: str, index: int) -> ErrorCode:
    if not call.broker.may_write(call.client, topic):
        return ErrorCode.topic_authorization_failed
    if call.broker.partition_number(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition
    try:
        check_no_mirror(call.broker.machine.state, call.broker.topic(topic))
    except ApiError as error:
        return error.code
    return ErrorCode.none


async def _add(call: NodeCall, request: Any, asked: Sequence[tuple[str, int]]) -> ErrorCode:
    transactions, name = call.broker.transactions, request.v3_and_below_transactional_id
    number_of = call.broker.partition_number
    numbers = await paced(mapped(lambda each: number_of(*each), asked))
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    known = list(dict.fromkeys(number for number in numbers if number is not None))
    command = AddToTransaction(name, *producer, known, [], transactions.clock.wall_ms())
    try:
        check_right(call, name)
        await transactions.decide(command)
    except ApiError as error:
        return known_error(24, call.version, error.code)
    return ErrorCode.none


class AddOffsetsToTxnResponse(ResponseBody, frozen=True):
    """The response of `add_offsets_to_txn`."""

    error_code: ErrorCode


@kafka_api(25, "AddOffsetsToTxn", 0, 4, flexible_from=3)
async def add_offsets_to_txn(call: NodeCall, request: Any) -> AddOffsetsToTxnResponse:
    """What a group commits is part of a producer's transaction."""
    transactions, name = call.broker.transactions, request.transactional_id
    command = AddToTransaction(
        name,
        request.producer_id,
        request.producer_epoch,
        [],
        [request.group_id],
        transactions.clock.wall_ms(),
    )
    try:
        check_right(call, name)
        if error := check_group(call, request.group_id):
            return AddOffsetsToTxnResponse(error)
        await transactions.decide(command)
    except ApiError as error:
        return AddOffsetsToTxnResponse(known_error(25, call.version, error.code))
    return AddOffsetsToTxnResponse(ErrorCode.none)


# --- ending ---------------------------------------------------------------------------------------


class EndTxnResponse(ResponseBody, frozen=True):
    """The response of `end_txn`; newer clients go on with the producer that it names."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_EPOCH


EPOCH_EACH_FROM = 5
"""From this version on each transaction has an epoch of its own (KIP-890)."""


@kafka_api(
    26,
    "EndTxn",
    0,
    5,
    flexible_from=3,
    notes="Answered when the decision and its markers are committed.",
)
async def end_txn(call: NodeCall, request: Any) -> EndTxnResponse:
    """Commit or abort a producer's transaction."""
    transactions, name = call.broker.transactions, request.transactional_id
    command = EndTransaction(
        name,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        call.version >= EPOCH_EACH_FROM,
        new_producer_id(),
        transactions.clock.wall_ms(),
    )
    try:
        check_right(call, name)
        producer = await transactions.end(command)
    except ApiError as error:
        return EndTxnResponse(known_error(26, call.version, error.code))
    return EndTxnResponse(ErrorCode.none, producer.producer_id, producer.epoch)


class MarkerResult(Entity, frozen=True):
    """What became of a marker."""

    producer_id: int
    topics: Sequence[TopicAnswers[PartitionError]]


class WriteTxnMarkersResponse(ResponseBody, frozen=True):
    """The response of `write_txn_markers`."""

    markers: Sequence[MarkerResult]


@kafka_api(
    27,
    "WriteTxnMarkers",
    1,
    1,
    flexible_from=1,
    parts=Parts(("markers",), ("markers",)),
    notes="Only to abort, as `kafka-transactions abort` does: the whole transaction ends.",
)
async def write_txn_markers(call: NodeCall, request: Any) -> WriteTxnMarkersResponse:
    """Nobody writes markers but the merger. Who may change the cluster can have a transaction
    aborted: not in one partition, as with Kafka, where one may hang, but as if it were overdue.
    """
    failure = await catch_up(call.broker)
    results = []
    for marker in request.markers:
        await give_way()
        error = await _abort(call, marker) if failure is None else failure.code
        results.append(MarkerResult(marker.producer_id, by_topic(_answers(marker, error))))
    return WriteTxnMarkersResponse(results)


async def _abort(call: NodeCall, marker: Any) -> ErrorCode:
    """Only the transaction that is open now is aborted, never the next one."""
    broker = call.broker
    if marker.transaction_result or not broker.may(call.client, AclOperation.ALTER):
        return ErrorCode.cluster_authorization_failed
    wanted = marker.producer_id, marker.producer_epoch
    by_id = broker.transactions.known.by_id.items()
    found = ((name, each) for name, each in by_id if (each.producer_id, each.epoch) == wanted)
    name, known = next(found, ("", None))
    if known is None or known.unit is None or not known.is_open:
        return ErrorCode.invalid_producer_epoch
    now_ms = max(known.unit.began_ms + known.timeout_ms, broker.clock.wall_ms())
    try:
        await broker.propose(TimeOutTransaction(name, known.number, now_ms))
    except ApiError as error:
        return error.code
    return ErrorCode.none


def _answers(marker: Any, error: ErrorCode) -> Iterator[tuple[str, PartitionError]]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield topic.name, PartitionError(index, error)

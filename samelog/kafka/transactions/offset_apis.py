"""TxnOffsetCommit: how far a group is, once its producer's transaction is committed.

Invariant: offsets are committed by the entry that commits the transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samelog.format.steps import mapped
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.group_answers import by_topic, check_group
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import PartitionError, TopicsResponse
from samelog.kafka.groups.requests import Caller
from samelog.kafka.transactions.producer_apis import check_right
from samelog.runtime.slices import give_way, paced
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.transactions import CommitInTransaction

JOINS_FROM = 5
"""From this version on the group takes part by this request (KIP-890)."""
TxnOffsetCommitResponse = TopicsResponse[PartitionError]


@kafka_api(28, "TxnOffsetCommit", 0, 5, flexible_from=3)
async def txn_offset_commit(call: NodeCall, request: Any) -> TxnOffsetCommitResponse:
    """Offsets that are committed with a transaction."""
    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    errors = await paced(mapped(lambda each: _refusal(call, *each), asked))
    taken = [each for each, error in zip(asked, errors, strict=True) if not error]
    failure = await _commit(call, request, taken) if taken else ErrorCode.none
    answers = (
        (topic, PartitionError(each.partition_index, error or failure))
        for (topic, each), error in zip(asked, errors, strict=True)
    )
    return TxnOffsetCommitResponse(by_topic(answers))


def _refusal(call: NodeCall, topic: str, partition: Any) -> ErrorCode:
    if not call.broker.may_read(call.client, topic):
        return ErrorCode.topic_authorization_failed
    number = call.broker.partition_number(topic, partition.partition_index)
    if number is None:
        return ErrorCode.unknown_topic_or_partition
    if call.broker.machine.state.placement.is_resetting(number):
        return ErrorCode.coordinator_load_in_progress
    longest = call.broker.config.kafka.groups.offset_metadata_max_bytes
    too_long = len(partition.committed_metadata or "") > longest
    return ErrorCode.offset_metadata_too_large if too_long else ErrorCode.none


async def _commit(call: NodeCall, request: Any, taken: Sequence[tuple[str, Any]]) -> ErrorCode:
    """What became of those that can be taken."""
    transactions, now_ms = call.broker.transactions, call.broker.clock.wall_ms()
    offsets: dict[int, CommittedOffset] = {}
    for topic, each in taken:
        await give_way()
        number = call.broker.partition_number(topic, each.partition_index)
        epoch = getattr(each, "committed_leader_epoch", -1)
        if number is not None:
            known = (each.committed_offset, epoch, each.committed_metadata or "", now_ms)
            offsets[number] = CommittedOffset(*known)
    command = CommitInTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        list(offsets.items()),
        call.version >= JOINS_FROM,
        now_ms,
    )
    try:
        check_right(call, request.transactional_id)
        if error := await _check_member(call, request):
            return error
        await transactions.decide(command)
    except ApiError as refused:
        is_fenced = refused.code is ErrorCode.producer_fenced  # a word that not all clients know
        return ErrorCode.invalid_producer_epoch if is_fenced else refused.code
    return ErrorCode.none


async def _check_member(call: NodeCall, request: Any) -> ErrorCode:
    """Whether the group takes offsets from the member that the producer speaks for."""
    if error := check_group(call, request.group_id):
        return error
    caller = Caller(
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
    )
    answer: Any = await call.broker.groups.ask(
        lambda c, requester: c.may_commit_in_transaction(caller, requester)
    )
    return ErrorCode.not_coordinator if answer is None else answer[0]

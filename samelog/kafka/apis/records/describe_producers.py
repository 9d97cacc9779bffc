"""DescribeProducers (61): the idempotent producers that a partition remembers."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.groups.answering import partition_number
from samelog.kafka.apis.records.partitions import readable
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree


def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    topics = [
        {
            "name": topic.name,
            "partitions": [_answer(call, topic.name, index) for index in topic.partition_indexes],
        }
        for topic in request.topics
    ]
    return {"topics": topics}


def _answer(call: NodeCall, topic: str, index: int) -> Tree:
    try:
        readable(call, topic, index, -1)
    except ApiError as refusal:
        return {
            "partition_index": index,
            "error_code": refusal.code,
            "error_message": refusal.message,
            "active_producers": [],
        }
    number = partition_number(call, topic, index)
    producers = [
        {
            "producer_id": producer_id,
            "producer_epoch": batches[-1].epoch,
            "last_sequence": batches[-1].last,
            "last_timestamp": -1,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1,
        }
        for producer_id, partitions in call.broker.machine.state.producers.items()
        if number is not None and (batches := partitions.get(number))
    ]
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "active_producers": producers,
    }


API = KafkaApi(
    key=61,
    name="DescribeProducers",
    first=0,
    last=0,
    flexible_from=0,
    handle=handle,
    notes="Without the time of a producer's last batch.",
)

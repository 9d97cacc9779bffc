"""Idempotent producers: InitProducerId, DescribeProducers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from samelog.kafka.api import AnyCall, NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_topics, readable
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicsResponse


class InitProducerIdResponse(ResponseBody, frozen=True):
    """The response of `init_producer_id`."""

    error_code: ErrorCode
    producer_id: int
    producer_epoch: int


@kafka_api(
    22,
    "InitProducerId",
    0,
    6,
    flexible_from=2,
    notes="For idempotent producers. A transactional id is answered with UNSUPPORTED_VERSION.",
)
def init_producer_id(call: AnyCall, request: Any) -> InitProducerIdResponse:
    """Gives an idempotent producer its id, a random number of 63 bits, so that no
    two producers ever get the same, whichever nodes they ask.

    As with Kafka's broker, every call gives a new id with epoch 0. A transactional producer is
    refused.
    """
    if request.transactional_id is not None:
        return InitProducerIdResponse(ErrorCode.unsupported_version, -1, -1)
    return InitProducerIdResponse(ErrorCode.none, secrets.randbits(63), 0)


class DescribeProducersResponseProducer(Entity, frozen=True):
    """A producer; without transactions there is nothing more to tell."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int = -1


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
    notes="The time of a producer's last batch is not returned.",
)
async def describe_producers(call: NodeCall, request: Any) -> DescribeProducersResponse:
    """The idempotent producers that a partition remembers."""
    topics = ((topic.name, topic.partition_indexes) for topic in request.topics)
    return await answer_topics(topics, partial(_describe, call), _refuse)


async def _describe(call: NodeCall, topic: str, index: int) -> DescribeProducersResponsePartition:
    """Raises ApiError."""
    readable(call, topic, index)
    number = call.broker.partition_number(topic, index)
    producers = [
        DescribeProducersResponseProducer(producer_id, batches[-1].epoch, batches[-1].last)
        for producer_id, partitions in call.broker.machine.state.producers.items()
        if number is not None and (batches := partitions.get(number))
    ]
    return DescribeProducersResponsePartition(index, active_producers=producers)


def _refuse(index: int, error: ApiError) -> DescribeProducersResponsePartition:
    return DescribeProducersResponsePartition(index, error.code, error.message)

"""DescribeProducers (61): the idempotent producers that a partition remembers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.checks import answer_each, readable
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody


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


class DescribeProducersResponseTopic(Entity, frozen=True):
    """The partitions of a topic."""

    name: str
    partitions: Sequence[DescribeProducersResponsePartition]


class DescribeProducersResponse(ResponseBody, frozen=True):
    """The response of this API."""

    topics: Sequence[DescribeProducersResponseTopic]


async def handle(call: NodeCall, request: Any) -> DescribeProducersResponse:
    """Answer a request of this API."""
    return DescribeProducersResponse(
        [
            DescribeProducersResponseTopic(
                topic.name,
                await answer_each(
                    topic.partition_indexes, partial(_describe, call, topic.name), _refuse
                ),
            )
            for topic in request.topics
        ]
    )


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


API = KafkaApi(
    key=61,
    name="DescribeProducers",
    first=0,
    last=0,
    flexible_from=0,
    handle=handle,
    notes="The time of a producer's last batch is not returned.",
)

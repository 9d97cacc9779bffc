"""Produce (0): takes record batches as they came, and answers when they are merged.

Any node takes them, into its own session (producer_log.py). acks=1 means the same as acks=all: the
batch is durable on a majority and has its offset. A retry of an idempotent producer is recognised
whichever node it comes to. Versions 0 to 2 are listed, because librdkafka takes that for the sign
that gzip, snappy and lz4 are understood, and refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samelog.kafka.api import AnyCall, KafkaApi, Outcome
from samelog.kafka.apis.records.producing import Producing
from samelog.kafka.codec.produce import (
    FLEXIBLE_FROM,
    ProduceRequest,
    ProduceResponse,
    read_produce,
    write_produce,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


def handle(call: AnyCall, request: ProduceRequest) -> Outcome:
    """Answer a request, once all its batches are merged or refused."""
    producing = Producing(call, request)
    return producing.open_and_take() if producing.has_to_wait else producing.take()


def _read(api: KafkaApi[Any], version: int, body: memoryview) -> ProduceRequest:
    return read_produce(version, body)


def _write(
    api: KafkaApi[Any], version: int, answer: ProduceResponse, throttle_ms: int
) -> list[Buffer]:
    return write_produce(version, answer, throttle_ms)


API = KafkaApi(
    key=0,
    name="Produce",
    first=0,
    last=11,
    flexible_from=FLEXIBLE_FROM,
    handle=handle,
    read=_read,
    write=_write,
    notes="Versions 0 to 2 are refused. Any node takes it; acks=1 is acks=all. No transactions.",
)

"""InitProducerId (22): gives an idempotent producer its id, a random number of 63 bits, so that no
two producers ever get the same, whichever nodes they ask.

As with Kafka's broker, every call gives a new id with epoch 0. A transactional producer is refused.
"""

from __future__ import annotations

import secrets
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.codec.schemas import ResponseBody


class InitProducerIdResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    producer_id: int
    producer_epoch: int


def handle(call: AnyCall, request: Any) -> InitProducerIdResponse:
    """Answer a request of this API."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(ErrorCode.unsupported_version, -1, -1)
    return InitProducerIdResponse(ErrorCode.none, secrets.randbits(63), 0)


API = KafkaApi(
    key=22,
    name="InitProducerId",
    first=0,
    last=5,
    flexible_from=2,
    handle=handle,
    notes="For idempotent producers. A transactional id is answered with UNSUPPORTED_VERSION.",
)

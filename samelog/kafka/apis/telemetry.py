"""Client telemetry (KIP-714), which is off: clients are told that nobody wants their metrics.

Invariant: nothing that a client sends is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import ResponseBody

ASK_AGAIN_MS = 300_000
"""When a client asks again whether anybody wants its metrics: Kafka's default. librdkafka counts it
in microseconds in 32 bits, and asks without a pause when that overflows (from 2,147 s on).
"""


class GetTelemetrySubscriptionsResponse(ResponseBody, frozen=True):
    """The response of `get_telemetry_subscriptions`: no metric is wanted."""

    client_instance_id: uuid.UUID
    error_code: ErrorCode = ErrorCode.none
    subscription_id: int = 0
    accepted_compression_types: Sequence[int] = ()
    push_interval_ms: int = ASK_AGAIN_MS
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()


@kafka_api(
    71,
    "GetTelemetrySubscriptions",
    0,
    0,
    flexible_from=0,
    notes="Telemetry is off: no metrics are wanted.",
)
def get_telemetry_subscriptions(call: NodeCall, request: Any) -> GetTelemetrySubscriptionsResponse:
    """Which metrics a client is to send: none."""
    return GetTelemetrySubscriptionsResponse(request.client_instance_id or uuid.uuid4())


class PushTelemetryResponse(ResponseBody, frozen=True):
    """The response of `push_telemetry`."""

    error_code: ErrorCode


@kafka_api(
    72, "PushTelemetry", 0, 0, flexible_from=0, notes="Refused with UNKNOWN_SUBSCRIPTION_ID."
)
def push_telemetry(call: NodeCall, request: Any) -> PushTelemetryResponse:
    """Refuse metrics, because no client has a subscription."""
    return PushTelemetryResponse(ErrorCode.unknown_subscription_id)

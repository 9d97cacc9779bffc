"""DescribeCluster (60): the nodes, the controller, the cluster's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.checks import NO_OPERATIONS, cluster_operations
from samelog.kafka.codec.schemas import Entity, ResponseBody

BROKERS = 1


class DescribeClusterResponseBroker(Entity, frozen=True):
    """A node as the client reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class DescribeClusterResponse(ResponseBody, frozen=True):
    """The response of this API."""

    cluster_id: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    controller_id: int = -1
    brokers: Sequence[DescribeClusterResponseBroker] = ()
    cluster_authorized_operations: int = NO_OPERATIONS
    endpoint_type: int = BROKERS


def handle(call: AnyCall, request: Any) -> DescribeClusterResponse:
    """Answer a request of this API."""
    broker, listener = call.broker, call.client.listener
    kind = getattr(request, "endpoint_type", BROKERS)
    if kind != BROKERS:
        return DescribeClusterResponse(
            broker.cluster,
            ErrorCode.unsupported_endpoint_type,
            "clients only ever talk to brokers here",
            endpoint_type=kind,
        )
    wanted = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        broker.cluster,
        controller_id=broker.controller(listener),
        brokers=[DescribeClusterResponseBroker(*end) for end in broker.endpoints(listener)],
        cluster_authorized_operations=(
            cluster_operations(broker, call.client) if wanted else NO_OPERATIONS
        ),
    )


API = KafkaApi(
    key=60,
    name="DescribeCluster",
    first=0,
    last=1,
    flexible_from=0,
    handle=handle,
    notes="Brokers only. There are no separate controllers.",
)

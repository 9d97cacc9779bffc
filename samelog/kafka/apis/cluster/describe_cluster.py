"""DescribeCluster (60): the nodes, the controller, the cluster's name."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.cluster.metadata import NO_OPERATIONS
from samelog.kafka.apis.cluster.operations import cluster_operations
from samelog.kafka.codec.schemas import Tree

BROKERS = 1


def handle(call: AnyCall, request: Any) -> Tree:
    """Answer a request."""
    broker, listener = call.broker, call.client.listener
    kind = getattr(request, "endpoint_type", BROKERS)
    if kind != BROKERS:
        return {
            "error_code": ErrorCode.unsupported_endpoint_type,
            "error_message": "clients only ever talk to brokers here",
            "endpoint_type": kind,
            "cluster_id": broker.cluster,
            "brokers": [],
        }
    wanted = request.include_cluster_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "cluster_id": broker.cluster,
        "controller_id": broker.controller(listener),
        "brokers": [
            {"broker_id": end.number, "host": end.host, "port": end.port, "rack": end.rack}
            for end in broker.endpoints(listener)
        ],
        "cluster_authorized_operations": (
            cluster_operations(broker, call.client) if wanted else NO_OPERATIONS
        ),
    }


API = KafkaApi(
    key=60,
    name="DescribeCluster",
    first=0,
    last=1,
    flexible_from=0,
    handle=handle,
    notes="Brokers only: there are no separate controllers.",
)

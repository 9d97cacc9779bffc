"""What every process answers: whether it is alive, whether it can serve, and what can be asked.

Invariant: the probes answer anybody, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from samelog.admin.requests import AdminRequest
from samelog.admin.table import Operation, WhoMayAsk
from samelog.http.metrics.common import Metrics
from samelog.http.openapi import openapi
from samelog.http.routes import HttpApi, HttpProblem, PlainText, Route
from samelog.runtime.slices import paced


class Alive(NamedTuple):
    """The event loop turns: it has answered."""

    status: str


class Ready(NamedTuple):
    """The answer of /readyz while the process can serve."""

    status: str


class GetHealth(AdminRequest[Alive], frozen=True):
    """Is the process alive?"""


class GetReadiness(AdminRequest[Ready], frozen=True):
    """Can it serve?"""


class GetMetrics(AdminRequest[PlainText], frozen=True):
    """The metrics, in the Prometheus text format."""


class GetDescription(AdminRequest[dict[str, Any]], frozen=True):
    """The OpenAPI document of all routes."""


ANYBODY, ANY_IDENTITY = WhoMayAsk.ANYBODY, WhoMayAsk.ANY_IDENTITY
HEALTH = Operation("GET", "/healthz", "Whether the event loop runs.", ANYBODY, GetHealth)
READINESS = Operation(
    "GET", "/readyz", "Whether the process can serve; 503 says why not.", ANYBODY, GetReadiness
)
METRICS = Operation("GET", "/metrics", "Metrics for Prometheus.", ANY_IDENTITY, GetMetrics)
DESCRIPTION = Operation(
    "GET", "/openapi.json", "The OpenAPI document of these requests.", ANY_IDENTITY, GetDescription
)


def probe_routes(api: HttpApi, not_ready: Callable[[], str], metrics: Metrics) -> tuple[Route, ...]:
    """`not_ready`: why the process cannot serve; empty if it can."""

    async def health(request: GetHealth, identity: str) -> Alive:
        return Alive("alive")

    async def readiness(request: GetReadiness, identity: str) -> Ready:
        reason = not_ready()
        if reason:
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return Ready("ready")

    async def exported(request: GetMetrics, identity: str) -> PlainText:
        return PlainText(await metrics.text(), CONTENT_TYPE_PLAIN_0_0_4)

    described: dict[str, Any] = {}

    async def description(request: GetDescription, identity: str) -> dict[str, Any]:
        if not described:
            described.update(await paced(openapi(api)))
        return described

    return (
        Route(HEALTH, health),
        Route(READINESS, readiness),
        Route(METRICS, exported),
        Route(DESCRIPTION, description),
    )

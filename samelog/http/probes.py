"""What every process answers: whether it is alive, whether it can serve, and what can be asked.

Invariant: the probes answer anybody, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from samelog.http.asked import Nothing
from samelog.http.metrics.collector import Metrics
from samelog.http.openapi import openapi
from samelog.http.problem import Problem
from samelog.http.routes import Access, Api, Asked, Route, Text


class Alive(NamedTuple):
    """The event loop turns: it has answered."""

    status: str


class Ready(NamedTuple):
    """It can serve."""

    status: str


def probe_routes(api: Api, not_ready: Callable[[], str], metrics: Metrics) -> tuple[Route, ...]:
    """`not_ready`: why the process cannot serve; empty if it can."""

    async def healthz(asked: Asked) -> Alive:
        return Alive("alive")

    async def readyz(asked: Asked) -> Ready:
        reason = not_ready()
        if reason:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return Ready("ready")

    async def description(asked: Asked) -> dict[str, Any]:
        return openapi(api)

    async def exported(asked: Asked) -> Text:
        return Text(await metrics.text(), CONTENT_TYPE_PLAIN_0_0_4)

    alive, can, what = "Is the event loop alive?", "Can it serve? 503: why not.", "This table."
    return (
        Route("GET", "/healthz", alive, Access.ANYBODY, Nothing, Alive, healthz),
        Route("GET", "/readyz", can, Access.ANYBODY, Nothing, Ready, readyz),
        Route("GET", "/metrics", "For Prometheus.", Access.KNOWN, Nothing, Text, exported),
        Route("GET", "/openapi.json", what, Access.KNOWN, Nothing, dict[str, Any], description),
    )

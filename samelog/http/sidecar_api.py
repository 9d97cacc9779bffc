"""What sidecars answer over HTTP: they can be looked at, and nothing can be changed.

Invariant: a sidecar is ready as soon as the programs beside it can use its files, whether or not
the cluster is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samelog.admin.requests import AdminRequest
from samelog.admin.table import Operation, WhoMayAsk
from samelog.http import sidecar_views as views
from samelog.http.metrics.collector import Gather
from samelog.http.metrics.sidecar import Side, copying, shipping, sidecar_metrics
from samelog.http.metrics.table import PUBLISHER, SUBSCRIBER, Metric
from samelog.http.probes import probe_routes
from samelog.http.routes import Route

if TYPE_CHECKING:
    from samelog.publisher.sidecar import PublisherSidecar
    from samelog.subscriber.sidecar import SubscriberSidecar


class GetShipping(AdminRequest[views.Shipping], frozen=True):
    """The state of shipping."""


class GetCopying(AdminRequest[views.Copying], frozen=True):
    """The state of copying."""


@dataclass(frozen=True, slots=True)
class SidecarKind:
    """What one kind of sidecar has of its own: the request for its status and the answer, metrics,
    and why it is not ready.
    """

    request: type[AdminRequest[Any]]
    status: Callable[[], object]
    table: tuple[Metric, ...]
    samples: Gather
    not_ready: Callable[[], str]


class SidecarApi:
    """Implements routes.HttpApi."""

    def __init__(self, title: str, side: Side, kind: SidecarKind) -> None:
        self.title, self.cluster = title, side.config.cluster
        self.delays = side.delays
        self.is_started = False
        """Whether the Kafka listener, if there is one, is open."""
        self._kind = kind

        async def status(request: object, identity: str) -> object:
            return kind.status()

        metrics = sidecar_metrics(side, kind.table, kind.samples, self.not_ready)
        row = Operation(
            "GET", "/status", "The state of the sidecar.", WhoMayAsk.READER, kind.request
        )
        self.routes = (*probe_routes(self, self.not_ready, metrics), Route(row, status))

    def not_ready(self) -> str:
        """Why it cannot serve; empty if it can."""
        return self._kind.not_ready() if self.is_started else "the sidecar is starting"

    def may_read(self, identity: str) -> bool:
        """Every identity of the authority may: there are no grants at a sidecar."""
        return True

    def may_change(self, identity: str) -> bool:
        """Nobody: a sidecar has no request that changes anything."""
        return False


def publisher_api(
    sidecar: PublisherSidecar, side: Side, listener_fault: Callable[[], str] = lambda: ""
) -> SidecarApi:
    """Of a publisher sidecar: it takes what programs write, as long as its directory can be used.
    `listener_fault`: why the Kafka listener takes nothing; empty if it does.
    """

    def fault() -> str:
        return sidecar.directory.fault or listener_fault()

    budget = side.config.publisher.budget_bytes
    kind = SidecarKind(
        GetShipping,
        lambda: views.shipping(sidecar, fault(), side.config_problem()),
        PUBLISHER,
        lambda: shipping(sidecar, budget),
        fault,
    )
    return SidecarApi("samelog publisher sidecar", side, kind)


def subscriber_api(sidecar: SubscriberSidecar, side: Side) -> SidecarApi:
    """Of a subscriber sidecar: there is something to read once every topic has a copy, as long as
    its directory can be used.
    """

    def not_ready() -> str:
        if sidecar.fault:
            return sidecar.fault
        there = {topic for topic, _ in sidecar.copies}
        missing = ", ".join(topic for topic in sidecar.topics if topic not in there)
        return f"no copy yet of {missing}" if missing else ""

    kind = SidecarKind(
        GetCopying,
        lambda: views.copying(sidecar, side.config_problem()),
        SUBSCRIBER,
        lambda: copying(sidecar),
        not_ready,
    )
    return SidecarApi("samelog subscriber sidecar", side, kind)

"""What sidecars answer over HTTP: they can be looked at, and nothing can be changed.

Invariant: a sidecar is ready as soon as the programs beside it can use its files, whether or not
the cluster is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shiplog.http import sidecar_views as views
from shiplog.http.asked import Nothing
from shiplog.http.probes import probe_routes
from shiplog.http.routes import Access, Asked, Route

if TYPE_CHECKING:
    from shiplog.publisher.sidecar import PublisherSidecar
    from shiplog.subscriber.sidecar import SubscriberSidecar


class SidecarApi:
    """Implements routes.Api."""

    def __init__(
        self, title: str, answer: type, look: Callable[[], object], not_ready: Callable[[], str]
    ) -> None:
        self.title = title
        self.is_started = False
        """Whether the Kafka listener, if there is one, is open."""
        self._not_ready = not_ready

        async def handle(asked: Asked) -> object:
            return look()

        status = Route("GET", "/status", "How it goes.", Access.LOOK, Nothing, answer, handle)
        self.routes = (*probe_routes(self, self.not_ready), status)

    def not_ready(self) -> str:
        """Why it cannot serve; empty if it can."""
        return self._not_ready() if self.is_started else "the sidecar is starting"

    def may_look(self, identity: str) -> bool:
        """Every identity of the authority may: there are no grants at a sidecar."""
        return True

    def may_change(self, identity: str) -> bool:
        """Nothing can be changed."""
        return False


def publisher_api(sidecar: PublisherSidecar) -> SidecarApi:
    """Of a publisher sidecar: what programs write it takes, always."""
    title = "shiplog publisher sidecar"
    return SidecarApi(title, views.Shipping, lambda: views.shipping(sidecar), lambda: "")


def subscriber_api(sidecar: SubscriberSidecar, topics: tuple[str, ...]) -> SidecarApi:
    """Of a subscriber sidecar: there is something to read once every topic has a copy."""

    def not_ready() -> str:
        there = {topic for topic, _ in sidecar.client.copies}
        missing = ", ".join(topic for topic in topics if topic not in there)
        return f"no copy yet of {missing}" if missing else ""

    title = "shiplog subscriber sidecar"
    return SidecarApi(title, views.Copying, lambda: views.copying(sidecar), not_ready)

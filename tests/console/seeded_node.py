"""A node that answers as seeded, to whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samelog.admin.requests import AdminRequest
from samelog.admin.table import OPERATIONS, WhoMayAsk
from samelog.http.console.document import Document
from samelog.http.console.producer import Producer
from samelog.http.console.routes import console_routes
from samelog.http.routes import VALUES_FEW, Route
from samelog.runtime.clock import SystemClock
from tests.console.seeded import LOOKS, document
from tests.console.seeded_answers import ANSWERS


class SeededApi:
    """Implements routes.HttpApi."""

    title, cluster = "a seeded node", "flights-eu"
    values_max = VALUES_FEW

    def __init__(self, looks: int = LOOKS) -> None:
        """`looks`: so many of the last ones are all that there are."""
        self._step = LOOKS - looks
        self.asked: list[AdminRequest[Any]] = []
        table = tuple(Route(operation, self._handle) for operation in OPERATIONS)
        self.routes = (*table, *console_routes(Producer(self._look, SystemClock())))

    def may_read(self, identity: str) -> bool:
        return True

    def may_change(self, identity: str) -> bool:
        return True

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        return True

    async def _look(self) -> Document:
        self._step = min(LOOKS, self._step + 1)
        return document(self._step)

    async def _handle(self, request: AdminRequest[Any], identity: str) -> object:
        self.asked.append(request)
        return ANSWERS[type(request)](request)

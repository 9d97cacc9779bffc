"""Changes that administrators ask for are written down, whoever hangs up meanwhile."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.sequencer.admin import server as admin_server
from samelog.sequencer.admin.server import AdminServer
from samelog.wire import admin
from samelog.wire.messages import Request
from tests.runtime.peers import until


class SlowDesk:
    """Never answers."""

    asked = 0

    def __init__(self, node: object) -> None:
        pass

    async def answer(self, who: str, body: object) -> None:
        SlowDesk.asked += 1
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("body", "count"), [(admin.DeleteTopic("payments"), 1), (admin.ListTopics(), 0)]
)
def test_a_change_is_written_down_when_its_connection_ends(
    body: admin.AdminRequest,
    count: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_server, "AdminDesk", SlowDesk)
    monkeypatch.setattr(SlowDesk, "asked", 0)
    connection: Any = SimpleNamespace(identity="samelog://admin/a", peername="::1")
    node: Any = None

    async def main() -> None:
        server = AdminServer(node, connection)
        server.on_message(Request(1, body))
        await until(lambda: SlowDesk.asked == 1)
        server.on_closed(None)
        await until(lambda: not server._tasks)

    with caplog.at_level(logging.INFO, "samelog.audit"):
        asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == count
    assert all("payments" in line and "may be done all the same" in line for line in lines)

"""What a member is sent that pulls from another one, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from samelog.config.authorisation import Rights
from samelog.sequencer.bulk_server import BulkServer, DiallingMember
from samelog.wire.messages import OpenMerged, OpenSessionLog, Start
from tests.replicator.fake_nodes import EVERYTHING
from tests.replicator.fake_source import FakeSource
from tests.replicator.session_files import batch
from tests.runtime.peers import until

NODE = "samelog://node/n1"


class Line:
    """Takes the place of a connection, and notes what is sent."""

    identity, writable = NODE, True

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []
        """Handle and batches."""

    def send(self, message: object) -> None:
        """Answers: nobody looks at them."""

    def send_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Batches."""
        self.sent.append((handle, bytes(data)))

    def send_part(self, *given: Any) -> None:
        """Nothing here is that long."""
        raise AssertionError(given)


def test_session_bytes_go_at_once_and_merged_bytes_are_gathered(tmp_path: Path) -> None:
    async def body() -> None:
        source, line = FakeSource(tmp_path), Line()
        server = BulkServer(
            cast(Any, line),
            DiallingMember(1, "now"),
            cast(Any, source),
            Rights((EVERYTHING,), ["n1"]),
            cast(Any, SimpleNamespace()),
            on_over=lambda over: None,
        )
        server.on_message(OpenMerged(0, "flights", "topic-1", 0, Start.EARLIEST, 0))
        server.on_message(OpenSessionLog(1, "p", "flights", "topic-1", 0, 1, 0, 0))
        source.merged[0].append(batch(b"a"))
        source.session.append(1, batch(b"a"))
        source.merged[0].append(batch(b"b"))
        await until(lambda: len(line.sent) == 2)
        assert [handle for handle, _ in line.sent] == [1, 0], "first what somebody waits for"
        source.merged[0].append(batch(b"c"))
        server.on_closed(None)
        assert source.merged[0].listeners == []

    asyncio.run(body())

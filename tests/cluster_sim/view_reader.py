"""A reader of a view: rows by the real pull protocol, from whichever node has them.

Invariant: it has every record of the view's topic once, in order, at its offset.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from samelog.config.authorisation import NODE_PREFIX
from samelog.config.values import Address
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.runtime.errors import RuntimeFault
from samelog.sequencer.state.tables.views import CreateViewCommand
from samelog.wire.errors import WireError
from samelog.wire.messages import Start
from tests.cluster_sim.actor import CLUSTER, PORT, Actor
from tests.cluster_sim.canonical import parse_value
from tests.cluster_sim.process import Process
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

VIEW = "v0"
LOOK_S, SILENT_S = 0.1, 1.0


class ViewReader(Actor):
    """Reads `VIEW` from offset 0 on."""

    role = "subscriber"

    def __init__(self, world: World) -> None:
        super().__init__(world, "v")
        self.rows: list[tuple[int, bytes]] = []
        self.next_offset = 0

    def command(self, topic_id: str) -> CreateViewCommand:
        """Make the view, of all records of a topic as they are."""
        return CreateViewCommand("v" * 32, VIEW, topic_id, "", [], 0, {}, "", self.identity, 0)

    async def run(self, process: Process) -> None:
        while True:
            for node in self.world.nodes:
                faults = PullRefused, RuntimeFault, WireError, OSError, TimeoutError
                with suppress(*faults):
                    await self._read(node.host)
            await asyncio.sleep(LOOK_S)

    async def _read(self, host: str) -> None:
        tls, identity = cast(Any, self.tls()), NODE_PREFIX + host
        pull = await RangePull.open(Address(host, PORT), tls, identity=identity, cluster=CLUSTER)
        try:
            wanted = Wanted(VIEW, None, 0, Start.OFFSET, self.next_offset)
            async with asyncio.timeout(SILENT_S):
                number = await pull.read(wanted)
            while True:
                async with asyncio.timeout(SILENT_S):
                    data = await pull.next(number)
                self.world.judge(self._take, data)
        finally:
            pull.connection.close()

    def _take(self, data: bytes) -> None:
        for header in kernels.batch_headers(data, 0, len(data)):
            begin, end = header[0], header[0] + header[1]
            for record in kernels.decode_records(data, begin, end, VIEW, 0, decompress):
                if record.offset < self.next_offset:
                    continue
                if record.offset > self.next_offset:
                    text = f"offset {record.offset} follows {self.next_offset - 1}"
                    raise Violation("views lack nothing", text)
                parse_value(record.value or b"")
                self.rows.append((record.offset, record.value or b""))
                self.next_offset = record.offset + 1

    def failed(self, error: Exception) -> None:
        raise Violation("readers live", f"{self.host} ended: {error!r}") from error

    def check(self, segments: dict[int, bytearray]) -> None:
        """Compare the rows with the topic's log. Raises Violation."""
        known = [
            (record.offset, record.value)
            for _, data in sorted(segments.items())
            for record in kernels.decode_records(data, 0, len(data), VIEW, 0, decompress)
        ]
        if self.rows != known[: len(self.rows)]:
            raise Violation("views are their topics", f"{len(self.rows)} rows differ")

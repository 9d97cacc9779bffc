"""A subscriber: the real pull client with its real copies, in a simulated process.

Invariant: what its copies hold is looked at after every step of it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

from samelog.format.errors import LogFormatError
from samelog.replicator.pull.client import PullClient
from samelog.replicator.pull.options import PullOptions, PullParts
from samelog.store.disk.disk_errors import DiskFault
from tests.cluster_sim.actor import Actor
from tests.cluster_sim.process import Process
from tests.cluster_sim.spanning import TOPIC
from tests.cluster_sim.syncer import SimSyncer
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

COPIES = "/copies"


class SubscriberActor(Actor):
    """Copies every topic."""

    role = "subscriber"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"r{number}")
        self.client: PullClient | None = None

    async def run(self, process: Process) -> None:
        fs = self.file_system(process)
        topics = [f"t{number}" for number in range(self.world.options.topics)]
        if self.world.options.follows_groups:
            topics.append(TOPIC)
        self.client = PullClient(
            COPIES,
            topics,
            self.client_config(),
            PullParts(
                tls=cast(Any, self.tls()),
                fs=fs,
                syncer=SimSyncer(fs),
                clock=self.clock,
                random=random.Random(f"{process.name} {self.world.options.seed}"),
            ),
            PullOptions(begins_anew=True),
        )
        self.client.start()
        await self.world.loop.create_future()

    def look(self) -> None:
        client = self.client
        if client is None:
            return
        now = (self.disk.changes, self.starts, len(client.copies))
        if now != self.looked_when:
            self.looked_when = now
            self.world.checker.look_at_subscriber(self, client)

    def failed(self, error: Exception) -> None:
        self.world.trace.event(self.host, f"fails: {type(error).__name__}: {error}")
        if isinstance(error, DiskFault | LogFormatError) and self.disk.is_lossy:
            self.disk.wipe()
            return
        if isinstance(error, DiskFault) and self.disk.used_bytes >= self.disk.capacity_bytes // 2:
            return
        raise Violation("subscribers live", f"{self.host} ended: {error!r}") from error

    def gone(self) -> None:
        self.client = None

"""Worlds in which the process of a publisher ships several sessions on one connection to each node:
the publisher's own, one that writes in rare bursts whose batches nodes are slow to check, and one
that no node takes.

Invariant: what happens to the refused session, and how long the slow one takes, is nothing to the
publisher's own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from samelog.format.compression import LIMIT_BYTES_DEFAULT
from samelog.replicator.push.connections import PushConnections
from samelog.sequencer.ingest.batch_check import OwnProducer
from samelog.sequencer.ingest.checking import BatchChecker, CheckedBatches
from tests.cluster_sim.options import Options
from tests.cluster_sim.process import Process
from tests.cluster_sim.recreation import recreating

if TYPE_CHECKING:
    from tests.cluster_sim.publisher import PublisherActor

BURST = 30
BURST_SHARE, REFUSED_SHARE = 0.03, 0.2
"""Of what a publisher does."""
BURSTS = "-bursts"
"""Names of sessions that write in bursts end so."""
LONGEST_CHECK_S = 0.5
"""Of what one message brings of such a session."""


def sharing(seed: int) -> Options:
    """The world of a seed in which sessions share connections."""
    return replace(recreating(seed), recreates=False, shares=True)


class SlowChecker(BatchChecker):
    """A node's, to which the batches of bursts are work for a slow thread."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def now(
        self,
        who: Hashable,
        data: memoryview,
        own: OwnProducer,
        limit_bytes: int = LIMIT_BYTES_DEFAULT,
    ) -> CheckedBatches | None:
        """Only what is not of bursts."""
        is_slow = str(who).endswith(BURSTS)
        return None if is_slow else super().now(who, data, own, limit_bytes)

    async def later(
        self,
        who: Hashable,
        data: memoryview,
        own: OwnProducer,
        limit_bytes: int = LIMIT_BYTES_DEFAULT,
    ) -> CheckedBatches:
        """The same after a while."""
        await asyncio.sleep(self._chance.uniform(0, LONGEST_CHECK_S))
        return self._check(data, own, limit_bytes)


class OtherSession:
    """One more session of a publisher's process."""

    def __init__(
        self, actor: PublisherActor, process: Process, connections: PushConnections, name: str
    ) -> None:
        self.session = name
        self.host = actor.host
        self.disk = actor.disk
        self._actor = actor
        self.writer = actor.open_writer(process, name)
        self.client = actor.open_client(process, connections, name, self._progressed)
        self.client.start()

    def append(self) -> None:
        """Write some records."""
        self._actor.append(self.writer, self.session)

    def _progressed(self) -> None:
        self._actor.world.judge(self._judge)

    def _judge(self) -> None:
        run_ids = {run.run: run.run_id for run in self.client._session.runs}
        whose, checker = cast("PublisherActor", self), self._actor.world.checker
        for name, progress in self.client.progress.items():
            place = progress.acknowledged
            if place.run in run_ids:
                checker.told_acknowledged(whose, run_ids[place.run], name, place[1:])
        for (run, name), merged in self.client._progress._merged.items():
            if run in run_ids:
                checker.told_merged(whose, run_ids[run], name, merged)

    def waits_for(self) -> str:
        """What of the newest run is not merged yet; empty: nothing."""
        runs = [run for run in self.client._session.runs if run.run == self.writer._run]
        for run in () if self.client.status.stopped else runs:
            for name, history in self._actor.world.history.of_run(self.session, run.run_id):
                if history.merged < len(history.appends):
                    return f"{self.session} {name}: {history.merged} merged"
        return ""


class OtherSessions:
    """The sessions that share the connections of a publisher's own one."""

    def __init__(
        self, actor: PublisherActor, process: Process, connections: PushConnections
    ) -> None:
        self._chance = actor.chance
        self._bursts = OtherSession(actor, process, connections, f"{actor.session}{BURSTS}")
        self._refused = OtherSession(actor, process, connections, f"no-{actor.session}")

    def act(self) -> None:
        """Append to one of them, in some of the calls."""
        way = self._chance.random()
        if way < BURST_SHARE:
            for _ in range(BURST):
                self._bursts.append()
        elif way < REFUSED_SHARE:
            self._refused.append()

    def waits_for(self) -> str:
        """What is not merged, or should not have been; empty: nothing."""
        for node in self._refused.client.status.nodes:
            if "NOT_AUTHORISED" not in (node.last_error or ""):
                return f"{self._refused.session} is not refused: {node}"
        return self._bursts.waits_for()

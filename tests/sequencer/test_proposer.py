"""Proposing while leadership is unsettled: never to oneself, and again until somebody answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from samelog.runtime.clock import SystemClock
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.commands import NodeStarted
from tests.runtime.peers import until


class ElectedGroup:
    """A node that was just elected: it leads in Raft's eyes, but its no-op is not applied yet."""

    def __init__(self) -> None:
        self.is_leader = False
        self.raft = SimpleNamespace(leader=1, node_id=1)

    def ask(self, commands: list[Any]) -> tuple[int, asyncio.Future[list[Any]]]:
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(["done"])
        return 7, future


def test_a_new_leader_waits_for_its_no_op() -> None:
    async def main() -> None:
        group = ElectedGroup()
        sent: list[int] = []

        def send(to: int, message: object) -> bool:
            sent.append(to)
            return False

        proposer = Proposer(group, SimpleNamespace(), SystemClock(), send)  # type: ignore[arg-type]
        proposal = asyncio.ensure_future(proposer.propose(NodeStarted("n", 1, 0, "life", 1)))
        await asyncio.sleep(0)
        assert not proposal.done()
        group.is_leader = True
        assert await proposal == "done"
        assert sent == []

    asyncio.run(main())


class CountedGroup:
    """A leader whose confirmations come when the test says so."""

    def __init__(self) -> None:
        self.rounds: list[asyncio.Future[int | None]] = []

    async def read_index(self) -> int | None:
        self.rounds.append(asyncio.get_running_loop().create_future())
        return await self.rounds[-1]


class Applied:
    """A replica that has applied everything."""

    async def wait_applied(self, index: int) -> None:
        pass


def test_who_asks_together_shares_a_round_that_begins_later() -> None:
    async def main() -> None:
        group = CountedGroup()
        proposer = Proposer(group, Applied(), SystemClock(), lambda to, message: True)  # type: ignore[arg-type]
        early = asyncio.create_task(proposer.catch_up())
        await until(lambda: len(group.rounds) == 1)
        late = [asyncio.create_task(proposer.catch_up()) for _ in range(100)]
        await asyncio.sleep(0)
        group.rounds[0].set_result(7)
        await early
        await until(lambda: len(group.rounds) == 2)
        assert not any(task.done() for task in late)
        group.rounds[1].set_result(None)  # nobody leads: asked again
        await until(lambda: len(group.rounds) == 3)
        group.rounds[2].set_result(8)
        await asyncio.gather(*late)
        assert len(group.rounds) == 3

    asyncio.run(main())

"""Proposing while leadership is unsettled: never to oneself, and again until somebody answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from samelog.runtime.clock import SystemClock
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.commands import NodeStarted


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

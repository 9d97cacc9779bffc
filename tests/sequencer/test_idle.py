"""Partitions that nobody writes to cost nothing: what a node does behind a record, and what its
housekeeping does each second, takes as many calls with them as without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import CreateTopicCommand
from tests.sequencer.cluster import Session, batch, offset, run_with, until

IDLE = 200
RUNS = 5
"""Of which the cheapest counts: other tasks may have their turn meanwhile."""
LOOKS = 2
"""What was made is looked at once."""


class Calls:
    """Counts calls of Python functions."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


async def cost(node: Node, session: Session) -> int:
    """Calls behind one more record that is merged, of its sync and all looks at it."""
    goal = offset(node) + 1
    await session.send([node], batch(b"x"))
    await until(lambda: offset(node) == goal, "merged")
    with Calls() as calls:
        await node.logs.merging.sync()
        node.tick()
        node.tick_slowly()
        node.tick_membership()
    return calls.count


def test_idle_partitions_cost_nothing(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        alone = min([await cost(node, session) for _ in range(LOOKS + RUNS)])
        command = CreateTopicCommand("f" * 32, "idle", IDLE, {}, 1)
        await node.raft.proposer.propose(command)
        partitions = node.logs.merging.partitions
        await until(lambda: len(partitions) == IDLE + 1, "opened")
        beside = min([await cost(node, session) for _ in range(LOOKS + RUNS)])
        assert beside < alone + IDLE / 10

    run_with(tmp_path, 1, body)

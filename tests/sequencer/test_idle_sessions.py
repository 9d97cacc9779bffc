"""Sessions that are quiet cost a node nothing: neither what it does each second, nor what it does
for a record of another session, takes more with 10,000 of them than without (docs/loops.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from samelog.sequencer.cluster.housekeeping import CHANGES_INTERVAL_S, SLOW_INTERVAL_S, TICK_S
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.sessions import CloseRun, OpenInputCommand, OpenRunCommand
from tests.sequencer.cluster import RunWith, Session
from tests.sequencer.test_idle import cost, merge_one

FEW, MANY = 100, 10_000
RUNS = 4
"""Of which the cheapest counts: timers and other tasks may have their turn meanwhile."""
DISK_BYTES = 1 << 40


class Lines:
    """Counts lines of Python that are executed in new calls: loops count, not only calls."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._traced)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, at: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _traced(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.count += event == "line"
        return self._traced


def add_quiet(node: Node, first: int, last: int) -> None:
    """Sessions that have a run and an input and send nothing; every other one has ended."""
    machine = node.logs.machine
    topic = machine.state.topics.named("t")
    assert topic is not None
    for number in range(first, last):
        name = f"quiet{number}"
        machine.apply(OpenRunCommand(name, name, "samelog://publisher/q", 0, name, None, None))
        machine.apply(OpenInputCommand(name, topic.topic_id, 0))
        if number % 2:
            machine.apply(CloseRun(name, name, node.member.clock.wall_ms()))


def one_second(node: Node) -> int:
    """Lines of all that a node does in a second because time passes."""
    with Lines() as lines:
        for _ in range(round(SLOW_INTERVAL_S / TICK_S)):
            node.tick()
        for _ in range(round(SLOW_INTERVAL_S / CHANGES_INTERVAL_S)):
            node.tick_membership()
        node.tick_slowly()
        node.logs.sessions.rest()
        node.logs.quotas.recount(DISK_BYTES, 0)
        node.group_replica._upkeep._expire()
    return lines.count


async def costs(node: Node, session: Session) -> tuple[int, int]:
    """Lines of a second in which one record came, and calls behind a record, its sync and looks."""
    seconds = []
    for _ in range(RUNS):
        await merge_one(node, session)
        seconds.append(one_second(node))
    return min(seconds), min([await cost(node, session) for _ in range(RUNS)])


def test_quiet_sessions_cost_nothing(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        await merge_one(node, session)
        alone = await costs(node, session)
        add_quiet(node, 0, FEW)
        await costs(node, session)  # what is new is looked at once
        few = await costs(node, session)
        add_quiet(node, FEW, MANY)
        await costs(node, session)
        many = await costs(node, session)
        for quiet in (few, many):
            assert quiet[0] < alone[0] + FEW / 2, (alone, few, many)
            assert quiet[1] < alone[1] + FEW / 2, (alone, few, many)

    run_with(tmp_path, 1, body)

"""An administrator resets the simulated cluster, now and then.

Invariant: every planned reset is committed at last, whatever fails; each has an id of its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from samelog.consensus import Busy, NotLeader
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.resets import HardReset, ResetCommand, SoftReset

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

RETRY_S = 0.2
FOR_NOW = ("MOVING", "UNITS")


class Resets:
    """The resets of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: set[str] = set()

    def plan(self) -> None:
        """Have them done when it is time."""
        for number, (at_s, hard) in enumerate(self._world.options.resets):
            self._waiting.add(f"reset-{number}")
            self._world.later(at_s, lambda n=number, h=hard: self._try(f"reset-{n}", hard=h))  # type: ignore[misc]

    def waits_for(self) -> str:
        """What has not been committed yet; empty: nothing."""
        return next((f"{name} is not committed" for name in sorted(self._waiting)), "")

    def done(self, reset_id: str) -> None:
        """A node has applied it."""
        self._waiting.discard(reset_id)

    def refused(self, reset_id: str, why: Rejection) -> None:
        """It cannot be, as the cluster is; in some worlds only now, because partitions move or a
        batch is being published: it is asked for again.
        """
        is_for_now = self._world.options.follows_groups and why.code in FOR_NOW
        if not is_for_now:
            self.done(reset_id)

    def _try(self, name: str, *, hard: bool) -> None:
        """Ask whoever leads, again and again, until a node has applied it."""
        if name not in self._waiting:
            return
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is not None and process is not None and node.raft.group.is_leader:
                self._world.trace.event(actor.host, f"is asked for {name}")
                self._world.loop.call_in(process, 0.0, _propose, node, name, hard)
        self._world.later(RETRY_S, lambda: self._try(name, hard=hard))


def _propose(node: Node, name: str, hard: bool) -> None:
    term = node.raft.group.raft.term
    command: ResetCommand = HardReset(name, 0, term) if hard else SoftReset(name, 0)
    with suppress(NotLeader, Busy):
        node.raft.group.propose([command])

"""Worlds in which group 0 forgets transactions that data groups have open, as if it had been
recovered from a member that lacked its newest entries.

An entry stands for the recovery, so that all members forget the same.

Invariant: no transaction stays open in a data group for much longer than any may be
(rule transactions.12); what is forgotten had not been decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from samelog.consensus import Busy, NotLeader
from samelog.sequencer.node import Node
from samelog.sequencer.state import expiry
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.types import State
from tests.cluster_sim.options import Options, many_groups
from tests.cluster_sim.transactions import TIMEOUT_MS

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

FORGETS = "group 0 forgets"
EVERY_S = 1.5
LONGEST_MS = 2 * TIMEOUT_MS
"""No transaction is open for longer, where group 0 knows it."""


def forgetting(seed: int) -> Options:
    """The world of a seed in which group 0 forgets transactions, and nothing else fails."""
    options = many_groups(seed)
    return replace(
        options,
        nodes=max(3, options.nodes),
        data_groups=min(3, options.data_groups),
        kinds=(),
        changes=(),
        resets=(),
        deaths_at_tasks=0.0,
        producers=4,
        stagers=0,
        safety_s=20.0,
        forgets=True,
    )


@contextmanager
def shorter() -> Iterator[None]:
    """No transaction may be open for as long as in earnest."""
    with patch.object(expiry, "TIMEOUT_MS_MAX", LONGEST_MS):
        yield


class Forgetting:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"forgetting {world.options.seed}")
        self.forgotten: set[tuple[int, int]] = set()
        """(producer, transaction)."""

    def plan(self) -> None:
        """Begin to forget."""
        if self._world.options.forgets:
            self._world.later(EVERY_S, self._step)

    def _step(self) -> None:
        world = self._world
        if world.is_healed:
            return
        world.later(self._chance.expovariate(1 / EVERY_S), self._step)
        for actor in world.nodes:
            if actor.is_leader and actor.node is not None and actor.process is not None:
                world.loop.call_in(actor.process, 0.0, _ask, actor.node)

    def applied(self, state: State, commands: Iterable[Any]) -> None:
        """A member of group 0 has applied an entry: forget what is open in data groups alone."""
        if not any(isinstance(each, RecordEvent) and each.kind == FORGETS for each in commands):
            return
        known, placed = state.transactions, state.placement.partitions
        for name in list(known.ongoing):
            transaction = known.by_id[name]
            unit = transaction.unit
            if unit is not None and unit.participants and unit.participants.keys() <= placed.keys():
                self.forgotten.add((transaction.producer_id, transaction.number))
                del known.by_id[name], known.ongoing[name]
                del known.producers[transaction.producer_id]


def _ask(node: Node) -> None:
    with suppress(NotLeader, Busy):
        node.raft.group.propose([RecordEvent(0, FORGETS, "")])

"""Leaders of group 0 that die when a task has come to another phase, at one of their next effects:
before it is asked for, while orders are on their way, or when its end is about to be written.

Invariant: nobody dies of this once the world is healed; what is drawn here changes no other fault.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from samelog.placement.tasks import Action, PlacementTask

if TYPE_CHECKING:
    from samelog.sequencer.node import Node
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World

Phase = tuple[str, str, str]
"""Of a task: its kind, how it stands, and what it waits for."""

EFFECTS = (3, 30, 300)
POWER_SHARE = 0.3
_STEPS = {each.name.lower().replace("_", " ") for each in Action}
_WAITS = _STEPS | {"copying", "becoming a voter", "removing", "undoing", "another leader", "paused"}


class TaskDeaths:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._share = world.options.deaths_at_tasks
        self._chance = random.Random(f"deaths at tasks {world.options.seed}")
        self._phases: dict[int, Phase] = {}
        self.seen: set[Phase] = set()
        self.died_in: set[Phase] = set()

    def look(self, actor: NodeActor, node: Node) -> None:
        """A node has done something: if it leads group 0, it may be about to die."""
        if not self._share or self._world.is_healed or not node.raft.group.is_leader:
            return
        waits, tasks = node.placing.waits, node.cluster.placement.tasks
        now = {n: _phase(task, waits.get(n, "")) for n, task in tasks.items()}
        new = {phase for number, phase in now.items() if self._phases.get(number) != phase}
        self._phases = now
        self.seen |= new
        if new and self._chance.random() < self._share:
            self._condemn(actor, new)

    def _condemn(self, actor: NodeActor, phases: set[Phase]) -> None:
        process, chance = actor.process, self._chance
        effects, power = chance.randrange(1, chance.choice(EFFECTS)), chance.random() < POWER_SHARE
        if process is None or process.fuse is not None or not actor.is_up:
            return
        self.died_in |= phases
        process.fuse = effects
        process.on_fuse = lambda: actor.kill(power=power, why="dies at a task")
        text = f"dies in {effects} effects, at {sorted(phases)}"
        self._world.trace.event(actor.host, text)


def _phase(task: PlacementTask, waits: str) -> Phase:
    step = waits if waits in _WAITS or not waits else "an obstacle"
    return task.kind.name, task.state.name, step

"""Worlds in which the leader of a data group and the leader of group 0 stop hearing each other,
while both hear all others.

Invariant: within bounded time another member leads the data group, as long as the cut lasts and
group 0 has the same leader (rule placement.20).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.cluster_sim.options import Options, many_groups
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World

LOOK_S = 0.3
LEAVES_WITHIN_S = 12.0
REST_S = 2.0
GROUPS, REPLICAS = 3, 3


def cutting(seed: int) -> Options:
    """The world of a seed in which leaders lose group 0, and nothing else fails."""
    options = many_groups(seed)
    return replace(
        options,
        nodes=max(REPLICAS, options.nodes),
        data_groups=GROUPS,
        replicas=REPLICAS,
        kinds=(),
        changes=(),
        resets=(),
        deaths_at_tasks=0.0,
        slow_chance=0.0,
        safety_s=30.0,
        cuts_leaders=True,
    )


class CutLeaders:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"cut leaders {world.options.seed}")
        self.left = 0
        """How many leaders have left their group because of a cut."""

    def plan(self) -> None:
        """Begin to cut leaders off."""
        if self._world.options.cuts_leaders:
            self._world.later(LOOK_S, self._step)

    def _step(self) -> None:
        """Cut a leader off, if there is one that others can replace."""
        world = self._world
        if world.is_healed:
            return
        coordinators = [actor for actor in world.nodes if actor.is_leader]
        led = [] if len(coordinators) != 1 else self._led_elsewhere(coordinators[0])
        if not led:
            world.later(LOOK_S, self._step)
            return
        actor, group = self._chance.choice(led)
        one, other = actor.host, coordinators[0].host
        world.network.cuts |= {(one, other), (other, one)}
        world.trace.event("cut", f"{one}, which leads group {group}, and {other}, which leads 0")
        since = world.loop.time()
        world.later(LOOK_S, lambda: self._look(actor, group, coordinators[0], since))

    def _led_elsewhere(self, coordinator: NodeActor) -> list[tuple[NodeActor, int]]:
        return [
            (actor, number)
            for actor in self._world.nodes
            for number, replica in (
                () if actor.node is None else actor.node.data_groups.replicas.items()
            )
            if actor is not coordinator
            and replica.raft.is_leader
            and len(replica.raft.raft.voters) == REPLICAS
        ]

    def _look(self, actor: NodeActor, group: int, coordinator: NodeActor, since: float) -> None:
        world = self._world
        replica = None if actor.node is None else actor.node.data_groups.replicas.get(group)
        leads = replica is not None and replica.raft.is_leader
        if leads and coordinator.is_leader and not world.is_healed:
            if world.loop.time() - since < LEAVES_WITHIN_S:
                world.later(LOOK_S, lambda: self._look(actor, group, coordinator, since))
                return
            text = f"{actor.host} leads group {group} without group 0"
            world.violated(Violation("who hears group 0 leads", text))
            return
        self.left += not leads
        world.network.mend()
        world.later(REST_S, self._step)

"""An operator of the simulated cluster installs newer and older builds, and finalizes.

The older build is this one; the newer one has a kind of command of its own (`new_kind`). As
docs/upgrades.md has it: no node goes back to the older build once the cluster was asked to
finalize, or before it has its first level; and it is asked only while no node is being changed.
Meanwhile programs use what the newer build brings as soon as they may.

Invariant: none of this ever halts a node.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from samelog.admin.answers import NodeState
from samelog.consensus import Busy, NotLeader
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.members import RaiseLevel
from tests.cluster_sim.new_kind import NEW_BUILD, OLD_BUILD, NewKind
from tests.cluster_sim.node import NodeActor

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

STEP_S = 0.5


class Upgrades:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"upgrades {world.options.seed}")
        self._is_asked = False
        """Whether a level was proposed, which may yet be committed."""
        self._used = 0

    def plan(self) -> None:
        """All nodes begin with the old build, some with the new one, or all."""
        if not self._world.options.upgrades:
            return
        share = self._chance.choice((0.0, 0.5, 1.0))
        for node in self._world.nodes:
            node.build = NEW_BUILD if self._chance.random() < share else OLD_BUILD
        self._is_asked = all(node.build == NEW_BUILD for node in self._world.nodes)
        self._world.later(STEP_S, self._step)

    def waits_for(self) -> str:
        """What is left to do; empty: nothing, or a node is away for good, so none can finalize."""
        nodes = self._world.nodes
        if not self._world.options.upgrades or any(n.stays_away or n.has_rotten for n in nodes):
            return ""
        kinds = {
            event.kind
            for each in self._running()
            for event in each.logs.machine.state.events.remembered
        }
        return "" if self._level() >= NEW_BUILD and "new kind" in kinds else "the upgrade goes on"

    def _running(self) -> list[Node]:
        return [actor.node for actor in self._world.nodes if actor.node is not None and actor.is_up]

    def _level(self) -> int:
        return max((node.raft.replica.level for node in self._running()), default=0)

    def _step(self) -> None:
        self._world.later(self._chance.expovariate(1 / STEP_S), self._step)
        if not self._level():
            return
        actor, what = self._chance.choice(self._world.nodes), self._chance.random()
        if what < 0.3:
            self._install(actor)
        elif what < 0.7:
            self._finalize(actor)
        else:
            self._use(actor)

    def _install(self, actor: NodeActor) -> None:
        only_newer = self._is_asked or self._world.is_healed
        build = NEW_BUILD if only_newer else self._chance.choice((OLD_BUILD, NEW_BUILD))
        if build != actor.build:
            self._change(actor, build)

    def _change(self, actor: NodeActor, build: int) -> None:
        self._world.trace.event(actor.host, f"gets build {build}")
        actor.build = build
        actor.kill()

    def newcomers_build(self) -> int:
        """Of a machine that is to be a member."""
        if not self._world.options.upgrades:
            return OLD_BUILD
        return NEW_BUILD if self._is_asked else self._chance.choice((OLD_BUILD, NEW_BUILD))

    def _finalize(self, actor: NodeActor) -> None:
        """Ask a node, as `samelog cluster upgrade --finalize` does, if all have come up. What is
        no member may become one, and nobody checks what that supports: it has the newer build.
        """
        everyone = [each for each in self._world.actors.values() if isinstance(each, NodeActor)]
        older = [each for each in everyone if each.build < NEW_BUILD]
        if outsiders := [each for each in older if each not in self._world.nodes]:
            self._change(outsiders[0], NEW_BUILD)
            return
        states = [node.member.status.state for node in self._running()]
        if states.count(NodeState.LIVE) < len(self._world.nodes):
            return
        node, process = cast(Any, actor.node), cast(Any, actor.process)
        now = node.raft.upgrade.status()
        if not node.raft.group.is_leader or now.waits_for or now.newest <= now.level:
            return
        self._is_asked = True
        self._world.trace.event(actor.host, f"is asked for level {now.newest}")
        self._world.loop.call_in(process, 0.0, _propose, node, now.level, now.newest)

    def _use(self, actor: NodeActor) -> None:
        """Use what is new, at any node."""
        if actor.node is None or actor.process is None or actor.build < NEW_BUILD:
            return
        self._used += 1
        command = NewKind(str(self._used))
        self._world.loop.call_in(actor.process, 0.0, _use, self._world, actor.node, command)


def _propose(node: Node, since: int, level: int) -> None:
    with suppress(NotLeader, Busy):
        node.raft.group.propose([RaiseLevel(since, level, 0)])


def _use(world: World, node: Node, command: Any) -> None:
    async def use() -> None:
        with suppress(TimeoutError):
            await node.raft.proposer.propose(command)

    world.loop.create_task(use())

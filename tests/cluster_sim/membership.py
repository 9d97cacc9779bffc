"""Members of the simulated cluster come and go: an operator adds, removes, replaces and readmits
nodes, whatever else goes wrong.

The operator takes one change after the other, asks whoever leads until the member list shows it,
and gives up after a while. It leaves as many voters that have forgotten nothing as a majority
needs: more no cluster can do without.

Invariant: what a majority must hold is judged by the voters of a moment at which it may have been
counted: those of the newest two member lists, and those that a node goes by now.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from samelog.consensus import Busy, NotLeader
from samelog.placement import operations
from samelog.placement.tasks import PlacementRefused
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.sequencer.state.tables.placement import ChangePlacement
from tests.cluster_sim.actor import PORT
from tests.cluster_sim.node import NodeActor

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

RETRY_S = 0.3
GIVE_UP_S = 6.0
MOVING_S = 30.0
"""So long an operator waits where replicas of data groups have to move first."""
MOST_VOTERS = 5
MOST_MEMBERS = 9


class Membership:
    """Who belongs to the cluster of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index = 0
        first = [actor.name for actor in world.nodes]
        self._names = dict(enumerate(first))
        """The name of each number that was ever given."""
        self._voters: list[set[str]] = [set(first)]
        self.members: dict[str, Member] = {}
        """By name, as the newest list says; empty: there is none yet."""
        self._everyone = {actor.name: actor for actor in world.nodes}
        self._removed: set[str] = set()
        self._under_way = False
        self._leaving = ""
        """Who is being removed."""

    # --- what is known ----------------------------------------------------------------------------

    def told(self, index: int, command: SetMembers) -> None:
        """A node has applied a member list."""
        if index <= self._index:
            return
        self._index = index
        self.members = {member.name: member for member in command.members}
        self._names.update((member.number, member.name) for member in command.members)
        self._voters = [
            self._voters[-1],
            {member.name for member in command.members if member.voter},
        ]
        here = [actor for name, actor in self._everyone.items() if name in self.members]
        self._removed |= {actor.name for actor in self._world.nodes} - self.members.keys()
        self._world.nodes[:] = here
        for actor in here:
            if actor.stays_away and self._world.options.changes:
                self._world.later(0.0, actor.come_back)

    def was_removed(self, actor: NodeActor) -> bool:
        """Whether it may end for that; it may be a member again, and not know it yet."""
        actor.stays_away = actor.name not in self.members
        return actor.name in self._removed

    def is_majority(self, holds: Callable[[NodeActor], bool]) -> bool:
        """Whether a majority holds something, of voters that may have been those that counted."""
        return any(
            sum(holds(self._everyone[name]) for name in voters) > len(voters) // 2
            for voters in (*self._voters, *self._present_voters())
        )

    def _present_voters(self) -> list[set[str]]:
        nodes = [actor.node for actor in self._everyone.values() if actor.node is not None]
        return [
            {self._names[number] for number in node.raft.group.raft.voters if number in self._names}
            for node in nodes
        ]

    def number_of(self, actor: NodeActor) -> int:
        """What a node goes by now."""
        known = self.members.get(actor.name)
        return actor.number if known is None else known.number

    def actor_of(self, number: int) -> NodeActor | None:
        """The node that has, or had, a number; None: it was never a member."""
        return self._everyone.get(self._names.get(number, ""))

    @property
    def may_forget(self) -> int:
        """How many members may have forgotten something at a time."""
        fewest = min(map(len, self._voters))
        return max(0, (fewest - bool(self._leaving) - 1) // 2)

    def waits_for(self) -> str:
        """What is not as it must be at the end; empty: nothing."""
        for member in self.members.values():
            if (member.promote and not member.voter) or member.replaces is not None:
                return f"{member.name} is still being added"
        return ""

    # --- the operator -----------------------------------------------------------------------------

    def plan(self) -> None:
        """Have the changes made when it is time."""
        for number, (at_s, kind) in enumerate(self._world.options.changes):
            chance = random.Random(f"change {number} {self._world.options.seed}")
            self._world.later(at_s, lambda k=kind, c=chance: self._begin(k, c))  # type: ignore[misc]

    def _begin(self, kind: str, chance: random.Random) -> None:
        if self._under_way or self._world.is_healed or not self.members:
            return
        ways = {
            "add": self._add,
            "learner": self._add_learner,
            "replace": self._replace,
            "readmit": self._readmit,
        }
        done = ways.get(kind, self._remove)(chance)
        if done is not None:
            self._world.trace.event("operator", f"{kind}: {done}")

    def _add(self, chance: random.Random, replaces: str | None = None) -> str | None:
        if replaces is None and len(self.members) >= MOST_VOTERS:
            return None
        actor, promote = self._newcomer(chance), replaces is not None or chance.random() < 0.8
        return self._ask_to_add(actor, replaces, promote=promote)

    def _add_learner(self, chance: random.Random) -> str | None:
        """A member without a vote in group 0: of data groups it may have all that others have."""
        if len(self.members) >= MOST_MEMBERS:
            return None
        return self._ask_to_add(self._newcomer(chance), None, promote=False)

    def _ask_to_add(self, actor: NodeActor, replaces: str | None, *, promote: bool) -> str:
        address = f"{actor.host}:{PORT}"

        async def ask(node: Node) -> None:
            await node.peers.changes.add(actor.name, address, promote=promote, replaces=replaces)

        self._ask(ask, lambda: actor.name in self.members)
        return actor.name

    def _newcomer(self, chance: random.Random) -> NodeActor:
        """A new machine, or one that belonged to the cluster before."""
        gone = [actor for name, actor in self._everyone.items() if name not in self.members]
        if gone and chance.random() < 0.5:
            actor = chance.choice(gone)
            if chance.random() < 0.5:
                actor.wipe()
        else:
            actor = NodeActor(self._world, len(self._everyone))
            actor.bootstraps = False
            actor.build = self._world.upgrades.newcomers_build()
            self._everyone[actor.name] = actor
            self._world.actors[actor.host] = actor
        actor.come_back()
        return actor

    def _remove(self, chance: random.Random) -> str | None:
        name = self._dispensable(chance)
        if name is None:
            return None

        async def ask(node: Node) -> None:
            if not self._world.options.data_groups or not _drains(node, name):
                await node.peers.changes.remove(name)

        self._leaving = name
        self._ask(ask, lambda: name not in self.members)
        return name

    def _replace(self, chance: random.Random) -> str | None:
        name = self._dispensable(chance, fewest=3)
        if name is None:
            return None
        self._leaving = name
        return f"{name} by {self._add(chance, name)}"

    def _dispensable(self, chance: random.Random, fewest: int = 4) -> str | None:
        """One of enough voters; clients always find the first node."""
        voters = self._voters[-1]
        forgot = [actor for actor in self._world.nodes if actor.is_condemned]
        rest = len(voters) - 1
        if len(voters) < fewest or len(forgot) > (rest - 1) // 2:
            return None
        return chance.choice(sorted(voters - {"n0"}))

    def _readmit(self, chance: random.Random) -> str | None:
        lost = [actor.name for actor in self._world.nodes if actor.is_condemned]
        if not lost or len(self._voters[-1]) < 3:
            return None
        name = chance.choice(lost)
        number = self.members[name].number

        async def ask(node: Node) -> None:
            await node.peers.changes.readmit(name)

        self._leaving = name
        self._ask(ask, lambda: name not in self.members or self.members[name].number != number)
        return name

    def _ask(self, ask: Callable[[Node], object], is_done: Callable[[], bool]) -> None:
        self._under_way = True
        patience_s = MOVING_S if self._world.options.data_groups else GIVE_UP_S
        self._try(ask, is_done, self._world.loop.time() + patience_s)

    def _try(
        self, ask: Callable[[Node], object], is_done: Callable[[], bool], until: float
    ) -> None:
        """Ask whoever leads, again and again."""
        if is_done() or self._world.is_healed or self._world.loop.time() > until:
            self._under_way, self._leaving = False, ""
            return
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is not None and process is not None and node.raft.group.is_leader:
                self._world.loop.call_in(process, 0.0, self._spawn, ask, node)
        self._world.later(RETRY_S, lambda: self._try(ask, is_done, until))

    def _spawn(self, ask: Callable[[Node], object], node: Node) -> None:
        self._world.loop.create_task(_asked(ask, node))


async def _asked(ask: Callable[[Node], object], node: Node) -> None:
    with suppress(NotLeader, Busy, ChangeRefused, PlacementRefused, TimeoutError):
        await ask(node)  # type: ignore[misc]


def _drains(node: Node, name: str) -> bool:
    """Whether a member has replicas of data groups: it is asked to give them away first. Raises
    PlacementRefused if nobody can take them.
    """
    table = node.placing.look()
    try:
        operations.check_removal(table, name)
    except PlacementRefused:
        changes = operations.drain(table, node.placing.states(), name)
        if changes:
            node.raft.group.propose([ChangePlacement(-1, changes)])
        return True
    return False

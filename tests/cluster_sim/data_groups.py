"""Data groups of a simulated cluster: made at any time, given something to do, left alone.

Invariant: a data group's replicas that have applied the same entry have the same state, a term has
one leader, and an event that any replica has applied is never gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from samelog.consensus import Busy, NotLeader, Role
from samelog.placement.changes import AnyChange, PlaceGroups, StartTask
from samelog.placement.tasks import TaskKind
from samelog.placement.values import NewGroup, Placement
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.data_groups.working import LOOK_S
from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.placement import (
    ChangePlacement,
    MakeGroups,
    PlacePartitions,
    PlaceTopic,
)
from samelog.sequencer.state.types import State
from tests.cluster_sim.history import Name
from tests.cluster_sim.node import NodeActor
from tests.cluster_sim.operator import Operator
from tests.cluster_sim.task_deaths import TaskDeaths
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

STEP_S = 0.3
ASKS_SHARE = 0.3
"""So often an operator asks the leader of group 0 for something."""
DEFAULT_S = 2.0
"""So often an operator sets another default number of copies, on average."""
EVENTS_MOST = 200
"""In a group: all of them are remembered."""


class DataGroups:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"data groups {world.options.seed}")
        self._defaults = random.Random(f"times of defaults {world.options.seed}")
        self._leaders: dict[tuple[int, int], int] = {}
        """(group, term) -> member."""
        self._states: dict[tuple[int, int], bytes] = {}
        """(group, applied index) -> digest of the state."""
        self._events: dict[int, list[str]] = {}
        self._next_event = 0
        self._known = Placement()
        """The newest table of placement that any node has had."""
        self._rested_at: dict[tuple[str, int], float] = {}
        """(host, group) -> when the replica was at rest last."""
        self._asked: list[tuple[str, int, frozenset[int]]] = []
        """(version, members) of proposed groups, which only a table of that version takes."""
        self.default_groups = 0
        """How many were proposed."""
        self.splits = 0
        """How many moves that even out partitions were proposed."""
        self.deaths = TaskDeaths(world)
        self._operator = Operator(world, self._chance)

    def plan(self) -> None:
        """Begin to make groups."""
        if self._world.options.data_groups:
            self._world.later(STEP_S, self._step)
        if self._world.options.has_defaults:
            self._world.later(self._defaults.expovariate(1 / DEFAULT_S), self._set_default)

    def _set_default(self) -> None:
        """Have topics get another number of copies by default, as long as things fail."""
        if not self._world.is_healed:
            self._operator.set_default()
            self._world.later(self._defaults.expovariate(1 / DEFAULT_S), self._set_default)

    def _step(self) -> None:
        """Ask whoever leads group 0 for a group, or a data group's leader for an event."""
        if self._world.is_healed and self._made():
            self._operator.settle()
            self._world.later(1.0, self._step)
            return
        self._world.later(self._chance.expovariate(1 / STEP_S), self._step)
        actor = self._chance.choice(self._world.nodes)
        node, process = actor.node, actor.process
        if node is None or process is None or not actor.is_up or not node.level:
            return
        if node.raft.group.is_leader and not self._made():
            wanted = self._wanted(node)
            self.asked_for(node.cluster.placement.version, wanted)
            self._world.loop.call_in(process, 0.0, _make, node, wanted)
        elif node.raft.group.is_leader and self._chance.random() < ASKS_SHARE:
            self._operator.ask(node, process)
        led = [each for each in node.data_groups.replicas.values() if each.raft.is_leader]
        if led and self._next_event < EVENTS_MOST:
            self._next_event += 1
            replica = self._chance.choice(led)
            self._world.loop.call_in(process, 0.0, _record, replica, f"{self._next_event}")

    def asked_for(self, version: int, wanted: NewGroup) -> None:
        """Note that a leader proposes a group, which only a table of this version takes."""
        self._asked.append(("version", version, frozenset(wanted.members)))

    def plans(self, changes: Iterable[AnyChange]) -> None:
        """Note the groups in a leader's proposal, which only a table takes that has yet to give out
        their numbers.
        """
        for change in changes:
            if isinstance(change, PlaceGroups):
                for wanted in change.groups:
                    members = frozenset(wanted.members)
                    self._asked.append(("next_group", change.first, members))
                    self.default_groups += wanted.is_default
            elif isinstance(change, StartTask):
                self.splits += change.task.kind is TaskKind.SPLIT

    def listen(self, node: Node) -> None:
        """Note what this node proposes as leader of group 0, also for its own planner."""
        group = node.raft.group
        propose = group.propose

        def noted(
            commands: Sequence[AnyCommand], outcomes: asyncio.Future[list[Any]] | None = None
        ) -> int:
            for command in commands:
                if isinstance(command, ChangePlacement):
                    self.plans(command.changes)
                elif isinstance(command, PlaceTopic | PlacePartitions):
                    for wanted in command.new_groups:
                        self.asked_for(command.since, wanted)
            return propose(commands, outcomes)

        group.propose = noted  # type: ignore[method-assign]

    def know(self, table: Placement) -> None:
        """Remember the newest table of placement, also once all nodes that had it are down."""
        if table.version > self._known.version:
            self._known = table

    def _made(self) -> bool:
        return len(self.table()) >= self._world.options.data_groups

    def _wanted(self, node: Node) -> NewGroup:
        members = self.able(node)
        copies = min(self._world.options.replicas, len(members))
        chosen = self._chance.sample(members, copies)
        return NewGroup(copies, tuple(chosen), self._chance.choice(chosen))

    def able(self, node: Node) -> list[int]:
        """Who may get a replica: not who has yet to be let in, as nobody else asks for that, nor
        who has lost its disk and is not missed yet, as it might be the only one; and where members
        go, not those that are to have none.
        """
        state, now = node.logs.machine.state, node.member.clock.now()
        number_of = self._world.membership.number_of
        lost = {number_of(actor) for actor in self._world.nodes if actor.is_condemned}
        able = [
            each
            for each in state.members.by_number.keys() - lost
            if node.peers.may_hold(each, state, now)
        ]
        if not self._world.options.changes:
            return sorted(able or state.members.by_number)
        leaving = {
            *state.placement.draining,
            *(each.replaces for each in state.members.by_number.values()),
        }
        return sorted({*able} - leaving) or sorted(able or state.members.by_number)

    def table(self) -> dict[int, tuple[int, ...]]:
        """Group -> members, by the newest table that any node has had."""
        return {number: group.members for number, group in self._known.groups.items()}

    def _newest(self) -> State | None:
        """Of group 0, as whoever knows most has it."""
        known = [actor.node.cluster for actor in self._world.nodes if actor.node is not None]
        return max(known, key=lambda state: state.placement.version, default=None)

    def holders(self, name: Name) -> list[NodeActor]:
        """The nodes that have a partition."""
        state = self._newest()
        if state is None or name[0] not in state.topics.by_name:
            return []
        topic = state.topics.by_id[state.topics.by_name[name[0]]]
        group = state.placement.group_of(topic.partition_numbers[name[1]])
        return self._actors(self.table().get(group, ()))

    def _actors(self, numbers: Collection[int]) -> list[NodeActor]:
        number_of = self._world.membership.number_of
        return [actor for actor in self._world.nodes if number_of(actor) in numbers]

    def may_forget(self, actor: NodeActor) -> bool:
        """Return whether every group does without what a node has of it, because most of the other
        members are sure. Groups count from the proposal on that makes them.
        """
        return self._does_without(actor, {each for each in self._world.nodes if each.is_condemned})

    def may_stay_away(self, actor: NodeActor) -> bool:
        """Return whether a node may stay away for good: every group keeps a majority."""
        return self._does_without(actor, {each for each in self._world.nodes if each.stays_away})

    def _does_without(self, actor: NodeActor, others: set[NodeActor]) -> bool:
        own, lacking = self._world.membership.number_of(actor), {*others, actor}
        left = {self._world.membership.number_of(each) for each in {*self._world.nodes} - lacking}
        return all(
            len(left.intersection(members)) * 2 > len(members)
            for members in self._configurations()
            if own in members
        )

    def _configurations(self) -> set[frozenset[int]]:
        """The members of groups, by the table and by what any replica goes by."""
        found = {frozenset(members) for members in self.table().values()}
        for field, value, members in self._asked:
            if value >= getattr(self._known, field):
                found.add(members)
        for actor in self._world.nodes:
            for replica in () if actor.node is None else actor.node.data_groups.replicas.values():
                found.add(frozenset(replica.raft.raft.voters))
        return found

    # --- what must hold ---------------------------------------------------------------------------

    def look(self, actor: NodeActor, node: Node) -> None:
        """A node has done something."""
        self.deaths.look(actor, node)
        self.know(node.cluster.placement)
        groups = node.data_groups
        beats, working = groups.quiet._beats._rests, groups.working._at_work
        is_between_steps = not actor.dies_within_a_step
        compared = actor.groups_looked_at
        for number, replica in groups.replicas.items():  # after every step: no calls if all is well
            group = replica.raft
            if group._pumping:  # it dies in the middle of a step
                continue
            raft = group.raft
            rests, halted = raft.patience.rests, group._fault is not None and group.halted
            if is_between_steps and rests != (number in beats) and not halted:
                raise Violation("beats know who rests", f"{actor.host} in group {number}")
            if halted:
                raise Violation("one history", f"{actor.host} group {number}: {halted}")
            if is_between_steps and not rests and number not in working:
                raise Violation("who is awake works", f"{actor.host} in group {number}")
            if raft.role is Role.LEADER:
                known = self._leaders.setdefault((number, raft.term), raft.node_id)
                if known != raft.node_id:
                    text = f"{known} and {raft.node_id} lead group {number} in {raft.term}"
                    raise Violation("one leader", text)
            if compared.get(number) != group.applied_index:
                self._compare(actor, number, replica)

    def _compare(self, actor: NodeActor, number: int, replica: DataReplica) -> None:
        applied = replica.raft.applied_index
        actor.groups_looked_at[number] = applied
        if not applied:
            return
        machine = replica.group_replica.logs.machine
        digest = blake2b(machine.encode()).digest()
        if self._states.setdefault((number, applied), digest) != digest:
            raise Violation("one state", f"{actor.host} differs in group {number} at {applied}")
        events = [event.text for event in machine.state.events.remembered]
        known = self._events.setdefault(number, [])
        if events[: len(known)] != known[: len(events)]:
            raise Violation(
                "events stay", f"{actor.host}: group {number} has {events}, not {known}"
            )
        self._events[number] = max(known, events, key=len)

    def is_suspect(self, actor: NodeActor) -> bool:
        """Whether any of its replicas counts for nothing yet."""
        node = actor.node
        if node is None or not self._world.options.data_groups:
            return False
        number = node.peers.number
        replicas = node.data_groups.replicas
        wanted = [group for group, members in self.table().items() if number in members]
        return any(
            group not in replicas or not replicas[group].raft.raft.may_vote for group in wanted
        )

    # --- at the end -------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """Return what is unfinished: each replica must have everything, and must have rested since
        the last check. Empty if all is well.
        """
        if not self._world.options.data_groups:
            return ""
        self._note_rest()
        for number, members in self.table().items():
            those = self._actors(members)
            present = [actor for actor in those if not (actor.stays_away or actor.has_rotten)]
            others_are_away = all(not actor.is_up for actor in those if actor not in present)
            may_rest = others_are_away and len(present) > len(members) // 2
            for actor in present:
                if waits := self._lacks(actor, number, may_rest=may_rest):
                    return waits
        return self._operator.waits_for() if self._made() else "not all groups are made"

    def _note_rest(self) -> None:
        """Note the replicas that rest: each rests at a time of its own, hardly ever all at once."""
        now = self._world.loop.time()
        for actor in self._world.nodes:
            for number, replica in (
                () if actor.node is None else actor.node.data_groups.replicas.items()
            ):
                if _is_at_rest(replica):
                    self._rested_at[actor.host, number] = now

    def _lacks(self, actor: NodeActor, number: int, *, may_rest: bool) -> str:
        node = actor.node
        replica = None if node is None else node.data_groups.replicas.get(number)
        if replica is None:
            return f"{actor.host} has no replica of group {number}"
        events = [each.text for each in replica.group_replica.logs.machine.state.events.remembered]
        if events != self._events.get(number, []):
            return f"{actor.host} lacks events of group {number}"
        rested_at = self._rested_at.get((actor.host, number), float("-inf"))
        has_rested = rested_at >= self._world.loop.time() - LOOK_S
        if may_rest and not (has_rested and replica.raft.raft.rests):
            return f"{actor.host} does not rest in group {number}"
        return "" if replica.raft.raft.leader is not None else f"group {number} has no leader"


def _is_at_rest(replica: DataReplica) -> bool:
    return replica.raft.raft.rests and replica.group_replica.rests


def _make(node: Node, wanted: NewGroup) -> None:
    with suppress(NotLeader, Busy):
        node.raft.group.propose([MakeGroups(node.cluster.placement.version, [wanted])])


def _record(replica: DataReplica, text: str) -> None:
    with suppress(NotLeader, Busy):
        replica.raft.propose([RecordEvent(0, "simulated", text)])

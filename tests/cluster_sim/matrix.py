"""Worlds in which one topic goes through all that can be done to it, one operation after another,
while it is written and read: a kind of topic, and a number of copies, to a world.

Nothing fails but what the operations kill. After each of them more records must be merged, and all
that other worlds check is checked.

Invariant: an operation is asked for again until it is done, as an operator would.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from unittest.mock import patch

from samelog.consensus import Busy, NotLeader
from samelog.placement import operations
from samelog.placement.changes import AnyChange, PlaceGroups, WantGroup
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import METADATA, NewGroup, PlacedGroup, Placement
from samelog.sequencer.admin.placement import other_copies
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.merged.log import MergedLog
from tests.cluster_sim.canonical import CanonicalLog
from tests.cluster_sim.kinds import MIRROR, VIEW, of_kind
from tests.cluster_sim.node import NodeActor
from tests.cluster_sim.options import Options, many_groups
from tests.cluster_sim.rhythm import Rhythm
from tests.cluster_sim.view_reader import ViewReader
from tests.cluster_sim.world import World

NAME = "t0", 0
NODES = 5
LOOK_S, ASK_AGAIN_S = 0.1, 1.0
MORE_RECORDS = 20
"""Are merged behind each operation."""
WITHIN_S = 400.0


def matrix(kind: str, copies: int) -> Options:
    """The world of a kind of topic."""
    options = replace(
        many_groups(1),
        nodes=NODES,
        publishers=2,
        subscribers=1,
        topics=1,
        partitions=1,
        safety_s=WITHIN_S,
        rhythm=Rhythm(1.0, 0.0),
        kinds=(),
        changes=(),
        resets=(),
        data_groups=0,
        has_many_groups=False,
        deaths_at_tasks=0.0,
        restart_s=0.5,
        latency_s=0.002,
        sync_s=0.002,
        slow_chance=0.0,
        split_chance=0.0,
        drift=0.0,
        value_bytes=100,
        kept_entries=10,
        copies=True,
    )
    options = replace(of_kind(options, kind), replicas=copies, append_every_s=0.05)
    if kind == MIRROR:
        options = replace(options, append_every_s=0.025)
    if kind == "keyed":
        options = replace(options, first_keys=1_000, horizon="unlimited")
    if kind == "compacted,deleted":
        options = replace(options, keys=500, copies=False)  # compacted before they are copied
    return replace(options, retention_bytes=-1 if kind in ("compacted", VIEW) else 1 << 13)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: what is asked of the leader of group 0, if anything, and when it is done."""

    name: str
    is_done: Callable[[], bool]
    ask: Callable[[Node], Sequence[AnyChange]] | None = None
    begin: Callable[[], None] | None = None
    """What happens once, at its beginning."""


class MatrixWorld(World):
    """One kind, one number of copies."""

    def __init__(self, kind: str, copies: int, *, is_verbose: bool = False) -> None:
        super().__init__(matrix(kind, copies), is_verbose=is_verbose)
        self.is_compacted = bool(self.options.keys)
        self.is_archived = self.options.retention_bytes >= 0
        self.is_still = False
        """Publishers are not to write."""
        self.done: list[str] = []
        self._chance = random.Random(f"{kind} {copies}")
        self._steps = self._of_view(copies) if kind == VIEW else self._all(copies)
        self._reader = ViewReader(self) if kind == VIEW else None
        if self._reader is not None:
            self.actors[self._reader.host] = self._reader
        self._step: Step | None = None
        self._asked_at = 0.0
        self._done = lambda: self._step is None and bool(self.done)
        self.later(LOOK_S, self._look)

    @property
    def is_busy(self) -> bool:
        return not (self.is_quiet or self.is_still)

    def waits_for(self) -> str:
        found = f"{self._step.name} is not done" if self._step is not None else ""
        return found or super().waits_for()

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        with patch.object(MergedLog, "detached", _read_at_once):
            super().run()

    def _look(self) -> None:
        if self._step is None or self._step.is_done():
            self._next()
        if self._step is None:
            return
        now = self.loop.time()
        leader = next((each for each in self.nodes if each.is_leader), None)
        if self._step.ask is not None and leader is not None and now >= self._asked_at:
            self._asked_at = now + ASK_AGAIN_S
            node, process = leader.node, leader.process
            if node is not None and process is not None:
                self.loop.call_in(process, 0.0, _change, node, self._step.ask)
        self.later(LOOK_S, self._look)

    def _next(self) -> None:
        if self._step is not None:
            self.done.append(self._step.name)
        self._step, self._asked_at = next(self._steps, None), 0.0
        if self._step is not None:
            self.trace.event("world", f"begins: {self._step.name}")
            if self._step.begin is not None:
                self._step.begin()

    # --- what is known ----------------------------------------------------------------------------

    @property
    def node(self) -> Node | None:
        """Who knows most of group 0."""
        nodes = [each.node for each in self.nodes if each.node is not None and each.is_up]
        return max(nodes, key=lambda node: node.raft.group.applied_index, default=None)

    @property
    def topic(self) -> Topic | None:
        return None if self.node is None else self.node.logs.machine.state.topics.named(NAME[0])

    @property
    def placement(self) -> Placement:
        return Placement() if self.node is None else self.node.cluster.placement

    @property
    def number(self) -> int:
        """Of the partition."""
        topic = self.topic
        return 0 if topic is None else topic.partition_numbers[0]

    @property
    def group(self) -> PlacedGroup | None:
        """The group that has the partition; None: group 0."""
        return self.placement.groups.get(self.placement.group_of(self.number))

    @property
    def members(self) -> Sequence[int]:
        return () if self.group is None else self.group.members

    @property
    def log(self) -> CanonicalLog | None:
        return self.checker.lineage.present(NAME)

    def _is_calm(self) -> bool:
        table = self.placement
        return not (table.tasks or table.moves or table.resetting or table.draining)

    def _has_copies(self, copies: int) -> bool:
        group = self.group
        if group is None or not self._is_calm():
            return False
        return len(group.members) == copies == group.goal and all(
            each.votes and each.is_whole for each in group.replicas
        )

    def _leader(self) -> NodeActor | None:
        """Who leads the partition's group."""
        group = self.group
        for actor in self.nodes:
            node = actor.node
            if node is None or not actor.is_up or group is None:
                continue
            held = node.data_groups.replicas.get(group.number)
            if held is not None and held.raft.is_leader:
                return actor
        return None

    # --- operations -------------------------------------------------------------------------------

    def _all(self, copies: int) -> Iterator[Step]:
        """Every operation, and records behind each."""
        yield Step("create", lambda: self.topic is not None)
        for step in (
            self._copies(copies),
            self._move(copies),
            self._drain(copies),
            self._copies(4 - copies),
            self._copies(copies),
            self._kill_leader(),
            self._restart_all(),
            self._archive(),
            self._reset(),
            self._recover(copies),
            self._move(copies),
        ):
            yield from self._more()
            yield from step
        yield from self._more()

    def _of_view(self, copies: int) -> Iterator[Step]:
        """What applies to a view: it is wherever its topic is."""
        yield Step("create", lambda: self.topic is not None)
        yield from self._copies(copies)
        yield self._view()
        for step in self._kill_leader(), self._restart_all():
            yield from self._more()
            yield from step
        yield from self._more()

    def _view(self) -> Step:
        def is_done() -> bool:
            return self.node is not None and bool(self.node.cluster.views.by_id)

        def ask(node: Node) -> Sequence[AnyChange]:
            if self._reader is not None and self.topic is not None and not is_done():
                node.raft.group.propose([self._reader.command(self.topic.topic_id)])
            return ()

        return Step("view", is_done, ask)

    def _more(self) -> Iterator[Step]:
        """Produce and consume."""
        log = self.log
        first = 0 if log is None else log.next_offset
        yield Step("produce", lambda: self.log is not None and self._is_behind(first))

    def _is_behind(self, first: int) -> bool:
        log = self.log
        end = 0 if log is None else log.next_offset
        copy = None
        if self.subscribers[0].client is not None:
            copy = self.subscribers[0].client.copies.get(NAME)
        is_read = copy is not None and copy.log.next_offset >= first + MORE_RECORDS
        if self._reader is not None and log is not None:
            self._reader.check(log.segments)
            is_read &= self._reader.next_offset >= first + MORE_RECORDS
        return end >= first + MORE_RECORDS and is_read

    def _copies(self, copies: int) -> Iterator[Step]:
        def ask(node: Node) -> Sequence[AnyChange]:
            if self._has_copies(copies) or not self._is_calm():
                return ()
            now_ms = node.member.clock.wall_ms()
            able = self.data_groups.able(node)
            asked = node.cluster, able.__contains__, [self.number], copies, now_ms
            return other_copies(*asked)

        yield Step(f"{copies} copies", lambda: self._has_copies(copies), ask)

    def _move(self, copies: int) -> Iterator[Step]:
        """To a group on other members, of which one has it already."""
        before = METADATA if self.group is None else self.group.number
        others = [each for each in range(NODES) if each not in self.members]
        wanted = tuple([*others, *self.members][:copies])

        def is_there() -> bool:
            group = self.group
            return group is not None and group.number != before and self._is_calm()

        def ask(node: Node) -> Sequence[AnyChange]:
            if is_there() or not self._is_calm():
                return ()
            new = node.cluster.placement.next_group
            made = NewGroup(copies, wanted, wanted[0], is_pinned=True)
            return PlaceGroups(new, (made,)), WantGroup(self.number, new)

        yield Step("move", is_there, ask)

    def _drain(self, copies: int) -> Iterator[Step]:
        member = self.members[0]

        def name(node: Node) -> str:
            return node.placing.look().members[member].name

        def drain(node: Node) -> Sequence[AnyChange]:
            if node.cluster.placement.draining:
                return ()
            return operations.drain(node.placing.look(), node.placing.states(), name(node))

        def undo(node: Node) -> Sequence[AnyChange]:
            if not node.cluster.placement.draining:
                return ()
            return operations.stop_draining(node.placing.look(), name(node))

        def is_drained() -> bool:
            return bool(self.placement.draining) and member not in self.members

        yield Step("drain", is_drained, drain)
        yield from self._more()
        yield Step("drain no more", lambda: self._has_copies(copies), undo)

    def _kill_leader(self) -> Iterator[Step]:
        def kill() -> None:
            leader = self._leader()
            if leader is not None:
                leader.kill()

        yield Step("kill the leader", lambda: self._leader() is not None, begin=kill)

    def _restart_all(self) -> Iterator[Step]:
        def kill() -> None:
            for actor in self.nodes:
                actor.kill(power=True)

        yield Step("restart all", lambda: self._leader() is not None, begin=kill)

    def _archive(self) -> Iterator[Step]:
        """The present group archives records, with copies, and compacts the log."""
        log = self.log
        orders = 0 if log is None else max(log.compacted.orders, default=0)
        before = 0 if log is None else log.archived

        def is_done() -> bool:
            now = self.log
            if now is None:
                return False
            has_compacted = max(now.compacted.orders, default=0) > orders
            is_archived = now.archived > before
            return (has_compacted or not self.is_compacted) and (
                is_archived or not self.is_archived
            )

        yield Step("archive", is_done)

    def _reset(self) -> Iterator[Step]:
        """Hard: the log restarts. Worlds do not know which transactions are gone by it."""
        if self.options.producers:
            return
        topic = self.topic
        before = "" if topic is None else topic.log_id

        def is_done() -> bool:
            now = self.topic
            return now is not None and now.log_id != before and self._is_calm()

        def ask(node: Node) -> Sequence[AnyChange]:
            if node.logs.machine.state.topics.named(NAME[0]) is not None and not is_done():
                term = node.raft.group.raft.term
                node.raft.group.propose([HardReset("matrix", 0, term)])
            return ()

        if self.options.kind == MIRROR:  # what is on its way has offsets of the log before
            yield from self._still()
        yield Step("reset", is_done, ask)
        self.is_still = False

    def _still(self) -> Iterator[Step]:
        """Publishers write nothing from now on, and what they have written is merged."""
        self.is_still = True
        yield Step("all is merged", lambda: not any(map(_waits, self.publishers)))

    def _recover(self, copies: int) -> Iterator[Step]:
        """Let the group continue with one of its replicas while the others are gone. A group of one
        has no other.
        """
        if copies == 1:
            return
        yield from self._still()
        group, (stays, *lost) = self.group, list(self.members)
        gone = [each for each in self.nodes if each.number in lost]

        def lose() -> None:
            for actor in gone:
                actor.stays_away = True
                actor.kill()

        def ask(node: Node) -> Sequence[AnyChange]:
            known = None if group is None else node.cluster.placement.groups.get(group.number)
            if known is None or known.recovered:
                return ()
            table = node.placing.look()
            return operations.recover(table, table.members[stays].name, known.number)

        def is_done() -> bool:
            leader = self._leader()
            return leader is not None and leader.number == stays

        yield Step("recover", is_done, ask, lose)
        self.is_still = False
        for actor in gone:
            actor.come_back()
        yield from self._more()
        yield Step("others have copies", lambda: self._has_copies(copies))


def _read_at_once(log: MergedLog, base: int, byte: int, size: int) -> Callable[[], bytes]:
    """What rows are computed from: simulated files have no descriptors for threads."""
    data = bytes(log.read(base, byte, size))
    return lambda: data


def _waits(publisher: object) -> bool:
    return bool(publisher.waits_for())  # type: ignore[attr-defined]


def _change(node: Node, plan: Callable[[Node], Sequence[AnyChange]]) -> None:
    with suppress(NotLeader, Busy, PlacementRefused):
        changes = list(plan(node))
        if changes:
            node.raft.group.propose([ChangePlacement(-1, changes)])

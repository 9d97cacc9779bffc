"""What the leader does beyond Raft: gather positions, plan merges, close runs, agree on checksums.

Every node has a coordinator that listens; only the leader's acts. All it knows is soft: reports
bound to a node and its boot, repeated on every change, so a new leader knows as much within one
exchange. Decisions from reports are repeated only for what they name.

Invariant: planning happens only between "own no-op applied" and the loss of leadership, and never
needs bytes the leader itself does not hold durably.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from samelog.consensus import Busy, NotLeader
from samelog.format.positions import SessionPosition
from samelog.runtime.clock import Clock
from samelog.runtime.flag import Flag
from samelog.runtime.loop import InLoop
from samelog.sequencer.events import CoordinatorEvents, Ends
from samelog.sequencer.merge.planner import Planner, majority_place
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.closing import RunCloser
from samelog.sequencer.raft.direct import DirectInputs
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.views import NO_FILES, NOWHERE, KeptFiles, NodeView, may_agree, verdict
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import OpenTransaction
from samelog.sequencer.state.tables.partitions import Checkpoint
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.stages import EndStage, PublishStageCommand

CHECKPOINT_INTERVAL_S = 1.0


@dataclass(slots=True)
class _Unsettled:
    """What is to be looked at: inputs that may have something to plan; inputs of which another node
    may hold more than this one; partitions whose cursor may be another one; and those of which a
    node has a checksum that may not be agreed on.
    """

    to_plan: set[int] = field(default_factory=set)
    uneven: set[int] = field(default_factory=set)
    merged: set[int] = field(default_factory=set)
    sampled: set[int] = field(default_factory=set)
    next_checkpoint: float = 0.0


class Coordinator(InLoop):
    """One node's view of the others, and the leader's decisions from it."""

    def __init__(
        self,
        node: int,
        *,
        machine: StateMachine,
        planner: Planner,
        sessions: SessionStore,
        group: RaftGroup,
        clock: Clock,
        is_there: Callable[[int], bool],
        events: CoordinatorEvents,
    ) -> None:
        """`is_there`: whether a node is up, as far as is known here."""
        self._node = node
        self._machine = machine
        self._cluster = planner.cluster
        self._planner = planner
        self._sessions = sessions
        self._group = group
        self._clock = clock
        self._events = events
        self._unsettled = _Unsettled()
        self._scheduled = False
        self.direct = DirectInputs(group.rounds_s)
        self.views: defaultdict[int, NodeView] = defaultdict(NodeView)
        self.closer = RunCloser(
            machine=machine,
            planner=planner,
            sessions=sessions,
            group=group,
            views=self.views,
            clock=clock,
            is_there=is_there,
            events=events,
        )
        self.positions_moved = Flag()
        """Set when a node, perhaps this one, vouches for more; whoever waits for that clears it."""
        self.cursors: dict[int, int] = {}
        """Partition -> offset that a majority has merged-durable, as the leader last said."""

    @property
    def is_busy(self) -> bool:
        """Whether this node leads, and has yet to decide something."""
        known = self._unsettled
        is_open = known.to_plan or known.merged or known.sampled or self.closer.ended
        return self._group.raft.leadership is not None and bool(is_open)

    # --- what nodes say ---------------------------------------------------------------------------

    def positions(self, node: int, boot: int, places: Mapping[int, SessionPosition]) -> None:
        """A node's durable positions; those of an older boot are nothing, of a newer one replace
        all.
        """
        view = self.views[node]
        if boot < view.boot:
            return
        if boot > view.boot:
            self._unsettled.merged.update(view.merged_durable)
            view = self.views[node] = NodeView(boot)
        view.places.update(places)
        if self.closer.checks:
            self.closer.moved(places)
        if self.direct.open or self.closer.answered:
            self._hear(node, places)
        self._unsettled.to_plan.update(places)
        self._unsettled.uneven.update(places)
        self.plan_soon()
        self.positions_moved.set()

    def _hear(self, node: int, places: Mapping[int, SessionPosition]) -> None:
        """A node has said where it is with inputs, and with what it was asked for."""
        self.closer.hear(node)
        if node in self._group.raft.voters:
            inputs, now = self._machine.state.sessions.inputs, self._clock.now()
            for number in places.keys() & inputs.keys():
                self.direct.told(number, places[number], inputs[number].place, now)

    def received(self, number: int) -> bool:
        """This node has more bytes of an input; they need not be durable. Whether it plans them
        soon.
        """
        if number not in self.direct.open or self._group.raft.leadership is None:
            return False
        self._unsettled.to_plan.add(number)
        self.plan_soon()
        return True

    def merged(
        self,
        node: int,
        boot: int,
        durable: Mapping[int, int],
        samples: Mapping[int, dict[int, int]],
    ) -> None:
        """Merged-durable offsets of some partitions of a node, and all samples of each of them."""
        view = self.views[node]
        if boot < view.boot:
            return
        view.merged_durable.update(durable)
        for number in durable.keys() & view.samples.keys() - samples.keys():
            del view.samples[number]
        view.samples.update(samples)
        view.told.update(samples)
        self._unsettled.sampled.update(samples)
        self._unsettled.merged.update(durable)
        self._move_cursors()

    def files(self, node: int, boot: int, kept: Mapping[int, KeptFiles]) -> None:
        """Note which files of partitions a node has, beside their logs."""
        view = self.views[node]
        if boot >= view.boot:
            view.files.update(kept)

    def _move_cursors(self) -> None:
        if not (self._unsettled.merged and self._group.is_leader):
            return
        moved, self._unsettled.merged = self._unsettled.merged, set()
        cursors = self.majority_merged(moved)
        news = {n: offset for n, offset in cursors.items() if self.cursors.get(n) != offset}
        if news:
            self._events.cursors_moved(news)

    def ahead(self, node: int) -> dict[int, SessionPosition]:
        """Where another node holds inputs of which it may have more than this one."""
        places = self.views[node].places
        return {number: places[number] for number in self._unsettled.uneven if number in places}

    def forget_even(self) -> None:
        """Look no more at inputs of which no other node has more than this one, as all say."""
        state, own = self._machine.state, self.views[self._node].places
        views = list(self.views.values())
        self._unsettled.uneven = {
            number
            for number in self._unsettled.uneven
            if (number in state.sessions.inputs or number >= state.sessions.next_input)
            and any(view.places.get(number, NOWHERE) > own.get(number, NOWHERE) for view in views)
        }

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender has finished a run; it can be closed once everything of it is merged."""
        if self.closer.run_ended(session, run_id, ends):
            self.plan_soon()

    def closed_elsewhere(self, session: str, run_id: str, ends: Ends) -> None:
        """A data group has closed its part of a run, here."""
        if self._group.raft.leadership is not None:  # it is told again, to whoever leads then
            self.closer.closed_elsewhere(session, run_id, ends)
            self.plan_soon()

    def leadership_changed(self) -> None:
        """Start from what is committed: speculation of another term is worth nothing."""
        self._planner.reset()
        self.direct.clear()
        self.closer.ask_anew()
        self._unsettled.to_plan.update(self._machine.state.sessions.inputs)
        self._unsettled.merged.update(self._machine.state.partitions.by_number)
        self.plan_soon()

    def close(self) -> None:
        """Drop all speculation; the replica ends."""
        self._planner.reset()

    def logs_begun_anew(self) -> None:
        """A hard reset is applied here."""
        self._planner.begin_anew()
        self._unsettled.to_plan.update(self._machine.state.sessions.inputs)
        self.plan_soon()

    # --- what the leader decides ------------------------------------------------------------------

    def applied(self, index: int, commands: Sequence[AnyCommand], rejected: bool) -> None:
        """An entry is applied here."""
        if rejected and not self._planner.expects_rejection(index):
            self._planner.drain()
            self._unsettled.to_plan.update(self._machine.state.sessions.inputs)
        self._planner.applied(index)
        if (
            self._unsettled.to_plan
            or self.closer.ended
            or self._cluster.state.transactions.deciding
            or self._machine.state.mirrors.owed
        ):
            self.plan_soon()

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""
        self._planner.run_changed(session)
        self.closer.run_changed(session)
        self._unsettled.to_plan.update(
            entry.number for entry in self._machine.state.sessions.inputs_of(session)
        )

    def plan_again(self, partition: int) -> None:
        """What kept a partition from being planned is over."""
        inputs = self._machine.state.sessions.inputs.values()
        self.plan_inputs(each.number for each in inputs if each.partition == partition)

    def plan_inputs(self, numbers: Iterable[int]) -> None:
        """The same of some inputs."""
        self._unsettled.to_plan.update(numbers)
        self.plan_soon()

    def plan_soon(self) -> None:
        """Plan at the end of this turn of the loop, so that what arrives together is planned
        together.
        """
        if self._scheduled or not (
            self._unsettled.to_plan
            or self.closer.ended
            or self._cluster.state.transactions.deciding
            or self._machine.state.mirrors.owed
            or self._planner.forgotten
        ):
            return
        if self._group.raft.leadership is not None:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def abort_forgotten(self, found: Iterable[OpenTransaction]) -> None:
        """Plan the markers that abort transactions which group 0 does not know."""
        self._planner.forgotten.update(found)
        self.plan_soon()

    def tick(self) -> None:
        """Look again at what only time changes."""
        self._compare_samples()
        if self._group.is_leader:
            self._move_cursors()
            self.plan_soon()

    def _turn(self) -> None:
        self._scheduled = False
        if not self._group.is_leader:
            return
        known, flight = self._cluster.state.transactions, self._planner.in_flight
        owed, forgotten = self._machine.state.mirrors.owed, self._planner.forgotten
        while (self._unsettled.to_plan or known.deciding or owed or forgotten) and flight.has_room:
            if not self._plan_once():
                break
        if self.closer.ended:
            self.closer.close()
            if self.closer.goes_on:
                self.plan_soon()

    def _plan_once(self) -> bool:
        available = self._available()
        if not (available or self._planner.owes_markers):
            return False
        merges = self._planner.plan(
            available,
            self._sessions,
            term=self._group.raft.term,
            now_ms=self._clock.wall_ms(),
        )
        if not merges:
            self._unsettled.to_plan.clear()
            return False
        try:
            index = self._group.propose(merges)
        except (NotLeader, Busy):
            self._planner.drain()
            return False
        self._planner.proposed(index, merges)
        if index <= self._group.applied_index:
            self._planner.applied(index)
        inputs = self._machine.state.sessions.inputs
        for number, reach in available.items():
            place = self._planner.place(inputs[number]) if number in inputs else reach
            if number in self.direct.open:
                self.direct.named(number, place, self._clock.now())
            if place >= reach:
                self._unsettled.to_plan.discard(number)
        return True

    def _available(self) -> dict[int, SessionPosition]:
        """What may be planned of the candidate inputs: what a majority and this node hold, or all
        that this node has received.
        """
        available: dict[int, SessionPosition] = {}
        own = self.views[self._node].places
        views = self._voting_views()
        is_direct = len(views) > 1 and self._plans_directly
        for number in self._unsettled.to_plan:
            entry = self._machine.state.sessions.inputs.get(number)
            reach = None if entry is None else self._reach(entry, own, views)
            if entry is not None and is_direct:
                reach = self._direct_reach(entry, reach)
            if reach is not None:
                available[number] = reach
        self._unsettled.to_plan.intersection_update(available)
        return available

    @property
    def _plans_directly(self) -> bool:
        """Whether all members take entries with their bytes only."""
        return self._group.entry_bytes.sync_always

    def _direct_reach(
        self, entry: Input, reported: SessionPosition | None
    ) -> SessionPosition | None:
        """What is received of an input counts where a majority has shown that it receives it."""
        if reported is not None and reported > self._planner.place(entry):
            self.direct.shown(entry.number, self._clock.now())
        return self._sessions.written(entry) if entry.number in self.direct.open else reported

    def _reach(
        self, entry: Input, own: Mapping[int, SessionPosition], views: Sequence[NodeView]
    ) -> SessionPosition | None:
        """What a majority and this node hold of an input."""
        here = own.get(entry.number)
        if here is None:
            return None
        places = [view.places[entry.number] for view in views if entry.number in view.places]
        agreed = majority_place(places, len(views))
        return None if agreed is None else min(agreed, here)

    # --- stages -----------------------------------------------------------------------------------

    def holds(self, entry: Input, end: SessionPosition) -> bool:
        """Whether a majority and this node hold an input up to `end`."""
        reach = self._reach(entry, self.views[self._node].places, self._voting_views())
        return reach is not None and reach >= end

    def propose_stage(
        self,
        ranges: Mapping[int, Sequence[Range]],
        make: Callable[[list[Merge]], PublishStageCommand | EndStage],
    ) -> asyncio.Future[list[Any]]:
        """Plan these ranges, by partition; propose them as one entry. Raises NotLeader, Busy."""
        if self._planner.in_flight.is_draining:
            raise Busy("what was planned before a rejected instruction is not committed yet")
        now_ms = self._clock.wall_ms()
        merges = self._planner.plan_stage(ranges.items(), term=self._group.raft.term, now_ms=now_ms)
        try:
            index, future = self._group.ask([make(merges)])
        except (NotLeader, Busy):
            self._planner.drain()
            raise
        self._planner.proposed(index, merges)
        if index <= self._group.applied_index:
            self._planner.applied(index)
        return future

    def _voting_views(self) -> list[NodeView]:
        """What counts toward a majority: the views of those who vote now."""
        return list(map(self.views.__getitem__, self._group.raft.voters))

    def members_changed(self, members: Container[int]) -> None:
        """What nodes that are gone once said of themselves is nothing any more, and a majority may
        be another one.
        """
        self._unsettled.merged.update(self._machine.state.partitions.by_number)
        self._unsettled.to_plan.update(self._machine.state.sessions.inputs)
        for number in [number for number in self.views if number not in members]:
            if number != self._node:
                del self.views[number]
        self.plan_soon()

    # --- cursors and checksums --------------------------------------------------------------------

    def damaged_inputs(self) -> dict[int, str]:
        """Inputs that cannot be planned from this node's bytes, and why."""
        return dict(self._planner.damaged)

    def majority_merged(self, partitions: Iterable[int]) -> dict[int, int]:
        """Partition -> offset that a majority has merged-durable, of those that are not gone."""
        known, views = self._machine.state.partitions.by_number, self._voting_views()
        needed = len(views) // 2 + 1
        cursors: dict[int, int] = {}
        for number in partitions:
            if number not in known:
                continue
            ranked = sorted((view.merged_durable.get(number, 0) for view in views), reverse=True)
            cursors[number] = ranked[needed - 1] if views else 0
        return cursors

    def majority_indexed(self, partition: int) -> int:
        """The offset below which a majority has the keys of a partition on the disk."""
        views = self._voting_views()
        ends = sorted((view.files.get(partition, NO_FILES).indexed for view in views), reverse=True)
        return ends[len(views) // 2] if views else 0

    def _compare_samples(self) -> None:
        """Record the checksums that a majority reports alike, if this node leads. Where none can,
        whichever node is the first to lead on would serve what another denies: all halt.
        """
        if (
            not self._unsettled.sampled
            or (now := self._clock.now()) < self._unsettled.next_checkpoint
        ):
            return
        self._unsettled.next_checkpoint = now + CHECKPOINT_INTERVAL_S
        voters, agreed = self._voting_views(), []
        for number in tuple(self._unsettled.sampled):
            votes = self._sample_votes(number, voters)
            best, split = verdict(votes, len(voters))
            if best is not None:
                agreed.append((number, *best))
            elif split is not None:
                self._events.checksums_differ(number, split)
            if split is not None or not may_agree(number, votes, voters):
                self._unsettled.sampled.discard(number)
        if agreed and self._group.is_leader:
            with suppress(NotLeader, Busy):
                self._group.propose([Checkpoint(agreed)])

    def _sample_votes(self, number: int, views: Sequence[NodeView]) -> Counter[tuple[int, int]]:
        """How many report each (offset, checksum) of a partition that is not recorded yet."""
        state = self._machine.state
        if not state.has_here(number):
            return Counter()
        known = state.partitions.by_number[number]
        return Counter(
            (offset, checksum)
            for view in views
            for offset, checksum in view.samples.get(number, {}).items()
            if offset > known.checked_offset
        )

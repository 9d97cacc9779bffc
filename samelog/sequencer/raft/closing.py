"""Which runs are over: everything of them is merged, and no node that can be reached holds more.

A run may have bytes in data groups, too. Each of these ends its part by itself, and group 0 closes
the run once all have. It waits only for a moment for a group whose end of the run the sender named:
that part is yet to come then, and the group takes it before anything of a newer run
(docs/groups.md).

A run may have thousands of inputs: a turn of the event loop checks a bounded number of them, and
the next one continues there.

Invariant: what a run's sender named in this group, or a reachable node holds, is merged before the
run is closed in this group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from samelog.consensus import Busy, NotLeader
from samelog.format.positions import SessionPosition
from samelog.runtime.clock import Clock
from samelog.sequencer.events import CoordinatorEvents, Ends
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.views import NodeView
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import CloseRun, Input, Run, Session

HELD_UP_S = 10.0
"""A data group that is well closes its part of a run in a second or two."""
AWAITED_S = 3.0
"""So long group 0 waits for the groups whose ends of a run the sender has named."""
UNKNOWN = (0, 0)
"""The end of a run in a partition of a data group that only the group knows."""
CHECKED = 200
"""Ends and inputs of an ended run that are checked in one turn of the loop."""


@dataclass(slots=True)
class _Check:
    """How far the check is whether everything of an ended run is merged."""

    ends: Ends
    named: list[tuple[str, int]]
    """Partitions of which the sender named an end, and that are not known to be opened."""
    inputs: list[int]
    place: int = 0
    """The next one of `inputs`."""
    passed: int = 0
    """Inputs before it, in a row, that are merged up to what is known of them."""
    to_come: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partitions for whose groups group 0 waits no more, and where the sender says that the run
    ends there.
    """
    there: frozenset[int] = field(default_factory=frozenset)
    """The nodes whose positions count."""


class RunCloser:
    """Runs that senders have finished, and what is still missing of each."""

    def __init__(
        self,
        *,
        machine: StateMachine,
        planner: Planner,
        sessions: SessionStore,
        group: RaftGroup,
        views: Mapping[int, NodeView],
        clock: Clock,
        is_there: Callable[[int], bool],
        events: CoordinatorEvents,
    ) -> None:
        """`is_there`: whether a node is up, as far as is known here."""
        self._machine = machine
        self._planner = planner
        self._sessions = sessions
        self._group = group
        self._views = views
        self._clock = clock
        self._is_there = is_there
        self._events = events
        self.ended: dict[str, tuple[str, Ends]] = {}
        """Session -> (run id, ends) of runs that a sender has finished and that are not closed yet.
        """
        self.answered: dict[str, set[int]] = {}
        """Session -> the nodes that have spoken since they were asked how much of its run, which
        has ended, they hold.
        """
        self.checks: dict[str, _Check] = {}
        """By session, of those in `ended`."""
        self.goes_on = False
        """Whether a check has more to look at in the next turn of the loop."""
        self._since: dict[str, tuple[str, float]] = {}
        """Session -> (run id, since when it is known to have ended), of those in `ended`."""
        self._elsewhere: dict[str, tuple[str, dict[int, tuple[int, int]]]] = {}
        """Session -> (run id, partition -> where data groups have closed their parts of it)."""

    # --- what it is told --------------------------------------------------------------------------

    def run_ended(self, session: str, run_id: str, ends: Ends) -> bool:
        """A sender has finished a run. Whether that may have to be closed."""
        run = self._machine.state.sessions.run_of(session, run_id)
        if run is None or run.closed:
            self._forget(session)
            return False
        if self.ended.get(session) != (run_id, ends):  # repeated each second
            self.ended[session] = (run_id, ends)
        if self._since.get(session, ("", 0.0))[0] != run_id:
            self._since[session] = run_id, self._clock.now()
        return True

    def _forget(self, session: str) -> None:
        self.ended.pop(session, None)
        self.checks.pop(session, None)
        self._since.pop(session, None)

    def closed_elsewhere(self, session: str, run_id: str, ends: Ends) -> None:
        """A data group has closed its part of a run at these ends; told until group 0 knows."""
        told = {n: end for name, end in ends.items() if (n := self._number_of(*name)) is not None}
        run = self._machine.state.sessions.run_of(session, run_id)
        if run is not None and run.closed:
            settled = [(n, *told[n]) for n in self._to_come(run) if n in told]
            if settled:
                self._is_proposed(CloseRun(session, run_id, self._clock.wall_ms(), settled))
            return
        known = self._elsewhere.get(session)
        found = known[1] if known is not None and known[0] == run_id else {}
        self._elsewhere[session] = run_id, found | told

    def _number_of(self, name: str, index: int) -> int | None:
        """The number of a partition, if there is one."""
        topic = self._machine.state.topics.named(name)
        partition = topic and self._machine.state.partition_of(topic.topic_id, index)
        return partition.number if partition else None

    def _to_come(self, run: Run) -> set[int]:
        """The partitions in which parts of a closed run are yet to come."""
        inputs = self._machine.state.sessions.inputs
        return {inputs[number].partition for number in run.to_come}

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""
        known = self.ended.get(session)
        run = None if known is None else self._machine.state.sessions.run_of(session, known[0])
        if run is not None and run.closed:
            self._forget(session)

    def moved(self, numbers: Iterable[int]) -> None:
        """A node has told positions of inputs: checks of their sessions begin again."""
        inputs = self._machine.state.sessions.inputs
        for number in numbers:
            entry = inputs.get(number)
            check = None if entry is None else self.checks.get(entry.session)
            if check is not None:
                check.passed = 0

    def hear(self, node: int) -> None:
        """A node has said how much it holds of what it was asked for."""
        for answered in self.answered.values():
            answered.add(node)

    def ask_anew(self) -> None:
        """What was answered to another leader counts for nothing; what data groups have closed they
        say again.
        """
        self.answered.clear()
        self._elsewhere.clear()
        self.checks.clear()

    # --- what it tells ----------------------------------------------------------------------------

    @property
    def held_up(self) -> dict[int, list[str]]:
        """Data group -> sessions whose ended run it has not closed its part of for long: what is
        newer of them waits, in that group or, if their ends are not known, everywhere. As the
        leader of group 0 knows.
        """
        placement, found = self._machine.state.placement, dict[int, list[str]]()
        for name, numbers in sorted(self._awaited().items()):
            for group in {placement.group_of(n) for n in numbers if n in placement.partitions}:
                found.setdefault(group, []).append(name)
        return found

    def _awaited(self) -> dict[str, set[int]]:
        """Session -> the partitions in which an ended run has not been closed for long."""
        sessions, now, found = self._machine.state.sessions, self._clock.now(), {}
        for name, (run_id, since) in self._since.items():
            run = sessions.open_run_of(name)
            if now - since >= HELD_UP_S and run is not None and run.run_id == run_id:
                numbers = {each.partition for each in sessions.inputs_of(name)}
                found[name] = numbers - self._ends_elsewhere(name, run_id).keys()
        for name in sessions.index.parted:
            parts = map(self._to_come, sessions.by_name[name].runs)
            found[name] = found.get(name, set()).union(*parts)
        return found

    # --- what it proposes -------------------------------------------------------------------------

    def close(self) -> None:
        """Propose to close what can be closed."""
        self.goes_on = False
        if not self._is_current():
            return
        for name, (run_id, ends) in list(self.ended.items()):
            session = self._machine.state.sessions.by_name.get(name)
            run = self._machine.state.sessions.open_run_of(name)
            if session is None or run is None or run.run_id != run_id:
                continue
            if not self._wholly_merged(session, ends) or not self._all_answered(name):
                continue
            if self._is_proposed(self._closing(name, run_id)):
                self._planner.closing(name)
                self._forget(name)
                self._elsewhere.pop(name, None)
                self.answered.pop(name, None)

    def _is_current(self) -> bool:
        """Whether this node has applied all that is committed. Before, a topic that a sender named
        and that this node does not know may be a new one as well as a deleted one.
        """
        return self._group.applied_index >= self._group.raft.commit

    def _is_proposed(self, command: AnyCommand) -> bool:
        try:
            self._group.propose([command])
        except (NotLeader, Busy):
            return False
        return True

    def _closing(self, name: str, run_id: str) -> CloseRun:
        ends, check = self._ends_elsewhere(name, run_id), self.checks.get(name)
        later = {} if check is None else check.to_come
        to_come = [number for number in later if number not in ends]
        told = [(number, *end) for number, end in ends.items()]
        told += [(number, *later[number]) for number in to_come]
        return CloseRun(name, run_id, self._clock.wall_ms(), told, to_come)

    def _ends_elsewhere(self, name: str, run_id: str) -> dict[int, tuple[int, int]]:
        known = self._elsewhere.get(name)
        return known[1] if known is not None and known[0] == run_id else {}

    def _all_answered(self, name: str) -> bool:
        """Whether all others that can be reached have said how much of an ended run they hold. Who
        has not is asked: reports of what the leader plans directly come late.
        """
        answered = self.answered.setdefault(name, set())
        peers = self._group.raft.peers
        silent = [node for node in peers if node not in answered and self._is_there(node)]
        if silent:
            self._events.ends_wanted(name, *self.ended[name], silent)
        return not silent

    def _wholly_merged(self, session: Session, ends: Ends) -> bool:
        """Whether every byte of the open run that a reachable node holds, or the sender named, is
        merged. What the sender named may have no input yet. False, too, while the check has to
        continue in the next turn.
        """
        check = self._check_of(session.name, ends)
        if not (self._passes_named(session, check) and self._passes_inputs(session, check)):
            return False
        is_whole = not check.named and check.passed >= len(check.inputs)
        if is_whole:
            check.passed = 0  # a later call checks all again
        if is_whole and self._machine.index.inputs_of(session.name) != check.inputs:
            del self.checks[session.name]  # some were opened meanwhile
            is_whole = False
        self.goes_on |= not is_whole
        return is_whole

    def _check_of(self, session: str, ends: Ends) -> _Check:
        """The check that is under way, or a new one."""
        check = self.checks.get(session)
        if check is None or check.ends is not ends:
            named = [name for name, end in ends.items() if end != (0, 0)]
            check = _Check(ends, named, self._machine.index.inputs_of(session))
            self.checks[session] = check
        there = frozenset(filter(self._is_there, self._views))
        if check.there != there:
            check.there, check.passed = there, 0
        return check

    def _passes_named(self, session: Session, check: _Check) -> bool:
        """Continue with what the sender named, until a partition that it has yet to open."""
        for _ in range(min(CHECKED, len(check.named))):
            if self._is_unopened(session, *check.named[-1]):
                return False
            check.named.pop()
        return True

    def _passes_inputs(self, session: Session, check: _Check) -> bool:
        """Continue with the inputs, until one that is not merged."""
        for _ in range(min(CHECKED, len(check.inputs) - check.passed)):
            if not self._is_merged(session, check.inputs[check.place], check.ends):
                check.passed = 0
                return False
            check.place = (check.place + 1) % len(check.inputs)
            check.passed += 1
        return True

    def _is_merged(self, session: Session, number: int, ends: Ends) -> bool:
        """Whether every byte of an input of the open run is merged, as `_wholly_merged`."""
        entry = self._machine.state.sessions.inputs.get(number)
        if entry is None:  # its topic was deleted
            return True
        if entry.partition in self._machine.state.placement.partitions:
            run = session.runs[-1]
            if entry.partition in self._ends_elsewhere(session.name, run.run_id):
                return True
            end = self._end_of(entry, ends)
            if not self._may_come_later(run, session.name, end):
                return False
            if end is not None:
                self.checks[session.name].to_come[entry.partition] = end
            return True
        if self._planner.place(entry) != entry.place:
            return False
        return all(self._reached(entry, end) for end in self._known_ends(entry, ends))

    def _is_unopened(self, session: Session, name: str, index: int) -> bool:
        """Whether the sender named bytes of a partition that it has yet to open."""
        number = self._number_of(name, index)
        if number is None:
            return False
        return self._machine.state.sessions.input_of(session.name, number) is None

    def _may_come_later(self, run: Run, session: str, end: tuple[int, int] | None) -> bool:
        """Whether group 0 waits no more for the part of a run that a data group has. The sender
        named where it ends, or nothing: then it has nothing there. A batch that is staged is
        published as the groups have it.
        """
        is_awaited = self._clock.now() < self._since[session][1] + AWAITED_S
        return run.stage is None and end != UNKNOWN and not is_awaited

    def _end_of(self, entry: Input, ends: Ends) -> tuple[int, int] | None:
        """Where the sender says that an input ends."""
        partition = self._machine.state.partitions.by_number[entry.partition]
        topic = self._machine.state.topics.by_id[partition.topic_id]
        return ends.get((topic.name, partition.index))

    def _known_ends(self, entry: Input, ends: Ends) -> list[SessionPosition]:
        known = [
            view.places[entry.number]
            for node, view in self._views.items()
            if self._is_there(node) and entry.number in view.places
        ]
        said = self._end_of(entry, ends)
        return known if said is None else [*known, SessionPosition(entry.run, *said)]

    def _reached(self, entry: Input, end: SessionPosition) -> bool:
        """Whether the merged place is at or behind `end`; a sealed file's end equals the next one's
        start.
        """
        place = entry.place
        while place < end and place.run == end.run and place.roll < end.roll:
            if self._sessions.sealed_length(entry.number, place) != place.byte:
                return False
            place = SessionPosition(place.run, place.roll + 1, 0)
        return end <= place

"""The ends of publishers' runs that have bytes in data groups.

A data group closes its part of a run by itself, where that is merged. Its leader says so until
group 0 knows. Group 0 waits a moment for every group in which the session ever wrote: one that has
nothing of a run begins it when it has ended, so that it can say where its part ends, and so that
nothing of it can come later. Without a group's word, group 0 closes the run where its sender said
that it ends there, and the part is *yet to come*: the group takes it, up to that end, before
anything of a newer run. A run that group 0 has closed otherwise ends where the group has merged it.

Invariant: a data group is told that a run has ended only once all bytes that its sender named have
a place in the group, or because a newer run is to begin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from operator import is_

from samelog.consensus import Busy, NotLeader
from samelog.format.steps import StepWork
from samelog.placement.values import PartitionPass
from samelog.sequencer.events import Ends
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenPlacedInput,
    Run,
    Session,
)
from samelog.sequencer.state.types import State
from samelog.wire.bounds import ENDS_TOLD, RunEnd
from samelog.wire.peer_messages import PartOfRunClosed

ALL_S = 60.0
"""After this time, the leader checks all sessions again."""


def end_run(
    replica: GroupReplica, cluster: StateMachine, session: str, run_id: str, ends: Ends
) -> StepWork[None]:
    """A sender has finished a run: close this group's part of it once that is merged. `cluster`:
    this member's copy of group 0. A step checks one end.
    """
    machine, group, own = replica.logs.machine, replica.seat.group, Ends()
    is_unused, lacks = True, False
    for name, end in ends.items():
        if _is_here(machine, *name) or _is_in(cluster.state, group, *name):
            own[name] = end
            if end != (0, 0):
                is_unused, lacks = False, lacks or _lacks(machine, session, *name)
        yield
    run = machine.state.sessions.open_run_of(session)
    if run is None:
        if is_unused:
            begin_unused(replica, cluster, session, run_id)
    elif run.run_id == run_id and not lacks:
        replica.raft.coordinator.run_ended(session, run_id, own)


def begin_unused(replica: GroupReplica, cluster: StateMachine, session: str, run_id: str) -> None:
    """Begin an ended run of which the group has nothing: the group reports its end like any
    other.
    """
    machine, known = replica.logs.machine, cluster.state.sessions.by_name.get(session)
    run = _awaited(known)
    if known is None or run is None or run.run_id != run_id:
        return
    noted = next(_noted(machine.state, cluster, session), None)
    if noted is not None and machine.state.sessions.run_of(session, run_id) is None:
        partition = machine.state.partitions.by_number[noted]
        with suppress(NotLeader, Busy):
            place = partition.topic_id, partition.index
            after = comes_first(cluster.state, known, run, replica.seat.group)
            replica.raft.group.propose([opening_of(known, run, *place, after=after)])


def _awaited(session: Session | None) -> Run | None:
    """The run of which group 0 is to hear from all groups. What is staged ends otherwise."""
    run = session.runs[-1] if session is not None and session.runs else None
    return None if run is None or run.closed or run.stage is not None else run


def comes_first(cluster: State, session: Session, run: Run, group: int) -> int:
    """The newest older run of which a part is yet to come to a data group; -1: there is none."""
    for older in reversed(session.runs):
        if older.number < run.number and older.to_come:
            parts = _partitions(cluster, older)
            if any(_is_for(cluster, group, number) for number in parts):
                return older.number
    return -1


def _partitions(cluster: State, run: Run) -> list[int]:
    """Those in which parts of a run are yet to come."""
    return [cluster.sessions.inputs[number].partition for number in run.to_come]


def _is_for(cluster: State, group: int, partition: int) -> bool:
    """Whether a partition is in a group, by the table, or on its way to it."""
    table = cluster.placement
    return table.group_of(partition) == group or any(
        (task.partition, task.target) == (partition, group) for task in table.tasks.values()
    )


def parts_to_come(cluster: State, partition: int) -> bool:
    """Whether parts of runs are yet to come to a partition: it stays in its group until then."""
    sessions = cluster.sessions
    return any(
        partition in _partitions(cluster, run)
        for name in sessions.index.parted
        for run in sessions.by_name[name].runs
    )


def come_in_between(cluster: State, group: int, partition: int) -> bool:
    """Whether a group has yet to get parts of runs of sessions that write to a partition: newer
    runs of these, which would come with it, have to wait.
    """
    sessions = cluster.sessions
    return any(
        _is_for(cluster, group, number)
        for name in sessions.index.parted
        if sessions.input_of(name, partition) is not None
        for run in sessions.by_name[name].runs
        for number in _partitions(cluster, run)
        if number != partition
    )


def named_ends(cluster: State, session: str, run_id: str) -> Ends:
    """Where a run that group 0 has closed ends in the partitions in which it is yet to come."""
    run, found = cluster.sessions.run_of(session, run_id), Ends()
    ends = {} if run is None else {number: (roll, byte) for number, roll, byte in run.ends}
    for number in () if run is None else run.to_come:
        partition = cluster.partitions.by_number[cluster.sessions.inputs[number].partition]
        found[cluster.topics.by_id[partition.topic_id].name, partition.index] = ends[number]
    return found


def opening_of(
    session: Session, run: Run, topic_id: str, index: int, *, after: int = -1
) -> OpenPlacedInput:
    """What begins a run of group 0 in a data group, with an input in one of its partitions.
    `after`: as `comes_first` says.
    """
    return OpenPlacedInput(
        session.name,
        session.session_id,
        session.identity,
        run.number,
        run.asked,
        run.run_id,
        run.dedup_id,
        run.dedup_base,
        run.stage,
        topic_id,
        index,
        after,
    )


def groups_of(cluster: StateMachine, session: str) -> set[int]:
    """The data groups that group 0 waits for, of a session."""
    known = cluster.state.placement
    if not known.partitions or _awaited(cluster.state.sessions.by_name.get(session)) is None:
        return set()
    placed, numbers = known.partitions, cluster.index.places_of(session)
    return {placed[number].group for number in numbers if number in placed}


def _noted(
    state: State, cluster: StateMachine, session: str, but: Container[int] = ()
) -> Iterator[int]:
    """The group's partitions in which group 0 says that the session wrote, in this run or another.
    `but`: those that are left out.
    """
    known, is_on_its_way = state.partitions.by_number, state.transfers.is_on_its_way
    noted = [each for each in cluster.index.places_of(session) if each in known]
    return (each for each in noted if each in known and each not in but and not is_on_its_way(each))


def _is_here(machine: StateMachine, name: str, index: int) -> bool:
    topic = machine.state.topics.named(name)
    return topic is not None and machine.state.partition_of(topic.topic_id, index) is not None


def _is_in(cluster: State, group: int, name: str, index: int) -> bool:
    """Whether a group has a partition, by the table."""
    topic = cluster.topics.by_id.get(cluster.topics.by_name.get(name, ""))
    if topic is None or not 0 <= index < topic.partitions:
        return False
    return cluster.placement.group_of(topic.partition_numbers[index]) == group


def _lacks(machine: StateMachine, session: str, name: str, index: int) -> bool:
    """Whether a session's bytes of a partition have no place here yet."""
    topic = machine.state.topics.named(name)
    partition = None if topic is None else machine.state.partition_of(topic.topic_id, index)
    return partition is None or machine.state.sessions.input_of(session, partition.number) is None


def give_up_held(replica: GroupReplica, session: str, run_id: str) -> bool:
    """Close a held run that will never be published; whether it is such a run."""
    run = replica.logs.machine.state.sessions.run_of(session, run_id)
    if run is None or not run.is_held:
        return False
    with suppress(NotLeader, Busy):
        replica.raft.group.propose(
            [CloseRun(session, run_id, replica.raft.proposer.clock.wall_ms())]
        )
    return True


async def give_up_forgotten(
    replica: GroupReplica,
    cluster: StateMachine,
    found: Mapping[str, str],
    catch_up: Callable[[], Awaitable[None]],
) -> None:
    """Close held runs whose sessions group 0 does not know, once this member's copy of it,
    `cluster`, is current: until then the sessions may be new (rule sessions.58). `found`: session
    -> run id.
    """
    with suppress(TimeoutError):  # the leader finds them again
        await catch_up()
        for session, run_id in overtaken(replica.logs.machine.state, cluster.state, found):
            if run_id == found[session]:
                give_up_held(replica, session, run_id)


class UnsettledRuns:
    """What one data group and group 0 have to tell each other of runs: looked for among sessions of
    which something has changed in either, since nothing was found of them.
    """

    def __init__(self, state: Callable[[], State], cluster: StateMachine) -> None:
        """`state`: of the data group; `cluster`: of group 0; both as this member has them."""
        self._state = state
        self._cluster = cluster
        self._seen: tuple[State, State, PartitionPass | None] | None = None
        """Others take their places with a snapshot, or with a partition that comes with its runs:
        then anything may have changed.
        """
        self._sessions: set[str] = set()
        self._all_at = float("-inf")

    def note(self, session: str) -> None:
        """A run of the session was opened or closed, here or in group 0."""
        self._sessions.add(session)

    def owed(self, now: float) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """See `closed` and `overtaken`."""
        state, cluster = self._state(), self._cluster
        seen = state, cluster.state, state.transfers.passing
        is_seen = self._seen is not None and all(map(is_, seen, self._seen))
        if not is_seen or now >= self._all_at + ALL_S:
            self._seen, self._all_at, self._sessions = seen, now, set(state.sessions.by_name)
        names = sorted(self._sessions)
        told = [*closed(state, cluster.state, names)]
        over = [*overtaken(state, cluster.state, names)]
        self._sessions = {session for session, _ in (*told, *over)}
        return told, over


def closed(state: State, cluster: State, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(session, run id) of what is closed in a data group, and open in group 0 or yet to come, as
    group 0 knows.
    """
    for session, newest in _newest(state, sessions):
        known = cluster.sessions.by_name.get(session.name)
        for run in () if known is None else known.runs:
            if run.to_come or not run.closed:
                own: Run | None = newest
                if newest.run_id != run.run_id:
                    own = state.sessions.run_of(session.name, run.run_id)
                if own is not None and own.closed and _awaits(state, cluster, run):
                    yield session.name, run.run_id


def _awaits(state: State, cluster: State, run: Run) -> bool:
    """Whether group 0 waits to hear where a data group has ended a run."""
    own = state.partitions.by_number
    return not run.closed or any(number in own for number in _partitions(cluster, run))


def closed_parts(
    machine: StateMachine, cluster: StateMachine, session: str, run_id: str
) -> Iterator[PartOfRunClosed]:
    """The messages to group 0 about a run that a data group has closed, of `ENDS_TOLD` ends."""
    run = machine.state.sessions.run_of(session, run_id)
    if run is not None:
        ends = chain(_ends(machine.state, run), _unused(machine.state, cluster, session, run))
        yield PartOfRunClosed(session, run_id, tuple(islice(ends, ENDS_TOLD)))
        while part := tuple(islice(ends, ENDS_TOLD)):
            yield PartOfRunClosed(session, run_id, part)


def overtaken(state: State, cluster: State, sessions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(session, run id) of what is open in a data group, and in group 0 no more; also of held runs
    that group 0 does not know: it forgets them soon after their end. A held run of a unit that
    group 0 has yet to end is left to that unit, which a recovered group pins again.
    """
    stages = cluster.stages
    for session, run in _newest(state, sessions):
        is_over = not run.closed and _is_over(cluster.sessions.by_name.get(session.name), run)
        if is_over and not (run.is_held and stages.has_in_a_unit(session.name)):
            yield session.name, run.run_id


def _is_over(known: Session | None, run: Run) -> bool:
    """Whether a run is closed in group 0, or held and its session not known there."""
    if known is None:
        return run.is_held
    newest = known.runs[-1] if known.runs else None
    if newest is None or newest.number < run.number:
        return newest is None
    return newest.closed or newest.run_id != run.run_id


def _newest(state: State, sessions: Iterable[str]) -> Iterator[tuple[Session, Run]]:
    """Of publishers: nodes end their own in each group."""
    for session in filter(None, map(state.sessions.by_name.get, sessions)):
        if session.runs and node_of(session.name) is None:
            yield session, session.runs[-1]


def _ends(state: State, run: Run) -> Iterator[RunEnd]:
    for number, roll, byte in run.ends:
        entry = state.sessions.inputs.get(number)
        if entry is not None:
            yield _end(state, entry.partition, roll, byte)


def _unused(state: State, cluster: StateMachine, session: str, run: Run) -> Iterator[RunEnd]:
    """Where a closed run ends that has no input: group 0 noted one, and nothing came of it."""
    ended = {
        state.sessions.inputs[number].partition
        for number, *_ in run.ends
        if number in state.sessions.inputs
    }
    for partition in _noted(state, cluster, session, but=ended):
        yield _end(state, partition, 0, 0)


def _end(state: State, number: int, roll: int, byte: int) -> RunEnd:
    partition = state.partitions.by_number[number]
    return RunEnd(state.topics.by_id[partition.topic_id].name, partition.index, roll, byte)

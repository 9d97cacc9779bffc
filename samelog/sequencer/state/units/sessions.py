"""Commands about sessions that touch other tables too: runs, and inputs of partitions.

Invariant: of a session at most one run is open in a group; one that was closed there never opens
again, and none begins before an older one that has a part which is yet to come to the group. A run
of which something is pinned is not closed before that is carried out.
"""

from __future__ import annotations

from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    Input,
    OpenInputCommand,
    OpenPlacedInput,
    RetireSessionCommand,
    Run,
    Session,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import why_no_mirror_input
from samelog.sequencer.state.units.topics import on_its_way


def open_placed_input(state: State, command: OpenPlacedInput) -> Input | Rejection:
    """In a data group: open an input, with the run that it is in."""
    if state.sessions.run_of(command.session, command.run_id) is None:
        problem = _problem_with_input(state, command, command.stage)
        if problem is not None:
            return Rejection(*problem)
        begun = state.sessions.begin_run(command)
        if isinstance(begun, Rejection):
            return begun
    opening = OpenInputCommand(command.session, command.topic_id, command.partition)
    return open_input(state, opening)


def open_input(state: State, command: OpenInputCommand) -> Input | Rejection:
    """Give a session's part of a partition its number, unless it has one."""
    run = state.sessions.open_run_of(command.session)
    problem = _problem_with_input(state, command, None if run is None else run.stage)
    if problem is not None:
        return Rejection(*problem)
    if run is None:
        return Rejection("RUN_CLOSED", f"session {command.session!r} has no open run")
    partition = state.topics.by_id[command.topic_id].partition_numbers[command.partition]
    known = state.sessions.input_of(command.session, partition)
    return known or state.sessions.open_input(command.session, partition, run.number)


def _problem_with_input(
    state: State, command: OpenInputCommand | OpenPlacedInput, stage: str | None
) -> WhyNot:
    """Why a session cannot write to a partition in a run that is for `stage`."""
    partition = state.partition_of(command.topic_id, command.partition)
    if partition is None:
        return "UNKNOWN_TOPIC", f"no partition {command.partition} of {command.topic_id}"
    return _why_no_input(state, command.session, partition, stage)


def _why_no_input(state: State, session: str, partition: Partition, stage: str | None) -> WhyNot:
    if stage is not None and partition.number in state.keys.by_partition:
        return "KEYED", "a topic whose keys count once takes nothing staged"
    problem = on_its_way(state, partition.number)
    return problem or why_no_mirror_input(state, session, partition)


def close_run(state: State, command: CloseRun) -> Run | Rejection:
    """End a run where it is merged, and where data groups end their parts of it; if it has ended,
    note where they have ended parts that were yet to come.
    """
    run = state.sessions.run_of(command.session, command.run_id)
    if run is None:
        return Rejection("UNKNOWN_RUN", f"{command.session!r} has no run {command.run_id}")
    if not run.closed and state.stages.is_pinned(command.session):
        return Rejection("PINNED", f"run {command.run_id} is being published")
    if run.closed:
        state.sessions.settle_parts(command, run)
    else:
        state.sessions.close_run(command, run)
    return run


def retire_session(state: State, command: RetireSessionCommand) -> Session | Rejection:
    """Fence a session's directory."""
    session = state.sessions.by_name.get(command.session)
    if session is None:
        return Rejection("UNKNOWN_SESSION", f"no session {command.session!r}")
    if command.session_id not in ("", session.session_id):
        return session  # retired before, and taken over by another directory meanwhile
    run = state.sessions.open_run_of(command.session)
    if run is not None:
        closed = close_run(state, CloseRun(command.session, run.run_id, command.at_ms))
        if isinstance(closed, Rejection):
            return closed
    session.retire()
    return session


def expire(state: State, command: Expire) -> list[Input]:
    """Forget what an Expire command names. Return the inputs that are gone."""
    seen_ms = state.producers.seen_ms
    idle = [producer for producer, at_ms in command.producers if seen_ms.get(producer) == at_ms]
    for table in state.partition_tables.values():
        table.expire(idle)
    gone = []
    for name, idle_since_ms in command.sessions:
        gone += state.sessions.forget_runs(name, idle_since_ms)
    return gone

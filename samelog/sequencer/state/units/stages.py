"""Commands about staged batches: published in one group; or begun and decided in group 0, pinned
and carried out in each group that takes part.

Invariant: what is refused changed nothing. The instructions of a batch are applied all or none,
once; what was staged for a batch that is published already never is. A group carries out exactly
what it has pinned, once. A group that is alone publishes or refuses a batch, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.sessions import CloseRun
from samelog.sequencer.state.tables.stages import (
    BeginStage,
    EndStage,
    PinStage,
    PublishStageCommand,
    SettleUnit,
    Stage,
    StagedPart,
    StagedUnit,
    StagesTable,
    UnitStep,
)
from samelog.sequencer.state.two_phase import Decision, Step, TwoPhase
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import merges
from samelog.sequencer.state.units.sessions import close_run

SessionRuns = Sequence[tuple[str, str]]
"""(session, run id)."""


def publish_stage(state: State, command: PublishStageCommand) -> PublishStageCommand | Rejection:
    """Publish a batch that is staged in one group."""
    problem = (
        state.stages.problem_with(command.stage, command.writer, command.batch)
        or _unheld(state, command.stage, command.runs)
        or _unmergeable(state, command)
    )
    if problem is not None:
        return problem
    _let_publish(state, command.runs)
    state.stages.published[command.stage] = Stage(command.writer, command.batch, command.at_ms)
    for each in command.merges:
        merges.merge(state, each)
    for session, run_id in command.runs:
        close_run(state, CloseRun(session, run_id, command.at_ms))
    return command


def _unmergeable(state: State, command: PublishStageCommand | EndStage) -> Rejection | None:
    """The first instruction that could not be applied behind those before it."""
    sessions = {session for session, _ in command.runs}
    offsets: dict[int, int] = {}
    places: dict[int, SessionPosition] = {}
    for merge in command.merges:
        partition = state.partitions.by_number.get(merge.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {merge.partition} is gone")
        if offsets.get(merge.partition, partition.next_offset) != merge.base_offset:
            return Rejection("PRECONDITION", f"base offset {merge.base_offset}")
        if not _places_follow(state, merge, sessions, places):
            return Rejection("PRECONDITION", f"positions of partition {merge.partition}")
        offsets[merge.partition] = merge.next_offset
    return None


def _places_follow(
    state: State, merge: Merge, sessions: set[str], places: dict[int, SessionPosition]
) -> bool:
    after = merges.places_after(state, merge, places, staged=True)
    if after is None:
        return False
    places.update(after)
    return all(state.sessions.inputs[part.input].session in sessions for part in merge.ranges)


def _let_publish(state: State, runs: SessionRuns) -> None:
    """Let the runs that a batch is in be published from now on."""
    for session, _ in runs:
        run = state.sessions.open_run_of(session)
        if run is not None:
            run.published = True


# --- in group 0 -----------------------------------------------------------------------------------


def _begin(state: State, command: BeginStage) -> StagedUnit | Rejection:
    spanning = state.stages
    asked = command.stage, command.writer, command.batch
    refused = state.stages.problem_with(*asked)
    if refused is not None:
        return refused
    known = spanning.of_stage(command.stage)
    if known is not None and not known[1].is_asked_again(*asked):
        return Rejection("STAGE_BUSY", f"another batch of stage {command.stage!r} is under way")
    if known is not None and known[1].runs == command.runs:
        return known[1]
    refused = _unheld(state, command.stage, _names(command.runs)) or _gone(state, command.runs)
    if refused is not None:
        return refused
    if known is not None and not spanning.give_up(known[0], "its writer has restarted the batch"):
        return known[1]  # its only group has yet to refuse it
    made = StagedUnit(*asked, command.runs, TwoPhase(), _places(state, command.runs))
    spanning.begin(made, command.at_ms)
    return made


def _names(runs: Sequence[StagedPart]) -> SessionRuns:
    return [(run.session, run.run_id) for run in runs]


def _gone(state: State, runs: Sequence[StagedPart]) -> Rejection | None:
    for run in runs:
        for number, _, _ in run.ends:
            if number not in state.partitions.by_number:
                return Rejection("UNKNOWN_TOPIC", f"partition {number} is gone")
    return None


def _places(state: State, runs: Sequence[StagedPart]) -> dict[int, int]:
    group_of = state.placement.group_of
    return {number: group_of(number) for run in runs for number, _, _ in run.ends}


def _settle(state: State, command: SettleUnit) -> SettleUnit:
    number = command.number
    spanning = state.stages
    known = spanning.units.get(number)
    if known is None:
        return command
    if known.sole and command.group == known.sole:
        _settle_alone(spanning, command)
    else:
        _settle_part(state, known, command)
    if known.unit.is_open and Step.JOINED not in known.unit.participants.values():
        known.unit.decide(Decision.COMMIT)
    if known.unit.decision is Decision.COMMIT:
        at_ms = known.unit.began_ms
        state.stages.published[known.stage] = Stage(known.writer, known.batch, at_ms, number)
    spanning.forget_done(number)
    return command


def _settle_part(state: State, known: StagedUnit, command: SettleUnit) -> None:
    """One of several groups, or group 0 itself, says how far it is."""
    group = command.group
    if command.step is UnitStep.REFUSED:
        state.stages.give_up(command.number, command.text)
    elif command.step is UnitStep.PREPARED:
        known.unit.prepared(group)
    elif command.step is UnitStep.DONE:
        known.unit.carried_out(group)
    elif group and group not in state.placement.groups:
        known.unit.leave(group)


def _settle_alone(spanning: StagesTable, command: SettleUnit) -> None:
    """The only group of a unit says what its log says; or it is gone, with all that it had."""
    if command.step is UnitStep.REFUSED:
        spanning.decided_by_group(command.number, Decision.ABORT, command.text)
    elif command.step in (UnitStep.DONE, UnitStep.GONE):
        spanning.decided_by_group(command.number, Decision.COMMIT, "")


# --- in each group --------------------------------------------------------------------------------


def _pin(state: State, command: PinStage) -> PinStage | Rejection:
    spanning = state.stages
    if command.number in spanning.pins:
        return command
    if spanning.has_ended(command.number):
        return Rejection("STAGE_ENDED", f"unit {command.number} is carried out")
    problem = _unheld(state, command.stage, command.runs)
    if problem is None and any(spanning.is_pinned(session) for session, _ in command.runs):
        problem = Rejection("PINNED", "a run is pinned for another batch")
    problem = problem or _unpublishable(state, command)
    if problem is None:
        spanning.pins[command.number] = command
    return command if problem is None else problem


def _unheld(state: State, stage: str, names: SessionRuns) -> Rejection | None:
    """The first run that holds nothing for the stage any more."""
    for session, run_id in names:
        run = state.sessions.open_run_of(session)
        if run is None or run.run_id != run_id or run.stage != stage or run.published:
            text = f"run {run_id} of {session!r} does not hold anything for stage {stage!r}"
            return Rejection("UNKNOWN_RUN", text)
    return None


def _unpublishable(state: State, command: PinStage) -> Rejection | None:
    """What could not be merged later."""
    places: dict[int, SessionPosition] = {}
    for partition, ranges in command.ranges:
        if partition not in state.partitions.by_number:
            return Rejection("UNKNOWN_TOPIC", f"partition {partition} is gone")
        if state.transfers.is_on_its_way(partition):
            return Rejection("PARTITION_MOVES", f"partition {partition} moves to another group")
        merge = Merge(partition, 0, 0, 0, roll=False, ranges=ranges)
        after = merges.places_after(state, merge, places, staged=True)
        if after is None:
            return Rejection("PRECONDITION", f"positions of partition {partition}")
        places.update(after)
    return None


def _end(state: State, command: EndStage) -> EndStage | Rejection:
    spanning = state.stages
    if spanning.has_ended(command.number):
        return Rejection("STAGE_ENDED", f"unit {command.number} is carried out")
    check = _not_held if command.stage else _not_as_pinned
    problem = check(state, command) if command.is_commit else None
    if problem is not None:
        return problem
    spanning.carried_out(command.number, command.over, command.why)
    if command.is_commit:
        _publish(state, command)
    for session, run_id in command.runs:
        close_run(state, CloseRun(session, run_id, command.at_ms))
    return command


def _not_as_pinned(state: State, command: EndStage) -> Rejection | None:
    pin = state.stages.pins.get(command.number)
    if pin is None:
        return Rejection("NOT_PINNED", f"nothing of unit {command.number} is pinned")
    merged: dict[int, list[Range]] = {}
    for merge in command.merges:
        merged.setdefault(merge.partition, []).extend(merge.ranges)
    if command.runs != pin.runs or merged != ranges_left(state, pin):
        return Rejection("PRECONDITION", f"unit {command.number} is pinned otherwise")
    return _unmergeable(state, command)


def _not_held(state: State, command: EndStage) -> Rejection | None:
    """Why the only group of a unit cannot publish it."""
    spanning, transfers = state.stages, state.transfers
    if any(spanning.has_pinned(session) for session, _ in command.runs):
        return Rejection("PINNED", "a run is pinned for another batch")
    for merge in command.merges:
        if transfers.is_on_its_way(merge.partition):
            return Rejection("PARTITION_MOVES", f"partition {merge.partition} moves")
    return _unheld(state, command.stage, command.runs) or _unmergeable(state, command)


def ranges_left(state: State, pin: PinStage) -> dict[int, list[Range]]:
    """What there is to publish, but of partitions that are gone."""
    return {number: ranges for number, ranges in pin.ranges if number in state.partitions.by_number}


def _publish(state: State, command: EndStage) -> None:
    _let_publish(state, command.runs)
    for each in command.merges:
        merges.merge(state, each)
    known = state.stages.units.get(command.number)
    for part in () if known is None else known.runs:
        _note_ends(state, part)


def _note_ends(state: State, part: StagedPart) -> None:
    """In group 0: where data groups publish a run up to, which its sender is told."""
    for number, roll, byte in part.ends:
        entry = state.sessions.input_of(part.session, number)
        if entry is not None and number in state.placement.partitions:
            entry.roll, entry.byte = roll, byte


STAGE_UNITS: Mapping[type, Callable[[State, Any], Any]] = {
    PublishStageCommand: publish_stage,
    BeginStage: _begin,
    SettleUnit: _settle,
    PinStage: _pin,
    EndStage: _end,
}

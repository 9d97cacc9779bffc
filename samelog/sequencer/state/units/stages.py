"""Commands about staged batches: published in one group; or begun and decided in group 0, pinned
and carried out in each group that takes part.

Invariant: what is refused changed nothing. The instructions of a batch are applied all or none,
once; what was staged for a batch that is published already never is. A group carries out exactly
what it has pinned, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.sessions import CloseRun, Input, Run
from samelog.sequencer.state.tables.stages import (
    BeginStage,
    EndStage,
    PinStage,
    PublishStageCommand,
    SettleUnit,
    Stage,
    StagedPart,
    StagedUnit,
    UnitStep,
)
from samelog.sequencer.state.two_phase import Decision, Step, TwoPhase
from samelog.sequencer.state.types import State


class RunLookups(Protocol):
    """What publishing a stage uses of the state machine."""

    state: State

    def open_run_of(self, session: str) -> Run | None:
        """The session's run that is not closed, if any."""

    def places_after(
        self, command: Merge, before: Mapping[int, SessionPosition], *, staged: bool = False
    ) -> dict[int, SessionPosition] | None:
        """Where each input stands after an instruction; None if it cannot be applied."""


def problem_with(machine: RunLookups, command: PublishStageCommand) -> Rejection | None:
    """Why the batch cannot be published; None if it can."""
    refusal = refused_batch(machine.state, command.stage, command.writer, command.batch)
    if refusal is not None:
        return refusal
    for session, run_id in command.runs:
        run = machine.open_run_of(session)
        if run is None or run.run_id != run_id or run.stage != command.stage:
            text = f"run {run_id} of {session!r} does not hold anything for stage {command.stage!r}"
            return Rejection("UNKNOWN_RUN", text)
    return unmergeable(machine, command)


def refused_batch(state: State, stage: str, writer: str, batch: int) -> Rejection | None:
    """Why no batch of this number is published: it is already, or a writer has started over
    under a name of which later batches are published.
    """
    known = state.stages.published.get(stage)
    if known is None or batch > known.batch:
        return None
    if known.writer == writer:
        return Rejection("STAGE_PUBLISHED", f"batch {batch} of stage {stage!r} is published")
    text = (
        f"{writer!r} would publish batch {batch} of stage {stage!r}, of which {known.writer!r} has "
        f"published batches up to {known.batch}"
    )
    return Rejection("STAGE_BACKWARDS", text)


def unmergeable(machine: RunLookups, command: PublishStageCommand | EndStage) -> Rejection | None:
    """The first instruction that could not be applied behind those before it."""
    sessions = {session for session, _ in command.runs}
    offsets: dict[int, int] = {}
    places: dict[int, SessionPosition] = {}
    for merge in command.merges:
        partition = machine.state.partitions.by_number.get(merge.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {merge.partition} is gone")
        if offsets.get(merge.partition, partition.next_offset) != merge.base_offset:
            return Rejection("PRECONDITION", f"base offset {merge.base_offset}")
        if not _places_follow(machine, merge, sessions, places):
            return Rejection("PRECONDITION", f"positions of partition {merge.partition}")
        offsets[merge.partition] = merge.next_offset
    return None


def _places_follow(
    machine: RunLookups, merge: Merge, sessions: set[str], places: dict[int, SessionPosition]
) -> bool:
    after = machine.places_after(merge, places, staged=True)
    if after is None:
        return False
    places.update(after)
    return all(
        machine.state.sessions.inputs[part.input].session in sessions for part in merge.ranges
    )


def release_runs(machine: RunLookups, command: PublishStageCommand) -> list[Run]:
    """The runs that the batch is in, from now on published."""
    runs = [run for name, _ in command.runs if (run := machine.open_run_of(name)) is not None]
    for run in runs:
        run.published = True
    machine.state.stages.published[command.stage] = Stage(
        command.writer, command.batch, command.at_ms
    )
    return runs


class UnitMachine(RunLookups, Protocol):
    """What carrying out a unit uses of the state machine."""

    def input_of(self, session: str, partition: int) -> Input | None:
        """A session's input of one partition number."""

    def merge(self, command: Merge) -> object:
        """Apply an instruction."""

    def apply(self, command: CloseRun) -> object:
        """Apply one command."""


SessionRuns = Sequence[tuple[str, str]]
"""(session, run id)."""


# --- in group 0 -----------------------------------------------------------------------------------


def _begin(machine: UnitMachine, command: BeginStage) -> StagedUnit | Rejection:
    state, spanning = machine.state, machine.state.stages
    asked = command.stage, command.writer, command.batch
    refused = refused_batch(state, *asked)
    if refused is not None:
        return refused
    known = spanning.of_stage(command.stage)
    if known is not None and not known[1].is_asked_again(*asked):
        return Rejection("STAGE_BUSY", f"another batch of stage {command.stage!r} is under way")
    if known is not None and known[1].runs == command.runs:
        return known[1]
    refused = _unheld(machine, command.stage, _names(command.runs)) or _gone(state, command.runs)
    if refused is not None:
        return refused
    if known is not None:
        spanning.give_up(known[0], "its writer has restarted the batch")
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


def _settle(machine: UnitMachine, command: SettleUnit) -> SettleUnit:
    state, number, group = machine.state, command.number, command.group
    spanning = state.stages
    known = spanning.units.get(number)
    if known is None:
        return command
    if command.step is UnitStep.REFUSED:
        spanning.give_up(number, command.text)
    elif command.step is UnitStep.PREPARED:
        known.unit.prepared(group)
    elif command.step is UnitStep.DONE:
        known.unit.carried_out(group)
    elif group and group not in state.placement.groups:
        known.unit.leave(group)
    if known.unit.is_open and Step.JOINED not in known.unit.participants.values():
        known.unit.decide(Decision.COMMIT)
        at_ms = known.unit.began_ms
        state.stages.published[known.stage] = Stage(known.writer, known.batch, at_ms, number)
    spanning.forget_done(number)
    return command


# --- in each group --------------------------------------------------------------------------------


def _pin(machine: UnitMachine, command: PinStage) -> PinStage | Rejection:
    spanning = machine.state.stages
    if command.number in spanning.pins:
        return command
    if command.number in spanning.ended:
        return Rejection("STAGE_ENDED", f"unit {command.number} is carried out")
    problem = _unheld(machine, command.stage, command.runs)
    if problem is None and any(spanning.is_pinned(session) for session, _ in command.runs):
        problem = Rejection("PINNED", "a run is pinned for another batch")
    problem = problem or _unpublishable(machine, command)
    if problem is None:
        spanning.pins[command.number] = command
    return command if problem is None else problem


def _unheld(machine: UnitMachine, stage: str, names: SessionRuns) -> Rejection | None:
    """The first run that holds nothing for the stage any more."""
    for session, run_id in names:
        run = machine.open_run_of(session)
        if run is None or run.run_id != run_id or run.stage != stage or run.published:
            text = f"run {run_id} of {session!r} does not hold anything for stage {stage!r}"
            return Rejection("UNKNOWN_RUN", text)
    return None


def _unpublishable(machine: UnitMachine, command: PinStage) -> Rejection | None:
    """What could not be merged later."""
    places: dict[int, SessionPosition] = {}
    for partition, ranges in command.ranges:
        if partition not in machine.state.partitions.by_number:
            return Rejection("UNKNOWN_TOPIC", f"partition {partition} is gone")
        if machine.state.transfers.is_on_its_way(partition):
            return Rejection("PARTITION_MOVES", f"partition {partition} moves to another group")
        merge = Merge(partition, 0, 0, 0, roll=False, ranges=ranges)
        after = machine.places_after(merge, places, staged=True)
        if after is None:
            return Rejection("PRECONDITION", f"positions of partition {partition}")
        places.update(after)
    return None


def _end(machine: UnitMachine, command: EndStage) -> EndStage | Rejection:
    spanning = machine.state.stages
    if command.number in spanning.ended:
        return Rejection("STAGE_ENDED", f"unit {command.number} is carried out")
    problem = _not_as_pinned(machine, command) if command.is_commit else None
    if problem is not None:
        return problem
    spanning.carried_out(command.number, command.over)
    if command.is_commit:
        _publish(machine, command)
    for session, run_id in command.runs:
        machine.apply(CloseRun(session, run_id, command.at_ms))
    return command


def _not_as_pinned(machine: UnitMachine, command: EndStage) -> Rejection | None:
    pin = machine.state.stages.pins.get(command.number)
    if pin is None:
        return Rejection("NOT_PINNED", f"nothing of unit {command.number} is pinned")
    merged: dict[int, list[Range]] = {}
    for merge in command.merges:
        merged.setdefault(merge.partition, []).extend(merge.ranges)
    if command.runs != pin.runs or merged != ranges_left(machine.state, pin):
        return Rejection("PRECONDITION", f"unit {command.number} is pinned otherwise")
    return unmergeable(machine, command)


def ranges_left(state: State, pin: PinStage) -> dict[int, list[Range]]:
    """What there is to publish, but of partitions that are gone."""
    return {number: ranges for number, ranges in pin.ranges if number in state.partitions.by_number}


def _publish(machine: UnitMachine, command: EndStage) -> None:
    for session, _ in command.runs:
        run = machine.open_run_of(session)
        if run is not None:
            run.published = True
    for merge in command.merges:
        machine.merge(merge)
    known = machine.state.stages.units.get(command.number)
    for part in () if known is None else known.runs:
        _note_ends(machine, part)


def _note_ends(machine: UnitMachine, part: StagedPart) -> None:
    """In group 0: where data groups publish a run up to, which its sender is told."""
    for number, roll, byte in part.ends:
        entry = machine.input_of(part.session, number)
        if entry is not None and number in machine.state.placement.partitions:
            entry.roll, entry.byte = roll, byte


STAGE_CHANGES: Mapping[type, Callable[[Any, Any], Any]] = {
    BeginStage: _begin,
    SettleUnit: _settle,
    PinStage: _pin,
    EndStage: _end,
}

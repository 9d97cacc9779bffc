"""What publishing a stage changes in the replicated state.

Invariant: the instructions of a batch are applied all or none, once; what was staged for a batch
that is published already never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from samelog.format.positions import SessionPosition
from samelog.sequencer.state.commands import EndStage, Merge, PublishStageCommand
from samelog.sequencer.state.tables.sessions import Run
from samelog.sequencer.state.types import Rejection, Stage, State


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
    known = state.stages.get(stage)
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
    machine.state.stages[command.stage] = Stage(command.writer, command.batch, command.at_ms)
    return runs

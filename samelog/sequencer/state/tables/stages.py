"""Units of work that span several Raft groups: what was staged for one batch, in some of them.

Group 0 has the unit: who takes part, how far each group is, what was decided. A group has its own
part, once it is prepared: it is *pinned*. Who says that a group is prepared, or has carried out
what was decided, has it from a committed entry of that group, never from something that is not
there: a leader that was deposed and does not know it may lack anything.

Invariant: of a stage one unit is under way, beside those that were given up; it is committed only
when all its groups have pinned their parts; what is pinned stays until the decision is carried out.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command, Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.two_phase import Decision, TwoPhase


class Stage(msgspec.Struct):
    """The last batch that was published of what is staged under one name, and whose it was."""

    writer: str
    batch: int
    at_ms: int
    unit: int = 0
    """The unit of work that it was; 0: it was in one group."""


class PublishStageCommand(Command, frozen=True, tag=16):
    """Publish what was staged as `stage` for one batch of a writer: the open runs (session, run id)
    that hold it are merged by these instructions, all of them or none, and closed.
    """

    stage: str
    writer: str
    batch: int
    runs: list[tuple[str, str]]
    merges: list[Merge]
    at_ms: int


class PinStage(Command, frozen=True, tag=83):
    """A group is prepared to publish its part of unit `number`: the held runs (session, run id)
    stay open, whatever happens, until it is carried out; these ranges of them are published then,
    by partition.
    """

    number: int
    stage: str
    runs: list[tuple[str, str]]
    ranges: list[tuple[Unsigned32, list[Range]]]


class EndStage(Command, frozen=True, tag=84):
    """A group carries out what was decided of unit `number`: it merges what it has pinned, by these
    instructions, or none of it, and closes the runs. `over`: units that group 0 has done with.
    """

    number: int
    is_commit: bool
    runs: list[tuple[str, str]]
    merges: list[Merge]
    over: list[int]
    at_ms: int


class StagedPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A held run, and up to where (partition, roll, byte) it is to be published."""

    session: str
    run_id: str
    ends: list[tuple[Unsigned32, int, int]]


class UnitStep(IntEnum):
    """What became of a group's part of a unit."""

    PREPARED = 0
    REFUSED = 1
    DONE = 2
    GONE = 3
    """The group is, with all that it had."""


class BeginStage(Command, frozen=True, tag=81):
    """In group 0: publish a batch that was staged in several groups, in all of them or in none."""

    stage: str
    writer: str
    batch: int
    runs: list[StagedPart]
    at_ms: int


class SettleUnit(Command, frozen=True, tag=82):
    """In group 0: what became of a group's part of a unit of work; the last that is prepared
    decides it. `text`: why it is refused.
    """

    number: int
    group: Unsigned32
    step: UnitStep
    text: str = ""


StageCommand = PublishStageCommand | PinStage | EndStage | BeginStage | SettleUnit


class StagedUnit(msgspec.Struct):
    """A batch, in group 0; participants are groups."""

    stage: str
    writer: str
    batch: int
    runs: list[StagedPart]
    unit: TwoPhase
    places: dict[int, int] = {}
    """Partition -> the group that had it when the unit began."""
    problem: str = ""
    """Why it was given up."""

    @property
    def names(self) -> list[tuple[str, str]]:
        """(session, run id) of all runs."""
        return [(run.session, run.run_id) for run in self.runs]

    def is_asked_again(self, stage: str, writer: str, batch: int) -> bool:
        """Whether it is this batch, under way."""
        return self.unit.is_open and (self.stage, self.writer, self.batch) == (stage, writer, batch)


class StagesTable(msgspec.Struct):
    """What one group knows of staged batches."""

    published: dict[str, Stage] = {}
    """Stage -> the last batch that was published of it."""
    last: int = 0
    """The number of the newest unit; in group 0."""
    units: dict[int, StagedUnit] = {}
    """Those that are not carried out everywhere; in group 0."""
    pins: dict[int, PinStage] = {}
    """What this group has prepared, by unit."""
    ended: list[int] = []
    """Units whose decision this group has carried out, which group 0 may not know yet."""

    def problem_with(self, stage: str, writer: str, batch: int) -> Rejection | None:
        """Why no batch of this number is published: it is already, or a writer has started over
        under a name of which later batches are published.
        """
        known = self.published.get(stage)
        if known is None or batch > known.batch:
            return None
        if known.writer == writer:
            return Rejection("STAGE_PUBLISHED", f"batch {batch} of stage {stage!r} is published")
        text = (
            f"{writer!r} would publish batch {batch} of stage {stage!r}, of which {known.writer!r} "
            f"has published batches up to {known.batch}"
        )
        return Rejection("STAGE_BACKWARDS", text)

    # --- in group 0 -------------------------------------------------------------------------------

    def of_stage(self, stage: str) -> tuple[int, StagedUnit] | None:
        """The unit that is under way, and was not given up."""
        for number, known in self.units.items():
            if known.stage == stage and known.unit.decision is not Decision.ABORT:
                return number, known
        return None

    def begin(self, made: StagedUnit, at_ms: int) -> int:
        """The number of a new unit. Who has a partition of it takes part, and group 0, which closes
        the runs.
        """
        self.last += 1
        made.unit = TwoPhase(self.last, at_ms)
        for group in sorted({0, *made.places.values()}):
            made.unit.join(group)
        self.units[self.last] = made
        return self.last

    def give_up(self, number: int, problem: str) -> bool:
        """Decide that nothing is published; whether that is so now."""
        known = self.units[number]
        if not known.unit.is_open:
            return known.unit.decision is Decision.ABORT
        known.problem = problem
        return known.unit.decide(Decision.ABORT)

    def forget_done(self, number: int) -> None:
        """Forget a unit, if it is carried out everywhere."""
        if self.units[number].unit.is_done:
            del self.units[number]

    def has_in_a_unit(self, session: str) -> bool:
        """Whether a run of the session is part of a unit that is not carried out everywhere."""
        return any(session == name for unit in self.units.values() for name, _ in unit.names)

    # --- in each group ----------------------------------------------------------------------------

    def is_pinned(self, session: str) -> bool:
        """Whether a run of the session is to stay as it is."""
        return any(session == name for pin in self.pins.values() for name, _ in pin.runs)

    def pins_partition(self, number: int) -> bool:
        """Whether anything is pinned in a partition."""
        return any(number == each for pin in self.pins.values() for each, _ in pin.ranges)

    def carried_out(self, number: int, over: Collection[int]) -> None:
        """This group has done its part of a unit; those that are over may be forgotten."""
        self.pins.pop(number, None)
        self.ended = [each for each in self.ended if each not in over] + [number]

    def known_over(self, units: StagesTable) -> list[int]:
        """Units that this group has carried out and that group 0, here, has forgotten."""
        return [each for each in self.ended if each <= units.last and each not in units.units]

"""Units of work that span several Raft groups: what was staged for one batch, in some of them.

Group 0 has the unit: who takes part, how far each group is, what was decided. A group has its own
part, once it is prepared: it is *pinned*. Who says that a group is prepared, or has carried out
what was decided, has it from a committed entry of that group, never from something that is not
there: a leader that was deposed and does not know it may lack anything.

A unit that concerns a single data group is decided by that group: its entry publishes the batch, or
refuses it for good. Group 0 follows.

Invariant: of a stage one unit is under way, beside those that were given up; it is committed only
when all its groups have pinned their parts, or its only group has published it; what is pinned
stays until the decision is carried out; nothing that a group may have published is given up.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.placement.values import METADATA
from samelog.sequencer.state.command_base import Command, Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.two_phase import Decision, Step, TwoPhase


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
    """A group ends unit `number`: it merges what it has pinned, by these instructions, or none of
    it, and closes the runs. `over`: group 0 has done with all units up to this one that concern the
    group.

    `stage`: the group is the only one that takes part, so that this entry is the decision; empty:
    it carries out what group 0 has decided. `why`: the reason of a refusal.
    """

    number: int
    is_commit: bool
    runs: list[tuple[str, str]]
    merges: list[Merge]
    over: int
    at_ms: int
    stage: str = ""
    why: str = ""


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
    """Why it was given up, or is about to be."""
    sole: int = METADATA
    """The only data group that takes part, which decides; METADATA: group 0 decides."""

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
    ended: dict[int, str] = {}
    """Units that this group has ended, which group 0 may not know yet -> why they were refused;
    empty: they were carried out.
    """
    over: int = 0
    """This group ends no unit up to this one any more, except those that it has pinned."""

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
        the runs: behind the decision, if that is of a single group.
        """
        self.last += 1
        made.unit = TwoPhase(self.last, at_ms)
        groups = sorted(set(made.places.values()))
        made.sole = groups[0] if len(groups) == 1 else METADATA
        for group in [made.sole] if made.sole else sorted({METADATA, *groups}):
            made.unit.join(group)
        self.units[self.last] = made
        return self.last

    def give_up(self, number: int, problem: str) -> bool:
        """Decide that nothing is published; whether that is so now. A unit of a single group is not
        given up before that group has refused it.
        """
        known = self.units[number]
        if not known.unit.is_open:
            return known.unit.decision is Decision.ABORT
        known.problem = problem
        return not known.sole and known.unit.decide(Decision.ABORT)

    def decided_by_group(self, number: int, decision: Decision, problem: str) -> None:
        """The only group of a unit has ended it, or is gone: group 0 has the runs to close."""
        known = self.units[number]
        if known.unit.is_open:
            known.problem = problem
            known.unit.participants = {METADATA: Step.PREPARED}
            known.unit.decide(decision)

    def over_for(self, group: int) -> int:
        """Group 0 has done with all units up to this one that concern a group."""
        concerned = (
            number
            for number, known in self.units.items()
            if group in (METADATA, *known.unit.participants)
        )
        return min(concerned, default=self.last + 1) - 1

    def forget_done(self, number: int) -> None:
        """Forget a unit, if it is carried out everywhere."""
        if self.units[number].unit.is_done:
            del self.units[number]

    def has_in_a_unit(self, session: str) -> bool:
        """Whether a run of the session is part of a unit that is not carried out everywhere."""
        return any(session == name for unit in self.units.values() for name, _ in unit.names)

    # --- in each group ----------------------------------------------------------------------------

    def is_pinned(self, session: str) -> bool:
        """Whether a run of the session is to stay as it is: it is pinned or, in group 0, the
        only group of a unit may publish it.
        """
        return self.has_pinned(session) or any(
            session == name
            for number, known in self.units.items()
            if known.sole and known.unit.decision is not Decision.ABORT and number not in self.ended
            for name, _ in known.names
        )

    def has_pinned(self, session: str) -> bool:
        """Whether a run of the session is pinned."""
        return any(session == name for pin in self.pins.values() for name, _ in pin.runs)

    def pins_partition(self, number: int) -> bool:
        """Whether anything is pinned in a partition."""
        return any(number == each for pin in self.pins.values() for each, _ in pin.ranges)

    def has_ended(self, number: int) -> bool:
        """Whether this group does nothing for a unit any more."""
        return number in self.ended or (number <= self.over and number not in self.pins)

    def carried_out(self, number: int, over: int, why: str) -> None:
        """This group has done its part of a unit, or refuses it; what group 0 has done with may be
        forgotten.
        """
        self.pins.pop(number, None)
        self.over = max(self.over, over)
        self.ended[number] = why
        self.ended = {each: said for each, said in self.ended.items() if each > self.over}

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

import msgspec

from samelog.sequencer.state.commands import PinStage
from samelog.sequencer.state.transactions.commands import StagedPart
from samelog.sequencer.state.transactions.two_phase import Decision, TwoPhase


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


class Spanning(msgspec.Struct):
    """Of one group."""

    last: int = 0
    """The number of the newest unit; in group 0."""
    units: dict[int, StagedUnit] = {}
    """Those that are not carried out everywhere; in group 0."""
    pins: dict[int, PinStage] = {}
    """What this group has prepared, by unit."""
    ended: list[int] = []
    """Units whose decision this group has carried out, which group 0 may not know yet."""

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

    def known_over(self, units: Spanning) -> list[int]:
        """Units that this group has carried out and that group 0, here, has forgotten."""
        return [each for each in self.ended if each <= units.last and each not in units.units]

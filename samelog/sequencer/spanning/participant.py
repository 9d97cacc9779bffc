"""One group's part in units of work that span several groups: its leader's, driven by what is
committed in group 0 and here.

It looks when either has moved, and now and then: what could not be done, or told, is found again.

Invariant: what is pinned is held by a majority of the group; between planning what is carried out
and proposing it nothing else runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from samelog.consensus import Busy, NotLeader
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.runtime.clock import Clock
from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import ProposalLost, RaftGroup
from samelog.sequencer.spanning.ranges import RANGES_MAX, StagedInput, UnitChecks, ranges_of
from samelog.sequencer.spanning.steps import groups_concerned, lost_groups, next_steps
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.stages import (
    EndStage,
    PinStage,
    SettleUnit,
    StagedPart,
    StagedUnit,
    UnitStep,
)
from samelog.sequencer.state.units.stages import SessionRuns, ranges_left

LASTING = frozenset({"UNKNOWN_RUN", "UNKNOWN_TOPIC", "PARTITION_MOVES"})
"""Why a group can never publish a unit; what else its log says against it passes."""
AGAIN_S = 1.0
"""What group 0 does not seem to have heard is told again."""


class UnitOwner(Protocol):
    """What it asks of the member that it runs in."""

    async def tell_cluster(self, commands: Sequence[AnyCommand]) -> None:
        """Have group 0 commit these commands. Raises TimeoutError."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Run something that ends with the member, and ends it if it fails."""


class Participant:
    """One replica's; only the leader's acts."""

    def __init__(
        self,
        number: int,
        *,
        machine: StateMachine,
        cluster: StateMachine,
        checks: UnitChecks,
        group: RaftGroup,
        coordinator: Coordinator,
        clock: Clock,
        owner: UnitOwner,
    ) -> None:
        """`number`: of the group; `cluster`: of group 0."""
        self.number = number
        self._machine = machine
        self._cluster = cluster
        self._checks, self._sessions = checks, checks.sessions
        self._group = group
        self._coordinator = coordinator
        self._clock = clock
        self._owner = owner
        self._is_due = False
        self._under_way: set[int] = set()
        """Units of which a step is under way."""
        self._told: dict[str, float] = {}
        """What group 0 was told -> when."""

    def look_soon(self) -> None:
        """Look at the end of this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.look)

    def tick(self) -> None:
        """To be called some times a second: bytes that were waited for may have come."""
        units, own = (each.state.stages for each in (self._cluster, self._machine))
        if units.units or own.pins:
            self.look()

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way, pinned, or to be done."""
        if self._under_way or self._machine.state.stages.pins:
            return True
        if not self._group.is_leader:
            return False
        logs = self._machine.state.open_transactions.by_partition.values()
        is_open = any(log.open for log in logs)  # group 0 may have forgotten it
        return is_open or self.number in groups_concerned(self._cluster.state)

    def look(self) -> None:
        """Take the steps that can be taken."""
        self._is_due = False
        if not self._group.is_leader:
            self._told.clear()
            return
        cluster, here = self._cluster.state, self._machine.state
        found = next_steps(cluster, here, self.number)
        if not self.number:
            found.tell += lost_groups(cluster)
        self._say(found.tell)
        for number in found.pin:
            self._begin(number, partial(self._pin, number))
        for number in found.decide:
            self._begin(number, partial(self._decide, number))
        for number, is_commit in found.end:
            self._begin(number, partial(self._end, number, is_commit=is_commit))
        if cluster.transactions.deciding:
            self._coordinator.plan_soon()

    def _begin(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if number in self._under_way:
            return
        self._under_way.add(number)
        self._owner.spawn(self._run(number, work))

    async def _run(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with suppress(NotLeader, Busy, ProposalLost, CannotCheck):
                await work()
        finally:
            self._under_way.discard(number)

    # --- telling group 0 --------------------------------------------------------------------------

    def _say(self, commands: Sequence[AnyCommand]) -> None:
        """What was not told just now."""
        now, told = self._clock.now(), self._told
        keys = {str(each): each for each in commands}
        self._told = {key: told[key] for key in keys if key in told and now - told[key] < AGAIN_S}
        news = [each for key, each in keys.items() if key not in self._told]
        if news:
            self._told.update((str(each), now) for each in news)
            self._owner.spawn(self._tell_all(news))

    async def _tell_all(self, commands: Sequence[AnyCommand]) -> None:
        with suppress(TimeoutError):  # then they are found again
            await self._owner.tell_cluster(commands)

    # --- preparing --------------------------------------------------------------------------------

    async def _pin(self, number: int) -> None:
        """Have this group's part pinned, once a majority holds it; refuse it, if that can be no
        more. Raises NotLeader, Busy, ProposalLost, CannotCheck.
        """
        known = self._cluster.state.stages.units[number]
        ranges, problem = await self._prepare(known)
        if problem:
            self._say([SettleUnit(number, self.number, UnitStep.REFUSED, problem)])
        if ranges is None:
            return
        command = PinStage(number, known.stage, self._here(known.names), list(ranges.items()))
        outcome: list[Any] = await self._group.ask([command])[1]
        if isinstance(outcome[0], Rejection) and outcome[0].code != "STAGE_ENDED":
            refused = SettleUnit(number, self.number, UnitStep.REFUSED, outcome[0].message)
            self._say([refused])

    async def _prepare(self, known: StagedUnit) -> tuple[dict[int, list[Range]] | None, str]:
        """The ranges of a unit that this group publishes, by partition; or why it cannot. None and
        no reason: some of them are yet to come. Raises CannotCheck.
        """
        if problem := self._problem(known):
            return None, problem
        inputs = self._inputs(known.runs, known.places.get)
        if inputs is None or not all(self._coordinator.holds(*each) for each in inputs):
            return None, ""
        ranges: dict[int, list[Range]] = {}
        try:
            ranges = await self._cut(inputs)
            problem = await self._checks.why_unfit(ranges)
        except LogFormatError as error:
            problem = str(error)
        return (None, problem[:500]) if problem else (ranges, "")

    def _here(self, names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The runs of which this group has something."""
        return [name for name in names if self._machine.state.sessions.run_of(*name) is not None]

    def _problem(self, known: StagedUnit) -> str:
        """Why nothing can be published of a unit here any more; empty: it can."""
        for session, run_id in known.names:
            run = self._machine.state.sessions.run_of(session, run_id)
            if run is not None and (run.closed or run.stage != known.stage):
                return f"run {run_id} of {session!r} is closed"
        here, table = self._machine.state.partitions.by_number, self._cluster.state.placement
        for number, group in known.places.items():
            if group == self.number and (number not in here or table.group_of(number) != group):
                return f"partition {number} is gone, or in another group"
        return ""

    def _inputs(
        self, runs: Sequence[StagedPart], group_of: Callable[[int], int | None]
    ) -> list[StagedInput] | None:
        """What is to be published here; None if some of it is not known yet."""
        found = []
        for run in runs:
            for number, roll, byte in run.ends:
                if group_of(number) != self.number:
                    continue
                entry = self._machine.state.sessions.input_of(run.session, number)
                if entry is None:
                    return None
                found.append(StagedInput(entry, SessionPosition(entry.run, roll, byte)))
        return found

    def holds(self, part: StagedPart) -> bool:
        """Whether a majority of this group, which is led here, holds its part of a run."""
        group_of = self._cluster.state.placement.group_of
        inputs = self._inputs([part], group_of) if self._group.is_leader else None
        return inputs is not None and all(self._coordinator.holds(*each) for each in inputs)

    async def _cut(self, inputs: Sequence[StagedInput]) -> dict[int, list[Range]]:
        """Partition -> ranges; others have their turn in between. Raises LogFormatError."""
        found: dict[int, list[Range]] = {}
        count = 0
        for staged in inputs:
            for part in ranges_of(staged, self._sessions):
                found.setdefault(staged.entry.partition, []).append(part)
                count += 1
                await asyncio.sleep(0)
            if count > RANGES_MAX:
                raise LogFormatError(f"a batch of more than {RANGES_MAX} pieces")
        return found

    # --- deciding alone ---------------------------------------------------------------------------

    async def _decide(self, number: int) -> None:
        """Have a unit published of which nothing is in another group, once a majority holds it;
        refuse it, if that can be no more, or if its writer gives it up. Raises NotLeader, Busy,
        ProposalLost, CannotCheck.
        """
        known = self._cluster.state.stages.units[number]
        ranges, problem = (None, known.problem) if known.problem else await self._prepare(known)
        if ranges is not None and self._has(ranges):
            outcome = await self._coordinator.propose_stage(
                ranges,
                lambda merges: self._ending(number, self._here(known.names), merges, known.stage),
            )
            if isinstance(outcome[0], Rejection) and outcome[0].code in LASTING:
                problem = outcome[0].message
        if problem:
            runs = self._here(known.names)
            await self._group.ask([self._ending(number, runs, None, known.stage, problem)])[1]

    def _ending(
        self,
        number: int,
        runs: SessionRuns,
        merges: list[Merge] | None,
        stage: str = "",
        why: str = "",
    ) -> EndStage:
        """The entry that ends a unit; `merges`: None if nothing is published."""
        over = self._cluster.state.stages.over_for(self.number)
        now_ms, is_commit = self._clock.wall_ms(), merges is not None
        return EndStage(number, is_commit, list(runs), merges or [], over, now_ms, stage, why)

    # --- carrying out -----------------------------------------------------------------------------

    async def _end(self, number: int, *, is_commit: bool) -> None:
        """Have it carried out. Raises NotLeader, Busy, ProposalLost."""
        pin = self._machine.state.stages.pins.get(number)
        known = self._cluster.state.stages.units.get(number)
        if is_commit and pin is not None:
            ranges = ranges_left(self._machine.state, pin)
            if not self._has(ranges):
                return  # it comes from those who hold it
            runs = pin.runs
            await self._coordinator.propose_stage(
                ranges, lambda merges: self._ending(number, runs, merges)
            )
            return
        names = pin.runs if pin is not None else self._here(known.names if known else ())
        if not is_commit:
            await self._group.ask([self._ending(number, names, None)])[1]
        elif known is not None and known.sole:  # in group 0: its only group has published it
            await self._group.ask([self._ending(number, names, [], known.stage)])[1]

    def _has(self, ranges: dict[int, list[Range]]) -> bool:
        """Whether all these bytes are here, to be planned."""
        inputs = self._machine.state.sessions.inputs
        return all(
            self._sessions.written(inputs[part.input])
            >= SessionPosition(part.run, part.roll, part.stop)
            for each in ranges.values()
            for part in each
        )

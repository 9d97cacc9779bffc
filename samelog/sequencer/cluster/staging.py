"""Staged records: held in open runs until their writer publishes them, all at once.

The leader waits until a majority, itself included, holds what is to be published, cuts it into
ranges, and proposes one entry with all the instructions; who stages and never publishes is ended
after a while (docs/state-machine.md, "Stages").

Invariant: between planning a batch and proposing it nothing else runs, so that its instructions
follow what was planned before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from samelog.admin import requests
from samelog.admin.answers import StageDropped, StageHeld, StagePublished
from samelog.admin.requests import DropStage, HoldStage, StagedRun
from samelog.consensus import Busy, NotLeader
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import ProposalLost, RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.spanning.ranges import (
    RANGE_BYTES,
    RANGES_MAX,
    StagedInput,
    UnitChecks,
    ranges_of,
)
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import CloseRun
from samelog.sequencer.state.tables.stages import PublishStageCommand
from samelog.wire.errors import FaultCode

HOLD_WAIT_S = 5.0
"""How long one request waits for a majority."""
COMMIT_S = 10.0
"""Deadline of the entry that publishes a batch, in seconds."""
ABANDONED_S = 3600.0
ATTEMPTS = 5
RETRY_S = 0.05
REFUSALS = {
    "STAGE_BACKWARDS": FaultCode.ALREADY_EXISTS,
    "UNKNOWN_RUN": FaultCode.OUT_OF_RANGE,
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
}


class Staging:
    """What the leader does for writers that stage."""

    def __init__(
        self,
        machine: StateMachine,
        checks: UnitChecks,
        *,
        group: RaftGroup,
        coordinator: Coordinator,
        proposer: Proposer,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._checks, self._sessions = checks, checks.sessions
        self._group = group
        self._coordinator = coordinator
        self._proposer = proposer
        self._clock = clock
        self._held_since: dict[tuple[str, str], float] = {}

    # --- asked by writers -------------------------------------------------------------------------

    async def hold(self, request: HoldStage) -> StageHeld:
        """Wait until a majority holds the runs durably. Raises NotLeader, ChangeRefused."""
        await self._wait_held(self._inputs(request))
        return StageHeld()

    async def publish(self, request: requests.PublishStage) -> StagePublished:
        """Publish a batch. Raises NotLeader, ChangeRefused."""
        self.lead()
        machine = self._machine
        refusal = machine.state.stages.problem_with(request.stage, request.writer, request.batch)
        if refusal is None:
            inputs = self._inputs(request)
            await self._wait_held(inputs)
            ranges = await self._cut(inputs)
            await self._check(ranges)
            refusal = await self._publish(request, ranges)
        if refusal is None:
            return StagePublished(is_new=True)
        if refusal.code != "STAGE_PUBLISHED":
            raise ChangeRefused(REFUSALS.get(refusal.code, FaultCode.NOT_READY), refusal.message)
        await self.drop(DropStage(request.stage, request.runs))
        return StagePublished(is_new=False)

    async def drop(self, request: DropStage) -> StageDropped:
        """End the runs of a stage, those that are there. Raises NotLeader."""
        self.lead()
        for run in request.runs:
            self._check_stage(request.stage, run)
            await self._close(run.session, run.run_id)
        return StageDropped()

    async def _close(self, session: str, run_id: str) -> None:
        """End a run that is held; nothing is planned of it."""
        run = self._machine.state.sessions.run_of(session, run_id)
        if run is not None and run.is_held and not run.closed:
            command = CloseRun(session, run_id, self._clock.wall_ms())
            await self._proposer.propose(command)

    # --- checking ---------------------------------------------------------------------------------

    def lead(self) -> None:
        """Raises NotLeader unless this replica leads."""
        if not self._group.is_leader:
            raise NotLeader(self._group.raft.leader)

    def _check_stage(self, stage: str, run: StagedRun) -> None:
        known = self._machine.state.sessions.run_of(run.session, run.run_id)
        if known is not None and known.stage != stage:
            text = f"run {run.run_id} of {run.session!r} is not staged for {stage!r}"
            raise ChangeRefused(FaultCode.NOT_AUTHORISED, text)

    def _inputs(self, request: HoldStage | requests.PublishStage) -> list[StagedInput]:
        """The inputs that are named. Raises NotLeader, ChangeRefused."""
        self.lead()
        for run in request.runs:
            self.check_open(request.stage, run)
        return [self._input(run, *end) for run in request.runs for end in run.ends]

    def check_open(self, stage: str, run: StagedRun) -> None:
        """Raises ChangeRefused for a run that is closed, or not known."""
        self._check_stage(stage, run)
        known = self._machine.state.sessions.run_of(run.session, run.run_id)
        if known is None:
            text = f"run {run.run_id} of {run.session!r} has not begun, or is forgotten"
            raise ChangeRefused(FaultCode.NOT_READY, text, "ask again, or stage the records again")
        if known.closed:
            text = f"run {run.run_id} of {run.session!r} is closed"
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "stage the records again")

    def _input(self, run: StagedRun, topic: str, index: int, *end: int) -> StagedInput:
        machine = self._machine
        known = machine.state.topics.named(topic)
        partition = None if known is None else machine.state.partition_of(known.topic_id, index)
        entry = (
            None
            if partition is None
            else machine.state.sessions.input_of(run.session, partition.number)
        )
        if entry is None:
            text = f"nothing of {topic}-{index} has come from {run.session!r} yet"
            raise ChangeRefused(FaultCode.NOT_READY, text, "ask again")
        return StagedInput(entry, SessionPosition(entry.run, *end))

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait_held(self, inputs: Sequence[StagedInput]) -> None:
        """Until a majority holds them all durably. Raises NotLeader, ChangeRefused."""
        deadline = self._clock.now() + HOLD_WAIT_S
        while (missing := self._missing(inputs)) is not None:
            self.lead()
            moved = self._coordinator.positions_moved
            moved.clear()
            left = deadline - self._clock.now()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await moved.wait()
            except TimeoutError:
                text = f"session {missing.entry.session!r} is not on a majority of the nodes yet"
                raise ChangeRefused(FaultCode.NOT_READY, text, "ask again") from None

    def _missing(self, inputs: Sequence[StagedInput]) -> StagedInput | None:
        holds = self._coordinator.holds
        return next((each for each in inputs if not holds(*each)), None)

    # --- publishing -------------------------------------------------------------------------------

    async def _cut(self, inputs: Sequence[StagedInput]) -> dict[int, list[Range]]:
        """Partition -> ranges of everything staged in it; others have their turn in between."""
        found: dict[int, list[Range]] = {}
        count = 0
        for staged in inputs:
            try:
                for part in ranges_of(staged, self._sessions):
                    found.setdefault(staged.entry.partition, []).append(part)
                    count += 1
                    await asyncio.sleep(0)
            except LogFormatError as error:
                raise ChangeRefused(FaultCode.INVALID_BATCH, str(error)) from error
            if count > RANGES_MAX:
                text = f"a batch of more than {RANGES_MAX} pieces of {RANGE_BYTES} bytes"
                raise ChangeRefused(FaultCode.TOO_MANY, text, "publish smaller batches")
        return found

    async def _check(self, ranges: Mapping[int, Sequence[Range]]) -> None:
        """Raises ChangeRefused: nodes check one of the topics, and something does not fit."""
        try:
            why = await self._checks.why_unfit(ranges)
        except CannotCheck as error:
            raise ChangeRefused(FaultCode.NOT_READY, str(error), "ask again") from None
        if why:
            raise ChangeRefused(FaultCode.INVALID_BATCH, why)

    async def _publish(
        self, request: requests.PublishStage, ranges: dict[int, list[Range]]
    ) -> Rejection | None:
        """Have it committed; why it cannot be, if so. Raises NotLeader, ChangeRefused."""
        for _ in range(ATTEMPTS):
            self.lead()
            if not ranges.keys() <= self._machine.state.partitions.by_number.keys():
                break  # a topic was deleted, or its log restarted
            try:
                outcome = await self._propose(request, ranges)
            except (Busy, ProposalLost):
                await asyncio.sleep(RETRY_S)
                continue
            except TimeoutError:
                break  # it may be committed yet: asking again tells
            if not isinstance(outcome, Rejection):
                return None
            if outcome.code != "PRECONDITION":  # else what was planned before it did not come
                return outcome
        raise ChangeRefused(FaultCode.NOT_READY, "nothing could be planned just now", "ask again")

    async def _propose(
        self, request: requests.PublishStage, ranges: Mapping[int, Sequence[Range]]
    ) -> PublishStageCommand | Rejection:
        runs = [(run.session, run.run_id) for run in request.runs]
        name = request.stage, request.writer, request.batch
        now_ms = self._clock.wall_ms()
        future = self._coordinator.propose_stage(
            ranges, lambda merges: PublishStageCommand(*name, runs, merges, now_ms)
        )
        async with asyncio.timeout(COMMIT_S):
            outcome: PublishStageCommand | Rejection = (await future)[0]
        return outcome

    # --- giving up --------------------------------------------------------------------------------

    def abandoned(self) -> list[CloseRun]:
        """What ends the runs that were staged long ago and not published; on the leader only."""
        now = self._clock.now()
        held = self._held_runs() if self._group.is_leader else ()
        self._held_since = {key: self._held_since.get(key, now) for key in held}
        return [
            CloseRun(*key, self._clock.wall_ms())
            for key, since in self._held_since.items()
            if now - since > ABANDONED_S
        ]

    def _held_runs(self) -> Iterator[tuple[str, str]]:
        known = self._machine.state.sessions.by_name
        for name in self._machine.index.staged:
            run = known[name].runs[-1]
            if run.is_held and not run.closed:
                yield name, run.run_id

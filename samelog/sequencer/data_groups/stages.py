"""Writers that stage in topics of data groups, at the leader of group 0: what they hold is asked of
the leaders of the groups that have it; a batch is begun as a unit of work, which goes on by itself
whoever dies, and its fate is waited for.

What is in group 0 alone is published by one entry of it (`cluster.staging`).

Invariant: a writer is told that its batch is published only when group 0 has decided so; until then
it may ask again, as often as it likes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from samelog.admin.answers import StageDropped, StageHeld, StagePublished
from samelog.admin.requests import DropStage, HoldStage, PublishStage, StagedRun, StageRequest
from samelog.consensus import Busy
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.staging import HOLD_WAIT_S, REFUSALS, RETRY_S
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.raft.group import ProposalLost
from samelog.sequencer.spanning.participant import Participant
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.stages import (
    BeginStage,
    SettleUnit,
    StagedPart,
    StagedUnit,
    StagesTable,
    UnitStep,
)
from samelog.sequencer.state.two_phase import Decision
from samelog.wire.errors import FaultCode
from samelog.wire.peer_messages import RunAsked, RunHeld

ANSWER_S = 1.0
"""How long another member may take to say what it holds."""
DECIDE_S = 10.0


class Stages:
    """One node's; only the leader of group 0 answers."""

    def __init__(
        self,
        number: int,
        *,
        machine: StateMachine,
        raft: RaftParts,
        data_groups: DataGroups,
        send: Callable[[int, RunAsked | RunHeld], bool],
        clock: Clock,
    ) -> None:
        """`number`: of this member; `machine` and `raft`: of group 0."""
        self._number = number
        self._machine = machine
        self._raft = raft
        self._data_groups = data_groups
        self._send = send
        self._clock = clock
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bool]] = {}

    @property
    def _spanning(self) -> StagesTable:
        return self._machine.state.stages

    # --- asked by writers -------------------------------------------------------------------------

    async def hold(self, request: HoldStage) -> StageHeld:
        """Wait until majorities hold the runs durably. Raises NotLeader, ChangeRefused."""
        if not self._spans(request):
            return await self._raft.staging.hold(request)
        await self._wait_held(self._parts(request))
        return StageHeld()

    async def publish(self, request: PublishStage) -> StagePublished:
        """Publish a batch. Raises NotLeader, ChangeRefused."""
        if not self._spans(request):
            return await self._raft.staging.publish(request)
        if not self._is_under_way(request):
            await self._wait_held(self._parts(request))
        refused = await self._begin(request)
        if refused is None:
            return StagePublished(is_new=True)
        if refused.code != "STAGE_PUBLISHED":
            raise ChangeRefused(REFUSALS.get(refused.code, FaultCode.NOT_READY), refused.message)
        await self.drop(DropStage(request.stage, request.runs))
        return StagePublished(is_new=False)

    async def drop(self, request: DropStage) -> StageDropped:
        """End the runs of a stage, and the batch that they are in, if that is not decided. Raises
        NotLeader.
        """
        names = {(run.session, run.run_id) for run in request.runs}
        for number, known in tuple(self._spanning.units.items()):
            if known.stage == request.stage and known.unit.is_open and names & {*known.names}:
                text = "its writer has given it up"
                command = SettleUnit(number, 0, UnitStep.REFUSED, text)
                await self._raft.proposer.propose(command)
        return await self._raft.staging.drop(request)

    # --- what is asked for ------------------------------------------------------------------------

    def _spans(self, request: StageRequest) -> bool:
        """Whether anything of it is in data groups."""
        if not self._machine.state.placement.partitions:
            return False
        topics = {end.topic for run in request.runs for end in run.ends}
        known = map(self._machine.state.topics.named, topics)
        return any(topic is not None and topic.is_placed for topic in known)

    def _is_under_way(self, request: PublishStage) -> bool:
        """Whether this batch has begun, so that its runs may be closed by now."""
        self._raft.staging.lead()
        known, names = self._spanning.of_stage(request.stage), _names(request)
        return (known is not None and known[1].names == names) or self._is_published(request)

    def _is_published(self, request: PublishStage) -> bool:
        known = self._machine.state.stages.published.get(request.stage)
        return known is not None and request.batch <= known.batch

    def _parts(self, request: HoldStage | PublishStage) -> list[StagedPart]:
        """The runs, by partition numbers. Raises NotLeader, ChangeRefused."""
        self._raft.staging.lead()
        for run in request.runs:
            self._raft.staging.check_open(request.stage, run)
        return [self._part(run) for run in request.runs]

    def _part(self, run: StagedRun) -> StagedPart:
        """Raises ChangeRefused."""
        ends = []
        for topic, index, roll, byte in run.ends:
            known = self._machine.state.topics.named(topic)
            partition = (
                None if known is None else self._machine.state.partition_of(known.topic_id, index)
            )
            if partition is None:
                text = f"nothing of {topic}-{index} has come from {run.session!r} yet"
                raise ChangeRefused(FaultCode.NOT_READY, text, "ask again")
            ends.append((partition.number, roll, byte))
        return StagedPart(run.session, run.run_id, ends)

    def _by_group(self, parts: Sequence[StagedPart]) -> Iterator[tuple[int, StagedPart]]:
        """Each group's share of each run."""
        for part in parts:
            shares: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
            for end in part.ends:
                shares[self._machine.state.placement.group_of(end[0])].append(end)
            for group, ends in shares.items():
                yield group, StagedPart(part.session, part.run_id, ends)

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait_held(self, parts: Sequence[StagedPart]) -> None:
        """Until majorities hold them all durably. Raises NotLeader, ChangeRefused."""
        deadline = self._clock.now() + HOLD_WAIT_S
        for group, part in self._by_group(parts):
            while not await self._is_held(group, part):
                self._raft.staging.lead()
                if self._clock.now() > deadline:
                    text = f"session {part.session!r} is not on a majority of group {group} yet"
                    raise ChangeRefused(FaultCode.NOT_READY, text, "ask again")
                await asyncio.sleep(RETRY_S)

    async def _is_held(self, group: int, part: StagedPart) -> bool:
        leader = self._data_groups.leader(group) if group else (0, self._number)
        if leader is None:
            return False
        if leader[1] == self._number:
            return self._holds(group, part)
        request = next(self._ids)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[request] = future
        asked = RunAsked(request, group, part.session, part.run_id, tuple(part.ends))
        try:
            if not self._send(leader[1], asked):
                return False
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError:
            return False
        finally:
            del self._asked[request]

    def _holds(self, group: int, part: StagedPart) -> bool:
        participant = self._participant(group)
        return participant is not None and participant.holds(part)

    def _participant(self, group: int) -> Participant | None:
        if not group:
            return self._raft.participant
        replica = self._data_groups.replicas.get(group)
        return None if replica is None else replica.group_replica.raft.participant

    def hear(self, node: int, message: RunAsked | RunHeld) -> None:
        """What another member asks, or answers."""
        if isinstance(message, RunAsked):
            part = StagedPart(message.session, message.run_id, list(message.ends))
            self._send(node, RunHeld(message.id, self._holds(message.group, part)))
            return
        future = self._asked.get(message.id)
        if future is not None and not future.done():
            future.set_result(message.is_held)

    # --- publishing -------------------------------------------------------------------------------

    async def _begin(self, request: PublishStage) -> Rejection | None:
        """Have it begun and decided; why it is not published, if so. Raises NotLeader."""
        self._raft.staging.lead()
        asked = request.stage, request.writer, request.batch
        command = BeginStage(*asked, self._known_parts(request), self._clock.wall_ms())
        try:
            async with asyncio.timeout(DECIDE_S):
                begun: list[Any] = await self._raft.group.ask([command])[1]
        except (Busy, ProposalLost, TimeoutError) as error:
            raise ChangeRefused(
                FaultCode.NOT_READY, "it could not be begun", "ask again"
            ) from error
        outcome: StagedUnit | Rejection = begun[0]
        if isinstance(outcome, Rejection):
            return outcome
        refused = await self._decided(request, outcome.unit.number)
        if outcome.names == _names(request) or self._is_published(request):
            return refused
        return await self._begin(request)  # an earlier attempt is refused by its group

    def _known_parts(self, request: PublishStage) -> list[StagedPart]:
        """What was begun stays as it was, also where a topic was deleted meanwhile."""
        known = self._spanning.of_stage(request.stage)
        if known is not None and known[1].names == _names(request):
            return known[1].runs
        return [] if self._is_published(request) else [self._part(run) for run in request.runs]

    async def _decided(self, request: PublishStage, number: int) -> Rejection | None:
        """Wait until it is carried out, or at least decided. Raises NotLeader, ChangeRefused."""
        replica, problem = self._raft.replica, "its writer has restarted it"
        with suppress(TimeoutError):
            async with asyncio.timeout(DECIDE_S):
                while (known := self._spanning.units.get(number)) is not None:
                    self._raft.staging.lead()
                    if known.sole and known.unit.decision is Decision.COMMIT:
                        break  # its only group has published it
                    problem = known.problem or problem
                    await replica.wait_applied(replica.applied_index + 1)
        known = self._spanning.units.get(number)
        if known is not None and known.unit.is_open:
            raise ChangeRefused(FaultCode.NOT_READY, "a group is not prepared yet", "ask again")
        if self._is_published(request):
            is_this = self._machine.state.stages.published[request.stage].unit == number
            return None if is_this else Rejection("STAGE_PUBLISHED", "another one was faster")
        return Rejection("UNKNOWN_RUN", problem)


def _names(request: PublishStage) -> list[tuple[str, str]]:
    return [(run.session, run.run_id) for run in request.runs]

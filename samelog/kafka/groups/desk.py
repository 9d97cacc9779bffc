"""Where samelog's own subscribers speak to the coordinator of groups, whether or not Kafka clients
are served. Implements sequencer.admin.parts.MembersDesk.

Invariant: nothing is decided here; what a member is told of positions is read after everything that
was decided before its answer is applied, so it has what the former holder committed (213).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from msgspec import UNSET

from samelog.admin.group_answers import AssignedPartition, GroupBeaten
from samelog.admin.group_requests import BeatGroup, Position
from samelog.config.tables.kafka import GroupLimits
from samelog.config.tables.node import NodeConfig
from samelog.consensus import NotLeader
from samelog.format.steps import StepWork
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.driver import CoordinatorAnswer, GroupDriver
from samelog.kafka.groups.requests import AnyAnswer, Beaten, Caller, GroupBeat, OffsetCommit
from samelog.runtime.clock import Clock
from samelog.runtime.slices import give_way, paced
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.access import HEARTBEAT_MS, SESSION_MS
from samelog.sequencer.state.tables.groups import ConsumerGroupRecord
from samelog.sequencer.state.types import State
from samelog.wire.errors import FaultCode

MEMBER_MS = 20
"""A group may have one heartbeat in so many ms: a small one notices changes soon."""
SOONEST_MS = 500
COMMITTED_AT_ONCE = 200
"""Positions of a heartbeat that are committed in a turn of the loop."""
COMMITS_UNDER_WAY = 2
"""Entries of one heartbeat: entries that are committed together are applied in one turn."""
NO_GROUP = ConsumerGroupRecord()
LOST = (
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_member_epoch,
    ErrorCode.invalid_request,
)
"""It joins again."""


class GroupDesk:
    """Of one node. Implements sequencer.host.Service."""

    def __init__(
        self, raft: RaftParts, machine: StateMachine, clock: Clock, limits: GroupLimits
    ) -> None:
        self.driver = GroupDriver(raft, machine, clock, limits)
        self._raft, self._machine, self._clock, self._limits = raft, machine, clock, limits

    def reconfigure(self, config: NodeConfig) -> None:
        """Nothing of it may change while the node runs."""

    async def start(self) -> None:
        """Begin to coordinate whenever this node leads."""
        self.driver.start()

    async def close(self) -> None:
        """Coordinate no more."""
        self.driver.close()

    async def beat(self, request: BeatGroup, identity: str) -> GroupBeaten:
        """Have a heartbeat answered; many positions are committed in slices of the loop before it
        (rule turns.16). Raises NotLeader, ChangeRefused.
        """
        last = max(0, len(request.commits) - 1) // COMMITTED_AT_ONCE * COMMITTED_AT_ONCE
        left, ahead = list[int](), deque[CoordinatorAnswer]()
        for start in range(0, last, COMMITTED_AT_ONCE):
            if len(ahead) == COMMITS_UNDER_WAY:
                left += cast(Sequence[int], await self._answer(ahead.popleft()))
            ahead.append(await self._commit_ahead(request, identity, start))
        asked = as_heartbeat(request, identity, self._clock.wall_ms(), request.commits[last:])
        answer = await self._answer(self.driver.ask(lambda c, waiter: c.beat(asked, waiter)))
        for each in ahead:
            left += cast(Sequence[int], await self._answer(each))
        beaten = cast(Beaten, answer)
        beaten = replace(beaten, not_committed=(*left, *beaten.not_committed))
        return await paced(as_answer(self._machine.state, self._limits, request.group, beaten))

    async def _commit_ahead(
        self, request: BeatGroup, identity: str, start: int
    ) -> CoordinatorAnswer:
        """Ask the coordinator to commit some of its positions, without waiting for the answer."""
        await give_way()
        some = request.commits[start : start + COMMITTED_AT_ONCE]
        asked = as_heartbeat(request, identity, self._clock.wall_ms(), some)
        return self.driver.ask(lambda c, waiter: c.commit_ahead(asked, waiter))

    async def _answer(self, asked: CoordinatorAnswer) -> AnyAnswer:
        """Raises NotLeader."""
        answer = await asked
        if answer is None:
            raise NotLeader(self._raft.group.raft.leader)
        return answer

    async def note(self, group: str, positions: Iterable[tuple[int, int]]) -> bool:
        """Have positions shown of somebody who is in no group; whether they are. Raises
        NotLeader.
        """
        commits = [OffsetCommit(*each) for each in positions]
        answer = await self._answer(self.driver.ask(lambda c, w: c.note(group, commits, w)))
        return not any(cast(tuple[ErrorCode, ...], answer))

    def times(self, group: str, member: str) -> tuple[int, int]:
        """When a member was heard of last, and when its application asked for more, in ms of the
        wall clock; -1: not known here.
        """
        return self.driver.times(group, member)


def as_heartbeat(
    request: BeatGroup, identity: str, wall_ms: int, commits: Sequence[Position]
) -> GroupBeat:
    """What a subscriber asks, in the coordinator's words, with some of what it commits."""
    return GroupBeat(
        caller=Caller(request.group, request.member, None, request.epoch),
        client_id="samelog",
        client_host=request.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.topics,
        owned=None if request.owned is UNSET else request.owned,
        identity=identity,
        commits=[OffsetCommit(each.partition, each.offset) for each in commits],
        leaves=request.leaves,
        polled_ms=-1 if request.polled_ms_ago < 0 else wall_ms - request.polled_ms_ago,
    )


def as_answer(
    state: State, limits: GroupLimits, group: str, answer: Beaten
) -> StepWork[GroupBeaten]:
    """What the coordinator answers, in the subscriber's words; `state` has all that was decided
    before. Raises ChangeRefused.
    """
    if answer.error and answer.error not in LOST:
        code = FaultCode.NOT_AUTHORISED
        if answer.error is not ErrorCode.group_authorization_failed:
            code = FaultCode.GROUP_IN_USE
        raise ChangeRefused(code, answer.message or answer.error.name.replace("_", " "))
    lost = (answer.message or answer.error.name) if answer.error else ""
    known = state.groups.by_id.get(group, NO_GROUP)
    assigned = None
    if answer.assigned is not None:
        assigned = yield from _assigned(state, known, answer.assigned)
    left = answer.not_committed
    return GroupBeaten(answer.epoch, lost, assigned, left, *_periods(state, limits, group, known))


def _assigned(
    state: State, group: ConsumerGroupRecord, numbers: Iterable[int]
) -> StepWork[tuple[AssignedPartition, ...]]:
    found = []
    for number in numbers:
        place, committed = place_of(state, number), group.offsets.get(number)
        if place is not None:
            topic, index = place
            at = -1 if committed is None else committed.offset
            is_new = committed is None and 0 <= group.first_number <= number
            ids = topic.name, topic.log_id
            found.append(AssignedPartition(number, *ids, index, at, topic.topic_id, is_new))
        yield
    return tuple(found)


def _periods(
    state: State, limits: GroupLimits, name: str, group: ConsumerGroupRecord
) -> tuple[int, int]:
    """How often a member is to be heard of, and after which silence it is none."""
    longest = state.access.group_ms(name, HEARTBEAT_MS, limits.consumer_heartbeat_interval_ms)
    session_ms = state.access.group_ms(name, SESSION_MS, limits.consumer_session_timeout_ms)
    often = max(SOONEST_MS, MEMBER_MS * len(group.consumers))
    return min(longest, often), session_ms

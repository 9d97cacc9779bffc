"""Runs the group coordinator on whichever node leads: asks it, has its decisions committed, and
lets its answers go when they are.

The coordinator's decisions of one turn of the loop are one entry (or a few, if they are large).
When leadership is lost, or it is not known whether an entry was committed, everything that waits is
told that this node coordinates no more, and clients look for the one that does.

Invariant: no answer leaves before everything that was decided before it is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from samelog.config.tables.kafka import GroupLimits
from samelog.consensus import Busy, NotLeader
from samelog.format.errors import InvariantError
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.coordinator import GroupCoordinator
from samelog.kafka.groups.outbox import Requester, Round
from samelog.kafka.groups.requests import AnyAnswer, Caller
from samelog.runtime.clock import Clock
from samelog.runtime.loop import InLoop
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, encode_commands
from samelog.sequencer.state.machine import StateMachine

TICK_S = 0.05
REST_S = 0.5
"""Between two ticks at most, while nothing waits: another node may lead by then."""
COMMIT_S = 10.0
"""A request whose decision is not committed by then is refused."""
ENTRY_BYTES = 1 << 20
"""More than this is split into several entries, between commands."""

CoordinatorCall = Callable[[GroupCoordinator, Requester], None]
CoordinatorAnswer = asyncio.Future[AnyAnswer | None]
"""None: this node coordinates no groups, or not any more."""


class Term(Protocol):
    """Who decides is known by the term."""

    @property
    def term(self) -> int:
        """The present one."""


class DecidingGroup(Protocol):
    """Where decisions are committed: a Raft group, on nodes."""

    @property
    def raft(self) -> Term:
        """Its core."""

    @property
    def is_leader(self) -> bool:
        """Whether this process decides."""

    def ask(self, commands: Sequence[AnyCommand]) -> tuple[int, asyncio.Future[list[Any]]]:
        """Have commands committed. Raises Busy, NotLeader."""

    async def read_index(self) -> int | None:
        """Up to where all is committed that anybody was told of; None: it is not known."""


class AppliedState(Protocol):
    """What was committed, as it is applied here."""

    async def wait_applied(self, index: int) -> None:
        """Until it is applied up to there."""


class Deciding(Protocol):
    """How groups are decided about."""

    @property
    def group(self) -> DecidingGroup:
        """Where decisions are committed."""

    @property
    def replica(self) -> AppliedState:
        """What comes of them."""


class GroupDriver(InLoop):
    """The groups of one node. Nothing happens while another node leads."""

    def __init__(
        self, raft: Deciding, machine: StateMachine, clock: Clock, limits: GroupLimits
    ) -> None:
        self._raft = raft
        self._machine = machine
        self._clock = clock
        self._limits = limits
        self._coordinator: GroupCoordinator | None = None
        self._term = -1
        self._waiting: set[CoordinatorAnswer] = set()
        self._unsent: deque[Round] = deque()
        """Rounds that Raft had no room for yet."""
        self._sent: deque[Round] = deque()
        """Rounds that are proposed and not committed yet; the oldest first."""
        self._held_since: float | None = None
        """Since when the oldest round of all waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_scheduled = False

    def start(self) -> None:
        """Begin to handle the deadlines of groups."""
        self._timer = self.loop.call_later(TICK_S, self._tick)

    def close(self) -> None:
        """Answer every waiting request, and stop."""
        if self._timer is not None:
            self._timer.cancel()
        self._resign()

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, request: CoordinatorCall) -> CoordinatorAnswer:
        """Ask the coordinator, if this node has it."""
        answer: CoordinatorAnswer = self.loop.create_future()
        coordinator = self._current()
        if coordinator is None:
            answer.set_result(None)
            return answer
        self._waiting.add(answer)
        answer.add_done_callback(self._waiting.discard)
        request(coordinator, answer)
        self._carry_out_soon()
        return answer

    async def is_current(self) -> bool:
        """Whether this node coordinates, and its replicated state is the newest there is."""
        if self._current() is None:
            return False
        index = await self._raft.group.read_index()
        if index is None:
            return False
        try:
            async with asyncio.timeout(COMMIT_S):
                await self._raft.replica.wait_applied(index)
        except TimeoutError:
            return False
        return self._current() is not None

    def may_fetch(self, caller: Caller) -> ErrorCode:
        """Whether a member may see what its group committed."""
        coordinator = self._current()
        return ErrorCode.not_coordinator if coordinator is None else coordinator.may_fetch(caller)

    def pattern(self, group: str, member: str) -> str:
        """The expression by which a member subscribes; empty: it has none, as far as is known."""
        coordinator = self._current()
        return "" if coordinator is None else coordinator.pattern(group, member)

    def times(self, group: str, member: str) -> tuple[int, int]:
        """When a member was heard of last, and polled; -1: not known here."""
        coordinator = self._current()
        return (-1, -1) if coordinator is None else coordinator.times(group, member)

    def _current(self) -> GroupCoordinator | None:
        """The coordinator for this node's term as leader; None if it does not lead."""
        group, clock = self._raft.group, self._clock
        if not group.is_leader or group.raft.term != self._term:
            self._resign()
        if not group.is_leader:
            return None
        if self._coordinator is None:
            state = self._machine.state
            self._coordinator = GroupCoordinator(self._limits, state, clock.now(), clock.wall_ms())
            self._term = group.raft.term
        self._coordinator.tick(clock.now(), clock.wall_ms(), may_expire=clock.is_agreed)
        return self._coordinator

    def _tick(self) -> None:
        self._timer = None
        try:
            if self._current() is not None:
                self._carry_out()
            self._answer_overdue()
        finally:
            self._timer = self.loop.call_later(self._pause_s, self._tick)

    @property
    def _pause_s(self) -> float:
        """How long nothing but a request needs a tick."""
        if self._waiting or self._sent or self._unsent:
            return TICK_S
        if self._coordinator is None:
            return REST_S
        left_s = self._coordinator.next_deadline() - self._clock.now()
        return min(max(TICK_S, left_s), REST_S)

    def _tick_soon(self) -> None:
        """A request may have set a deadline, or waits itself."""
        if self._timer is not None and self._timer.when() > self.loop.time() + TICK_S:
            self._timer.cancel()
            self._timer = self.loop.call_later(TICK_S, self._tick)

    def _answer_overdue(self) -> None:
        """Refuse the requests of rounds that are not committed in time, so that their clients ask
        again. The decisions stay proposed.
        """
        rounds = (*self._sent, *self._unsent)
        now = self._clock.now()
        if not rounds or self._held_since is None:
            self._held_since = now if rounds else None
        elif now - self._held_since > COMMIT_S:
            for made in rounds:
                for waiter, _ in made.answers:
                    if isinstance(waiter, asyncio.Future) and not waiter.done():
                        waiter.set_result(None)

    def _resign(self) -> None:
        self._coordinator = None
        self._unsent.clear()
        self._sent.clear()
        for answer in tuple(self._waiting):
            if not answer.done():
                answer.set_result(None)

    # --- carrying out -----------------------------------------------------------------------------

    def _carry_out_soon(self) -> None:
        """At the end of this turn of the loop, so that what arrives together shares an entry."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._carry_out()
        self._tick_soon()

    def _carry_out(self) -> None:
        if self._coordinator is None:
            return
        made = self._coordinator.drain()
        last = self._unsent[-1] if self._unsent else self._sent[-1] if self._sent else None
        if made.commands:
            self._unsent.append(made)
        elif last is not None:
            last.answers.extend(made.answers)
        else:
            _answer(made)
        self._send()

    def _send(self) -> None:
        """Propose what waits, as far as Raft has room."""
        while self._unsent:
            made = self._unsent[0]
            try:
                futures = [
                    self._raft.group.ask(commands)[1] for commands in _entries(made.commands)
                ]
            except (Busy, NotLeader):  # it hands leadership over, and may not succeed
                return
            self._sent.append(self._unsent.popleft())
            _all_done(futures, made, self._committed)

    def _committed(self, made: Round, *, is_sure: bool) -> None:
        """The newest entry of a round is committed, or its fate is unknown."""
        if made not in self._sent:
            return
        if not is_sure:
            self._resign()
            return
        self._held_since = None
        while self._sent:
            first = self._sent.popleft()
            _answer(first)
            if first is made:
                return


def _entries(commands: list[Any]) -> Iterator[list[AnyCommand]]:
    """The commands of a round, divided into entries."""
    entry: list[AnyCommand] = []
    size = 0
    for command in commands:
        length = len(encode_commands([command]))
        if entry and size + length > ENTRY_BYTES:
            yield entry
            entry, size = [], 0
        entry.append(command)
        size += length
    yield entry


def _answer(made: Round) -> None:
    for waiter, answer in made.answers:
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            waiter.set_result(answer)


def _all_done(futures: list[asyncio.Future[Any]], made: Round, then: Callable[..., None]) -> None:
    """Call `then` when all are done: with whether all have come true."""
    left = len(futures)

    def done(future: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if future.cancelled() or future.exception() is not None:
            then(made, is_sure=False)
            return
        refusal = next((one for one in future.result() if isinstance(one, Rejection)), None)
        if refusal is not None:
            raise InvariantError(f"a decision about groups was refused: {refusal.message}")
        if not left:
            then(made, is_sure=True)

    for future in futures:
        future.add_done_callback(done)

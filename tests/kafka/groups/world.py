"""A small world of consumers around one group coordinator: chance decides who comes, leaves, dies,
whose answers are lost, and when the leadership moves with only a part of what was proposed.

The consensus below is a list: rounds are committed in order, and at a change of leaders any number
of the newest ones is lost together with their answers, or is committed and only the answers are
lost. Everything is drawn from one seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.coordinator import GroupCoordinator
from samelog.kafka.groups.outbox import Round
from samelog.kafka.groups.requests import (
    Caller,
    Join,
    Joined,
    OffsetCommit,
    Sync,
    SyncGroupResponse,
)
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import Phase
from samelog.sequencer.state.tables.topics import CreateTopicCommand

PARTITIONS = 6
GROUP = "g"
SESSION_S, REBALANCE_S, HEARTBEAT_S, RETRY_S = 6.0, 10.0, 2.0, 0.5
LIMITS = GroupLimits(initial_rebalance_delay_ms=1000)
LOST = "lost"
"""In place of an answer: the connection broke, or that node leads no more."""


@dataclass(slots=True)
class Consumer:
    """A client: joins, syncs, heartbeats, commits, and does what the errors tell it."""

    world: World
    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    owned: tuple[int, ...] = ()
    stable: bool = False
    alive: bool = True
    busy: bool = False
    joins: int = 0

    @property
    def caller(self) -> Caller:
        return Caller(GROUP, self.member_id, self.instance_id, self.generation)

    def act(self) -> None:
        """Do the next thing, again and again while it lives."""
        if not self.alive:
            return
        self.world.after(HEARTBEAT_S if self.stable else RETRY_S, self.act)
        if self.busy:
            return
        if not self.stable:
            self.join()
        elif self.world.chance.random() < 0.5 and self.owned:
            self.commit()
        else:
            self.ask(lambda c, w: c.heartbeat(self.caller, w), self.heard)

    def ask(self, request: Callable[[GroupCoordinator, Any], None], then: Any) -> None:
        self.busy = True

        def answered(answer: Any) -> None:
            self.busy = False
            if self.alive:
                then(answer)

        self.world.ask(request, answered)

    def join(self) -> None:
        self.joins += 1
        wish = Join(
            caller=self.caller,
            fresh_id=f"{self.name}-{next(self.world.numbers)}",
            client_id=self.name,
            client_host="/here",
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            protocol_type="consumer",
            protocols=[("range", self.name.encode())],
        )
        self.ask(lambda c, w: c.join(wish, w), self.joined)

    def joined(self, answer: Joined | str) -> None:
        if isinstance(answer, str):
            return
        if answer.error_code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code:
            self.failed(answer.error_code)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.world.checker.joined(answer)
            self.ask(lambda c, w: c.sync(self.plan(answer), w), self.synced)

    def plan(self, answer: Joined) -> Sync:
        """The leader deals the partitions out."""
        members = sorted(name for name, _, _ in answer.members)
        hands: dict[str, list[int]] = {name: [] for name in members}
        for partition, name in zip(range(PARTITIONS), itertools.cycle(members), strict=False):
            hands[name].append(partition)
        given = [] if answer.skip_assignment else [(n, bytes(hand)) for n, hand in hands.items()]
        return Sync(caller=self.caller, assignments=given)

    def synced(self, answer: SyncGroupResponse | str) -> None:
        if isinstance(answer, str):
            return
        if answer.error_code:
            self.failed(answer.error_code)
            return
        self.stable, self.owned = True, tuple(answer.assignment)
        self.world.checker.assigned(self)

    def heard(self, error: ErrorCode | str) -> None:
        if error and not isinstance(error, str):
            self.failed(error)

    def commit(self) -> None:
        partition = self.world.chance.choice(self.owned)
        value = next(self.world.numbers)
        commits = [OffsetCommit(self.world.partition_number(partition), value)]

        def committed(answer: Any) -> None:
            if isinstance(answer, str):
                return
            if answer[0]:
                self.failed(answer[0])
            else:
                self.world.checker.committed(partition, value)

        self.ask(lambda c, w: c.commit(self.caller, commits, w), committed)

    def failed(self, error: ErrorCode) -> None:
        """What clients do with Kafka's errors."""
        if error is ErrorCode.fenced_instance_id:
            self.alive = False
        elif error is ErrorCode.unknown_member_id:
            self.member_id, self.generation, self.owned = "", -1, ()
        elif error not in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation):
            raise AssertionError(f"{self.name} is told {error.name}")
        self.stable = False


class Checker:
    """What must hold whatever happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> who was told to have it."""
        self.leaders: dict[int, str] = {}
        self.acknowledged: dict[int, int] = {}
        self.commits = 0

    def joined(self, answer: Joined) -> None:
        if answer.members and not answer.skip_assignment:
            known = self.leaders.setdefault(answer.generation, answer.member_id)
            assert known == answer.member_id, f"two leaders of generation {answer.generation}"

    def assigned(self, consumer: Consumer) -> None:
        who = consumer.instance_id or consumer.member_id
        for partition in consumer.owned:
            key = (consumer.generation, partition)
            assert self.owners.setdefault(key, who) == who, f"{key} is {self.owners[key]}'s too"

    def committed(self, partition: int, value: int) -> None:
        self.commits += 1
        self.acknowledged[partition] = max(value, self.acknowledged.get(partition, 0))
        self.nothing_lost()

    def nothing_lost(self) -> None:
        """What was acknowledged is there, or something newer."""
        group = self.world.machine.state.groups.by_id.get(GROUP)
        for partition, value in self.acknowledged.items():
            known = group and group.offsets.get(self.world.partition_number(partition))
            assert known, f"no offset of {partition}"
            assert known.offset >= value, f"{partition}: {known.offset}, not {value}"


@dataclass(slots=True)
class _Outstanding:
    entry: bytes
    round: Round


@dataclass
class World:
    """Everything around the coordinator."""

    seed: int
    faults: bool = True
    now: float = 0.0
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.numbers = itertools.count(1)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self.machine = StateMachine()
        self.machine.apply(CreateTopicCommand("t", "t", PARTITIONS, {}, 1))
        self.checker = Checker(self)
        self._outstanding: deque[_Outstanding] = deque()
        self._parked: set[Any] = set()
        self._elect()

    def partition_number(self, index: int) -> int:
        return self.machine.state.topics.by_id["t"].partition_numbers[index]

    # --- time -------------------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self.numbers), action))

    def run(self, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until something holds."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
            if done():
                return True
        self.now = end
        return False

    # --- the coordinator --------------------------------------------------------------------------

    def _elect(self) -> None:
        self.coordinator = GroupCoordinator(LIMITS, self.machine.state, self.now, self.wall_ms)
        self.reigns = object()
        self._tick(self.reigns)

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def _tick(self, reign: object) -> None:
        if reign is self.reigns:
            self.coordinator.tick(self.now, self.wall_ms)
            self._carry_out()
            self.after(0.1, lambda: self._tick(reign))

    def ask(self, request: Callable[[GroupCoordinator, Any], None], answered: Any) -> None:
        """Send a request; its answer comes later, or LOST does."""
        self.after(self._delay(), lambda: self._arrives(request, answered))

    def _delay(self) -> float:
        return self.chance.uniform(0.001, 0.02)

    def _arrives(self, request: Callable[[GroupCoordinator, Any], None], answered: Any) -> None:
        if self._is_lost():
            self.after(1.0, lambda: answered(LOST))
            return
        waiter = answered
        self._parked.add(waiter)
        self.coordinator.tick(self.now, self.wall_ms)
        request(self.coordinator, waiter)
        self._carry_out()

    def _is_lost(self) -> bool:
        return self.faults and self.chance.random() < 0.02

    def _carry_out(self) -> None:
        made = self.coordinator.drain()
        if made.commands:
            self._outstanding.append(_Outstanding(encode_commands(made.commands), made))
            reign = self.reigns
            self.after(self._delay(), lambda: self._commit(reign))
        elif self._outstanding:
            self._outstanding[-1].round.answers.extend(made.answers)
        else:
            self._answer(made)

    def _commit(self, reign: object) -> None:
        if reign is self.reigns:
            first = self._outstanding.popleft()
            self._apply(first)
            self._answer(first.round)

    def _apply(self, entry: _Outstanding) -> None:
        for command in decode_commands(entry.entry):
            outcome = self.machine.apply(command)
            assert not isinstance(outcome, Rejection), outcome

    def _answer(self, made: Round) -> None:
        for waiter, answer in made.answers:
            self._parked.discard(waiter)
            said = LOST if self._is_lost() else answer
            self.after(self._delay(), lambda waiter=waiter, said=said: waiter(said))  # type: ignore[misc]

    def depose(self) -> None:
        """Another node leads: a prefix of what was proposed is committed, all answers are lost."""
        for _ in range(self.chance.randint(0, len(self._outstanding))):
            self._apply(self._outstanding.popleft())
        self._outstanding.clear()
        for waiter in sorted(self._parked, key=id):
            self.after(self._delay(), lambda waiter=waiter: waiter(LOST))  # type: ignore[misc]
        self._parked.clear()
        self.machine = StateMachine.decode(self.machine.encode())
        self.checker.nothing_lost()
        self._elect()

    # --- what happens -----------------------------------------------------------------------------

    def add(self, instance_id: str | None = None) -> Consumer:
        """One more consumer."""
        consumer = Consumer(self, f"c{len(self.consumers)}", instance_id)
        self.consumers.append(consumer)
        self.after(self._delay(), consumer.act)
        return consumer

    def live(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.alive]

    def fault(self) -> None:
        """One random thing."""
        chance, live = self.chance, self.live()
        kind = chance.choice(["add", "static", "leave", "crash", "depose", "nothing", "nothing"])
        if kind in ("add", "static") and len(live) < 8:
            self.add(f"i{chance.randrange(3)}" if kind == "static" else None)
        elif kind == "leave" and live:
            consumer = chance.choice(live)
            consumer.alive = False
            self.ask(lambda c, w: c.leave([consumer.caller], w), lambda answer: None)
        elif kind == "crash" and live:
            chance.choice(live).alive = False
        elif kind == "depose":
            self.depose()
        self.after(chance.uniform(0.05, 5.0), lambda: self.fault() if self.faults else None)

    def is_settled(self) -> bool:
        """All live consumers are in one stable generation and have all partitions."""
        group = self.machine.state.groups.by_id.get(GROUP)
        live = self.live()
        if group is None or not live:
            return not live
        owned = sorted(partition for consumer in live for partition in consumer.owned)
        return (
            group.phase == Phase.STABLE
            and len(group.members) == len(live)
            and all(c.stable and c.generation == group.generation for c in live)
            and owned == list(range(PARTITIONS))
        )

"""A coordinator whose rounds are committed at once, and short ways to ask it."""

from __future__ import annotations

import dataclasses
from typing import Any

from samelog.config.tables.kafka import GroupLimits
from samelog.format.steps import finished
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.coordinator import GroupCoordinator
from samelog.kafka.groups.requests import (
    Caller,
    Join,
    Joined,
    OffsetCommit,
    Sync,
    SyncGroupResponse,
)
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import CreateTopicCommand

LIMITS = GroupLimits(initial_rebalance_delay_ms=0, offsets_retention_check_interval_ms=60_000)


class Bench:
    """One cluster with the topics `t` (partitions 1 and 2) and `u` (3)."""

    def __init__(self, **limits: int) -> None:
        self.limits = dataclasses.replace(LIMITS, **limits)
        self.machine = StateMachine()
        self.machine.apply(CreateTopicCommand("t1", "t", 2, {}, 1))
        self.machine.apply(CreateTopicCommand("u1", "u", 1, {}, 1))
        self.now = 0.0
        self.entries = 0
        self._ids = 0
        self._waiters = 0
        self.answers: dict[int, Any] = {}
        self.elect()

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def elect(self) -> None:
        """A new leader's coordinator."""
        self.machine = StateMachine.decode(self.machine.encode())
        self.coordinator = GroupCoordinator(self.limits, self.machine.state, self.now, self.wall_ms)

    def pass_time(self, seconds: float) -> None:
        """Step by step, as the driver does."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, max(self.now + 0.01, self.coordinator.next_deadline()))
            self.coordinator.tick(self.now, self.wall_ms)
            self._carry_out()

    def _carry_out(self) -> None:
        made = self.coordinator.drain()
        self.entries += bool(made.commands)
        for command in made.commands:
            assert not isinstance(self.machine.apply(command), Rejection)
        for waiter, answer in made.answers:
            assert isinstance(waiter, int)
            assert waiter not in self.answers, "answered twice"
            self.answers[waiter] = answer

    def ask(self, request: Any, *arguments: Any) -> int:
        """Ask something: the number under which the answer will be."""
        self._waiters += 1
        request(*arguments, self._waiters)
        self._carry_out()
        return self._waiters

    def answer(self, request: Any, *arguments: Any) -> Any:
        """Ask something that is answered at once."""
        return self.answers[self.ask(request, *arguments)]

    # --- requests ---------------------------------------------------------------------------------

    def join(self, member: str = "", instance: str | None = None, **more: Any) -> int:
        """JoinGroup, as a version 4 to 9 client sends it."""
        self._ids += 1
        request = Join(
            caller=Caller(more.pop("group", "g"), member, instance),
            **{
                "fresh_id": f"id{self._ids}",
                "client_id": "c",
                "client_host": "/h",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 30_000,
                "protocol_type": "consumer",
                "protocols": [("range", subscription("t"))],
                **more,
            },
        )
        return self.ask(self.coordinator.join, request)

    def joined(self, member: str = "", instance: str | None = None, **more: Any) -> Joined:
        """The same, answered at once."""
        answer: Joined = self.answers[self.join(member, instance, **more)]
        return answer

    def new_member(self, **more: Any) -> tuple[str, int]:
        """A dynamic member that has got its id and waits for its generation: id, waiter."""
        first = self.joined(**more)
        assert first.error_code is ErrorCode.member_id_required
        return first.member_id, self.join(first.member_id, **more)

    def sync(self, joined: Joined, **assignments: bytes) -> int:
        """SyncGroup with the assignments of a leader."""
        caller = Caller("g", joined.member_id, None, joined.generation)
        return self.ask(
            self.coordinator.sync, Sync(caller=caller, assignments=tuple(assignments.items()))
        )

    def stable(self, count: int = 1) -> list[Joined]:
        """A stable generation with so many new dynamic members; the leader first."""
        waiting: list[tuple[str, int]] = []
        for _ in range(count):
            waiting.append(self.new_member())
            if waiting[0][1] in self.answers and len(waiting) > 1:
                waiting[:-1] = [(m, self.join(m)) for m, _ in waiting[:-1]]
        joined: list[Joined] = [self.answers[waiter] for _, waiter in waiting]
        joined.sort(key=lambda one: one.leader != one.member_id)
        everything = {one.member_id: one.member_id.encode() for one in joined}
        syncs = [self.sync(one, **(everything if one is joined[0] else {})) for one in joined]
        for one, waiter in zip(joined, syncs, strict=True):
            assert self.answers[waiter] == SyncGroupResponse(
                ErrorCode.none, "consumer", "range", one.member_id.encode()
            )
        return joined

    def heartbeat(self, joined: Joined, instance: str | None = None) -> ErrorCode:
        caller = Caller("g", joined.member_id, instance, joined.generation)
        error: ErrorCode = self.answer(self.coordinator.heartbeat, caller)
        return error

    def commit(
        self,
        caller: Caller,
        partition: int | None = 1,
        offset: int = 5,
        metadata: str = "",
        epoch: int = -1,
    ) -> ErrorCode:
        commits = [OffsetCommit(partition, offset, epoch, metadata)]
        return self.answer(self.coordinator.commit, caller, commits)[0]  # type: ignore[no-any-return]

    def offsets(self, group: str = "g") -> dict[int, int]:
        """What is committed, by partition number."""
        known = self.machine.state.groups.by_id.get(group)
        return {} if known is None else {n: one.offset for n, one in known.offsets.items()}

    def state(self, group: str = "g") -> str:
        [described] = finished(self.answer(self.coordinator.describe, [group]))
        return str(described.group_state)


def subscription(*topics: str) -> bytes:
    """What a Kafka consumer joins with."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\0\0\0\0"

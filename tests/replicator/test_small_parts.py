"""Requests, turns and acknowledgements: order and bounds, with everything made up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from samelog.replicator.pull.acknowledger import ACKNOWLEDGE_BYTES, Acknowledger
from samelog.replicator.push.requests import STARTED_IN_TURN, Requests
from samelog.replicator.turns import TURN_S, Turns, TurnTaker
from samelog.runtime.clock import ManualClock
from samelog.runtime.network.transport import Connection
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Fault, Received
from tests.runtime.peers import in_loop, until


class Line:
    """Takes the place of a connection."""

    def __init__(self) -> None:
        self.sent: list[AnyMessage] = []
        self.writable = True
        self.faults: list[Fault | None] = []

    def send(self, message: AnyMessage) -> None:
        """Keep it."""
        self.sent.append(message)

    def cork(self) -> None:
        """Nothing is written."""

    def uncork(self) -> None:
        """As before."""

    def close(self, fault: Fault | None = None) -> None:
        """Keep why."""
        self.faults.append(fault)

    @property
    def connection(self) -> Connection:
        """As what it is used."""
        return cast(Connection, self)


# --- requests -----------------------------------------------------------------------------------


class Work:
    """Requests that end when the test says so."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.log: list[str] = []
        self.errors: list[Exception] = []
        self.requests = Requests(self.errors.append, at_once=2, queued=4, deadline_s=5)

    def add(self, name: str, *, alone: bool = False) -> None:
        """A request that waits."""
        self.requests.add(lambda: self._run(name), alone=alone)

    def add_quick(self, name: str) -> None:
        """One that does not, but goes alone."""
        self.requests.add(lambda: self.log.append(name), alone=True)

    async def _run(self, name: str) -> None:
        self.running[name] = asyncio.Event()
        self.log.append(name)
        await self.running[name].wait()
        del self.running[name]

    async def end(self, name: str) -> None:
        """Let one end."""
        self.running[name].set()
        await until(lambda: name not in self.running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_requests_run_at_once_within_bounds_and_alone_where_they_must() -> None:
    async def main() -> None:
        work = Work()
        for name in ("a", "b", "c"):
            work.add(name)
        await until(lambda: len(work.running) == 2)
        work.add("d", alone=True)
        work.add("e")
        await work.end("b")
        await until(lambda: "c" in work.running)
        await work.end("a")
        assert work.log == ["a", "b", "c"]
        await work.end("c")
        await until(lambda: "d" in work.running)
        assert work.log == ["a", "b", "c", "d"]
        await work.end("d")
        await until(lambda: "e" in work.running)
        work.add_quick("f")
        assert work.log[-1] == "e"
        await work.end("e")
        await until(lambda: work.log[-1] == "f")
        work.add_quick("g")
        assert work.log[-1] == "g", "nothing to wait for"

    in_loop(main)


def test_too_many_requests_are_refused() -> None:
    async def main() -> None:
        work = Work()
        for number in range(6):
            work.add(str(number))
        with pytest.raises(ProtocolFault) as refused:
            work.add("one more")
        assert refused.value.code is FaultCode.TOO_MANY
        work.requests.close()

    in_loop(main)


def test_a_turn_starts_a_bounded_number_of_requests() -> None:
    """What waited for one request may be thousands that need no answer of the cluster."""

    async def main() -> None:
        work = Work()
        work.requests = Requests(work.errors.append)
        work.add("a")
        await until(lambda: "a" in work.running)
        for number in range(1000):
            work.add_quick(str(number))
        work.running["a"].set()
        while len(work.log) <= 1000:
            before = len(work.log)
            await asyncio.sleep(0)
            assert len(work.log) - before <= STARTED_IN_TURN
        assert work.log == ["a", *map(str, range(1000))]

    in_loop(main)


def test_what_a_request_raises_is_told_even_when_it_starts_late() -> None:
    async def main() -> None:
        work = Work()
        work.add("a")
        await until(lambda: "a" in work.running)

        def fail() -> Coroutine[Any, Any, None] | None:
            raise ValueError("late")

        work.requests.add(fail, alone=True)
        await work.end("a")
        await until(lambda: work.errors)
        assert str(work.errors[0]) == "late"

    in_loop(main)


def test_a_request_has_a_deadline() -> None:
    async def main() -> None:
        errors: list[Exception] = []
        requests = Requests(errors.append, deadline_s=0.01)
        requests.add(lambda: asyncio.sleep(100), alone=True)
        await until(lambda: errors)
        assert isinstance(errors[0], ProtocolFault)
        assert errors[0].code is FaultCode.TIMEOUT

    in_loop(main)


def test_closing_ends_requests_without_a_word() -> None:
    async def main() -> None:
        work = Work()
        work.add("a")
        work.add("b", alone=True)
        await until(lambda: "a" in work.running)
        work.requests.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert work.log == ["a"]
        assert work.errors == []

    in_loop(main)


# --- turns --------------------------------------------------------------------------------------


class Steps:
    """Work that costs made-up time."""

    def __init__(self, left: int, cost_s: float = 0.0) -> None:
        self.left = left
        self.rests = 0
        self.line = Line()
        self.clock = ManualClock()
        self._cost_s = cost_s
        turns = Turns(self.line.connection, self.clock)
        self.turns = turns.join(self.line.connection, self.step, self.rest)

    def step(self) -> bool:
        """One piece."""
        if self.left == 0:
            return False
        self.left -= 1
        self.clock.advance(self._cost_s)
        return True

    def rest(self) -> None:
        """Nothing to do."""
        self.rests += 1


def test_the_first_work_of_a_turn_is_done_at_once_the_rest_at_its_end() -> None:
    async def main() -> None:
        steps = Steps(1)
        steps.turns.work()
        assert (steps.left, steps.rests) == (0, 1)
        steps.left = 2
        steps.turns.work()
        steps.turns.work()
        assert steps.left == 2
        await asyncio.sleep(0)
        assert (steps.left, steps.rests) == (0, 2)

    in_loop(main)


def test_a_turn_is_bounded_and_goes_on_in_the_next() -> None:
    async def main() -> None:
        steps = Steps(10, cost_s=TURN_S * 0.6)
        steps.turns.work()
        assert steps.left == 8
        for expected in (6, 4, 2, 0):
            await asyncio.sleep(0)
            assert steps.left == expected
        await until(lambda: steps.rests == 1)

    in_loop(main)


def test_nothing_is_done_while_the_connection_is_full() -> None:
    async def main() -> None:
        steps = Steps(3)
        steps.line.writable = False
        steps.turns.work()
        assert (steps.left, steps.rests) == (3, 0)
        steps.line.writable = True
        steps.turns.work()
        await asyncio.sleep(0)
        assert steps.left == 0
        steps.turns.close()
        steps.left = 1
        steps.turns.work()
        await asyncio.sleep(0)
        assert steps.left == 1

    in_loop(main)


def test_a_failure_at_the_end_of_a_turn_ends_the_connection() -> None:
    async def main() -> None:
        steps = Steps(0)
        steps.turns.work()

        def fail() -> bool:
            raise ProtocolFault(FaultCode.GAP, "made up")

        steps.turns.step = fail
        steps.turns.work()
        await asyncio.sleep(0)
        [fault] = steps.line.faults
        assert fault is not None
        assert fault.code is FaultCode.GAP

    in_loop(main)


def test_parts_of_a_connection_take_turns() -> None:
    async def main() -> None:
        line, clock, done = Line(), ManualClock(), list[str]()
        shared = Turns(line.connection, clock)

        def part(name: str, pieces: int) -> TurnTaker:
            left = [pieces]

            def step() -> bool:
                left[0] -= 1
                if left[0] >= 0:
                    done.append(name)
                    clock.advance(TURN_S * 0.4)
                return left[0] > 0

            return shared.join(line.connection, step, lambda: None)

        part("a", 1).work()
        for each in (part("b", 5), part("c", 2), part("d", 1)):
            each.work()
        await until(lambda: len(done) == 9)
        assert "".join(done) == "abcdbcbbb"

    in_loop(main)


def test_a_part_that_fails_ends_alone() -> None:
    async def main() -> None:
        line, other = Line(), Line()
        shared = Turns(line.connection, ManualClock())
        done: list[str] = []

        def fail() -> bool:
            raise ProtocolFault(FaultCode.GAP, "made up")

        failing = shared.join(other.connection, fail, lambda: None)

        def work() -> bool:
            done.append("good")
            return False

        good = shared.join(line.connection, work, lambda: None)
        failing.work()
        good.work()
        failing.work()
        await until(lambda: done)
        assert len(other.faults) == 1
        assert line.faults == []

    in_loop(main)


# --- acknowledgements ---------------------------------------------------------------------------


def test_much_is_acknowledged_at_once_little_after_a_moment() -> None:
    async def main() -> None:
        line = Line()
        acknowledger = Acknowledger(line.connection)
        acknowledger.took(1, 10)
        acknowledger.took(2, 70)
        acknowledger.took(1, 20)
        assert line.sent == []
        await until(lambda: line.sent)
        assert line.sent == [Received(1, 30), Received(2, 70)]
        line.sent.clear()
        half = ACKNOWLEDGE_BYTES // 2
        acknowledger.took(1, half)
        acknowledger.took(2, half)
        assert line.sent == [Received(1, half), Received(2, half)]
        line.sent.clear()
        acknowledger.took(1, 1)
        acknowledger.close()
        await asyncio.sleep(0.15)
        assert line.sent == []

    in_loop(main)

"""Long work of clients has half of an event loop at most, by turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from samelog.format.steps import StepWork, finished, mapped
from samelog.runtime import slices
from samelog.runtime.slices import in_background, paced

STEPS = 60
STEP_S = slices.SLICE_S / 4


class Work:
    """Long work whose clock moves with each step; notes which client had each step."""

    def __init__(self) -> None:
        self.now = 100.0
        self.done: list[str] = []
        self.turn = 0
        self.turns: list[int] = []

    def steps(self, client: str) -> StepWork[str]:
        """A number of steps."""
        for _ in range(STEPS):
            self.now += STEP_S
            self.done.append(client)
            self.turns.append(self.turn)
            yield
        return client

    def tick(self) -> None:
        """Count the turns of the loop."""
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.tick)


async def run(work: Work, *clients: str) -> list[str]:
    """The work of several clients at once."""
    slices.slices().now = lambda: work.now
    work.tick()
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(paced(work.steps(client)), context=slices.context_of(client))
        for client in clients
    ]
    return list(await asyncio.gather(*tasks))


def test_no_turn_has_more_than_a_slice() -> None:
    work = Work()
    assert asyncio.run(run(work, "a", "b", "c")) == ["a", "b", "c"]
    assert max(Counter(work.turns).values()) <= slices.SLICE_S / STEP_S + 1


def test_clients_have_slices_in_turn_however_many_connections_they_have() -> None:
    work = Work()
    asyncio.run(run(work, *["many"] * 8, "one"))
    last = max(place for place, client in enumerate(work.done) if client == "one")
    assert work.done[:last].count("many") < 2 * STEPS


def test_cancelled_work_leaves_its_turn_to_others() -> None:
    work = Work()

    async def body() -> None:
        slices.slices().now = lambda: work.now
        gone = [in_background(paced(work.steps("gone"))) for _ in range(3)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        assert await paced(work.steps("stays")) == "stays"

    asyncio.run(body())


def test_work_in_the_background_hands_on_its_error() -> None:
    def fails() -> StepWork[None]:
        yield
        raise ValueError("no")

    async def body() -> None:
        with pytest.raises(ValueError, match="no"):
            await in_background(paced(fails()))

    asyncio.run(body())


def test_all_steps_at_once() -> None:
    assert finished(mapped(str, range(3))) == ["0", "1", "2"]


def test_work_that_never_ends_has_a_fifth_of_the_loop() -> None:
    work, pauses = Work(), list[float]()

    async def main() -> None:
        shared, loop = slices.slices(), asyncio.get_running_loop()
        shared.now = lambda: work.now
        later = loop.call_later

        def call_later(delay: float, *rest: Any) -> asyncio.TimerHandle:
            pauses.append(delay - slices.SLICE_S)
            work.now += delay
            return later(0, *rest)

        with patch.object(loop, "call_later", call_later):
            for _ in range(200):
                await shared.next()
        pauses.append(-1)
        await asyncio.sleep(0.01)
        with patch.object(loop, "call_later", call_later):
            await shared.next()

    asyncio.run(main())
    assert pauses[0] == pytest.approx(slices.PAUSE_S)
    assert pauses[-3] == pytest.approx(4 * slices.SLICE_S)
    assert pauses[-1] == pytest.approx(slices.PAUSE_S)

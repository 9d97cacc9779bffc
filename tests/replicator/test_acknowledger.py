"""The window of a pull is freed in time, and no faster than a budget allows."""

from __future__ import annotations

import asyncio

from samelog.replicator.pull.acknowledger import ACKNOWLEDGE_BYTES, Acknowledger, Budget
from samelog.wire.messages import AnyMessage, Received
from tests.runtime.peers import until


class Sent:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []

    def send(self, message: AnyMessage) -> None:
        """Keep it."""
        self.messages.append(message)


def test_who_spends_more_waits_until_it_is_paid_for() -> None:
    budget = Budget(100)
    assert budget.spend(50, 10.0) == 0.5
    assert budget.spend(50, 10.0) == 1.0
    assert budget.spend(50, 11.0) == 0.5  # all before is paid for
    assert budget.spend(50, 20.0) == 0.5  # nothing was saved up meanwhile
    assert Budget(0).spend(1 << 40, 0.0) == 0.0


def test_what_is_taken_is_told_only_when_it_is_paid_for() -> None:
    async def main() -> None:
        sent = Sent()
        budget = Budget(ACKNOWLEDGE_BYTES * 20)
        acknowledger = Acknowledger(sent)  # type: ignore[arg-type]
        begin = asyncio.get_running_loop().time()
        for _ in range(4):
            acknowledger.took(1, ACKNOWLEDGE_BYTES, budget)
        assert sent.messages == []
        await until(lambda: len(sent.messages) == 4)
        assert asyncio.get_running_loop().time() - begin >= 4 / 20
        assert sent.messages == [Received(1, ACKNOWLEDGE_BYTES)] * 4
        acknowledger.took(1, ACKNOWLEDGE_BYTES, budget)
        acknowledger.close()
        later = Sent()
        Acknowledger(later).took(1, ACKNOWLEDGE_BYTES, budget)  # type: ignore[arg-type]
        await until(lambda: later.messages)
        assert len(sent.messages) == 4

    asyncio.run(main())

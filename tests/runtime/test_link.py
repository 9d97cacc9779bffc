"""A node that does not answer in time gets more of it with the next attempt."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from samelog.config.values import Address
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import SystemClock
from samelog.runtime.errors import ConnectFault, ConnectProblem
from samelog.runtime.network import link
from samelog.runtime.network.peer_watch import Deadlines

LATE, GONE = ConnectProblem.TIMEOUT, ConnectProblem.UNREACHABLE


@pytest.mark.parametrize(
    ("problems", "times"),
    [((LATE, LATE, LATE, LATE), [1, 2, 4, 4]), ((GONE, GONE, LATE, GONE), [1, 1, 1, 2])],
)
def test_who_is_late_may_take_longer_the_next_time(
    monkeypatch: pytest.MonkeyPatch, problems: tuple[ConnectProblem, ...], times: list[int]
) -> None:
    given: list[Deadlines] = []

    async def connect(*_: Any, deadlines: Deadlines, **__: Any) -> None:
        given.append(deadlines)
        raise ConnectFault(problems[len(given) - 1], "peer", "said", remedy="none")

    monkeypatch.setattr(link, "connect", connect)

    async def main() -> None:
        nothing: Any = None
        dialled = link.NodeLink(
            nothing,
            tls=nothing,
            backoff=Backoff(random.Random(1)),
            clock=SystemClock(),
            says="no connection",
        )
        enough = asyncio.Event()
        task = asyncio.create_task(
            dialled.keep_up(
                lambda: link.NodeAddress(Address("127.0.0.1", 1), "n1"),
                lambda error: enough.set() if len(given) == len(problems) else None,
            )
        )
        await enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    first = Deadlines()
    assert [each.handshake_s / first.handshake_s for each in given] == times
    assert [each.idle_s / first.idle_s for each in given] == times

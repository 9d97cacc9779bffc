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
from tests.patience import PATIENCE_S

LATE, GONE = ConnectProblem.TIMEOUT, ConnectProblem.UNREACHABLE


def make_link(backoff: Backoff) -> link.NodeLink:
    """One that is never open."""
    nothing: Any = None
    return link.NodeLink(
        nothing, tls=nothing, backoff=backoff, clock=SystemClock(), says="no connection"
    )


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
        dialled = make_link(Backoff(random.Random(1)))
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


@pytest.mark.parametrize("is_dialling", [True, False])
def test_who_was_seen_is_dialled_at_once(
    monkeypatch: pytest.MonkeyPatch, *, is_dialling: bool
) -> None:
    """It may be seen while an attempt fails, and after that."""
    tries = 0
    ended = asyncio.Queue[Exception | None]()
    dialled = make_link(Backoff(random.Random(1), base_s=1e6, maximum_s=1e6))

    async def connect(*_: Any, **__: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1 and is_dialling:
            dialled.is_there()
        raise ConnectFault(GONE, "peer", "said", remedy="none")

    monkeypatch.setattr(link, "connect", connect)

    async def main() -> None:
        there = link.NodeAddress(Address("127.0.0.1", 1), "n1")
        task = asyncio.create_task(dialled.keep_up(lambda: there, ended.put_nowait))
        await ended.get()
        if not is_dialling:
            dialled.is_there()
        async with asyncio.timeout(PATIENCE_S):
            await ended.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert tries == 2

    asyncio.run(main())

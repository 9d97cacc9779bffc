"""A flag lets all go on who wait for it, and keeps nothing of who does not wait any more."""

from __future__ import annotations

import asyncio
import sys

import pytest

from samelog.runtime.flag import Flag
from tests.patience import PATIENCE_S


def test_all_who_wait_go_on_though_it_is_cleared_at_once() -> None:
    async def body() -> None:
        flag, gone_on = Flag(), list[int]()

        async def wait(number: int) -> None:
            await flag.wait()
            gone_on.append(number)

        waiting = [asyncio.create_task(wait(number)) for number in range(3)]
        await asyncio.sleep(0)
        flag.set()
        flag.clear()
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert (gone_on, flag.is_set()) == ([0, 1, 2], False)

    asyncio.run(body())


def test_who_comes_while_it_is_set_does_not_wait() -> None:
    async def body() -> None:
        await asyncio.wait_for(Flag(is_set=True).wait(), PATIENCE_S)

    asyncio.run(body())


def test_who_gives_up_is_forgotten() -> None:
    async def body() -> None:
        flag = Flag()
        leaving, staying = (asyncio.create_task(flag.wait()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        flag.set()
        await asyncio.wait_for(staying, PATIENCE_S)
        assert flag._waiters is None

    asyncio.run(body())


def test_it_is_small_while_nobody_waits() -> None:
    assert sys.getsizeof(Flag()) < 64

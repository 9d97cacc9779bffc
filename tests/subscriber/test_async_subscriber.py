"""The subscriber with async methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from samelog import AsyncSubscriber, Record
from samelog.subscriber import SubscriberClosed
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing, numbers

RUNNERS: list[Callable[[Coroutine[Any, Any, None]], None]] = [asyncio.run, uvloop.run]


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("run", RUNNERS)
def test_records_come_as_they_grow(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def main() -> None:
        growing = Growing(tmp_path)
        growing.count(0, 5)
        found: list[bytes | None] = []
        async with AsyncSubscriber("t", directory=tmp_path) as subscriber:
            async for record in subscriber:
                found.append(record.value)
                if len(found) == 20:
                    break
                if len(found) >= 5:
                    growing.count(len(found), len(found) + 1)
        assert found == numbers(0, 20)

    run(main())


def test_the_loop_goes_on_while_nothing_comes(tmp_path: Path) -> None:
    async def main() -> None:
        growing = Growing(tmp_path)
        async with AsyncSubscriber("t", directory=tmp_path) as subscriber:
            assert await subscriber.batch(5, timeout=0.01) == []
            waiting = asyncio.ensure_future(subscriber.poll(timeout=PATIENCE_S))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            growing.append(b"a")
            record = await waiting
            assert record is not None
            assert record.value == b"a"
            growing.append(b"b", b"c")
            table = await subscriber.arrow_records(10, timeout=PATIENCE_S)
            assert table["value"].to_pylist() == [b"b", b"c"]
            assert subscriber.position() == 3
            assert subscriber.caught_up
            subscriber.seek(0, 1)
            batches = [batch async for batch in _first(subscriber, 2)]
            assert [values(batch) for batch in batches] == [[b"b"], [b"c"]]

    asyncio.run(main())


async def _first(subscriber: AsyncSubscriber, count: int) -> Any:
    async for batch in subscriber.batches(1):
        yield batch
        count -= 1
        if count == 0:
            return


def test_closing_ends_what_waits(tmp_path: Path) -> None:
    async def main() -> None:
        Growing(tmp_path)
        subscriber = AsyncSubscriber("t", directory=tmp_path)
        waiting = asyncio.ensure_future(subscriber.batch())
        await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE_S):
            await subscriber.close()
            assert await waiting == []
        with pytest.raises(SubscriberClosed):
            await subscriber.batch()

    asyncio.run(main())


def test_pause_resume_and_stored_positions(tmp_path: Path) -> None:
    async def main() -> None:
        growing = Growing(tmp_path)
        growing.count(0, 10)
        async with AsyncSubscriber("t", directory=tmp_path, name="n") as subscriber:
            subscriber.pause()
            assert await subscriber.batch(5, timeout=0.02) == []
            assert subscriber.is_paused
            subscriber.resume()
            assert values(await subscriber.batch(5)) == numbers(0, 5)
            await subscriber.commit()
            await subscriber.wait_caught_up(timeout=PATIENCE_S)
        async with AsyncSubscriber("t", directory=tmp_path, name="n", follow=False) as subscriber:
            assert [record.value async for record in subscriber] == numbers(5, 10)

    asyncio.run(main())

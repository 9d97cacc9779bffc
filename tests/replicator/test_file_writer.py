"""Writers of small files whose callers are cancelled, and whose loop ends."""

from __future__ import annotations

import asyncio
import gc
import warnings

from samelog.replicator.push.file_writer import FileWriter


def run_until_cancelled(writes: list[str], *, finishes: bool) -> None:
    """Ask for two writes, of which the second waits for its turn, and end the loop."""

    async def main() -> None:
        writer, may_end = FileWriter(), asyncio.Event()

        async def first() -> None:
            await may_end.wait()
            writes.append("first")

        async def second() -> None:
            writes.append("second")

        asked = [asyncio.create_task(writer.run(each)) for each in (first, second)]
        await asyncio.sleep(0)
        assert writer.is_busy
        for task in asked:
            task.cancel()
        if finishes:
            may_end.set()
            await writer.finish()
            assert not writer.is_busy

    asyncio.run(main())
    gc.collect()


def test_a_write_that_the_loop_ends_before_its_turn_leaves_no_coroutine() -> None:
    """It printed "coroutine was never awaited"."""
    writes: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run_until_cancelled(writes, finishes=False)
    assert (writes, [str(each.message) for each in told]) == ([], [])


def test_the_end_waits_for_writes_that_have_not_begun() -> None:
    writes: list[str] = []
    run_until_cancelled(writes, finishes=True)
    assert writes == ["first", "second"]

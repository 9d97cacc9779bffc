"""The process that checks: whatever becomes of it, a batch is checked or nothing is said of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from samelog.format.compression import LIMIT_BYTES_DEFAULT, Codec
from samelog.sequencer.judging.process import CannotCheck, ProcessJudge
from tests.kafka.batches import batch, packed
from tests.runtime.peers import until
from tests.typed.known import schema_text

TEXTS = [schema_text("a int32")]
GOOD, BAD = b'{"a":1}', b'{"a":"x"}'


def run(body: Callable[[ProcessJudge], Awaitable[None]], **options: float) -> None:
    async def main() -> None:
        judge = ProcessJudge(**options)  # type: ignore[arg-type]
        try:
            await body(judge)
        finally:
            await judge.close()

    asyncio.run(main())


async def judged(judge: ProcessJudge, *batches: bytes, who: str = "s") -> list[list[int]]:
    found = await judge.judge(who, "t 1", TEXTS, batches)
    return [each.records for each in found]


def pid_of(judge: ProcessJudge) -> int:
    assert judge._worker is not None
    return judge._worker._process.pid


def test_batches_are_judged_in_another_process_that_knows_the_schema() -> None:
    async def body(judge: ProcessJudge) -> None:
        assert await judged(judge, batch(GOOD, BAD), batch(GOOD)) == [[1], []]
        assert await judged(judge, batch(BAD)) == [[0]]
        assert judge.started == 1
        assert pid_of(judge) != os.getpid()

    run(body)


def test_one_that_was_killed_is_replaced_and_asked_again() -> None:
    async def body(judge: ProcessJudge) -> None:
        assert await judged(judge, batch(GOOD)) == [[]]
        os.kill(pid_of(judge), signal.SIGKILL)
        assert await judged(judge, batch(BAD)) == [[0]]
        assert judge.started == 2

    run(body)


def test_one_that_says_nothing_is_replaced() -> None:
    async def body(judge: ProcessJudge) -> None:
        assert await judged(judge, batch(GOOD)) == [[]]
        judge._stall_s = 0.2
        os.kill(pid_of(judge), signal.SIGSTOP)
        asked = asyncio.ensure_future(judged(judge, batch(BAD)))
        await until(lambda: judge.started > 1)
        judge._stall_s = 60.0
        try:
            assert await asked == [[0]]
        except CannotCheck:  # a busy host starts none in that time
            assert await judged(judge, batch(BAD), who="other") == [[0]]

    run(body)


def test_nothing_counts_as_checked_when_none_answers() -> None:
    async def main() -> None:
        judge = ProcessJudge(command=(sys.executable, "-c", "pass"))
        with pytest.raises(CannotCheck, match="has ended"):
            await judged(judge, batch(GOOD))
        assert judge.started == 3
        await judge.close()

    asyncio.run(main())


def test_a_small_batch_that_unpacks_to_much_does_not_fit() -> None:
    bomb = packed(Codec.ZSTD, bytes(LIMIT_BYTES_DEFAULT + 1))

    async def body(judge: ProcessJudge) -> None:
        (found,) = await judge.judge("s", "t 1", TEXTS, [bomb])
        assert found.records == [0]
        assert found.told[0][2] == "a batch that can be read"
        assert await judged(judge, batch(GOOD)) == [[]]
        assert judge.started == 1

    run(body)


def test_what_waits_when_the_node_stops_hears_that_nothing_is_said() -> None:
    async def main() -> None:
        judge = ProcessJudge()
        await judged(judge, batch(GOOD))
        os.kill(pid_of(judge), signal.SIGSTOP)
        asked = asyncio.ensure_future(judged(judge, batch(BAD)))
        await asyncio.sleep(0)
        await judge.close()
        with pytest.raises(CannotCheck):
            await asked

    asyncio.run(main())

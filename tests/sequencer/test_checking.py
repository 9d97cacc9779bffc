"""What clients send is looked into without holding up the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from samelog.format import compression
from samelog.format.compression import Codec
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.fair_thread import FairThread
from samelog.sequencer.ingest import batch_check
from samelog.sequencer.ingest.batch_check import any_producer
from samelog.sequencer.ingest.checking import PAUSED_TURN_BYTES, TURN_BYTES, BatchChecker
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.kafka.batches import batch, packed
from tests.sequencer.cluster import RunWith, Session, offset, until

LIMIT_BYTES = 16 << 20
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


class Turns:
    """Counts what is unpacked in each turn of the loop, by the loop's own thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.unpacked: Counter[int] = Counter()
        self.elsewhere = 0
        self._loop = asyncio.get_running_loop()
        self._thread, self._unpack = threading.get_ident(), compression.unpack
        monkeypatch.setattr(batch_check, "unpack", self.unpack)
        self._tick()

    def _tick(self) -> None:
        self.number += 1
        self._loop.call_soon(self._tick)

    def unpack(self, codec: int, blob: bytes, **options: Any) -> Any:
        """The real one; what is refused is counted as what it may have unpacked."""
        size = options["limit_bytes"]
        try:
            plain = self._unpack(codec, blob, **options)
            size = len(plain)
            return plain
        finally:
            if threading.get_ident() == self._thread:
                self.unpacked[self.number] += size
            else:
                self.elsewhere += size


def bomb(codec: Codec) -> memoryview:
    """A sound batch of one record of 60 MiB, or of 8 MiB where the codec packs less."""
    size = (8 if codec is Codec.SNAPPY else 60) << 20
    return memoryview(packed(codec, bytes(size)))


async def checked(checker: BatchChecker, who: str, data: memoryview, limit: int) -> bool:
    """Whether a batch is taken, checked as every caller does it."""
    found = checker.now(who, data, any_producer, limit)
    if found is None:
        found = await checker.later(who, data, any_producer, limit)
    return found.taken.refusal is None


@pytest.mark.parametrize("codec", CODECS)
def test_no_turn_unpacks_more_than_its_bound(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samelog.runtime.fair_thread.PAUSE_S", 0.0)

    async def body() -> None:
        turns, checker = Turns(monkeypatch), BatchChecker()
        large, small = bomb(codec), memoryview(packed(codec, bytes(200 << 10)))
        asked = [
            checked(checker, f"client {number % 3}", large if number % 5 == 0 else small, 4 << 20)
            for number in range(40)
        ]
        taken = await asyncio.gather(*asked)
        assert taken == [number % 5 != 0 for number in range(40)]
        assert 0 < max(turns.unpacked.values()) <= TURN_BYTES
        assert turns.elsewhere > 0

    asyncio.run(body())


def test_a_small_batch_is_taken_in_its_own_turn() -> None:
    async def body() -> None:
        checker = BatchChecker()
        data = memoryview(packed(Codec.ZSTD, b"x" * 1000))
        found = checker.now("a", data, any_producer)
        assert found is not None
        assert found.taken.refusal is None
        assert found.taken.records == 1
        assert found.bytes > len(data), "it is charged unpacked"

    asyncio.run(body())


def test_what_is_not_compressed_is_bounded_too() -> None:
    async def body() -> None:
        checker, data = BatchChecker(), memoryview(batch(bytes(900 << 10)))
        taken = sum(checker.now("a", data, any_producer) is not None for _ in range(50))
        assert 0 < taken < 50
        await asyncio.sleep(0)
        assert checker.now("a", data, any_producer) is not None

    asyncio.run(body())


def test_what_unpacks_to_more_than_its_limit_is_refused_at_the_limit() -> None:
    async def body() -> None:
        checker = BatchChecker()
        found = await checker.later("a", bomb(Codec.ZSTD), any_producer, LIMIT_BYTES)
        assert found.taken.refusal is not None
        assert found.bytes == LIMIT_BYTES
        assert await checked(checker, "b", bomb(Codec.ZSTD), 61 << 20)

    asyncio.run(body())


def test_who_was_refused_gets_little_of_the_next_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        turns, checker = Turns(monkeypatch), BatchChecker()
        monkeypatch.setattr("samelog.runtime.fair_thread.PAUSE_S", 1e9)
        assert not await checked(checker, "bad", bomb(Codec.ZSTD), LIMIT_BYTES)
        await asyncio.sleep(0)
        turns.unpacked.clear()
        assert checker.now("bad", bomb(Codec.ZSTD), any_producer) is None
        assert max(turns.unpacked.values()) == PAUSED_TURN_BYTES
        assert await checked(checker, "good", bomb(Codec.ZSTD), 61 << 20)

    asyncio.run(body())


def test_what_a_turn_has_no_room_for_is_taken_when_it_was_checked(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        intake, session = nodes[0].logs.intake, Session("s")
        large, bad = packed(Codec.ZSTD, bytes(3 << 20)), bytearray(batch(b"bad"))
        bad[-1] ^= 1
        number = (await session.open(nodes[0])).input
        taking = intake.append(number, 0, 0, 0, large + bytes(bad))
        twice = intake.append(number, 0, 0, 0, large)
        assert taking is not None
        assert twice is not None
        with pytest.raises(RequestRefused) as refused:
            await taking
        assert refused.value.code is FaultCode.INVALID_BATCH
        await twice
        assert intake.append(number, 0, 0, len(large), batch(b"next")) is None
        await until(lambda: offset(nodes[0]) == 2, "what is before the bad one is merged, once")

    run_with(tmp_path, 1, body)


# --- the thread -----------------------------------------------------------------------------------


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def never(_: object) -> bool:
    return False


def test_clients_have_the_thread_by_turns() -> None:
    async def body() -> None:
        thread, done = FairThread("test"), list[str]()
        begun, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def first() -> None:
            loop.call_soon_threadsafe(begun.set)
            go.wait()

        blocking = asyncio.create_task(thread.run("many", first, never))
        await begun.wait()
        names = ["many 1", "many 2", "many 3", "few 1"]
        asked = [
            asyncio.create_task(thread.run(name[:3], partial(done.append, name), never))
            for name in names
        ]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(blocking, *asked)
        assert done.index("few 1") == 1
        assert [name for name in done if name != "few 1"] == names[:3]

    run(body())


def test_who_is_refused_waits_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samelog.runtime.fair_thread.PAUSE_S", 1e9)

    async def body() -> None:
        thread = FairThread("test")

        def busy() -> int:
            return sum(range(10_000))

        await thread.run("bad", busy, lambda _: True)
        assert thread.is_paused("bad")
        waiting = asyncio.create_task(thread.run("bad", busy, never))
        for _ in range(3):
            await thread.run("good", busy, never)
        assert not thread.is_paused("good")
        assert not waiting.done()
        waiting.cancel()

    run(body())


def test_the_thread_goes_on_behind_who_does_not_wait_any_more() -> None:
    async def body() -> None:
        thread = FairThread("test")
        asked = [asyncio.create_task(thread.run("a", int, never)) for _ in range(3)]
        await asyncio.sleep(0)
        asked[0].cancel()
        asked[1].cancel()
        assert await asked[2] == 0
        assert await thread.run("b", int, never) == 0

    run(body())

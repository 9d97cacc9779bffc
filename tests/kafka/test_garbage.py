"""A request that is over leaves nothing that only the garbage collector could find: going through
what a node holds would stop everybody.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from samelog.kafka.any_broker import AppendResult, Uncharged
from samelog.kafka.apis.fetch import FetchWork
from samelog.kafka.apis.produce import ProduceWork
from samelog.kafka.clients.fetch_sessions import FetchContext
from samelog.kafka.codec.fetch import FetchPartition, FetchRequest
from samelog.kafka.codec.produce import ProducePartition, ProduceRequest
from samelog.kafka.shared_timers import SharedTimers
from samelog.sequencer.ingest.checking import BatchChecker
from tests.kafka.batches import batch

REQUESTS = 20


def left_by(ask: Callable[[], Awaitable[None]]) -> int:
    """How many objects that nobody reaches some requests leave."""

    async def body() -> int:
        await ask()
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                await ask()
            return gc.collect()
        finally:
            gc.enable()

    return asyncio.run(body())


def call_to(**broker: Any) -> Any:
    topic = SimpleNamespace(name="t", partition_numbers=[1], settings={}, is_placed=False)
    found = SimpleNamespace(
        shown=lambda _: topic,
        topic=lambda _: topic,
        partition=lambda *_: None,
        may_read=lambda *_: True,
        may_write=lambda *_: True,
        max_message_bytes=lambda _: 1 << 20,
        timers=SharedTimers(),
        **broker,
    )
    client = SimpleNamespace(who=("ann", "host"), uncharged=Uncharged())
    return SimpleNamespace(broker=found, client=client, version=9)


def test_of_a_write() -> None:
    outcomes: list[asyncio.Future[AppendResult]] = []

    def append(*_: Any) -> asyncio.Future[AppendResult]:
        outcomes.append(asyncio.get_running_loop().create_future())
        return outcomes[-1]

    call = call_to(batches=SimpleNamespace(checker=BatchChecker(), append=append))
    records = ProducePartition(0, memoryview(batch(b"x")))

    async def ask() -> None:
        waits = ProduceWork(call, ProduceRequest(None, -1, 30_000, [("t", [records])])).start()
        outcomes.pop().set_result(AppendResult(0))  # type: ignore[arg-type]
        assert isinstance(waits, asyncio.Future)
        await waits

    assert left_by(ask) == 0


def test_of_a_read_that_waited() -> None:
    listeners: list[Callable[[], None]] = []
    log = SimpleNamespace(start_offset=0, next_offset=5, fault=None)
    stream = MagicMock(log=log, fault=None)
    stream.add_listener, stream.remove_listener = listeners.append, listeners.remove
    call = call_to(is_syncing=False, committed=lambda *_: 5)
    call.broker.partition = lambda *_: stream
    wanted = [("t", [FetchPartition(0, -1, 5, 1 << 20)])]

    async def ask() -> None:
        request = FetchRequest(500, 0, 1 << 20, 0, 0, -1, wanted)  # type: ignore[arg-type]
        waits = FetchWork(call, request, FetchContext(wanted)).wait()  # type: ignore[arg-type]
        listeners[0]()
        await waits
        await asyncio.sleep(0)
        assert not listeners

    assert left_by(ask) == 0

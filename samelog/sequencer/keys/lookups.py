"""Asks indexes of keys beside the event loop, for batches that a leader put off.

An index goes on while it is asked: what it gets meanwhile counts (`PartitionKeys.stored`), so its
answer may be as old as the question.

Invariant: partitions are asked each by itself, in pieces, a few threads at a time: none waits for
all that another one wants to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from samelog.format.errors import LogFormatError
from samelog.runtime.at_work import AtWork
from samelog.runtime.disk.threads import InThread
from samelog.runtime.loop import end_all
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.partition_keys import PartitionKeys

PIECE_KEYS = 1_000
AT_ONCE = 2
"""Threads of a replica that wait for disks."""


class KeyLookups:
    """One replica's."""

    def __init__(
        self,
        keys: KeyFilter,
        in_thread: InThread,
        plan_again: Callable[[int], None],
        at_work: AtWork,
    ) -> None:
        """`plan_again`: of a partition of which more is known."""
        self._keys = keys
        self._in_thread = in_thread
        self._plan_again = plan_again
        self._at_work = at_work
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._running: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        self._keys.asks.set()
        try:
            while True:
                await self._keys.asks.wait()
                self._keys.asks.clear()
                self._collect()
                self._begin()
        finally:
            await end_all(self._running.values())

    def _collect(self) -> None:
        """An error that lookups were not made for is one of this."""
        for number in [each for each, task in self._running.items() if task.done()]:
            ended = self._running.pop(number)
            if not ended.cancelled():
                ended.result()

    def _begin(self) -> None:
        for number, known in self._keys.partitions.items():
            if known.is_asking and known.fault is None and number not in self._running:
                self._running[number] = asyncio.create_task(self._look_up(number, known))

    async def _look_up(self, number: int, known: PartitionKeys) -> None:
        try:
            with self._at_work:
                await self.ask(known)
            if not known.is_asking:
                self._plan_again(number)
        finally:
            self._keys.asks.set()

    async def ask(self, known: PartitionKeys) -> None:
        """Have an index say what is to be asked of it; or there is a fault."""
        keys, found = sorted(known.asked), dict[bytes, int]()
        try:
            for first in range(0, len(keys), PIECE_KEYS):
                async with self._turns:
                    piece = keys[first : first + PIECE_KEYS]
                    found |= await self._in_thread(known.store.find, piece)
        except LogFormatError as error:
            known.fault = error
        else:
            known.told(found)

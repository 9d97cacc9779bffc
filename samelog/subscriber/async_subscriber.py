"""The subscriber for programs that live in an event loop.

Reading a chunk from the page cache takes well under a millisecond, so it is done in the loop; only
waiting is left to it: the loop watches the subscriber's inotify.

Invariant: as `Subscriber`; and no call waits without letting the loop go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from samelog.format._kernels import Record
from samelog.subscriber.setup import SubscriberKeywords
from samelog.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from samelog.subscriber.groups.sharing import InHand
    from samelog.subscriber.typed_rows import TypedRow

T = TypeVar("T")


class AsyncSubscriber:
    """`Subscriber` with async methods; to be used in one event loop. A context manager."""

    def __init__(
        self, topics: str | Iterable[str] | None = None, **options: Unpack[SubscriberKeywords]
    ) -> None:
        """Open the copies, and start keeping them; options and errors are those of `Subscriber`."""
        self._subscriber = Subscriber(topics, **options)
        self._waiting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- reading -------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Record]:
        """As iterating over a `Subscriber`; the loop goes on between two chunks."""
        while not self._subscriber.is_over:
            for record in self._subscriber.present():
                yield record
            await self._wait(None)

    async def poll(self, timeout: float | None = None) -> Record | None:
        """As `Subscriber.poll`."""
        records = await self.batch(1, timeout)
        return records[0] if records else None

    async def batch(self, max_records: int = 1000, timeout: float | None = None) -> list[Record]:
        """As `Subscriber.batch`."""
        return await self._until(lambda: self._subscriber.batch(max_records, 0.0), len, timeout)

    async def batches(
        self, max_records: int = 1000, timeout: float | None = None
    ) -> AsyncIterator[list[Record]]:
        """As `Subscriber.batches`."""
        while not self._subscriber.is_over:
            records = await self.batch(max_records, timeout)
            if records or not self._subscriber.is_over:
                yield records

    async def arrow_records(
        self, max_records: int = 100_000, timeout: float | None = None
    ) -> pa.Table:
        """As `Subscriber.arrow_records`."""
        return await self._until(
            lambda: self._subscriber.arrow_records(max_records, 0.0),
            lambda table: int(table.num_rows),
            timeout,
        )

    async def rows(self, max_records: int = 1000, timeout: float | None = None) -> list[TypedRow]:
        """As `Subscriber.rows`."""
        return await self._until(
            lambda: self._subscriber.rows(max_records, 0.0), len, timeout, in_thread=True
        )

    async def arrow(
        self, max_records: int = 100_000, timeout: float | None = None
    ) -> pa.Table | None:
        """As `Subscriber.arrow`."""
        return await self._until(
            lambda: self._subscriber.arrow(max_records, 0.0),
            lambda table: 0 if table is None else int(table.num_rows),
            timeout,
            in_thread=True,
        )

    async def pandas(
        self, max_records: int = 100_000, timeout: float | None = None
    ) -> pd.DataFrame | None:
        """As `Subscriber.pandas`."""
        found = await self.arrow(max_records, timeout)
        return None if found is None else found.to_pandas()

    async def _until(
        self,
        take: Callable[[], T],
        size_of: Callable[[T], int],
        timeout_s: float | None,
        *,
        in_thread: bool = False,
    ) -> T:
        """What `take` gives, once it is not empty or the time is over. `in_thread`: it may ask the
        cluster.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            taken = await asyncio.to_thread(take) if in_thread else take()
            left_s = None if deadline is None else deadline - time.monotonic()
            is_late = left_s is not None and left_s <= 0
            if size_of(taken) or is_late:
                return taken
            await self._wait(left_s)
            if self._subscriber.is_over:
                return taken

    async def _wait(self, left_s: float | None) -> None:
        """Let the loop go on until there may be more."""
        wait_s = self._subscriber.prepare_wait()
        if wait_s == 0:
            await asyncio.sleep(0)
            return
        async with self._waiting:
            if not self._subscriber.is_over:
                await self._wait_readable(wait_s if left_s is None else min(wait_s, left_s))

    async def _wait_readable(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        descriptor = self._subscriber.fileno()
        loop.add_reader(descriptor, ready.set)
        try:
            async with asyncio.timeout(wait_s):
                await ready.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(descriptor)
            self._subscriber.take_events()

    # --- control -------------------------------------------------------------------------------

    def pause(self) -> None:
        """As `Subscriber.pause`."""
        self._subscriber.pause()

    def resume(self) -> None:
        """As `Subscriber.resume`."""
        self._subscriber.resume()

    @property
    def is_paused(self) -> bool:
        """As `Subscriber.is_paused`."""
        return self._subscriber.is_paused

    @property
    def caught_up(self) -> bool:
        """As `Subscriber.caught_up`."""
        return self._subscriber.caught_up

    async def wait_caught_up(self, timeout: float | None = None) -> None:
        """As `Subscriber.wait_caught_up`."""
        await asyncio.to_thread(self._subscriber.wait_caught_up, timeout)

    def in_hand(self) -> list[InHand]:
        """As `Subscriber.in_hand`."""
        return self._subscriber.in_hand()

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """As `Subscriber.assignment`."""
        return self._subscriber.assignment

    def position(self, partition: int = 0, *, topic: str | None = None) -> int:
        """As `Subscriber.position`."""
        return self._subscriber.position(partition, topic=topic)

    def seek(self, partition: int, offset: int, *, topic: str | None = None) -> None:
        """As `Subscriber.seek`."""
        self._subscriber.seek(partition, offset, topic=topic)

    async def commit(self) -> None:
        """As `Subscriber.commit`."""
        await asyncio.to_thread(self._subscriber.commit)

    async def close(self) -> None:
        """As `Subscriber.close`."""
        self._subscriber.stop_soon()
        async with self._waiting:  # nobody watches the descriptors any more
            await asyncio.to_thread(self._subscriber.close)

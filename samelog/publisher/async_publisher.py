"""The publisher for programs that live in an event loop.

An append takes microseconds, so it is done at once, in the loop. What may take long (many records,
a full budget, a sync, the cluster) is done in another thread while the loop goes on.

Invariant: no call blocks the event loop for longer than one write to the page cache.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from samelog.publisher.errors import NotMerged, PublishingRefused
from samelog.publisher.options import Headers, PlacingKeywords, PublisherKeywords, Timestamp
from samelog.publisher.publisher import CLOSE_TIMEOUT_S, Publisher
from samelog.publisher.records import Positions
from samelog.replicator.client_errors import PublisherError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

WAIT_STEP_S = 0.25
"""How long a thread waits at a time, so that a cancelled wait soon gives it back."""


class AppendKeywords(TypedDict, total=False):
    """What may come with a value; see `Publisher.append`."""

    key: Buffer | None
    headers: Headers
    timestamp: Timestamp | None
    partition: int | None
    topic: str | None
    id: int | None


class _WouldBlock(PublisherError):
    """There is no room in the budget, and the event loop must not wait for it."""


class _LoopsPublisher(Publisher):
    """A publisher that waits for room in any thread but the one it was made in."""

    def __init__(self, topic: str, session: str, options: PublisherKeywords) -> None:
        self._loop_thread = threading.get_ident()
        super().__init__(topic, session=session, **options)

    def _wait_for_room(self) -> None:
        if threading.get_ident() == self._loop_thread:
            raise _WouldBlock
        super()._wait_for_room()


class AsyncPublisher:
    """`Publisher` with async methods; to be made and used in one event loop. A context manager."""

    def __init__(self, topic: str, *, session: str, **options: Unpack[PublisherKeywords]) -> None:
        """Open the session's directory; options and errors are those of `Publisher`."""
        self._publisher = _LoopsPublisher(topic, session, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, value: Buffer | None, **keywords: Unpack[AppendKeywords]) -> None:
        """As `Publisher.append`; waits, without blocking the loop, only when the budget is full."""
        try:
            self._publisher.append(value, **keywords)
        except _WouldBlock:
            await asyncio.to_thread(self._publisher.append, value, **keywords)

    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Iterable[Buffer | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps: Timestamp | Iterable[Timestamp] | None = None,
        **placing: Unpack[PlacingKeywords],
    ) -> None:
        """As `Publisher.append_many`."""
        await asyncio.to_thread(
            self._publisher.append_many,
            values,
            keys=keys,
            headers=headers,
            timestamps=timestamps,
            **placing,
        )

    async def append_arrow(self, table: pa.Table | pa.RecordBatch, **arguments: Any) -> None:
        """As `Publisher.append_arrow`."""
        await asyncio.to_thread(partial(self._publisher.append_arrow, table, **arguments))

    async def append_rows(self, rows: Any, **arguments: Any) -> None:
        """As `Publisher.append_rows`."""
        await asyncio.to_thread(partial(self._publisher.append_rows, rows, **arguments))

    async def flush(self, *, durable: bool = False) -> None:
        """As `Publisher.flush`."""
        await asyncio.to_thread(self._publisher.flush, durable=durable)

    @property
    def positions(self) -> Positions:
        """As `Publisher.positions`."""
        return self._publisher.positions

    async def wait_merged(self, timeout: float | None = None) -> None:
        """As `Publisher.wait_merged`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_STEP_S if deadline is None else deadline - time.monotonic()
            try:
                return await asyncio.to_thread(
                    self._publisher.wait_merged, min(WAIT_STEP_S, max(0.0, left))
                )
            except PublishingRefused:
                raise
            except NotMerged:
                if left <= WAIT_STEP_S and deadline is not None:
                    raise

    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """As `Publisher.close`."""
        await asyncio.to_thread(self._publisher.close, timeout)

"""Sends every reader of a node's console what changed, from one look for all of them.

Invariant: nothing runs and nothing is kept while nobody reads; looking takes at most a fiftieth of
the event loop's time. A reader that is slow gets a whole document instead of what it missed, so
that memory is bounded: by a document, and READER_BYTES_MAX of each of READERS_MAX readers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from samelog.http.console.document import Document, as_event, changes
from samelog.runtime.clock import Clock

READERS_MAX = 50
READER_BYTES_MAX = 1 << 20
INTERVAL_S = 1.0
SHARE = 50
STREAM_S = 180.0
"""Shorter than a request may take. Browsers ask again by themselves: their rights are checked."""


class TooManyReaders(Exception):
    """READERS_MAX browsers are looking already."""


class _Reader:
    """One reader's events that are not sent yet."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self.needs_document = True
        self._wake = asyncio.Event()

    def put(self, event: bytes) -> None:
        """Queue an event; a reader that has too many waiting starts over with a document."""
        self._events.append(event)
        self._bytes += len(event)
        if self._bytes > READER_BYTES_MAX and len(self._events) > 1:
            self._events.clear()
            self._bytes, self.needs_document = 0, True
        self._wake.set()

    async def take(self) -> bytes:
        """The next event, once there is one."""
        while not self._events:
            self._wake.clear()
            await self._wake.wait()
        event = self._events.popleft()
        self._bytes -= len(event)
        return event


class Producer:
    """What one node tells everybody who has its console open."""

    def __init__(self, look: Callable[[], Awaitable[Document]], clock: Clock) -> None:
        """`look`: what there is to show now."""
        self._look, self._clock = look, clock
        self._readers: set[_Reader] = set()
        self._known: Document = {}
        self._task: asyncio.Task[None] | None = None

    def open(self) -> AsyncIterator[bytes]:
        """A reader's events: a document, then changes. Raises TooManyReaders."""
        if len(self._readers) >= READERS_MAX:
            raise TooManyReaders
        reader = _Reader()
        self._readers.add(reader)
        return self._events(reader)

    async def _events(self, reader: _Reader) -> AsyncIterator[bytes]:
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())
            until = self._clock.now() + STREAM_S
            while self._clock.now() < until:
                yield await self._next(reader, self._task)
        finally:
            self._readers.discard(reader)
            self._end_if_idle()

    async def _next(self, reader: _Reader, producing: asyncio.Task[None]) -> bytes:
        """A reader's next event. Raises what looking raises."""
        taking = asyncio.ensure_future(reader.take())
        await asyncio.wait((taking, producing), return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            taking.cancel()
            producing.result()
        return taking.result()

    def _end_if_idle(self) -> None:
        if self._readers:
            return
        self._known = {}
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            began = self._clock.now()
            self._tell(await self._look())
            took = self._clock.now() - began
            await asyncio.sleep(max(INTERVAL_S, SHARE * took))

    def _tell(self, now: Document) -> None:
        """Tell all readers, each event encoded once."""
        change = changes(self._known, now)
        self._known = now
        changed = as_event("change", change) if change else b""
        whole = b""
        for reader in self._readers:
            if reader.needs_document:
                reader.needs_document, whole = False, whole or as_event("document", now)
                reader.put(whole)
            elif changed:
                reader.put(changed)

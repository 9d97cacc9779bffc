"""One Fetch: what can be answered now, and what it waits for.

A fetch is answered when an error is to be told, when `min_bytes` are there or a partition has all
that is wanted of it, or when its time is over. Until then it costs nothing: the merger wakes it.

Invariant: the first batch that is there is answered whole, however large (KIP-74); an answer is
never empty when there is something to read, and memory to read it into.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from samelog.format.errors import LogFormatError
from samelog.kafka.any_broker import MergedStream
from samelog.kafka.api import AnyCall
from samelog.kafka.apis.records.partitions import readable
from samelog.kafka.clients.fetch_sessions import FetchContext
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicKey,
)

ANSWER_BYTES = 8 << 20
"""Read for one answer at most: reading holds up the event loop."""
READ_COMMITTED = 1


@dataclass(slots=True)
class _PartitionRead:
    """One partition of a request, and what is known of it so far."""

    key: TopicKey
    asked: FetchPartition
    stream: MergedStream | None = None
    error: ErrorCode = ErrorCode.none
    place: tuple[int, int] | None = None
    nearest: int = -1
    """The node that the client had better ask."""

    @property
    def has_data(self) -> bool:
        """Whether there is something to read. Raises OffsetNotHeld for offsets before the log."""
        return self.stream is not None and self.stream.log.next_offset > self.asked.offset

    def available(self) -> int:
        """Bytes from the wanted offset on, but no further than the segment. Raises
        LogFormatError.
        """
        if self.stream is None or not self.has_data:
            return 0
        log = self.stream.log
        if self.place is None:
            self.place = log.locate(self.asked.offset)
        base, byte = log.end()
        return byte - self.place[1] if base == self.place[0] else ANSWER_BYTES


class Fetching:
    """A request under way."""

    def __init__(self, call: AnyCall, request: FetchRequest, context: FetchContext) -> None:
        """`context`: what the request's session makes of it."""
        self._call = call
        self._request = request
        self._context = context
        self._wanted = [
            _PartitionRead(key, asked) for key, partitions in context.topics for asked in partitions
        ]
        self._ahead = False
        """An offset is wanted that is not known to exist: only the leader can tell."""
        self._is_confirmed = False
        self._is_woken = False
        self._answer: asyncio.Future[Fetching] | None = None
        for wanted in self._wanted:
            self._look(wanted)

    # --- looking ----------------------------------------------------------------------------------

    def _look(self, wanted: _PartitionRead) -> None:
        """Find the partition, and whether the offset can be read or waited for."""
        key, asked = wanted.key, wanted.asked
        try:
            name = UUID(bytes=key) if isinstance(key, bytes) else key
            there = readable(self._call, name, asked.partition, asked.epoch)
        except ApiError as refusal:
            wanted.error = refusal.code
            return
        wanted.stream = there.stream
        rack = self._request.rack
        wanted.nearest = self._call.broker.nearest(self._call.client, rack, asked.partition)
        log = there.stream.log
        if asked.offset < log.start_offset:
            wanted.error = ErrorCode.offset_out_of_range
        elif asked.offset > max(there.committed, log.next_offset):
            if self._is_confirmed:
                wanted.error = ErrorCode.offset_out_of_range
            else:
                self._ahead = True

    def is_ready(self) -> bool:
        """Whether to answer before the time is over."""
        if any(each.error is not ErrorCode.none or each.nearest >= 0 for each in self._wanted):
            return True
        size = 0
        for wanted in self._wanted:
            try:
                here = wanted.available()
            except LogFormatError:
                return True
            if here and here >= wanted.asked.max_bytes:
                return True
            size += here
        return size >= self._request.min_bytes and not self._ahead

    # --- answering --------------------------------------------------------------------------------

    def answer(self) -> FetchResponse:
        """What there is now."""
        memory = self._call.client.memory
        room = ANSWER_BYTES if memory is None else memory.left
        left = max(0, min(self._request.max_bytes, ANSWER_BYTES, room))
        topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
        is_first = room > 0
        wanted = iter(self._wanted)
        for key, partitions in self._context.topics:
            answers = []
            for _, found in zip(partitions, wanted, strict=False):
                part = self._read(found, left, is_first=is_first)
                size = sum(map(len, part.records))
                left, is_first = max(0, left - size), is_first and size == 0
                answers.append(part)
            topics.append((key, answers))
        answer = FetchResponse(0, topics, self._request.isolation == READ_COMMITTED)
        broker = self._call.broker
        return broker.fetch_sessions.finish(self._context, answer, broker.clock.now())

    def _read(self, wanted: _PartitionRead, left: int, *, is_first: bool) -> FetchedPartition:
        index, stream = wanted.asked.partition, wanted.stream
        if stream is None:
            return FetchedPartition(index, int(wanted.error))
        log = stream.log
        if wanted.error is not ErrorCode.none:
            return FetchedPartition(index, int(wanted.error), log.next_offset, log.start_offset)
        if wanted.nearest >= 0:
            ends = log.next_offset, log.start_offset
            return FetchedPartition(index, 0, *ends, preferred=wanted.nearest)
        try:
            data = self._records(wanted, left, is_first=is_first)
        except LogFormatError:
            return FetchedPartition(index, int(ErrorCode.kafka_storage_error))
        if data and data[0]:
            self._call.broker.sent(data[0])
        return FetchedPartition(index, 0, log.next_offset, log.start_offset, data)

    def _records(self, wanted: _PartitionRead, left: int, *, is_first: bool) -> list[bytes]:
        """Whole batches; more than what is left only if nothing was read before."""
        limit = min(left, max(0, wanted.asked.max_bytes))
        if wanted.stream is None or not wanted.has_data or (limit == 0 and not is_first):
            return []
        place = wanted.place or wanted.stream.log.locate(wanted.asked.offset)
        data = wanted.stream.log.read(*place, max(1, limit))
        return [data] if is_first or len(data) <= limit else []

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self) -> asyncio.Future[Fetching]:
        """This, once it is time for an answer: what it holds is read only when it can be sent."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Fetching] = loop.create_future()
        self._answer = future
        streams = set(self._streams())
        for stream in streams:
            stream.add_listener(self._wake)
        timer = loop.call_later(max(0, self._request.max_wait_ms) / 1000, self._finish)
        asking = asyncio.create_task(self._confirm()) if self._ahead else None

        def clean_up(_: asyncio.Future[Fetching]) -> None:
            timer.cancel()
            if asking is not None:
                asking.cancel()
            for stream in streams:
                stream.remove_listener(self._wake)

        future.add_done_callback(clean_up)
        return future

    def _streams(self) -> Iterator[MergedStream]:
        return (wanted.stream for wanted in self._wanted if wanted.stream is not None)

    async def _confirm(self) -> None:
        """Have the leader say what exists: only then is an offset out of range."""
        try:
            await self._call.broker.confirm_ends()
        except ApiError:
            return
        self._is_confirmed, self._ahead = True, False
        for wanted in self._wanted:
            if wanted.error is ErrorCode.none:
                self._look(wanted)
        self._wake()

    def _wake(self) -> None:
        """A partition has changed: look at the end of this turn of the loop."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        for wanted in self._wanted:
            if wanted.stream is not None and wanted.stream.fault is not None:
                self._look(wanted)
        if self.is_ready():
            self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self)

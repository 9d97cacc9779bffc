"""Fetch (1): record batches as they lie in the merged log, from any node.

Fetch sessions are each node's own: at another node, or after a restart, clients begin a new one.
Who reads what is committed gets records up to the last stable offset, and is told which of them
were aborted; all others, up to the high watermark: what is committed by Raft and executed here. An
offset above the end is out of range only when the leader has confirmed that.

A fetch is answered when an error is to be told, when `min_bytes` are there or a partition has all
that is wanted of it, or when its time is over. Until then it costs nothing: the merger wakes it.

Invariant: the first batch that is there is answered whole, however large (KIP-74); an answer is
never empty when there is something to read, and memory to read it into.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import msgspec
from msgspec.structs import replace as replace_fields

from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.format.steps import StepWork, mapped
from samelog.format.transactions import Aborted
from samelog.kafka.any_broker import ReadableLog, WatchedLog
from samelog.kafka.api import AnyCall, MaybeResponse, Reply, kafka_api
from samelog.kafka.apis.checks import readable
from samelog.kafka.clients.fetch_sessions import FetchContext
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.fetch import (
    FLEXIBLE_FROM,
    IDS_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicKey,
    read_fetch,
    reading_fetch,
)
from samelog.kafka.codec.primitives import ByteBuffer
from samelog.kafka.views import ViewPartition
from samelog.runtime.slices import in_background, paced

ANSWER_BYTES = 8 << 20
"""Read for one answer at most: reading holds up the event loop."""
READ_COMMITTED = 1
NOTHING = memoryview(b"")


@kafka_api(
    1,
    "Fetch",
    4,
    18,
    flexible_from=FLEXIBLE_FROM,
    read=read_fetch,
    reading=reading_fetch,
    notes="Any node serves what it has merged. An answer holds at most 8 MiB, or one batch. A node "
    "keeps 1000 fetch sessions of 200000 partitions together.",
)
def fetch(call: AnyCall, request: FetchRequest) -> Reply:
    """Answer a request, now or when there is something to read."""
    now, by_id = call.broker.clock.now(), call.version >= IDS_FROM
    try:
        context = call.broker.fetch_sessions.begin(request, now, by_id=by_id)
    except ApiError as error:
        return FetchResponse(error.code, [])
    if call.is_long or context.is_long:
        return FetchWork(call, request, replace(context, topics=[])).run_long(context)
    work = FetchWork(call, request, context)
    if request.max_wait_ms <= 0 or work.is_ready():
        return work
    return work.wait()


class _PartitionRead(msgspec.Struct):
    """One partition of a request, and what is known of it so far."""

    key: TopicKey
    asked: FetchPartition
    stream: WatchedLog | None = None
    error: ErrorCode = ErrorCode.none
    place: tuple[int, int] | None = None
    """Where the wanted offset lies, once it was looked up,"""
    layout: int = -1
    """in this layout of the log."""
    nearest: int = -1
    """The node that the client had better ask."""
    is_stable: bool = False
    """Only what is decided is wanted."""

    def available(self) -> int:
        """Bytes from the wanted offset on, but no further than the segment. Raises
        LogFormatError, for offsets before the log too.
        """
        if self.stream is None or self.stream.log.next_offset <= self.asked.offset:
            return 0
        if self.stream.__class__ is ViewPartition and isinstance(self.stream, ViewPartition):
            return len(self.stream.ready(self.asked.offset, is_stable=self.is_stable))
        log = self.stream.log
        if self.is_stable and log.last_stable_offset <= self.asked.offset:
            return 0
        start = self.start(log)
        base, byte = log.locate(log.last_stable_offset) if self.is_stable else log.end()
        return byte - start[1] if base == start[0] else ANSWER_BYTES

    def ready(self) -> int | None:
        """Bytes that can be read; None if this partition alone is reason to answer."""
        if self.error is not ErrorCode.none or self.nearest >= 0:
            return None
        try:
            size = self.available()
        except LogFormatError:
            return None
        return None if size and size >= self.asked.max_bytes else size

    def start(self, log: ReadableLog) -> tuple[int, int]:
        """Where the wanted offset lies. Raises LogFormatError."""
        if self.place is None or self.layout != log.layout:
            self.place, self.layout = log.locate(self.asked.offset), log.layout
        return self.place

    def aborted(self, data: memoryview) -> list[Aborted]:
        """What is aborted of these records. Raises LogFormatError."""
        if not data or self.stream is None or isinstance(self.stream, ViewPartition):
            return []
        base = int.from_bytes(data[:8], "big")
        stop = base + kernels.scan(data, verify_crc=False).records
        return self.stream.log.aborted(self.asked.offset, stop)


class FetchWork:
    """A request under way, and in the end its response: what it holds is read only when it can be
    sent. Implements api.KafkaResponse.
    """

    def __init__(self, call: AnyCall, request: FetchRequest, context: FetchContext) -> None:
        """`context`: what the request's session makes of it."""
        self._call = call
        self._request = request
        self._context = context
        self._reads: list[_PartitionRead] = []
        self._is_ahead = False
        """An offset is wanted that is not known to exist: only the leader can tell."""
        self._is_confirmed = False
        self._is_woken = False
        self._future: asyncio.Future[MaybeResponse] | None = None
        self._response = FetchResponse(0, [])
        is_stable = request.isolation == READ_COMMITTED
        for key, partitions in context.topics:
            for asked in partitions:
                read = _PartitionRead(key, asked, is_stable=is_stable)
                self._reads.append(read)
                self._check_offset(read)

    def _check_offset(self, read: _PartitionRead) -> None:
        """Find the partition, and whether the offset can be read or waited for."""
        key, asked = read.key, read.asked
        try:
            name = UUID(bytes=key) if isinstance(key, bytes) else key
            there = readable(self._call, name, asked.partition, asked.epoch)
        except ApiError as error:
            read.error = error.code
            return
        read.stream = there.stream
        rack = self._request.rack
        if rack:
            asks = self._call.client, rack, there.topic, asked.partition
            read.nearest = self._call.broker.nearest(*asks)
        log = there.stream.log
        if asked.offset < log.start_offset:
            read.error = ErrorCode.offset_out_of_range
        elif asked.offset > max(there.committed, log.next_offset):
            if self._is_confirmed:
                read.error = ErrorCode.offset_out_of_range
            else:
                self._is_ahead = True

    def is_ready(self) -> bool:
        """Whether to answer before the time is over."""
        size = 0
        for read in self._reads:
            if read.error is not ErrorCode.none or read.nearest >= 0:
                return True
        for read in self._reads:
            try:
                here = read.available()
            except LogFormatError:
                return True
            if here and here >= read.asked.max_bytes:
                return True
            size += here
        return size >= self._request.min_bytes and not self._is_ahead

    # --- answering --------------------------------------------------------------------------------

    def record_bytes(self) -> int:
        """Read what there is now: how many bytes of records."""
        call, memory = self._call, self._call.client.memory
        room = ANSWER_BYTES if memory is None else memory.left
        left = max(0, min(self._request.max_bytes, ANSWER_BYTES, room))
        topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
        is_first, reads = room > 0, iter(self._reads)
        for key, partitions in self._context.topics:
            answers: list[FetchedPartition] = []
            for _ in partitions:
                part = self._read(next(reads), left, is_first=is_first)
                size = sum(map(len, part.records))
                left, is_first = max(0, left - size), is_first and size == 0
                answers.append(part)
            topics.append((key, answers))
        response = FetchResponse(0, topics, self._request.isolation == READ_COMMITTED)
        now = call.broker.clock.now()
        self._response = call.broker.fetch_sessions.finish(self._context, response, now)
        return self._response.record_bytes()

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body of what was read."""
        return self._response.encode(key, version, throttle_ms)

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """The same in steps."""
        return self._response.encoding(key, version, throttle_ms)

    def _read(self, read: _PartitionRead, left: int, *, is_first: bool) -> FetchedPartition:
        index, stream = read.asked.partition, read.stream
        if stream is None:
            return FetchedPartition(index, read.error)
        log = stream.log
        ends = log.next_offset, log.start_offset
        if read.error is not ErrorCode.none:
            return FetchedPartition(index, read.error, *ends)
        if read.nearest >= 0:
            return FetchedPartition(index, 0, *ends, preferred=read.nearest)
        try:
            if stream.__class__ is ViewPartition:
                data = _rows(read, left, is_first=is_first)
            else:
                data = self._records(read, left, is_first=is_first)
            stable = log.last_stable_offset if read.is_stable else -1
            aborted = read.aborted(data) if read.is_stable else ()
        except LogFormatError:
            return FetchedPartition(index, ErrorCode.kafka_storage_error)
        if data:
            self._call.broker.sent(data)
        records = [data] if data else []
        return FetchedPartition(index, 0, *ends, records, stable=stable, aborted=aborted)

    def _records(self, read: _PartitionRead, left: int, *, is_first: bool) -> memoryview:
        """Whole batches; more than what is left only if nothing was read before. Raises
        LogFormatError.
        """
        limit, stream = min(left, max(0, read.asked.max_bytes)), read.stream
        if stream is None or stream.log.next_offset <= read.asked.offset:
            return NOTHING
        if limit == 0 and not is_first:
            return NOTHING
        if read.is_stable:
            if not (there := read.available()):
                return NOTHING
            limit = min(limit, there)
        log = stream.log
        place = log.locate(read.asked.offset) if read.place is None else read.start(log)
        data = log.view(*place, max(1, limit))
        return data if is_first or len(data) <= limit else NOTHING

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self) -> asyncio.Future[MaybeResponse]:
        """This, once it is time for an answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MaybeResponse] = loop.create_future()
        self._future = future
        streams = {read.stream for read in self._reads if read.stream is not None}
        for stream in streams:
            stream.add_listener(self._wake)
        timer = loop.call_later(max(0, self._request.max_wait_ms) / 1000, self._finish)
        asking = asyncio.create_task(self._confirm()) if self._is_ahead else None

        def clean_up(_: asyncio.Future[MaybeResponse]) -> None:
            timer.cancel()
            if asking is not None:
                asking.cancel()
            for stream in streams:
                stream.remove_listener(self._wake)

        future.add_done_callback(clean_up)
        return future

    async def _confirm(self) -> None:
        """Have the leader say what exists: only then is an offset out of range."""
        try:
            await self._call.broker.confirm_ends(
                (UUID(bytes=read.key) if isinstance(read.key, bytes) else read.key, index)
                for read in self._reads
                for index in (read.asked.partition,)
                if read.error is ErrorCode.none
            )
        except ApiError:
            return
        self._is_confirmed, self._is_ahead = True, False
        for read in self._reads:
            if read.error is ErrorCode.none:
                self._check_offset(read)
        self._wake()

    # --- a long request ---------------------------------------------------------------------------

    async def run_long(
        self, context: FetchContext
    ) -> MaybeResponse | asyncio.Future[MaybeResponse]:
        """Answer a request for many partitions, those of `context`, in slices of the event loop."""
        self._context = replace(context, topics=await paced(context.wanting()))
        await paced(self._looking_for_all())
        if self._request.max_wait_ms <= 0 or await paced(self._looking()):
            return await self._answer_long()
        return in_background(self._wait_long())

    def _looking_for_all(self) -> StepWork[None]:
        """Find all partitions."""
        is_stable = self._request.isolation == READ_COMMITTED
        for key, partitions in self._context.topics:
            for asked in partitions:
                read = _PartitionRead(key, asked, is_stable=is_stable)
                self._reads.append(read)
                self._check_offset(read)
                yield

    def _looking(self) -> StepWork[bool]:
        """As `is_ready`, but find failed partitions again."""
        size = 0
        for read in self._reads:
            if read.stream is not None and read.stream.fault is not None:
                self._check_offset(read)
            more = read.ready()
            if more is None:
                return True
            size += more
            yield
        return size >= self._request.min_bytes and not self._is_ahead

    async def _wait_long(self) -> MaybeResponse:
        """Answer when it is time."""
        changed = asyncio.Event()
        streams = {read.stream for read in self._reads if read.stream is not None}
        for stream in streams:
            stream.add_listener(changed.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._request.max_wait_ms / 1000):
                    if self._is_ahead:
                        await self._confirm_long()
                    while not await paced(self._looking()):
                        await changed.wait()
                        changed.clear()
        finally:
            for stream in streams:
                stream.remove_listener(changed.set)
        return await self._answer_long()

    async def _confirm_long(self) -> None:
        """As `_confirm`."""
        asked = await paced(mapped(_name_and_index, self._reads))
        try:
            await self._call.broker.confirm_ends(asked)
        except ApiError:
            return
        self._is_confirmed, self._is_ahead = True, False
        sound = [read for read in self._reads if read.error is ErrorCode.none]
        await paced(mapped(self._check_offset, sound))

    async def _answer_long(self) -> FetchResponse:
        found = await paced(self._reading())
        broker, is_stable = self._call.broker, self._request.isolation == READ_COMMITTED
        now = broker.clock.now()
        finishing = broker.fetch_sessions.finishing(self._context, found, now)
        return replace_fields(await paced(finishing), has_aborted=is_stable)

    def _reading(self) -> StepWork[list[tuple[TopicKey, list[FetchedPartition]]]]:
        """Read what there is now."""
        memory = self._call.client.memory
        room = ANSWER_BYTES if memory is None else memory.left
        left = max(0, min(self._request.max_bytes, ANSWER_BYTES, room))
        is_first, reads = room > 0, iter(self._reads)
        found: list[tuple[TopicKey, list[FetchedPartition]]] = []
        for key, partitions in self._context.topics:
            answers: list[FetchedPartition] = []
            for _ in partitions:
                part = self._read(next(reads), left, is_first=is_first)
                size = sum(map(len, part.records))
                left, is_first = max(0, left - size), is_first and size == 0
                answers.append(part)
                yield
            found.append((key, answers))
        return found

    def _wake(self) -> None:
        """A partition has changed: go on at the end of this turn of the loop."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        for read in self._reads:
            if read.stream is not None and read.stream.fault is not None:
                self._check_offset(read)
        if self.is_ready():
            self._finish()

    def _finish(self) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(self)


def _name_and_index(read: _PartitionRead) -> tuple[str | UUID, int]:
    key = UUID(bytes=read.key) if isinstance(read.key, bytes) else read.key
    return key, read.asked.partition


def _rows(read: _PartitionRead, left: int, *, is_first: bool) -> memoryview:
    """What passes of a view, as far as it is computed. Raises LogFormatError."""
    if not isinstance(read.stream, ViewPartition):
        return NOTHING
    data = memoryview(read.stream.ready(read.asked.offset, is_stable=read.is_stable))
    return data if is_first or len(data) <= min(left, read.asked.max_bytes) else NOTHING

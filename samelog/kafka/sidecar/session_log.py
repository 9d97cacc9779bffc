"""Kafka clients' batches, appended to a session of the publisher sidecar.

Batches were checked as the nodes will check them, because one that they refused would hold up all
behind it. A batch goes into the session's file at once and is answered when the disk has it. What
is asked for meanwhile shares the next sync. Offsets are the cluster's to give, so none is told.

A session whose directory has gone (removed, unmounted) is reopened when there is one again, and so
is one that could not be opened because the disk was full.

Retries of idempotent producers are recognised before they are written. A session's records carry no
producer ids of others, so the cluster cannot tell a retry from a new batch: the sidecar does, for
as long as it lives, by the rule of Kafka's broker.

Invariant: what was answered is durable here, at a place where it will be found and shipped; order
within a partition is the order of `append`; after a sync that failed nothing more is taken.
Also: of each producer and partition the newest five batches are known, and of producers the
ones that wrote last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from struct import pack_into

from samelog.format import _kernels as kernels
from samelog.format.batch import BatchHeader, read_header
from samelog.format.errors import LogFormatError
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.publisher.session_writer import SessionWriter, Unsynced
from samelog.replicator.client_errors import PublisherError
from samelog.runtime.loop import spawn
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.merge.dedup import BatchFacts, judge_sequence, last_sequence
from samelog.sequencer.state.instructions import Sequence5, Verdict
from samelog.sequencer.state.tables.producers import remember
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.disk.disk_errors import DirectoryGone, NoSpace
from samelog.store.disk.files import FileSystem

PRODUCERS_MAX = 100_000
"""Pairs of producer and partition; beyond that the one that wrote least lately is forgotten."""
NO_OFFSET = -1
ProducerPartition = tuple[int, str, int]
"""Producer id, topic, partition."""


class Sequences:
    """The newest batches of each idempotent producer."""

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._limit = limit
        self._known: OrderedDict[ProducerPartition, list[Sequence5]] = OrderedDict()

    def is_new(self, header: BatchHeader, topic: str, index: int) -> bool:
        """Whether a batch is to be written; False: it is there already. Raises ApiError."""
        if header.producer_id < 0:
            return True
        facts = BatchFacts(
            header.records, header.producer_id, header.producer_epoch, header.base_sequence
        )
        known = self._known.get((header.producer_id, topic, index), [])
        verdict = judge_sequence(known, facts).verdict
        if verdict is Verdict.FENCED:
            raise ApiError(ErrorCode.invalid_producer_epoch, "a newer epoch has written")
        if verdict is Verdict.OUT_OF_ORDER:
            text = f"sequence {header.base_sequence} does not follow what was written last"
            raise ApiError(ErrorCode.out_of_order_sequence_number, text)
        return verdict is Verdict.TAKE

    def written(self, header: BatchHeader, topic: str, index: int) -> None:
        """A batch was written."""
        if header.producer_id < 0:
            return
        key = header.producer_id, topic, index
        first, last = header.base_sequence, last_sequence(header.base_sequence, header.records)
        batch = Sequence5(header.producer_id, header.producer_epoch, first, last, NO_OFFSET)
        remember(self._known.setdefault(key, []), batch)
        self._known.move_to_end(key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)


log = logging.getLogger(__name__)

REOPEN_S = 1.0
APPENDED = AppendResult(ErrorCode.none)
NOT_DURABLE = AppendResult(ErrorCode.kafka_storage_error)
_CRC_AT, _CRC_FROM, _PRODUCER_AT = 17, 21, 43


class SidecarLog:
    """Implements any_broker.BatchLog."""

    def __init__(
        self,
        fs: FileSystem,
        open_writer: Callable[[], SessionWriter],
        *,
        batch_bytes: int,
        may_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """To be made in the event loop. `may_open`: whether the session's place can be used, when
        it was not there. Raises as `open_writer`, unless the disk is full.
        """
        self._fs = fs
        self._open_writer = open_writer
        self.checker = BatchChecker(batch_bytes)
        self._may_open = may_open
        self._sequences = Sequences()
        self._waiting: list[asyncio.Future[AppendResult]] = []
        self._syncing: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._fault: LogFormatError | None = None
        self._writer: SessionWriter | None = None
        try:
            self._writer = open_writer()
        except NoSpace as full:
            self._fail(full)

    @property
    def fault(self) -> str:
        """Why nothing is taken; empty: it is."""
        return "" if self._fault is None else str(self._fault)

    async def open(self, topic: Topic, index: int) -> None:
        """Do nothing: files are made when they are needed."""

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> asyncio.Future[AppendResult]:
        """Append one sound batch: what will become of it. `data` is free on return. Raises
        ApiError.
        """
        if self._fault is not None or self._writer is None:
            raise ApiError(ErrorCode.kafka_storage_error, self.fault)
        header = read_header(data)
        if self._sequences.is_new(header, topic.name, index):
            anonymous = data if header.producer_id < 0 else _anonymous(data)
            self._write(self._writer, topic.name, index, anonymous)
            self._sequences.written(header, topic.name, index)
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(outcome)
        if self._syncing is None:
            self._syncing = spawn(self._sync(self._writer), "sync of what Kafka clients wrote")
        return outcome

    def _write(self, writer: SessionWriter, topic: str, index: int, data: memoryview) -> None:
        try:
            writer.directory.check_place()  # or its producer would write it a second time
            writer.output(topic, index).write(data)
        except (PublisherError, LogFormatError) as error:
            self._look_for(writer)
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error

    def _look_for(self, writer: SessionWriter) -> None:
        try:
            writer.directory.check_place()
        except LogFormatError as fault:
            self._fail(fault)

    async def _sync(self, writer: SessionWriter) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                outcome = await self._synced(writer)
                _answer(waiting, outcome)
        finally:
            self._syncing = None

    async def _synced(self, writer: SessionWriter) -> AppendResult:
        try:
            await asyncio.to_thread(self._make_durable, writer, writer.take_unsynced())
        except LogFormatError as fault:
            self._fail(fault)
        return APPENDED if self._writer is writer and self._fault is None else NOT_DURABLE

    def _make_durable(self, writer: SessionWriter, unsynced: Unsynced) -> None:
        unsynced.sync(self._fs)
        writer.directory.check_place()

    # --- when the disk fails ----------------------------------------------------------------------

    def _fail(self, fault: LogFormatError) -> None:
        """Take nothing more; what was not answered is written again when its producer asks."""
        if self._fault is not None:
            return
        log.critical("what Kafka clients write cannot be made durable: %s", fault)
        self._fault = fault
        waiting, self._waiting = self._waiting, []
        _answer(waiting, NOT_DURABLE)
        may_pass = isinstance(fault, DirectoryGone) or self._writer is None
        if may_pass and self._opening is None:
            self._opening = spawn(self._open_again(), "the session of Kafka clients")

    async def _open_again(self) -> None:
        if self._syncing is not None:
            await self._syncing
        if self._writer is not None:
            self._writer.abandon(self.fault)
            self._writer = None
        while self._fault is not None:
            await asyncio.sleep(REOPEN_S)
            if self._may_open():
                await self._try_to_open()
        self._opening = None

    async def _try_to_open(self) -> None:
        try:
            self._writer = await asyncio.to_thread(self._open_writer)
        except LogFormatError as fault:
            self._fault = fault
        else:
            self._sequences, self._fault = Sequences(), None
            log.warning("what Kafka clients write is taken again")

    async def settle(self) -> None:
        """Answer what was appended so far."""
        if self._syncing is not None:
            await self._syncing

    async def close(self) -> None:
        """Answer what was appended, and end the run."""
        await self.settle()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        try:
            if self._writer is not None:
                self._writer.close()
        except LogFormatError as fault:
            log.error("the run is ended when its session is opened again: %s", fault)


def _anonymous(batch: memoryview) -> memoryview:
    """A batch without its producer id, epoch and sequence, and with the CRC that fits."""
    found = bytearray(batch)
    pack_into(">qhi", found, _PRODUCER_AT, -1, -1, -1)
    pack_into(">I", found, _CRC_AT, kernels.crc32c(memoryview(found)[_CRC_FROM:]))
    return memoryview(found).toreadonly()


def _answer(waiting: list[asyncio.Future[AppendResult]], outcome: AppendResult) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(outcome)

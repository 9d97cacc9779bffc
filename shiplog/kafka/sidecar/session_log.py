"""Kafka clients' batches, appended to a session of the publisher sidecar.

A batch is checked as the nodes will check it, because one that they refused would hold up all
behind it; it goes into the session's file at once and is answered when the disk has it. What is
asked for meanwhile shares the next sync. Offsets are the cluster's to give, so none is told.

Invariant: what was answered is durable here and will be shipped; order within a partition is the
order of `append`; after a sync that failed nothing more is taken.
"""

from __future__ import annotations

import asyncio
import logging
from struct import pack_into

from kio.schema.errors import ErrorCode

from shiplog.kafka.any_broker import Outcome
from shiplog.kafka.refusal import Refusal
from shiplog.kafka.sidecar.sequences import Sequences
from shiplog.logformat import _kernels as kernels
from shiplog.logformat.batch import read_header
from shiplog.logformat.errors import LogFormatError
from shiplog.logformat.files import FileSystem
from shiplog.publisher.errors import PublisherError
from shiplog.publisher.session_writer import SessionWriter
from shiplog.publisher.sync import sync
from shiplog.replicator.interfaces import Refused
from shiplog.runtime.loop import spawn
from shiplog.sequencer.batch_check import check_batches
from shiplog.sequencer.state_types import Topic

log = logging.getLogger(__name__)

APPENDED = Outcome(ErrorCode.none)
NOT_DURABLE = Outcome(ErrorCode.kafka_storage_error)
_CRC_AT, _CRC_FROM, _PRODUCER_AT = 17, 21, 43


class SessionLog:
    """Implements any_broker.BatchLog."""

    def __init__(self, fs: FileSystem, writer: SessionWriter, *, batch_bytes: int) -> None:
        self._fs = fs
        self._writer = writer
        self._batch_bytes = batch_bytes
        self._sequences = Sequences()
        self._waiting: list[asyncio.Future[Outcome]] = []
        self._syncing: asyncio.Task[None] | None = None
        self._fault: LogFormatError | None = None

    def is_open(self, topic: Topic, index: int) -> bool:
        """Files are made when they are needed."""
        return True

    async def open(self, topic: Topic, index: int) -> None:
        """Nothing is to be done."""

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> asyncio.Future[Outcome]:
        """Append one batch: what will become of it. `data` is free on return. Raises Refusal."""
        if self._fault is not None:
            raise Refusal(ErrorCode.kafka_storage_error, str(self._fault))
        header = read_header(data)
        if self._sequences.is_new(header, topic.name, index):
            self._write(topic.name, index, data if header.producer_id < 0 else _anonymous(data))
            self._sequences.written(header, topic.name, index)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(outcome)
        if self._syncing is None:
            self._syncing = spawn(self._sync(), "sync of what Kafka clients wrote")
        return outcome

    def _write(self, topic: str, index: int, data: memoryview) -> None:
        try:
            check_batches(data, batch_bytes=self._batch_bytes, producer_id=None)
            self._writer.output(topic, index).write(data)
        except Refused as refused:
            raise Refusal(ErrorCode.invalid_record, refused.message) from refused
        except (PublisherError, LogFormatError) as error:
            raise Refusal(ErrorCode.kafka_storage_error, str(error)) from error

    async def _sync(self) -> None:
        waiting: list[asyncio.Future[Outcome]] = []
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await asyncio.to_thread(sync, self._fs, self._writer.take_unsynced())
                _answer(waiting, APPENDED)
        except LogFormatError as fault:
            log.critical("what Kafka clients write cannot be made durable: %s", fault)
            self._fault = fault
            _answer([*waiting, *self._waiting], NOT_DURABLE)
        finally:
            self._syncing = None

    async def settle(self) -> None:
        """Answer what was appended so far."""
        if self._syncing is not None:
            await self._syncing

    async def close(self) -> None:
        """Answer what was appended, and end the run."""
        await self.settle()
        self._writer.close()


def _anonymous(batch: memoryview) -> memoryview:
    """A batch without its producer id, epoch and sequence, and with the CRC that fits."""
    found = bytearray(batch)
    pack_into(">qhi", found, _PRODUCER_AT, -1, -1, -1)
    pack_into(">I", found, _CRC_AT, kernels.crc32c(memoryview(found)[_CRC_FROM:]))
    return memoryview(found).toreadonly()


def _answer(waiting: list[asyncio.Future[Outcome]], outcome: Outcome) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(outcome)

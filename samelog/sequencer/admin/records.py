"""Answers with some records of a partition, for people who look.

They are read as Kafka's Fetch reads them, a piece at a time, and decoded in a thread. Whoever sees
them has to have the right to subscribe to the topic: administering gives none to its records.

Invariant: an answer, and what is read for it, is bounded; only merged records are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import UNSET

from samelog.admin.requests import PeekRecords
from samelog.admin.views import PeekedRecord, RecordPage
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.errors import LogFormatError
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topics import find_partition
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.store.merged.log import MergedLog
from samelog.wire.errors import FaultCode

READ_BYTES = 256 << 10
LOOKED_AT_BYTES_MAX = 8 << 20
ANSWER_BYTES_MAX = 2 << 20
FIELD_BYTES_MAX = 64 << 10
"""Of a key, a value, or a header's value."""
NULL = -1


async def peek_records(node: ServedNode, request: PeekRecords, identity: str) -> RecordPage:
    """A page of records. Raises ChangeRefused."""
    if not node.member.rights.may_subscribe(identity, request.topic):
        text, remedy = f"{identity} may not read {request.topic!r}", "grant subscribe_topics"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, remedy)
    if sum(each is not UNSET for each in (request.offset, request.at_ms, request.last)) > 1:
        text = "only one of offset, at_ms and last says where to begin"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text)
    number = find_partition(node, request.topic, request.partition)
    merged = parts_here(node, number)[0].merging.look(number)
    try:
        return await _page(merged, request)
    except LogFormatError as error:
        raise ChangeRefused(FaultCode.NOT_READY, f"it cannot be read here: {error}") from error


async def _page(merged: MergedPartition, request: PeekRecords) -> RecordPage:
    """Raises LogFormatError."""
    log, answer = merged.log, _Answer(request)
    offset = min(max(_first(log, request), log.start_offset), log.next_offset)
    looked_at = 0
    while offset < log.next_offset and looked_at < LOOKED_AT_BYTES_MAX and not answer.is_full:
        data = log.read(*log.locate(offset), READ_BYTES)
        place = 0, len(data), merged.topic, merged.index, decompress
        records = await asyncio.to_thread(kernels.decode_records, data, *place)
        offset = answer.take(records, offset)
        looked_at += len(data)
    return RecordPage(log.start_offset, log.next_offset, offset, tuple(answer.rows))


def _first(log: MergedLog, request: PeekRecords) -> int:
    """Where to begin. Raises LogFormatError."""
    if request.offset is not UNSET:
        return request.offset
    if request.at_ms is not UNSET:
        return log.locate_timestamp(request.at_ms)
    return 0 if request.last is UNSET else log.next_offset - request.last


class _Answer:
    """What is shown of the records that are looked at."""

    def __init__(self, request: PeekRecords) -> None:
        self._limit = request.limit
        self._key = None if request.key is UNSET else request.key.encode()
        self._bytes = 0
        self.rows: list[PeekedRecord] = []

    @property
    def is_full(self) -> bool:
        """Whether nothing more may come into it."""
        return len(self.rows) >= self._limit or self._bytes >= ANSWER_BYTES_MAX

    def take(self, records: Sequence[kernels.Record], first: int) -> int:
        """Take those from offset `first` on; the offset behind the last one that was looked at."""
        for record in records:
            if record.offset < first or self.is_full:
                continue
            first = record.offset + 1
            if self._key is None or record.key == self._key:
                self._add(_row(record))
        return first if self.is_full or not records else max(first, records[-1].offset + 1)

    def _add(self, row: PeekedRecord) -> None:
        self.rows.append(row)
        fields = row.key, row.value, *(value for _, value in row.headers)
        self._bytes += sum(len(each or b"") for each in fields)


def _row(record: kernels.Record) -> PeekedRecord:
    size = NULL if record.value is None else len(record.value)
    headers = tuple((name, _cut(value)) for name, value in record.headers)
    key, value = _cut(record.key), _cut(record.value)
    return PeekedRecord(record.offset, record.timestamp, key, value, size, headers)


def _cut(field: bytes | None) -> bytes | None:
    return None if field is None else field[:FIELD_BYTES_MAX]

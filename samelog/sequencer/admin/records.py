"""Answers with some records of a partition, for people who look.

They are read as Kafka's Fetch reads them, a piece at a time, and decoded in a thread; those of a
view pass its filter first. Whoever sees them has to have the right to subscribe to the topic:
administering gives none to its records.

Invariant: an answer, and what is read for it, is bounded; only merged records are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec import UNSET

from samelog.admin.requests import PeekRecords
from samelog.admin.views import PeekedRecord, RecordPage
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.errors import LogFormatError
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topics import find_partition
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.filtering.pieces import PIECE_BYTES
from samelog.sequencer.filtering.readings import RowsHere
from samelog.sequencer.filtering.view_stream import ViewStream, check_owner, rows_of_view
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.parts import LogParts
from samelog.sequencer.state.tables.views import View
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
    try:
        return await _page(_opened(node, request), request)
    except LogFormatError as error:
        raise ChangeRefused(FaultCode.NOT_READY, f"it cannot be read here: {error}") from error
    except RequestRefused as refused:
        raise ChangeRefused(refused.code, refused.message, refused.remedy) from refused


# --- what is read ---------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """Batches, how many bytes were looked at for them, and up to which offset at least."""

    data: bytes
    looked_at: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class _Opened:
    """A partition of a topic, or of a view; `read` gives what is there from an offset on."""

    topic: str
    merged: MergedPartition
    read: Callable[[int], Awaitable[_Piece]]


def _opened(node: ServedNode, request: PeekRecords) -> _Opened:
    """Raises ChangeRefused."""
    state = node.logs.machine.state
    view = state.views.named(request.topic)
    base = request.topic if view is None else state.topics.by_id[view.base_id].name
    number = find_partition(node, base, request.partition)
    logs = parts_here(node, number)[0]
    merged = logs.merging.look(number)
    if view is None:
        return _Opened(request.topic, merged, partial(_stored, merged.log))
    rows = _rows(node, view, logs, number)
    return _Opened(request.topic, merged, partial(_passing, rows))


def _rows(node: ServedNode, view: View, logs: LogParts, number: int) -> RowsHere:
    """What passes of a partition of the base."""
    base = logs.merging.look(number)
    stream = ViewStream(view, base, lambda: node.logs.machine.state)
    asked, filters = rows_of_view(view), node.member.filters
    made = stream, base, logs.machine, number, asked, filters, view.log_id
    return RowsHere(*made, lambda: check_owner(node.member.rights, view, base.topic))


async def _stored(log: MergedLog, offset: int) -> _Piece:
    """Batches without records to show, as markers of transactions, count as looked at. Raises
    LogFormatError.
    """
    data = log.read(*log.locate(offset), READ_BYTES)
    headers = kernels.batch_headers(data, 0, len(data))
    if not headers:
        return _Piece(data, 0, log.next_offset)
    at, _, records = headers[-1][:3]
    return _Piece(data, len(data), int.from_bytes(data[at : at + 8], "big") + records)


async def _passing(rows: RowsHere, offset: int) -> _Piece:
    """Raises RequestRefused."""
    data, next_offset = await rows.piece(offset)
    return _Piece(data, PIECE_BYTES, next_offset)


# --- what is shown --------------------------------------------------------------------------------


async def _page(opened: _Opened, request: PeekRecords) -> RecordPage:
    """Raises LogFormatError, RequestRefused."""
    log, answer = opened.merged.log, _Answer(request)
    offset = min(max(_first(log, request), log.start_offset), log.next_offset)
    looked_at = 0
    while offset < log.next_offset and looked_at < LOOKED_AT_BYTES_MAX and not answer.is_full:
        piece = await opened.read(offset)
        place = 0, len(piece.data), opened.topic, opened.merged.index, decompress
        records = await asyncio.to_thread(kernels.decode_records, piece.data, *place)
        offset = answer.take(records, offset, piece.next_offset)
        looked_at += piece.looked_at
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

    def take(self, records: Sequence[kernels.Record], first: int, next_offset: int) -> int:
        """Take those from offset `first` on; the offset behind the last one that was looked at.
        `next_offset`: so far was looked at least, if there is room for all that was found.
        """
        for record in records:
            if record.offset < first or self.is_full:
                continue
            first = record.offset + 1
            if self._key is None or record.key == self._key:
                self._add(_row(record))
        if self.is_full:
            return first
        behind = records[-1].offset + 1 if records else first
        return max(first, behind, next_offset)

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

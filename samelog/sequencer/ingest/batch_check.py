"""What a node looks at before it takes record batches from outside (rules logs.3, operations.1).

Bytes that were taken are merged, and whoever reads the partition has to get past them: a record
that cannot be decoded would stop every subscriber for ever.

Invariant: what passes can be scanned, decoded and sliced by every part of samelog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, Attribute
from samelog.format.compression import LIMIT_BYTES_DEFAULT, unpack
from samelog.format.dedup import dedup_producer_id
from samelog.format.errors import DecompressionError, LogFormatError
from samelog.format.names import is_mirror_session
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.turn_budget import TurnBudget
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.topics import Topic
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from typing_extensions import Buffer

ONLY_FOR_BROKERS = int(Attribute.LOG_APPEND_TIME | Attribute.TRANSACTIONAL | Attribute.CONTROL)
SLICED_LIMIT_BYTES = 7 << 20
"""What a twin's batch may unpack to: slicing writes it uncompressed, and a frame must hold it. The
same holds for topics whose keys count once: what is left of a batch is written uncompressed.
"""
KEYED_RECORDS = 1 << 17
"""A record with a key takes eight bytes or more: no batch of a MiB that is not compressed has more.
An instruction may need a number for each record of a batch.
"""
ANY_PRODUCER: Final = -2
"""Of a session into which Kafka clients write, each under its own producer id."""
MIRRORED: Final = -3
"""Of a session that brings batches of another cluster, with all that a broker wrote into them."""
OwnProducer: TypeAlias = Callable[[], int | None]
"""Says which producer id batches may carry: None: none, ANY_PRODUCER: any. Few carry one."""


class TurnIsOver(Exception):
    """A check needs more than this turn of the event loop has room for."""


class Unpacking:
    """Unpacks batches one behind the other, within a limit for each and a turn's budget for all.
    With no budget: outside of the event loop.
    """

    __slots__ = ("_budget", "_scratch", "limit_bytes", "turn_bytes", "unpacked")

    def __init__(
        self, limit_bytes: int = LIMIT_BYTES_DEFAULT, budget: TurnBudget | None = None
    ) -> None:
        self.limit_bytes = limit_bytes
        self.turn_bytes = LIMIT_BYTES_DEFAULT
        """What one batch may have of a turn's budget."""
        self.unpacked = 0
        """Bytes that came out, or might have where the batch was refused."""
        self._budget = budget
        self._scratch = None if budget is None else memoryview(bytearray(budget.left))

    def __call__(self, codec: int, blob: bytes) -> Buffer:
        """What a blob unpacks to. Raises DecompressionError, TurnIsOver."""
        budget, most = self._budget, self.limit_bytes
        if budget is not None:
            most = min(most, budget.left, self.turn_bytes)
            if len(blob) > most:
                raise TurnIsOver
        try:
            plain = unpack(codec, blob, limit_bytes=most, scratch=self._scratch)
        except DecompressionError:
            self._spend(most)
            if most < self.limit_bytes:
                raise TurnIsOver from None
            raise
        self._spend(max(len(blob), len(plain)))
        return plain

    def _spend(self, size: int) -> None:
        self.unpacked += size
        if self._budget is not None:
            self._budget.use(size)


class Taken(msgspec.Struct, frozen=True):
    """Batches that can be taken, the records in them, and what is wrong with the one behind."""

    data: memoryview
    records: int
    refusal: RequestRefused | None
    has_keys: bool = True
    """Whether every record has one; batches of a peer were looked into there."""


def whole_batches(data: memoryview) -> Taken:
    """Batches with valid headers and CRCs up to the first one that is not: enough for those that a
    peer has looked into.
    """
    scan = kernels.scan(data, verify_crc=True, max_batch_bytes=HELD_BATCH_BYTES)
    refusal = None if scan.end == len(data) else _not_whole(scan)
    return Taken(data[: scan.end], scan.records, refusal)


def _not_whole(scan: kernels.Scan) -> RequestRefused:
    reason = scan.error or "the last batch is cut"
    message = f"batch at byte {scan.end} of the frame: {reason}"
    return _refused(message, "the sender resumes behind the last whole batch")


def check_batches(
    data: memoryview, *, batch_bytes: int, own: OwnProducer, unpacking: Unpacking
) -> tuple[int, int]:
    """Check whole batches: headers, CRCs, records, and that no producer id but the run's own is in
    them: the number of records, and of those without a key. Raises RequestRefused (INVALID_BATCH),
    TurnIsOver.
    """
    scan = kernels.scan(data, verify_crc=True, max_batch_bytes=batch_bytes)
    if scan.end != len(data):
        raise _not_whole(scan)
    if scan.attributes & ONLY_FOR_BROKERS:
        _check_flags(scan, own)
    is_twin = scan.has_producer and (producer_id := own()) not in (ANY_PRODUCER, MIRRORED)
    if is_twin:
        _check_producers(data, producer_id)
        unpacking.limit_bytes = min(unpacking.limit_bytes, max(SLICED_LIMIT_BYTES, batch_bytes))
    try:
        keyless = kernels.check_records(data, unpacking)
    except LogFormatError as error:
        if not (scan.is_sparse and own() == MIRRORED):
            raise _refused(str(error)) from error
        keyless = _check_compacted(data, unpacking)
    return scan.records, keyless


def _check_compacted(data: memoryview, unpacking: Unpacking) -> int:
    """What compaction left at a mirror's source. Raises RequestRefused, TurnIsOver."""
    try:
        return kernels.check_records(data, unpacking, takes_sparse=True)
    except LogFormatError as error:
        raise _refused(str(error)) from error


def _check_flags(scan: kernels.Scan, own: OwnProducer) -> None:
    """Transactions are for Kafka's producers; what ends them, and the log's own times, for the
    merger.
    """
    if own() == MIRRORED:
        return
    flags = scan.attributes & ONLY_FOR_BROKERS
    if flags != Attribute.TRANSACTIONAL or not scan.has_producer or own() != ANY_PRODUCER:
        raise _refused("control, transactional and append-time batches are a broker's own")


def any_producer() -> int:
    """Where batches of any producer id are taken."""
    return ANY_PRODUCER


def own_producer(machine: StateMachine, session: str) -> int | None:
    """The only producer id that a session's batches may carry now; None: none at all."""
    if node_of(session) is not None:
        return ANY_PRODUCER
    if is_mirror_session(session):
        return MIRRORED
    run = machine.state.sessions.open_run_of(session)
    return None if run is None or run.dedup_id is None else dedup_producer_id(run.dedup_id)


def sound_batches(
    data: memoryview, *, batch_bytes: int, own: OwnProducer, unpacking: Unpacking
) -> Taken:
    """Whole batches up to the first one that cannot be taken. Raises TurnIsOver."""
    try:
        looked = check_batches(data, batch_bytes=batch_bytes, own=own, unpacking=unpacking)
    except RequestRefused as refused:
        if _is_one(data):
            return Taken(data[:0], 0, refused)
        return _up_to_first_bad(data, batch_bytes, own, unpacking)
    return Taken(data, looked[0], None, looked[1] == 0)


def _is_one(data: memoryview) -> bool:
    """Whether there is nothing but one batch, which need not be looked into a second time."""
    size = int.from_bytes(data[8:LENGTH_PREFIX_BYTES], "big", signed=True)
    return size + LENGTH_PREFIX_BYTES >= len(data)


def _up_to_first_bad(
    data: memoryview, batch_bytes: int, own: OwnProducer, unpacking: Unpacking
) -> Taken:
    end = records = keyless = 0
    while end < len(data):
        one = kernels.scan(data[end:], max_batch_bytes=batch_bytes, max_batches=1)
        batch = data[end : end + one.end] if one.end else data[end:]
        try:
            looked = check_batches(batch, batch_bytes=batch_bytes, own=own, unpacking=unpacking)
        except RequestRefused as refused:
            return Taken(data[:end], records, refused, keyless == 0)
        records, keyless = records + looked[0], keyless + looked[1]
        end += len(batch)
    return Taken(data, records, None, keyless == 0)


def _check_producers(data: memoryview, own: int | None) -> None:
    for header in kernels.batch_headers(data, 0, len(data)):
        if header[6] not in (-1, own):
            raise _refused(f"producer id {header[6]} does not belong to this session")


def without_long(taken: Taken) -> Taken:
    """The same, up to the first batch that is too long for a topic whose keys count once."""
    for header in kernels.batch_headers(taken.data, 0, len(taken.data)):
        if header[2] > KEYED_RECORDS:
            refusal = _refused(too_long_if_keyed(header[2]), "send smaller batches")
            return Taken(taken.data[: header[0]], taken.records, refusal, taken.has_keys)
    return taken


def too_long_if_keyed(records: int) -> str:
    """What whoever sent such a batch is told."""
    return f"a batch of {records} records; a topic whose keys count once takes {KEYED_RECORDS}"


def check_keys(topic: Topic) -> None:
    """Of records without keys. Raises RequestRefused (INVALID_BATCH) if the topic is compacted: it
    would never let go of them.
    """
    if is_compacted(topic.settings.get(CLEANUP_POLICY, "")):
        message = f"topic {topic.name!r} is compacted: every record needs a key"
        raise _refused(message, "give the records keys, or set the topic's cleanup.policy=delete")


def _refused(message: str, remedy: str = "send what can be read") -> RequestRefused:
    return RequestRefused(FaultCode.INVALID_BATCH, message, remedy)

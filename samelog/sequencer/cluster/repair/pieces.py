"""Single batches and whole segments of merged logs, as peers have them: for what is damaged or lost
here.

Invariant: what is given is a whole batch of the wanted offset, or a segment of the wanted size; the
caller compares its checksum.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.replicator.pull.acknowledger import Budget
from samelog.replicator.pull.repair_pull import MergedName
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.scrub import ScrubProgress
from samelog.wire.errors import ProtocolFault
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)


class PieceRepair:
    """One node's questions to its peers."""

    def __init__(
        self, fs: FileSystem, pulls: PeerPulls, ask: Callable[[], list[int]], budget: Budget
    ) -> None:
        """`ask` names the peers to ask, the best first; `budget`: of all that is copied."""
        self._budget = budget
        self._fs = fs
        self._pulls = pulls
        self._ask = ask

    async def batch_of(
        self, partition: MergedPartition, segment_base: int, bad: ScrubProgress
    ) -> bytes | None:
        """The batch that should be where this node has a bad one, from the first peer that has it;
        None if none does.
        """
        stream = MergedName(partition.topic, partition.topic_id, partition.index)
        start = ResumePoint(segment_base, bad.byte, bad.last_start, bad.last_crc)
        for peer in self._ask():
            sink = _BatchSink(bad.offset)
            try:
                number = partition.log.number_of(segment_base)
                await self._pull_from(peer, stream, start, sink, number)
            except (RuntimeFault, ProtocolFault, LogFormatError) as error:
                log_event(log, logging.INFO, "batch not given", peer=peer, error=error)
            if sink.batch is not None:
                return sink.batch
        return None

    async def segment_of(
        self, partition: MergedPartition, segment: Segment, path: str, *, number: int
    ) -> str | None:
        """Write a sealed segment, as a peer has it, to a file: whose it is; None if no peer has it
        all. `number`: of the compaction that made it, 0: it is as it was merged. Raises DiskFault.
        """
        stream = MergedName(partition.topic, partition.topic_id, partition.index)
        for peer in self._ask():
            file = self._fs.open(path, writable=True, create=True)
            file.truncate(0)
            sink = _SegmentSink(file, segment)
            try:
                start = ResumePoint(segment.base_offset, 0)
                await self._pull_from(peer, stream, start, sink, number)
            except (RuntimeFault, ProtocolFault) as error:
                log_event(log, logging.INFO, "segment not given", peer=peer, error=error)
            finally:
                file.close()
            if sink.has_enough():
                return self._pulls.name(peer)
        return None

    async def compacted_segment(
        self, partition: MergedPartition, wanted: CompactedSegment, folder: str
    ) -> str | None:
        """Write a compacted segment, as a peer has it, into a folder: the file; None if no peer has
        it. Raises DiskFault.
        """
        path = os.path.join(folder, segment_name(wanted.base, LOG))
        sealed = wanted.sealed
        segment = Segment(
            wanted.base, sealed.size, sealed=True, next_offset=wanted.stop, max_timestamp=-1
        )
        found = await self.segment_of(partition, segment, path, number=wanted.number)
        return None if found is None else path

    async def _pull_from(
        self,
        peer: int,
        stream: MergedName,
        start: ResumePoint,
        sink: _BatchSink | _SegmentSink,
        number: int,
    ) -> None:
        pull = self._pulls.get(peer)
        if pull is not None:
            await pull.merged(stream, start, sink, budget=self._budget, number=number)


@dataclass(slots=True)
class _BatchSink:
    """Takes the one batch that begins with `offset`."""

    offset: int
    batch: bytes | None = None

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
        if scan.end and int.from_bytes(data[:8], "big") == self.offset:
            self.batch = bytes(data[: scan.end])

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """The batch is not there."""

    def has_enough(self) -> bool:
        return self.batch is not None


@dataclass(slots=True)
class _SegmentSink:
    """Writes one segment to a file of its own."""

    file: File
    segment: Segment
    size: int = 0

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        if file == self.segment.base_offset and byte == self.size:
            self.file.pwrite(data, byte)
            self.size += len(data)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """Its length is known."""

    def has_enough(self) -> bool:
        return self.size >= self.segment.size

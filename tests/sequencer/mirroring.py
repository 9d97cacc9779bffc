"""A mirror without a cluster: a source's batches, the destination's state, planner and merger."""

from __future__ import annotations

import struct
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.format.transactions import TRANSACTIONAL, marker_batch
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.merger import PartitionMerger
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from tests.sequencer.test_planner import Bytes

SESSION = "mirror.eu"
SOURCE = MirrorSource("source", "flights", "log", ["source"], keeps_epochs=True)


def source_batch(
    offset: int, records: int = 3, *, epoch: int = 7, producer_id: int = -1, flags: int = 0
) -> bytes:
    """A batch as the source has it."""
    batch = bytearray(
        kernels.build_batches(
            [b"%d of %d" % (number, offset) for number in range(records)],
            timestamps=offset,
            batch_bytes=1 << 20,
            max_record_bytes=1 << 20,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=offset if producer_id >= 0 else -1,
        )
    )
    return _placed(batch, offset, epoch, flags)


def compacted(first: int, behind: int, *left: int, epoch: int = 7) -> bytes:
    """What compaction left of a batch of [first, behind): the records at these offsets."""
    return kernels.build_sparse(
        [b"%d of %d" % (offset - first, first) for offset in left],
        keys=[None] * len(left),
        headers=[None] * len(left),
        timestamps=[first] * len(left),
        offsets=left,
        first=first,
        behind=behind,
        leader_epoch=epoch,
    )


def in_transaction(offset: int, producer_id: int, records: int = 2) -> bytes:
    """A batch of a transaction of the source."""
    return source_batch(offset, records, producer_id=producer_id, flags=TRANSACTIONAL)


def source_marker(offset: int, producer_id: int, *, is_commit: bool = True) -> bytes:
    """What ends it."""
    batch = marker_batch(producer_id, 0, is_commit=is_commit, coordinator_epoch=1, at_ms=offset)
    return _placed(batch, offset, 7, 0)


def _placed(batch: bytearray, offset: int, epoch: int, flags: int) -> bytes:
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">i", batch, 12, epoch)
    if flags:
        attributes = struct.unpack_from(">H", batch, 21)[0] | flags
        struct.pack_into(">H", batch, 21, attributes)
        struct.pack_into(">I", batch, 17, kernels.crc32c(memoryview(batch)[21:]))
    return bytes(batch)


class MirrorWorld:
    """A mirror `eu.flights`, a topic `own`, and the session that brings the mirror's records."""

    def __init__(self, source: MirrorSource = SOURCE) -> None:
        self.machine = StateMachine()
        self.machine.state.members.cluster_id = "destination"
        self.machine.apply(CreateTopicCommand("m", "eu.flights", 1, {}, 5, source=source))
        self.number = self.machine.state.topics.by_id["m"].partition_numbers[0]
        self.bytes = Bytes()
        self.checked = CheckedRanges(0)
        self.planner = Planner(self.machine, PlannerLimits())
        self.index = 0
        self.merges: list[Merge] = []
        self.open(SESSION, "m")

    def open(self, session: str, topic_id: str) -> object:
        self.machine.apply(OpenRunCommand(session, session, "i", 0, session, None, None))
        return self.machine.apply(OpenInputCommand(session, topic_id, 0))

    @property
    def input(self) -> int:
        found = self.machine.state.sessions.input_of(SESSION, self.number)
        assert found is not None
        return found.number

    def bring(self, *batches: bytes) -> list[Merge]:
        """The sidecar brings these, and all that can be merged is."""
        self.bytes.put(self.input, b"".join(batches))
        return self.run_dry()

    def run_dry(self) -> list[Merge]:
        found: list[Merge] = []
        while merges := self.plan():
            self.commit(merges)
            found += merges
        return found

    def plan(self) -> list[Merge]:
        merges = self.planner.plan(self.bytes.ends(), self.bytes, term=3, now_ms=1000)
        if merges:
            self.index += 1
            self.planner.proposed(self.index, merges)
        return merges

    def commit(self, merges: list[Merge]) -> None:
        for merge in merges:
            outcome = self.machine.apply(merge)
            assert not isinstance(outcome, Rejection), outcome
            self.merges.append(merge)
        self.planner.applied(self.index)

    @property
    def next_offset(self) -> int:
        return self.machine.state.partitions.by_number[self.number].next_offset

    # --- as RangeReader ---------------------------------------------------------------------------

    def read_range(self, part: Range, *, from_file: bool = False) -> bytearray | None:
        return bytearray(self.bytes.files[part.input, part.run, part.roll][part.start : part.stop])

    def merged(self, path: Path, *, begins_later: bool = False) -> PartitionMerger:
        """A node's log, after everything that was committed."""
        log = MergedLog.open(
            OsFileSystem(), str(path / "t-0"), topic="t", topic_id="a" * 32, partition=0
        )
        known = self.machine.state.partitions.by_number[self.number]
        if begins_later:
            log.start_at(known.start_segment, checksum=known.start_checksum)
        merger = PartitionMerger(self.number, log, self)
        merger.voids = {void.base_offset: void for void in known.voids}
        for merge in self.merges:
            merger.enqueue(merge)
        while merger.step():
            pass
        return merger


def content(merger: PartitionMerger) -> bytes:
    """All bytes of a log."""
    log = merger.log
    return b"".join(
        log.read(part.base_offset, 0, part.size) for part in log.segments() if part.size
    )

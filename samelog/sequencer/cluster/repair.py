"""Gets what this node lacks from its peers: session bytes while they exist, and merged bytes.

A node that sees a peer ahead on an input for a moment, with nothing coming from the publisher,
pulls the difference, so that whatever reached one living node is merged (invariants.md, rule 7). A
partition that stalls, for want of session bytes or behind an installed snapshot, copies the merged
bytes.

Invariant: what is pulled passes the same checks as what is pushed or merged here; one pull at a
time for each input and each partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.format.segment import Segment
from samelog.replicator.pull.repair_pull import MergedName, PullRefused, SessionRunName
from samelog.runtime.clock import Clock
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.merge.merging import MergedPartition, Merging
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import Input
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.scrub import ScrubProgress
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import NO_BATCH
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)

PATIENCE_S = 0.05
"""How long something may be missing before it is pulled: its publisher is probably sending it."""
RETRY_S = 0.5


@dataclass(slots=True)
class _Wanted:
    """Something that is missing: since when, and what it would bring this node to."""

    since: float
    goal: SessionPosition | int
    node: int


class Repair:
    """One node's pulls from its peers."""

    def __init__(
        self,
        fs: FileSystem,
        pulls: PeerPulls,
        *,
        machine: StateMachine,
        merging: Merging,
        sessions: SessionStore,
        intake: Intake,
        clock: Clock,
        ask: Callable[[], list[int]],
    ) -> None:
        """`ask` names the peers to ask for merged bytes, the best first."""
        self._fs = fs
        self._machine = machine
        self._merging = merging
        self._sessions = sessions
        self._intake = intake
        self._clock = clock
        self._ask = ask
        self._inputs: dict[int, _Wanted] = {}
        self._partitions: dict[int, _Wanted] = {}
        self._busy: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._attempts = 0
        self._fruitless: dict[int, int] = {}
        """Partition -> pulls in a row that brought nothing."""
        self._pulls = pulls

    # --- noticing ---------------------------------------------------------------------------------

    def peer_reported(self, node: int, places: Mapping[int, SessionPosition]) -> None:
        """A peer said up to where it holds inputs."""
        for number, place in places.items():
            entry = self._machine.state.inputs.get(number)
            if entry is None or place.run != entry.run or place <= self._sessions.written(entry):
                continue
            if self._machine.open_run_of(entry.session) is None:
                continue  # behind the end of a closed run nothing counts
            known = self._inputs.get(number)
            if known is None or place > known.goal:  # type: ignore[operator]
                since = self._clock.now() if known is None else known.since
                self._inputs[number] = _Wanted(since, place, node)

    def tick(self) -> None:
        """Start the pulls that are due; to be called a few times in `PATIENCE_S`."""
        now = self._clock.now()
        for number, wanted in list(self._inputs.items()):
            self._look_at_input(number, wanted, now)
        for number, partition in self._merging.partitions.items():
            self._look_at_partition(number, partition, now)

    def _look_at_input(self, number: int, wanted: _Wanted, now: float) -> None:
        entry = self._machine.state.inputs.get(number)
        if entry is None or not isinstance(wanted.goal, SessionPosition):
            del self._inputs[number]
            return
        is_here = wanted.goal.run != entry.run or self._sessions.written(entry) >= wanted.goal
        if is_here or wanted.node not in self._ask():  # gone: others may have it, or some of it
            del self._inputs[number]
            return
        quiet_since = max(wanted.since, self._intake.received_at.get(number, 0.0))
        if now - quiet_since > PATIENCE_S and self._intake.stopped is None:
            work = self._pull_session(entry, wanted.goal, wanted.node)
            self._start("input", number, wanted, work)

    def _look_at_partition(self, number: int, partition: MergedPartition, now: float) -> None:
        goal = self._gap(number, partition)
        if goal is None:
            self._partitions.pop(number, None)
            return
        wanted = self._partitions.get(number)
        if wanted is None or wanted.goal != goal:
            since = now if wanted is None else wanted.since
            wanted = self._partitions[number] = _Wanted(since, goal, -1)
        if now - wanted.since > PATIENCE_S:
            work = self._pull_merged(number, partition, goal)
            self._start("partition", number, wanted, work)

    def _gap(self, number: int, partition: MergedPartition) -> int | None:
        """The offset up to which merged bytes are needed from a peer; None if none are."""
        if partition.fault is not None or self._intake.stopped is not None:
            return None
        first = next(iter(partition.merger.pending), None)
        known = self._machine.state.partitions[number].next_offset
        begin = known if first is None else first.base_offset
        if partition.log.next_offset < begin:
            return begin
        missing = partition.merger.missing
        return None if missing is None else missing.offset

    def _start(
        self, kind: str, number: int, wanted: _Wanted, work: Coroutine[Any, Any, None]
    ) -> None:
        key = (kind, number)
        if key in self._busy:
            work.close()
            return
        task = asyncio.create_task(self._guarded(work, wanted), name=f"repair {kind} {number}")
        self._busy[key] = task
        task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _guarded(self, work: Coroutine[Any, Any, None], wanted: _Wanted) -> None:
        """Run a pull; after a failure, the same thing is tried again a little later."""
        try:
            await work
        except (RuntimeFault, ProtocolFault, LogFormatError) as error:
            log_event(log, logging.INFO, "repair failed", error=error)
            wanted.since = self._clock.now() + RETRY_S
        else:  # more may have come meanwhile, and nobody else brings it
            wanted.since = self._clock.now()

    # --- pulling ----------------------------------------------------------------------------------

    async def _pull_session(self, entry: Input, goal: SessionPosition, node: int) -> None:
        names = self._machine.state
        partition = names.partitions[entry.partition]
        topic = names.topics[partition.topic_id]
        stream = SessionRunName(
            entry.session, topic.name, topic.topic_id, partition.index, entry.run
        )
        sink = _SessionSink(self._intake, self._sessions, entry, goal)
        start = ResumePoint(*self._intake.position(entry))
        try:
            pull = self._pulls.get(node)
            if pull is not None:
                await pull.session(stream, start, sink)
        except PullRefused as refused:
            if refused.code is not FaultCode.OUT_OF_RANGE:
                raise
            self._intake.start_at(entry.number, entry.run, entry.roll, entry.byte)

    async def _pull_merged(self, number: int, partition: MergedPartition, goal: int) -> None:
        peers = self._ask()
        before = partition.log.next_offset
        try:
            if peers:
                self._attempts += 1
                peer = peers[self._attempts % len(peers)]
                await self._pull_merged_from(peer, number, partition, goal)
        finally:
            is_further = partition.log.next_offset > before
            self._fruitless[number] = 0 if is_further else self._fruitless.get(number, 0) + 1
            if self.has_given_up(number):
                await self._take_spares(number, partition, goal)

    async def _pull_merged_from(
        self, peer: int, number: int, partition: MergedPartition, goal: int
    ) -> None:
        stream = MergedName(partition.topic, partition.topic_id, partition.index)
        log_event(
            log,
            logging.INFO,
            "copying merged bytes",
            partition=f"{partition.topic}-{partition.index}",
            first=partition.log.next_offset,
            until=goal,
        )
        sink = _MergedSink(self._merging, number, partition, goal)
        pull = self._pulls.get(peer)
        if pull is not None:
            await pull.merged(stream, _end_of(partition), sink)

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
                await self._pull_from(peer, stream, start, sink)
            except (RuntimeFault, ProtocolFault, LogFormatError) as error:
                log_event(log, logging.INFO, "batch not given", peer=peer, error=error)
            if sink.batch is not None:
                return sink.batch
        return None

    async def segment_of(
        self, partition: MergedPartition, segment: Segment, path: str
    ) -> str | None:
        """Write a sealed segment, as a peer has it, to a file: whose it is; None if no peer has it
        all. Raises DiskFault.
        """
        stream = MergedName(partition.topic, partition.topic_id, partition.index)
        for peer in self._ask():
            file = self._fs.open(path, writable=True, create=True)
            file.truncate(0)
            sink = _SegmentSink(file, segment)
            try:
                await self._pull_from(peer, stream, ResumePoint(segment.base_offset, 0), sink)
            except (RuntimeFault, ProtocolFault) as error:
                log_event(log, logging.INFO, "segment not given", peer=peer, error=error)
            finally:
                file.close()
            if sink.has_enough():
                return self._pulls.name(peer)
        return None

    async def _pull_from(
        self, peer: int, stream: MergedName, start: ResumePoint, sink: _BatchSink | _SegmentSink
    ) -> None:
        pull = self._pulls.get(peer)
        if pull is not None:
            await pull.merged(stream, start, sink)

    def has_given_up(self, number: int) -> bool:
        """Whether every peer that could be asked was, and none has what a partition needs next."""
        return self._fruitless.get(number, 0) > len(self._ask())

    def wanted(self, number: int) -> int:
        """The offset up to which records are missing that nobody has who could be asked; 0: none
        are missed for good.
        """
        partition = self._merging.partitions[number]
        goal = self._gap(number, partition)
        if goal is None or not self.has_given_up(number):
            return 0
        return min(goal, partition.log.spares.next_after(partition.log.next_offset) or goal)

    async def _take_spares(self, number: int, partition: MergedPartition, goal: int) -> None:
        """No peer has what comes next: perhaps this node set it aside behind a damaged batch."""
        for _ in partition.log.spares.read_new():
            await asyncio.sleep(0)
        first = partition.log.next_offset
        while partition.log.next_offset < goal and partition.log.append_spare():
            self._merging.copied(number)
            await asyncio.sleep(0)
        if partition.log.next_offset > first:
            log.warning(
                "%s-%d: records %d to %d come from files that were set aside as damaged",
                partition.topic,
                partition.index,
                first,
                partition.log.next_offset - 1,
            )

    async def close(self) -> None:
        """End every pull."""
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pulls.close()


def _end_of(partition: MergedPartition) -> ResumePoint:
    """Where the merged log ends here, and the batch before that."""
    segment, byte = partition.log.end()
    last = partition.log.last_batch()
    if last is None or last[0] != segment:
        return ResumePoint(segment, byte, NO_BATCH, 0)
    return ResumePoint(segment, byte, last[1], last[2])


@dataclass(slots=True)
class _SessionSink:
    """Takes pulled session bytes in, as if pushed."""

    intake: Intake
    sessions: SessionStore
    entry: Input
    goal: SessionPosition

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        self.intake.restore(self.entry.number, self.goal.run, file, byte, data)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        self.intake.seal(self.entry.number, self.goal.run, file, length)

    def has_enough(self) -> bool:
        return self.sessions.written(self.entry) >= self.goal


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


@dataclass(slots=True)
class _MergedSink:
    """Appends pulled merged bytes; instructions that they cover are skipped."""

    merging: Merging
    number: int
    partition: MergedPartition
    goal: int

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        if self.merging.partitions.get(self.number) is not self.partition:
            return  # the topic was deleted, or its log begun anew
        self.partition.log.append_copy(file, byte, bytearray(data))
        self.merging.copied(self.number)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """The next segment begins with its first bytes."""

    def has_enough(self) -> bool:
        return self.partition.log.next_offset >= self.goal

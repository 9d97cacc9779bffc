"""Runs the mergers on the event loop, makes logs durable behind them, tells readers what is new.

Work is done in slices of about a millisecond, so that heartbeats go out while gigabytes are merged.
The merged log is off the path of acknowledgements: it is synced every `sync_interval_s`, and what a
majority has merged-durable releases the inputs.

Invariant: `merged_durable` never runs ahead of a finished sync; a merged log is never durable
further than the Raft log that ordered it (with `fsync=interval`, other records could get the same
offsets after a loss of power); listeners are told only of executed bytes. A partition that is not
open has no directory, and nothing that is committed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby, islice
from operator import attrgetter

from samelog.format.directory_files import merged_owner
from samelog.format.errors import CorruptLog, InvariantError, LogFormatError
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.disk.syncer import Syncer
from samelog.runtime.loop import InLoop
from samelog.sequencer.events import MergingEvents
from samelog.sequencer.measures import Measures
from samelog.sequencer.merge.merged_partition import (
    MergedPartition,
    agrees,
    gone_log,
    moved_log,
)
from samelog.sequencer.merge.merger import PartitionMerger, RangeReader
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.disk.dirty_files import UNSYNCED_RETRY_S, report_left, take_dirty
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, FileSystem
from samelog.store.disk.quarantine import set_partition_aside
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import read_partition_owner
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.wire.errors import FaultCode

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
SYNC_INTERVAL_S = 0.1
FULL_RETRY_S = 1.0
FEW = 100
"""So many new partitions of a topic are looked for on disk one by one."""
REST_ROUNDS = 300
"""Times SYNC_INTERVAL_S: files are closed that nothing was written to for so long."""


@dataclass(slots=True)
class _Changed:
    """Partitions with something to do: instructions that can be executed now, or wait; bytes that
    are not synced; durable marks that are newer than those on disk; what was synced since the last
    look for logs that may rest.
    """

    ready: dict[int, MergedPartition] = field(default_factory=dict)
    queued: set[int] = field(default_factory=set)
    dirty: set[int] = field(default_factory=set)
    unmarked: dict[int, None] = field(default_factory=dict)
    awake: set[int] = field(default_factory=set)
    has_turn: bool = False
    """A turn of the loop is to come for those that are ready."""


class Merging(InLoop):
    """All partitions of this node. Those that nothing was written to are not even open, until they
    are asked for: `partition`.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        reader: RangeReader,
        machine: StateMachine,
        *,
        syncer: Syncer,
        events: MergingEvents,
        measures: Measures,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._reader = reader
        self._machine = machine
        self._syncer = syncer
        self._events = events
        self._measures = measures
        self._changed = _Changed()
        self._syncing = asyncio.Lock()
        self._fault: DiskFault | None = None
        """The sync that failed: nothing written before it may ever be called durable."""
        self._dirs = TopicDirs(fs, lambda path: read_partition_owner(fs, path))
        self._looked_at = 0
        """Partitions below this number were looked for on disk."""
        self.partitions: dict[int, MergedPartition] = {}
        """Those that are open."""
        self.divergences = 0
        """How often a majority had other bytes, or there was none that had the same."""
        self.troubles: dict[int, str] = {}
        """Partitions that were copied again, or halted, and why: a second time is an operator's."""
        fs.make_directory(directory)

    # --- partitions -------------------------------------------------------------------------------

    def take_up(self) -> None:
        """As `follow`; and whatever is open may have other voids, or be behind, now: the state was
        replaced.
        """
        known = list(self.partitions)
        self._looked_at = 0
        self.follow()
        for number in filter(self.partitions.__contains__, known):
            self._compare_with_state(number)

    def follow(self) -> None:
        """Open what this node has of the group's partitions, or lacks; let go of others."""
        state = self._machine.state
        successors = {log: each for each in state.topics.by_id.values() for log in each.former_logs}
        for number in [each for each in self.partitions if not self._is_same(each)]:
            self._let_go(number, successors.get(self.partitions[number].topic_id))
        self._take_up_new()
        for number, opened in self.partitions.items():
            opened.partitions = state.topics.by_id[
                state.partitions.by_number[number].topic_id
            ].partitions

    def _is_same(self, number: int) -> bool:
        """Whether an open partition is in the group, and did not leave and come back meanwhile."""
        state, opened = self._machine.state, self.partitions[number].log
        if not state.has_here(number):
            return False
        return opened.owner == merged_owner(
            opened.topic_id, state.partitions.by_number[number].came
        )

    def grow(self, topic: Topic) -> None:
        """As `follow`, where nothing but new partitions of a topic has come."""
        self._take_up_new()
        if self.partitions:
            for number in filter(self.partitions.__contains__, topic.partition_numbers):
                self.partitions[number].partitions = topic.partitions

    def _take_up_new(self) -> None:
        """Look for new partitions on disk; if a topic has thousands of them, in a list of the
        directory.
        """
        state = self._machine.state
        numbers = range(self._looked_at, state.partitions.next_number)
        self._looked_at = state.partitions.next_number
        found = filter(None, map(state.partitions.by_number.get, numbers))
        for topic_id, of_topic in groupby(found, attrgetter("topic_id")):
            new = [*of_topic]
            for partition in (
                new if len(new) <= FEW else self._there(state.topics.by_id[topic_id], new)
            ):
                self._take_up(partition)

    def _there(self, topic: Topic, new: Iterable[Partition]) -> list[Partition]:
        owners = {merged_owner(topic.log_id, came) for came in {each.came for each in new}}
        there = self._dirs.indexes(self._directory, topic.name, owners)
        return [each for each in new if each.next_offset or each.index in there]

    def _take_up(self, partition: Partition) -> None:
        """Open it, if it has anything. What has left while this node was away is removed."""
        topic = self._machine.state.topics.by_id[partition.topic_id]
        owner = merged_owner(topic.log_id, partition.came)
        place = self._path(topic, partition.index), owner, partition.index
        if self._machine.state.has_here(partition.number):
            if self._dirs.is_there(*place) or partition.next_offset > 0:
                self.partition(partition.number)
        elif self._dirs.is_there(*place):
            self._dirs.remove_later(*place)

    def partition(self, number: int) -> MergedPartition:
        """A partition of the state machine, to be written to or followed."""
        opened = self.partitions.get(number)
        if opened is None:
            opened = self._keep(number, self._made(number))
            self._compare_with_state(number)
        return opened

    def take_over(self, number: int) -> None:
        """A partition came from another group, or is known to go further there."""
        if number in self.partitions:
            self._compare_with_state(number)
        else:
            self.partition(number)

    def look(self, number: int) -> MergedPartition:
        """A partition of the state machine as it is now: one that is not open stays so."""
        return self.partitions.get(number) or self._made(number)

    def _compare_with_state(self, number: int) -> None:
        self._events.partition_opened(number)
        next_offset = self._machine.state.partitions.by_number[number].next_offset
        if self.partitions[number].log.next_offset < next_offset:
            self._events.partition_stalled(number)
        self.follow_voids(number)

    def _path(self, topic: Topic, index: int) -> str:
        return os.path.join(self._directory, f"{topic.name}-{index}")

    def _made(self, number: int) -> MergedPartition:
        known = self._machine.state.partitions.by_number[number]
        return self._open(number, self._machine.state.topics.by_id[known.topic_id], known.index)

    def _open(self, number: int, topic: Topic, index: int) -> MergedPartition:
        path, came = self._path(topic, index), self._machine.state.partitions.by_number[number].came
        try:
            merged = self._open_log(path, topic, index, came)
        except CorruptLog as damage:  # nothing else says whose segments these are
            aside = set_partition_aside(self._fs, path)
            log.error(
                "%s; the directory was moved to %s, and this node copies the partition from "
                "another member. If there is no other member, or none has it, the partition waits: "
                "stop this node, restore the file in that directory, move the directory back to "
                "%s, and start the node. If the file is lost for good: samelog recover void %s %d",
                damage,
                aside,
                path,
                topic.name,
                index,
            )
            merged = self._open_log(path, topic, index, came)
        merger = PartitionMerger(number, merged, self._reader)
        return MergedPartition(topic, index, merged, merger, self._events)

    def _open_log(self, path: str, topic: Topic, index: int, came: int) -> MergedLog:
        """Raises CorruptLog: whose directory it is cannot be read."""
        log_id = topic.log_id
        self._dirs.make_way(path, merged_owner(log_id, came), index)
        opened = MergedLog.open if self._fs.exists(path) else MergedLog.unwritten
        name = topic.name
        return opened(self._fs, path, topic=name, topic_id=log_id, partition=index, came=came)

    def _keep(self, number: int, opened: MergedPartition) -> MergedPartition:
        for damage in opened.log.damaged:
            log.error("%s", damage)
        self.partitions[number] = opened
        if opened.log.dirty():  # above the durable mark: a snapshot must not count on it unsynced
            self._changed.dirty.add(number)
        return opened

    def follow_voids(self, number: int) -> None:
        """Some offsets of a partition are void. What this node has there after all, no other copy
        has: it is set aside, so that all are alike.
        """
        partition, known = self.partitions[number], self._machine.state.partitions.by_number[number]
        voids = known.voids
        partition.merger.voids = {void.base_offset: void for void in voids}
        if known.checked_sum is None:
            partition.agreed = None
        if partition.fault is None and not all(agrees(partition.log, void) for void in voids):
            self._rebuild(number, partition, "it differs from records that were declared void")
        elif voids:
            self.wake(number)

    def forget_deleted(self) -> None:
        """Remove the logs of deleted topics, and of partitions that have left. Of a topic whose log
        was restarted, earlier logs stay.
        """
        state, former = self._machine.state, set[str]()
        present = dict[str, Topic]()
        for topic in state.topics.by_id.values():
            former.update(topic.former_logs)
            present[topic.log_id] = topic

        def is_known(owner: str, index: int) -> bool:
            log_id, _, came = owner.partition(".")
            topic = present.get(log_id)
            if topic is None:
                return log_id in former
            known = state.partitions.by_number.get(topic.partition_numbers[index])
            return known is not None and str(known.came or "") == came

        self._dirs.forget_others(self._directory, is_known)

    def _let_go(self, number: int, successor: Topic | None) -> None:
        """`successor`: the topic whose log was restarted; None: the topic was deleted."""
        gone = self.partitions.pop(number)
        self.troubles.pop(number, None)
        self._changed.ready.pop(number, None)
        self._changed.dirty.discard(number)
        is_moved = successor is None and gone.made_of.topic_id in self._machine.state.topics.by_id
        gone.fault = moved_log(gone) if is_moved else gone_log(gone.topic, successor)
        gone.changed()
        gone.log.close()
        if successor is None:
            self._dirs.remove_later(gone.log.path, gone.log.owner, gone.index)
        else:
            self._dirs.park(gone.log.path, gone.log.owner, gone.index)

    def remove_next(self) -> bool:
        """Remove one directory of a deleted topic; whether there was any."""
        return self._dirs.remove_next()

    # --- executing --------------------------------------------------------------------------------

    def enqueue(self, merge: Merge) -> None:
        """A merge instruction is committed."""
        partition = self.partitions.get(merge.partition)
        if partition is None:
            if merge.partition not in self._machine.state.partitions.by_number:
                raise InvariantError(f"instruction for unknown partition {merge.partition}")
            partition = self.partition(merge.partition)
        partition.merger.enqueue(merge)
        self._changed.queued.add(merge.partition)
        self.wake(merge.partition)

    def wake(self, number: int) -> None:
        """Something a partition may have waited for has come."""
        partition = self.partitions.get(number)
        if partition is None or partition.fault is not None:
            return
        if not (partition.merger.pending or partition.merger.voids):
            return
        self._changed.ready[number] = partition
        if not self._changed.has_turn:
            self._changed.has_turn = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """One slice of work: a range of each ready partition in turn, until it is used up."""
        self._changed.has_turn = False
        budget = SLICE_BYTES
        while self._changed.ready and budget > 0:
            number = next(iter(self._changed.ready))
            partition = self._changed.ready[number]
            del self._changed.ready[number]
            is_first = not partition.log.has_directory
            done = self._step(number, partition)
            if done == 0:
                continue
            budget -= SLICE_BYTES if is_first else done  # a directory takes some syncs
            self._measures.merged(done, partition.merger.newest_ms)
            self._changed.dirty.add(number)
            partition.changed()
            if partition.merger.pending or partition.merger.voids:
                self._changed.ready[number] = partition
            if partition.agreed is not None:
                self.compare([(number, *partition.agreed)])
        if self._changed.ready:
            self._changed.has_turn = True
            self.loop.call_soon(self._turn)

    def _step(self, number: int, partition: MergedPartition) -> int:
        """Execute one range. A full disk is waited out, a failing one halts the partition."""
        if partition.waits_for_room:
            return 0
        try:
            done = partition.merger.step()
            if partition.merger.missing is not None:
                self._events.partition_stalled(number)
            if done and partition.lacks_room:
                partition.lacks_room = False
                log.info("partition %d of %s resumes", partition.index, partition.topic)
            return done
        except NoSpace as fault:
            if not partition.lacks_room:
                log.error("partition %d of %s waits: %s", partition.index, partition.topic, fault)
            partition.waits_for_room = partition.lacks_room = True
            self.loop.call_later(FULL_RETRY_S, self._try_again, number)
        except DiskFault as fault:
            self.halt(number, f"{fault}; start the node again when its disk is well")
        except LogFormatError as fault:
            self.halt(number, str(fault))
        return 0

    def _try_again(self, number: int) -> None:
        partition = self.partitions.get(number)
        if partition is not None:
            partition.waits_for_room = False
            self.wake(number)

    def drop_pending(self) -> None:
        """Forget all queued instructions: a snapshot brings those that count."""
        for partition in self.partitions.values():
            partition.merger.drop_pending()

    # --- comparing --------------------------------------------------------------------------------

    def sample(self) -> None:
        """Remember checksums at the ends of all partitions in which something was merged since a
        majority last agreed on one. Every node is told to at the same entry, so at the same ends.
        """
        known = self._machine.state.partitions.by_number
        self._changed.dirty.update(  # whoever hears what is durable hears of samples
            number
            for number, each in ((n, known[n]) for n in self.partitions.keys() & known.keys())
            if each.next_offset > each.checked_offset
            and self.partitions[number].merger.sample_at(each.next_offset)
        )

    def compare(self, values: Iterable[tuple[int, int, int]]) -> None:
        """Compare partitions with checksums that a majority agrees on; one that differs is copied
        again. One that has not merged so far is compared later.
        """
        for number, offset, checksum in values:
            partition = self.partitions.get(number)
            if partition is None or partition.fault is not None:
                continue
            is_there = partition.log.next_offset >= offset
            partition.agreed = None if is_there else (offset, checksum)
            own = partition.merger.samples.get(offset, checksum)
            if own != checksum:
                reason = f"checksum at offset {offset} is {own:08x}, a majority has {checksum:08x}"
                self._differs(number, partition, reason)

    def _differs(self, number: int, partition: MergedPartition, reason: str) -> None:
        self.divergences += 1
        if number in self.troubles:
            self.halt(number, f"{reason}, again")
        else:
            self._rebuild(number, partition, reason)
        self._events.record_event("divergence", self.troubles[number])

    def no_majority(self, number: int, offset: int) -> None:
        """The nodes differ so that no majority can agree on the right bytes."""
        partition = self.partitions.get(number)
        if partition is not None and partition.fault is None:
            self.divergences += 1
            self.halt(number, f"no majority of nodes has the same bytes below offset {offset}")
            self._events.record_event("divergence", self.troubles[number])

    def _rebuild(self, number: int, old: MergedPartition, reason: str) -> None:
        """Move the files to quarantine, and copy the partition again from peers."""
        text = f"partition {old.topic}-{old.index} is copied again from other nodes: {reason}"
        self.troubles[number] = text
        self._close(number, old, text)
        aside = set_partition_aside(self._fs, old.log.path)
        log.critical("%s; what was here is kept as %s", text, aside)
        self._open_again(number, old)

    def reopen(self, number: int, reason: str, *, level: int = logging.CRITICAL) -> None:
        """Open a log again, as after a start: peers send what its files lack. `level`: of the line
        in the log; below CRITICAL where no damage is the reason. Raises LogFormatError.
        """
        old = self.partitions[number]
        text = f"partition {old.topic}-{old.index} is opened again: {reason}"
        self._close(number, old, text)
        log.log(level, "%s", text)
        self._open_again(number, old)

    def _close(self, number: int, old: MergedPartition, why: str) -> None:
        self._changed.dirty.discard(number)
        self._changed.ready.pop(number, None)
        old.fault = RequestRefused(FaultCode.NOT_READY, why, "read from another node meanwhile")
        old.changed()
        old.log.close()

    def _open_again(self, number: int, old: MergedPartition) -> None:
        self._keep(number, self._open(number, old.made_of, old.index))
        self._changed.dirty.add(number)  # less may be durable: the others have to know
        self._events.partition_stalled(number)
        self._events.partition_opened(number)
        self.partitions[number].merger.voids = old.merger.voids
        for merge in old.merger.pending:
            self.enqueue(merge)

    def halt(self, number: int, reason: str) -> None:
        """Stop executing and serving a partition; its files stay as they are."""
        partition = self.partitions[number]
        if partition.fault is None:
            partition.fault = RequestRefused(
                FaultCode.NOT_READY, f"halted on this node: {reason}", "read from another node"
            )
            self._changed.ready.pop(number, None)
            name = f"{partition.topic}-{partition.index}"
            self.troubles[number] = f"partition {name} is halted: {reason}"
            log.critical("%s", self.troubles[number])
            partition.changed()

    def copied(self, number: int) -> None:
        """Merged bytes were copied from a peer."""
        self._changed.dirty.add(number)
        partition = self.partitions[number]
        if partition.log.next_offset in partition.merger.to_sample:
            partition.merger.sample_at(partition.log.next_offset)
        partition.changed()
        self.wake(number)

    # --- durability -------------------------------------------------------------------------------

    async def run_syncer(self) -> None:
        """Make merged logs durable at intervals, until cancelled."""
        for number in count(1):
            await self.pause(SYNC_INTERVAL_S)
            if self._changed.dirty:
                await self.sync()
            if number % REST_ROUNDS == 0:
                self.rest()

    async def sync(self, *, waits_for_room: bool = True) -> None:
        """Make everything merged so far durable; also what a round under way has taken on. Logs for
        whose files the system lacks room are repeated until there is some; without
        `waits_for_room` they stay as they are. Raises DiskFault, and from then on always.
        """
        async with self._syncing:
            if self._fault is not None:
                raise self._fault
            try:
                left = await self._sync()
                if left:
                    report_left(left)
                while left and waits_for_room:
                    await asyncio.sleep(UNSYNCED_RETRY_S)
                    left = await self._sync()
            except DiskFault as fault:
                self._fault = fault
                raise

    async def _sync(self) -> Mapping[int, NoSpace]:
        """Make one round of syncs; the partitions for whose files there is no room, which stay
        dirty. Raises DiskFault.
        """
        logs = {n: self.partitions[n].log for n in self._changed.dirty if n in self.partitions}
        self._changed.dirty.clear()
        reached = {number: written.next_offset for number, written in logs.items()}
        files, left = take_dirty(logs)
        self._changed.dirty.update(left)
        for number in left:
            del logs[number]
        files.extend(self._events.files_synced_with_merged_logs())
        await self._events.sync_raft_log()
        await self._syncer.sync(files)
        for number, written in logs.items():
            known = self.partitions.get(number)
            if known is not None and known.log is written:  # it may be gone, or restarted
                written.mark_durable(reached[number])
        self._changed.unmarked.update(dict.fromkeys(logs))
        self._changed.awake.update(logs)
        self._events.merged_logs_synced(logs)
        return left

    def rest(self) -> None:
        """Close the files of logs that nothing was written to since the last call; their marks are
        synced first.
        """
        if self._fault is not None or self._syncing.locked():
            return
        for number, partition in self.partitions.items():
            if number not in self._changed.awake and partition.fault is None:
                if partition.log.dirty():
                    self._changed.dirty.add(number)
                try:
                    partition.log.rest()
                except DiskFault as fault:
                    log.warning("files of partition %d stay open: %s", number, fault)
        self._changed.awake.clear()

    @property
    def is_busy(self) -> bool:
        """Whether anything is to be executed, synced or marked."""
        known = self._changed
        is_dirty = bool(known.ready or known.dirty or known.unmarked) or self._syncing.locked()
        return is_dirty or bool(self.pending())

    def merged_durable(self, numbers: Iterable[int]) -> dict[int, int]:
        """Partition -> offset up to which merged bytes are durable here."""
        there = self.partitions
        return {number: there[number].log.durable_offset for number in numbers if number in there}

    def save_marks(self, most: int) -> None:
        """Persist durable marks of so many logs, those first that wait longest; lazily. Raises
        DiskFault.
        """
        for number in [*islice(self._changed.unmarked, most)]:
            if number in self.partitions:
                self.partitions[number].log.save_marks()
            del self._changed.unmarked[number]

    def pending(self) -> list[Merge]:
        """Committed instructions not executed yet, each partition's in order."""
        there = self.partitions
        self._changed.queued = {
            n for n in self._changed.queued if n in there and there[n].merger.pending
        }
        return [merge for n in sorted(self._changed.queued) for merge in there[n].merger.pending]

    def close(self) -> None:
        """Persist the durable marks and close every file."""
        self._changed.unmarked.update(dict.fromkeys(self.partitions))
        self.save_marks(len(self._changed.unmarked))
        for partition in self.partitions.values():
            partition.log.close()

"""Keeps the indexes of keys behind the merged logs: reads, stores, compares, fetches, tidies.

Of what is merged the keys are read at once, and stored when the log is durable; a transaction takes
all that waits, so one that takes long makes the next one larger, not later. What a log does not
have any more, because it is archived, is fetched from a peer.

Invariant: an index is never ahead of its log; one that differs from what a majority agrees on is
rebuilt.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import read_header
from samelog.format.compression import decompress
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import Clock
from samelog.runtime.log import log_event
from samelog.runtime.loop import end_all, spawn
from samelog.sequencer.cluster.repair.merged import OtherGroups
from samelog.sequencer.host import Host
from samelog.sequencer.keys.coverage import KeyCoverage
from samelog.sequencer.keys.fetching import Fetched, KeyFetches
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.lookups import KeyLookups
from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.keys import KeyedPartition, TellKeys
from samelog.sequencer.state.tables.partitions import Partition
from samelog.store.disk.files import FileSystem
from samelog.store.keys.key_store import FOLDER, KeyStore, NoKeys, stored_keys
from samelog.store.merged.log import MergedLog
from samelog.wire.peer_messages import KeysAsked, KeysCovered, KeysTold

log = logging.getLogger(__name__)

INTERVAL_S = 0.1
IDLE_S = 1.0
READ_BYTES = 128 << 10
STORE_AFTER_S = 5.0
STORE_KEYS = 500_000
"""Stored at latest after so long, or when so many wait. A step rewrites most pages of a large
index, so few large ones write less than many small ones.
"""
GIVE_AWAY_AFTER_S, GIVE_AWAY_AGAIN_S = 5.0, 60.0
"""Not so often that no leader has time to get what it lacks, where all lack it."""
FAR_RECORDS = 1_000_000
"""Who has to read more than that of its own log, to know all keys, is a bad leader for now."""
AGAIN_AFTER_S = 5.0
"""What could not be fetched, or stored on a full disk, is tried again."""
TOLD_AT_ONCE = 64
SWEEP_FROM = 10_000


@dataclass(frozen=True, slots=True)
class KeeperParts:
    """What it takes of its replica."""

    fs: FileSystem
    host: Host
    clock: Clock
    machine: StateMachine
    merging: Merging
    group: RaftGroup
    coordinator: Coordinator
    proposer: Proposer
    filter: KeyFilter
    fetches: KeyFetches
    ask: Callable[[], Sequence[int]]
    elsewhere: OtherGroups
    coverage: KeyCoverage
    number: int
    """Of this member."""
    at_work: AtWork


@dataclass(frozen=True, slots=True)
class IndexReach:
    """How far a partition's index is on this node, and why it goes no further, if it does not."""

    indexed_to: int = 0
    """Keys of records below are in the index."""
    covered_to: int = 0
    """Keys of records below are in the index or in memory."""
    entries: int = 0
    trouble: str = ""


class KeyKeeper:
    """One replica's."""

    def __init__(self, parts: KeeperParts) -> None:
        self._parts = parts
        self._known = parts.filter.partitions
        self._logs: dict[int, MergedLog] = {}
        """Partition -> the log that its index is of."""
        self.coverage = parts.coverage
        self._fetches = parts.fetches
        self.lookups = KeyLookups(
            parts.filter, parts.host.in_thread, self._plan_again, parts.at_work
        )
        self._told: dict[int, dict[int, int]] = {}
        """Partition -> block -> the digest that was told last."""
        self._tried_at: dict[int, float] = {}
        self._failed: dict[int, str] = {}
        """Partition -> why its index could not be kept last time."""
        self._stored_at: dict[int, float] = {}
        self._behind_since: dict[int, float] = {}
        self._gave_at = -GIVE_AWAY_AGAIN_S
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self.troubles: list[str] = []
        self.indexed: dict[int, int] = {}
        """Partition -> up to where the index on the disk had keys at the last `take_moved`."""

    def take_moved(self) -> set[int]:
        """Return the partitions of which `indexed` is another offset than at the last call."""
        keyed, before = self._parts.machine.state.keys.by_partition, self.indexed
        self.indexed = {number: self._parts.filter.indexed(number) or 0 for number in keyed}
        return {number for number in keyed if self.indexed[number] != before.get(number, 0)}

    @property
    def is_busy(self) -> bool:
        """Whether an index lacks anything, or is asked for something."""
        there = self._parts.merging.partitions
        return any(
            known.is_asking
            or (number in there and (known.waits or self._is_behind(there[number], known)))
            for number, known in self._known.items()
        )

    @staticmethod
    def _is_behind(here: MergedPartition, known: PartitionKeys) -> bool:
        return known.read_to < here.log.next_offset

    def reach(self, number: int) -> IndexReach:
        """How far a partition's index is."""
        known, trouble = self._known.get(number), self._failed.get(number, "")
        if known is None:
            return IndexReach(trouble=trouble)
        return IndexReach(known.store.end, known.covered_to, known.store.count, trouble)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                is_needed = bool(self._parts.machine.state.keys.by_partition or self._known)
                await asyncio.sleep(INTERVAL_S if is_needed else IDLE_S)
                if is_needed:
                    with self._parts.at_work:
                        await self.look()
        finally:
            await end_all(self._fetching.values())

    async def look(self) -> None:
        """One round. Fetching goes on beside it."""
        self._collect()
        there, keyed = self._parts.merging.partitions, self._parts.machine.state.keys.by_partition
        for number in [each for each in self._known if each not in keyed]:
            self._let_go(number)
        for number in [each for each in keyed if each in there]:
            try:
                await self._look_at(number, there[number])
            except LogFormatError as error:
                self._try_later(number, error)
        self._tell_coverage()
        self._give_away()

    def _tell_coverage(self) -> None:
        """Tell the leader how far this index is of a partition that comes to the group."""
        state = self._parts.machine.state
        passing = state.transfers.passing
        number = 0 if passing is None else passing.partition
        if number in state.keys.by_partition and self._parts.elsewhere.members(number):
            known = self._known.get(number)
            is_known = known is not None and known.fault is None
            offset = known.read_to if known is not None and is_known else 0
            self.coverage.tell(self._parts.number, number, offset)

    def _collect(self) -> None:
        """An error that fetching was not made for is one of this."""
        for number in [each for each, task in self._fetching.items() if task.done()]:
            ended = self._fetching.pop(number)
            if not ended.cancelled():
                ended.result()

    def close(self) -> None:
        """Let go of every index."""
        for number in list(self._known):
            self._let_go(number)

    def _try_later(self, number: int, why: object) -> None:
        self._tried_at[number], self._failed[number] = self._parts.clock.now(), str(why)
        log_event(log, logging.WARNING, "index of keys not kept", partition=number, why=why)

    # --- one partition ----------------------------------------------------------------------------

    async def _look_at(self, number: int, here: MergedPartition) -> None:
        """Raises LogFormatError, DiskFault."""
        tried, now = self._tried_at.get(number), self._parts.clock.now()
        is_put_off = tried is not None and now - tried < AGAIN_AFTER_S
        if is_put_off or here.fault is not None or not here.log.has_directory:
            return
        self._tried_at.pop(number, None)
        self._failed.pop(number, None)
        known = self._open(number, here.log)
        if known.fault is not None:
            self._replace(number, here, known.fault)
            return
        if known.read_to < here.log.start_offset:
            if number not in self._fetching:
                fetching = self._fetch(number, here, known)
                self._fetching[number] = asyncio.create_task(fetching)
            return
        await self._read(number, here, known)
        await self._store(number, here, known)
        await self._compare(number, here, known)

    def _is_still(self, number: int, here: MergedPartition, known: PartitionKeys) -> bool:
        """Whether it is what it was before an await."""
        is_here = self._parts.merging.partitions.get(number) is here and here.fault is None
        return is_here and self._known.get(number) is known and self._logs.get(number) is here.log

    def _open(self, number: int, merged: MergedLog) -> PartitionKeys:
        """What is known of a log's keys; an index beyond its log is of another one."""
        known = self._known.get(number)
        if known is not None and self._logs.get(number) is merged:
            return known
        is_first = known is not None and number not in self._logs and known.store.end == 0
        if known is not None and not is_first:
            self._let_go(number)
            known = None
        store = self._open_store(merged)
        self._logs[number] = merged
        if known is not None:  # what was proposed for a log that was not there yet counts
            known.store = store
        else:
            known = self._known[number] = PartitionKeys(store)
        self._plan_again(number)
        return known

    def _plan_again(self, number: int) -> None:
        """More is known than when a leader planned last."""
        if self._parts.group.is_leader:
            self._parts.coordinator.plan_again(number)

    def _open_store(self, merged: MergedLog) -> KeyStore:
        path = os.path.join(merged.path, FOLDER)
        try:
            store = self._parts.host.open_keys(self._parts.fs, path)
            if store.end <= merged.next_offset:
                return store
            store.close()
            why = f"it reaches to {store.end}, its log to {merged.next_offset}"
        except CorruptLog as error:
            why = str(error)
        log_event(log, logging.WARNING, "index of keys is rebuilt", path=path, why=why)
        self._parts.fs.remove_tree(path)
        return self._parts.host.open_keys(self._parts.fs, path)

    def _replace(self, number: int, here: MergedPartition, fault: LogFormatError) -> None:
        """Rebuild an index that cannot be read, if its contents are the reason."""
        if isinstance(fault, CorruptLog):
            self._begin_anew(number, here, str(fault))
        else:
            self._let_go(number)
            self._try_later(number, fault)

    def _let_go(self, number: int) -> None:
        if number in self._fetching:
            self._fetching.pop(number).cancel()
        known = self._known.pop(number, None)
        if known is not None:
            known.store.close()
        of_others = self._told, self._tried_at, self._failed, self._stored_at, self._behind_since
        for each in (self._logs, *of_others):
            each.pop(number, None)

    def _begin_anew(self, number: int, here: MergedPartition, why: str) -> None:
        name = f"{here.topic}-{here.index}"
        log_event(log, logging.ERROR, "index of keys is rebuilt", partition=name, why=why)
        self._let_go(number)
        self._parts.fs.remove_tree(os.path.join(here.log.path, FOLDER))

    # --- reading and storing ----------------------------------------------------------------------

    async def _read(self, number: int, here: MergedPartition, known: PartitionKeys) -> None:
        """Read the keys of what was merged."""
        before = known.covered_to
        while known.read_to < here.log.next_offset and not known.is_crowded:
            known.read(self._next_keys(here.log, known.read_to))
            await asyncio.sleep(0)
            if not self._is_still(number, here, known):
                return
        if known.covered_to != before:
            self._plan_again(number)

    def _next_keys(self, merged: MergedLog, offset: int) -> list[bytes | None]:
        base, byte = merged.locate(offset)
        data = merged.read(base, byte, READ_BYTES)
        first = read_header(data).base_offset
        return stored_keys(kernels.keys_of(data, 0, len(data), decompress))[offset - first :]

    async def _store(self, number: int, here: MergedPartition, known: PartitionKeys) -> None:
        """Put into the index what is durable in the log, now and then."""
        now = self._parts.clock.now()
        is_soon = now - self._stored_at.setdefault(number, now) < STORE_AFTER_S
        if is_soon and known.waiting < STORE_KEYS:
            return
        self._stored_at[number] = now
        piece = known.due(here.log.durable_offset)
        if piece is None:
            return
        was_crowded, store = known.is_crowded, known.store
        try:
            await self._parts.host.in_thread(store.advance, piece.entries, piece.stop, piece.sums)
            if not self._is_still(number, here, known):
                return
            known.stored(piece)
            await self._sweep(number, known)
        except CorruptLog as error:
            known.fault = error
        if was_crowded:
            self._plan_again(number)

    async def _sweep(self, number: int, known: PartitionKeys) -> None:
        """Remove entries that do not count any more, if there are more of them than of others."""
        keyed = self._parts.machine.state.keys.by_partition.get(number)
        floor = 0 if keyed is None else keyed.floor
        if floor == 0 or known.store.count < SWEEP_FROM + 2 * (known.store.end - floor):
            return
        behind: bytes | None = b""
        while behind is not None and self._known.get(number) is known:
            behind = await self._parts.host.in_thread(known.store.sweep, behind, floor)

    # --- comparing --------------------------------------------------------------------------------

    async def _compare(self, number: int, here: MergedPartition, known: PartitionKeys) -> None:
        """Tell the digests of blocks that are whole, and look at those that are agreed."""
        keyed = self._parts.machine.state.keys.by_partition.get(number)
        if keyed is None or not self._is_still(number, here, known):
            return
        whole, agreed = [*_whole_blocks(keyed, known)], keyed.agreed
        different = [
            each for each in whole if agreed.get(each, known.sums[each]) != known.sums[each]
        ]
        if different:
            self._begin_anew(number, here, f"block {different[0]} differs")
            return
        if not self._parts.machine.state.transfers.is_on_its_way(number):
            await self._tell_new(number, known.sums, [each for each in whole if each not in agreed])

    async def _tell_new(self, number: int, sums: Mapping[int, int], blocks: Sequence[int]) -> None:
        """Tell digests that were not told. While a partition is on its way they would not come
        along.
        """
        told = self._told.setdefault(number, {})
        left = [each for each in blocks if told.get(each) != sums[each]]
        for block in left[:TOLD_AT_ONCE]:
            await self._tell(number, block, sums[block], told)

    async def _tell(self, number: int, block: int, digest: int, told: dict[int, int]) -> None:
        voters = sorted(self._parts.group.raft.voters)
        command = TellKeys(number, block, self._parts.number, digest, voters)
        try:
            outcome = await self._parts.proposer.propose(command)
        except TimeoutError:
            return  # the next round says it again
        if not isinstance(outcome, Rejection):
            told[block] = digest

    # --- peers ------------------------------------------------------------------------------------

    async def _fetch(self, number: int, here: MergedPartition, known: PartitionKeys) -> None:
        """Get the entries of what the log does not have any more; the next round goes on with what
        is here then.
        """
        keyed, below = self._parts.machine.state.keys.by_partition[number], here.log.start_offset
        try:
            is_needed = keyed.floor < below  # else none of them counts
            found: Fetched | None = Fetched({}, is_different=False)
            if is_needed:
                found = await self._fetches.fetch(number, known.store, below, keyed)
            if not self._is_still(number, here, known):
                return
            if found is None:
                self._try_later(number, "no peer tells what is archived")
            elif found.is_different:
                self._begin_anew(number, here, "what a peer told differs from what is agreed")
            else:
                await self._parts.host.in_thread(known.store.advance, [], below, found.sums)
                self._known[number] = PartitionKeys(known.store)
                self._plan_again(number)
        except LogFormatError as error:
            self._try_later(number, error)

    def receive(self, node: int, message: KeysAsked | KeysTold | KeysCovered) -> None:
        """A peer asks for entries, or tells some, or how far it is."""
        if isinstance(message, KeysCovered):
            self.coverage.heard(node, message)
            return
        if isinstance(message, KeysTold):
            self._fetches.answered(message)
            return
        known = self._known.get(message.partition)
        if known is None or known.store.end < message.below:
            return
        spawn(self._answer(node, message, known), "keys told")

    async def _answer(self, node: int, message: KeysAsked, known: PartitionKeys) -> None:
        try:
            await self._fetches.answer(node, message, known.store)
        except LogFormatError as error:  # whoever asks asks another one
            known.fault = error

    def _give_away(self) -> None:
        """A leader that cannot plan a partition for long lets another voter lead."""
        now, behind = self._parts.clock.now(), self._behind()
        self._behind_since = {n: self._behind_since.get(n, now) for n in behind}
        self.troubles = [f"partition {number}: its index of keys is not whole" for number in behind]
        self.troubles += [
            f"partition {number}: its index of keys is not kept: {why}"
            for number, why in self._failed.items()
        ]
        oldest = min(self._behind_since.values(), default=now)
        is_late = now - oldest >= GIVE_AWAY_AFTER_S and now - self._gave_at >= GIVE_AWAY_AGAIN_S
        if is_late and self._parts.group.is_leader:
            self._behind_since.clear()
            self._gave_at = now
            self._hand_over(now)

    def _behind(self) -> set[int]:
        """Return the partitions whose keys this replica lacks. One on its way is not among them:
        nothing is planned in it.
        """
        state = self._parts.machine.state
        return {
            number
            for number in state.keys.by_partition
            if number in state.partitions.by_number
            and not state.transfers.is_on_its_way(number)
            and self._lacks(number, state.partitions.by_number[number])
        }

    def _lacks(self, number: int, partition: Partition) -> bool:
        """Whether keys are missing here that the log does not have, or that others may have."""
        known, here = self._known.get(number), self._parts.merging.partitions.get(number)
        if here is None or partition.next_offset == 0:
            return False
        if known is None or known.fault is not None or isinstance(known.store, NoKeys):
            return True
        is_archived = known.read_to < min(here.log.start_offset, partition.next_offset)
        return is_archived or known.covered_to + FAR_RECORDS < partition.next_offset

    def _hand_over(self, now: float) -> None:
        raft = self._parts.group.raft
        matches = {
            voter: progress.match
            for voter in self._parts.ask()
            if voter in raft.voters
            and raft.counts(voter)
            and (progress := raft.progress(voter)) is not None
        }
        if matches:
            best = max(matches, key=lambda voter: matches[voter])
            log_event(log, logging.WARNING, "leadership given away", to=best, why="keys")
            raft.transfer_leadership(best, now)
            self._parts.group.pump()


def _whole_blocks(keyed: KeyedPartition, known: PartitionKeys) -> Iterator[int]:
    """The blocks of which all that counts, or counted, is stored."""
    size = key_table.BLOCK_RECORDS
    first, stop = -(-keyed.floor // size), known.store.end // size
    return (block for block in sorted(known.sums) if first <= block < stop)

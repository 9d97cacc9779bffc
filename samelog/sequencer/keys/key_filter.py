"""Leaves out, when a leader plans, records whose keys were merged before.

What no disk has to be waited for is judged at once. Where one has to be, the batch is put off, and
nothing more of its partition is planned before the index has said what it has (lookups.py).

Invariant: a record is left out only because of one that is merged, or proposed in the same entry or
an earlier one; nothing is planned of a partition whose keys are not known up to its next offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from samelog.format import _kernels as kernels
from samelog.format.batch import runs_of
from samelog.format.compression import decompress
from samelog.format.errors import LogFormatError
from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.merge.filters import CannotJudge, GivenBatch, flags_of
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.keys import horizon_of
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.keys.key_pages import ABSENT
from samelog.store.keys.key_store import NoKeys, stored_keys


class KeyFilter:
    """One replica's. Implements merge.filters.MergeFilter."""

    def __init__(self, machine: StateMachine, has_log: Callable[[int], bool]) -> None:
        """`has_log`: whether anything of a partition is here."""
        self.partitions: dict[int, PartitionKeys] = {}
        """What is known, by partition."""
        self.asks = asyncio.Event()
        """Set when an index is to be asked for something; whoever does that clears it."""
        self._machine = machine
        self._has_log = has_log
        self._last: PartitionKeys | None = None
        self._before = 0

    def concerns(self, partition: int) -> bool:
        """Whether keys count once there."""
        return partition in self._machine.state.keys.by_partition

    def indexed(self, partition: int) -> int | None:
        """Return up to where an index on the disk has the keys of a partition; None: they do not
        count once.
        """
        if not self.concerns(partition):
            return None
        known = self.partitions.get(partition)
        return 0 if known is None or known.fault is not None else known.store.end

    def is_ready(self, partition: int, next_offset: int) -> bool:
        """Whether all keys below an offset are known."""
        if not self.concerns(partition):
            return True
        known = self.partitions.get(partition)
        if known is None and next_offset == 0 and not self._has_log(partition):
            known = self.partitions[partition] = PartitionKeys(NoKeys())
        if known is None or known.fault is not None or known.is_asking:
            return False
        return known.covered_to == next_offset and not known.is_crowded

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        """Nothing is to be prepared."""

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int]:
        """Which records have a key that is new, or none."""
        keys = stored_keys(kernels.keys_of(given.data, 0, len(given.data), decompress))
        known, stays = self.partitions[draft.partition], [*flags_of(runs, len(keys))]
        asked = {key for key, is_in in zip(keys, stays, strict=True) if is_in and key is not None}
        flags, new = self._judge(draft, keys, stays, self._find(known, asked))
        self._last, self._before = known, draft.next_offset
        known.propose(new.items(), draft.next_offset + sum(flags))
        known.judged(asked)
        return runs_of(flags)

    def _judge(
        self,
        draft: Draft,
        keys: Sequence[bytes | None],
        stays: list[bool],
        found: Mapping[bytes, int],
    ) -> tuple[list[bool], dict[bytes, int]]:
        """Record by record, whether it stays; and the keys of those that do, with their offsets."""
        state, offset = self._machine.state, draft.next_offset
        partition = state.partitions.by_number[draft.partition]
        settings = state.topics.by_id[partition.topic_id].settings
        reach, keyed = horizon_of(settings).records, state.keys.by_partition[draft.partition]
        floor = keyed.floor_at(draft.append_ms, partition.next_offset, settings)
        new: dict[bytes, int] = {}
        for at, key in enumerate(keys):
            if not stays[at]:
                continue
            if key is not None:
                counts_for = new.get(key, found.get(key, ABSENT))
                oldest = floor if reach is None else max(floor, offset - reach)
                if counts_for >= max(0, oldest):
                    stays[at] = False
                    continue
                new[key] = offset
            offset += 1
        return stays, new

    def _find(self, known: PartitionKeys, keys: Collection[bytes]) -> dict[bytes, int]:
        """Raises CannotJudge."""
        try:
            found = known.find([*keys])
        except LogFormatError as error:
            raise CannotJudge(str(error)) from error
        if found is None:
            known.ask(keys)
            self.asks.set()
            raise CannotJudge("the index is asked")
        return found

    def look_behind(self, partition: int, batches: bytes) -> bool:
        """Ask for the keys of these, too; whether there is room for more."""
        known = self.partitions[partition]
        if not (known.is_asking and known.asks_more):
            return False
        try:
            keys = stored_keys(kernels.keys_of(batches, 0, len(batches), decompress))
        except LogFormatError:
            return True  # it is told when it is their turn
        known.ask(key for key in keys if key is not None)
        return known.asks_more

    def take_back(self) -> None:
        """What was said last does not count."""
        if self._last is not None:
            self._last.take_back(self._before)
            self._last = None

    def reset(self) -> None:
        """What was proposed may be lost."""
        for known in self.partitions.values():
            known.forget_proposals()

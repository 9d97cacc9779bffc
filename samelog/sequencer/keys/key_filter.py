"""Leaves out, when a leader plans, records whose keys were merged before.

Invariant: a record is left out only because of one that is merged, or proposed in the same entry or
an earlier one; nothing is planned of a partition whose keys are not known up to its next offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from samelog.format import _kernels as kernels
from samelog.format.batch import runs_of
from samelog.format.compression import decompress
from samelog.format.errors import LogFormatError
from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.merge.filters import CannotJudge, GivenBatch, flags_of
from samelog.sequencer.state.keys.key_state import horizon_of
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import Input
from samelog.store.keys.key_store import NoKeys, stored_keys

SLOW_S = 0.005
"""A disk is asked on the event loop. When that takes longer, nothing more is asked for as long."""


class KeyFilter:
    """One replica's. Implements merge.filters.MergeFilter."""

    def __init__(
        self,
        machine: StateMachine,
        has_log: Callable[[int], bool],
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`has_log`: whether anything of a partition is here. `now`: in seconds."""
        self.partitions: dict[int, PartitionKeys] = {}
        """What is known, by partition."""
        self._machine = machine
        self._has_log = has_log
        self._now = now
        self._rests_until: float | None = None
        self._last: PartitionKeys | None = None
        self._before = 0

    def concerns(self, partition: int) -> bool:
        """Whether keys count once there."""
        return partition in self._machine.state.keyed

    def is_ready(self, partition: int, next_offset: int) -> bool:
        """Whether all keys below an offset are known."""
        if not self.concerns(partition):
            return True
        known = self.partitions.get(partition)
        if known is None and next_offset == 0 and not self._has_log(partition):
            known = self.partitions[partition] = PartitionKeys(NoKeys())
        if known is None or known.fault is not None or self._rests:
            return False
        return known.covered_to == next_offset and not known.is_crowded

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        """Nothing is to be prepared."""

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int]:
        """Which records have a key that is new, or none."""
        keys = stored_keys(kernels.keys_of(given.data, 0, len(given.data), decompress))
        known = self.partitions[draft.partition]
        flags, new = self._judge(draft, keys, [*flags_of(runs, len(keys))])
        self._last, self._before = known, draft.next_offset
        known.propose(new.items(), draft.next_offset + sum(flags))
        return runs_of(flags)

    def _judge(
        self, draft: Draft, keys: Sequence[bytes | None], stays: list[bool]
    ) -> tuple[list[bool], dict[bytes, int]]:
        """Record by record, whether it stays; and the keys of those that do, with their offsets."""
        state, offset = self._machine.state, draft.next_offset
        topic_id = state.partitions[draft.partition].topic_id
        horizon = horizon_of(state.topics[topic_id].settings)
        floor, reach = state.keyed[draft.partition].floor, horizon.records
        asked = {key for key, is_in in zip(keys, stays, strict=True) if is_in and key is not None}
        found = self._find(draft.partition, asked)
        new: dict[bytes, int] = {}
        for at, key in enumerate(keys):
            if not stays[at]:
                continue
            if key is not None:
                counts_for = new.get(key, found.get(key, -1))
                oldest = floor if reach is None else max(floor, offset - reach)
                if counts_for >= max(0, oldest):
                    stays[at] = False
                    continue
                new[key] = offset
            offset += 1
        return stays, new

    def _find(self, partition: int, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Raises CannotJudge."""
        if self._rests:
            raise CannotJudge("enough is looked up for now")
        began = self._now()
        try:
            return self.partitions[partition].find([*keys])
        except LogFormatError as error:
            raise CannotJudge(str(error)) from error
        finally:
            took = self._now() - began
            if took > SLOW_S:
                self._rests_until = began + 2 * took

    @property
    def _rests(self) -> bool:
        return self._rests_until is not None and self._now() < self._rests_until

    def has_rested(self) -> bool:
        """Whether what a rest has put off may be planned now; once for each rest."""
        if self._rests_until is None or self._rests:
            return False
        self._rests_until = None
        return True

    def take_back(self) -> None:
        """What was said last does not count."""
        if self._last is not None:
            self._last.take_back(self._before)
            self._last = None

    def reset(self) -> None:
        """What was proposed may be lost."""
        for known in self.partitions.values():
            known.forget_proposals()

"""The leader's compaction orders, and when it repeats one.

An order goes to the voters. It is repeated once the voters change, because former voters may be
gone. It is also repeated if it makes no progress for long: voters that wrote something else may run
another version by now.

Invariant: only what `compaction_plan` says is proposed. A partition without anything new costs no
look at its segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple

from samelog.archiver.compaction import GIVEN_UP_AFTER_MS, SEED_BYTES, CompactCommand
from samelog.archiver.compaction_plan import ClosedSegment, CompactionFacts, due
from samelog.archiver.policy import CLEANUP_POLICY, hold_of, is_compacted
from samelog.archiver.rounds import rolled_ms
from samelog.consensus import Busy, NotLeader
from samelog.runtime.clock import Clock
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.archiving import MemberViews
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.topic_settings import SEGMENT_BYTES
from samelog.store.merged.log import MergedLog

log = logging.getLogger(__name__)


class _Closed(NamedTuple):
    """The closed segments of a log, as long as it has the same ones."""

    log: MergedLog
    key: tuple[int, int, int]
    segments: list[ClosedSegment]


class CompactionOrders:
    """One leader's."""

    def __init__(
        self,
        machine: StateMachine,
        group: RaftGroup,
        coordinator: Coordinator,
        members: MemberViews,
        *,
        clock: Clock,
        random: Random,
        segment_bytes: int,
        archives_first: Callable[[int], bool],
    ) -> None:
        """`segment_bytes`: of a topic that says nothing; `archives_first`: whether archiving has
        waited for a compaction of a partition, and has its turn now.
        """
        self._machine = machine
        self._group = group
        self._coordinator = coordinator
        self._members = members
        self._clock = clock
        self._random = random
        self._segment_bytes = segment_bytes
        self._archives_first = archives_first
        self._closed: dict[int, _Closed] = {}

    def forget_others(self, numbers: Collection[int]) -> None:
        """Only these partitions are there."""
        self._closed = {number: each for number, each in self._closed.items() if number in numbers}

    def now_ms(self) -> int:
        """What a majority's clocks have reached; 0 while that is not known."""
        return self._clock.wall_ms() if self._clock.is_agreed else 0

    def order(self, here: MergedPartition, known: Partition) -> None:
        """Propose a compaction that is due, or repeat one that does not end."""
        voters, now_ms = sorted(self._group.raft.voters), self.now_ms()
        if not self._is_free(here, known, voters, now_ms):
            return
        settings = self._machine.state.topics.by_id[known.topic_id].settings
        if not is_compacted(settings.get(CLEANUP_POLICY, "")):
            return
        wanted_bytes = int(settings.get(SEGMENT_BYTES, self._segment_bytes))
        found = due(settings, self._facts(here, known, wanted_bytes), now_ms)
        if found is None:
            return
        command = CompactCommand(
            known.number,
            known.compactions.number + 1,
            known.start_segment,
            *found,
            self._random.randbytes(SEED_BYTES),
            voters,
            now_ms,
        )
        try:
            self._group.propose([command])
        except (NotLeader, Busy):
            return  # the next round finds it again

    def _is_free(
        self, here: MergedPartition, known: Partition, voters: list[int], now_ms: int
    ) -> bool:
        """Whether nothing is under way that may come to its end, and no group copies it."""
        order, progress = known.compactions.order, here.compaction
        if self._machine.state.transfers.is_held(known.number):
            return False
        if order is None:
            is_due = here.log.end()[0] > known.compactions.clean
            return is_due and not self._archives_first(known.number)
        if order.voters != voters:
            return True
        now, is_old = self._clock.now(), now_ms - order.at_ms >= GIVEN_UP_AFTER_MS
        if not is_old or (progress is not None and progress.goes_on(order.number, now)):
            return False
        name, since_ms = f"{here.topic}-{here.index}", order.at_ms
        log_event(log, logging.WARNING, "compaction does not end", partition=name, since=since_ms)
        return True

    def _facts(
        self, here: MergedPartition, known: Partition, segment_bytes: int
    ) -> CompactionFacts:
        merged = self._coordinator.majority_merged([known.number])
        limit = min(merged.get(known.number, 0), here.log.last_stable_offset)
        limit = min([limit, *(void.base_offset for void in known.voids)])
        held_from = self._held_from(known)
        closed = self._closed_of(here, known)
        return CompactionFacts(closed, limit, known.compactions, held_from, segment_bytes)

    def _closed_of(self, here: MergedPartition, known: Partition) -> list[ClosedSegment]:
        merged, found = here.log, self._closed.get(known.number)
        key = merged.layout, merged.end()[0], len(known.rolls)
        if found is None or found.log is not merged or found.key != key:
            segments = [
                ClosedSegment(each.base_offset, each.next_offset, each.size, rolled_ms(known, each))
                for each in merged.segments()
                if each.sealed
            ]
            found = self._closed[known.number] = _Closed(merged, key, segments)
        return found.segments

    def _held_from(self, known: Partition) -> int:
        """From where on consumer groups hold records."""
        rule = hold_of(self._machine.state.topics.by_id[known.topic_id].settings)
        if rule is None:
            return known.next_offset
        return min(self._members.committed_offset(name, known.number) for name in rule.groups)

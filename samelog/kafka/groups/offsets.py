"""Committing, deleting and expiring offsets.

Invariant: an offset expires only when nobody can be using it: its group has been empty for the
whole retention, or nobody in the group subscribes to its topic any more, and it has not been
committed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.classic_group import ClassicGroup
from samelog.kafka.groups.consumer_groups import ConsumerGroup
from samelog.kafka.groups.outbox import Outbox
from samelog.kafka.groups.requests import OffsetCommit
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.groups import CommittedOffset, DropOffsets, Phase
from samelog.sequencer.state.types import State

AnyGroup = ClassicGroup | ConsumerGroup


class OffsetKeeper:
    """What is done with committed offsets; they are in the replicated state only."""

    def __init__(self, outbox: Outbox, limits: GroupLimits, state: State) -> None:
        self._outbox = outbox
        self._limits = limits
        self._state = state

    def commit(self, group: AnyGroup, commits: Sequence[OffsetCommit]) -> tuple[ErrorCode, ...]:
        """Have offsets committed that somebody may commit; an error for each."""
        errors = tuple(self._problem(commit) for commit in commits)
        taken = [
            (
                commit.partition,
                CommittedOffset(
                    commit.offset, commit.leader_epoch, commit.metadata, self._outbox.wall_ms
                ),
            )
            for commit, error in zip(commits, errors, strict=True)
            if not error and commit.partition is not None
        ]
        if taken:
            self._outbox.commit(group.group_id, taken)
            group.was_used = True
        return errors

    def _problem(self, commit: OffsetCommit) -> ErrorCode:
        if commit.partition is None:
            return ErrorCode.unknown_topic_or_partition
        if len(commit.metadata) > self._limits.offset_metadata_max_bytes:
            return ErrorCode.offset_metadata_too_large
        table = self._state.placement
        if table.is_resetting(commit.partition):
            return ErrorCode.coordinator_load_in_progress  # clients ask again
        placed = table.partitions.get(commit.partition)
        first = self._state.epochs.first if placed is None else placed.first_epoch
        if 0 <= commit.leader_epoch < first:
            return ErrorCode.fenced_leader_epoch  # it speaks of a log before a hard reset
        return ErrorCode.none

    def delete(self, group: AnyGroup, partitions: Sequence[int]) -> tuple[ErrorCode, ...]:
        """Forget offsets; an error for each."""
        topics: set[str] | None = set()
        if group.members:
            topics = group.subscriptions()
        if topics is None:
            return tuple(ErrorCode.non_empty_group for _ in partitions)
        kept = {number for number in partitions if self._topic(number) in topics}
        drops = [(group.group_id, number, -1) for number in partitions if number not in kept]
        if drops:
            self._outbox.propose(DropOffsets(drops))
        return tuple(
            ErrorCode.group_subscribed_to_topic if number in kept else ErrorCode.none
            for number in partitions
        )

    def expire(self, groups: Mapping[str, AnyGroup]) -> list[str]:
        """Have old offsets forgotten; the groups that then have neither members nor offsets."""
        drops: list[tuple[str, int, int]] = []
        unused = []
        for group_id, group in groups.items():
            state = self._state.groups.by_id.get(group_id)
            offsets = {} if state is None else state.offsets
            old = [
                (n, known.at_ms) for n, known in offsets.items() if self._is_old(group, n, known)
            ]
            drops += [(group_id, number, at_ms) for number, at_ms in old]
            idle = group.phase is Phase.EMPTY and not group.is_waiting
            was_used, group.was_used = group.was_used, False  # commits may be on their way
            if idle and not was_used and len(old) == len(offsets):
                unused.append(group_id)
        if drops:
            self._outbox.propose(DropOffsets(drops))
        return unused

    def _is_old(self, group: AnyGroup, number: int, known: CommittedOffset) -> bool:
        limit_ms = self._outbox.wall_ms - self._limits.offsets_retention_ms
        if known.at_ms > limit_ms:
            return False
        if group.phase is Phase.EMPTY:
            return not group.protocol_type or group.since_ms <= limit_ms
        if group.phase is not Phase.STABLE:
            return False
        topics = group.subscriptions()
        return topics is not None and self._topic(number) not in topics

    def _topic(self, number: int) -> str | None:
        place = place_of(self._state, number)
        return None if place is None else place[0].name

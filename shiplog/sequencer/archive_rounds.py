"""The leader's rounds of archiving: gathers what a majority reports, plans, proposes.

Time, too, is what a majority's clocks have reached, so that one wrong clock archives nothing; and
a disk counts as full only when a majority's are.

Invariant: only the leader proposes, and only what `archiver.plan` says of what a majority has
merged durably.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shiplog.archiver.plan import Facts, Hold, Plan, Sealed, majority_pressure, majority_time, plan
from shiplog.archiver.policy import hold_of, rules_of
from shiplog.consensus import Busy, NotLeader
from shiplog.logformat.segment import Segment
from shiplog.sequencer.commands import Archive
from shiplog.sequencer.group import forget_outcome
from shiplog.sequencer.policy_file import PolicyFile
from shiplog.sequencer.state_types import Partition

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node

COMMANDS_AT_ONCE = 64
"""In one entry."""


class ArchiveRounds:
    """One node's rounds; only the leader's do anything."""

    def __init__(self, node: Node, policy: PolicyFile) -> None:
        self._node = node
        self._next_at = 0.0
        self.policy = policy

    def tick(self) -> None:
        """Begin a round, if it is time."""
        node = self._node
        if not node.group.is_leader or node.clock.now() < self._next_at:
            return
        self._next_at = node.clock.now() + node.config.archive.interval_s
        commands = list(self._commands())
        for first in range(0, len(commands), COMMANDS_AT_ONCE):
            try:
                several = commands[first : first + COMMANDS_AT_ONCE]
                forget_outcome(node.group.propose(several)[1])
            except (NotLeader, Busy):
                return  # the next round finds them again

    def _commands(self) -> Iterator[Archive]:
        now_ms = self._node.clock.wall_ms()
        for each in self.plan().proposals:
            log = self._node.merging.partitions[each.partition].log
            checksum = log.checksums(each.segment)[0]
            yield Archive(each.partition, each.segment, each.segment, checksum, now_ms, each.reason)

    def plan(self) -> Plan:
        """What a round would do now."""
        node, policy = self._node, self.policy.policy
        voters = node.group.raft.voters
        health = [node.coordinator.views[number].health for number in voters]
        known = [each for each in health if each is not None]
        disks = [(each.disk_used, each.disk_total) for each in known]
        pressure = 0
        if policy is not None:
            pressure = majority_pressure(disks, len(voters), policy.disk)
        return plan(
            list(self._facts()),
            limit=None if policy is None else policy.limit,
            pressure=pressure,
            now_ms=majority_time([each.wall_ms for each in known], len(voters)),
        )

    def _facts(self) -> Iterator[Facts]:
        merged = self._node.coordinator.majority_merged()
        for number, partition in self._node.replica.machine.state.partitions.items():
            here = self._node.merging.partitions[number]
            if here.fault is None:
                yield self._facts_of(partition, merged.get(number, 0))

    def _facts_of(self, partition: Partition, merged: int) -> Facts:
        state = self._node.replica.machine.state
        topic = state.topics[partition.topic_id]
        segments = self._node.merging.partitions[partition.number].log.segments()
        return Facts(
            partition.number,
            f"{topic.name}-{partition.index}",
            [
                Sealed(each.base_offset, each.next_offset, each.size, _rolled(partition, each))
                for each in segments
                if each.sealed
            ],
            segments[-1].size,
            merged,
            rules_of(self.policy.policy, topic.settings),
            self._hold(partition.number, topic.settings),
        )

    def _hold(self, number: int, settings: dict[str, str]) -> Hold | None:
        rule = hold_of(settings)
        if rule is None:
            return None
        groups = self._node.replica.machine.state.groups.by_id
        offsets = [
            groups[name].offsets[number].offset
            if name in groups and number in groups[name].offsets
            else 0
            for name in rule.groups
        ]
        return Hold(min(offsets), rule.max_ms, rule.max_bytes)


def _rolled(partition: Partition, segment: Segment) -> int | None:
    """When a segment was rolled, at the latest; None: not known."""
    at = bisect_left(partition.rolls, (segment.next_offset, -1))
    return partition.rolls[at][1] if at < len(partition.rolls) else None

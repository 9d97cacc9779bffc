"""Partitions of data groups, as Kafka clients of one node see them.

Each data group has a leader and an epoch of its own, and a session of this node for what clients
produce. A member without a replica of a partition takes nothing for it, and serves nothing.

Invariant: what is said of a partition comes from the group that the table of placement names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import ProducerLog
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import Topic


class PlacedPartitions:
    """One node's."""

    def __init__(self, name: str, number: int, machine: StateMachine, groups: DataGroups) -> None:
        """`name` and `number` are the node's; `machine` is of group 0."""
        self._name = name
        self._number = number
        self._machine = machine
        self._groups = groups
        self._batches: dict[int, tuple[GroupReplica, ProducerLog]] = {}
        """Group -> for which replica of it, which may be a later one's by now."""

    def group_of(self, topic: Topic, index: int) -> int:
        """The group that has a partition."""
        return self._machine.state.placement.group_of(topic.partition_numbers[index])

    def members(self, topic: Topic, index: int) -> list[int]:
        """Who has a replica of a partition, the one that shall lead first."""
        return list(self._machine.state.placement.groups[self.group_of(topic, index)].in_order)

    def leader(self, topic: Topic, index: int) -> tuple[int, int] | None:
        """(epoch, member) of who leads a partition, as far as is known here."""
        return self._groups.leader(self.group_of(topic, index))

    def epoch_base(self, topic: Topic, index: int) -> int:
        """What a partition's leader epoch is more than its group's term."""
        return self._machine.state.placement.partitions[topic.partition_numbers[index]].epoch_base

    def here(self, topic: Topic, index: int) -> GroupReplica:
        """This member's replica. Raises ApiError: it has none, or does not know of it yet."""
        replica = self._groups.replicas.get(self.group_of(topic, index))
        number = topic.partition_numbers[index]
        if replica is None or number not in replica.group_replica.logs.machine.state.partitions:
            text = f"partition {index} of topic {topic.name!r} is on other nodes"
            raise ApiError(ErrorCode.not_leader_or_follower, text)
        return replica.group_replica

    def batches(self, topic: Topic, index: int) -> ProducerLog:
        """Where what clients produce goes. Raises ApiError."""
        group, here = self.group_of(topic, index), self.here(topic, index)
        replica, known = self._batches.get(group, (None, None))
        if known is None or replica is not here:
            if known is not None:
                known.close()
            known = ProducerLog(self._name, self._number, here.logs)
            self._batches[group] = here, known
            known.start()
        return known

    async def catch_up(self, asked: Iterable[tuple[Topic, int]]) -> None:
        """Wait until what was committed of these before is applied here. Raises ApiError,
        TimeoutError.
        """
        found = {self.group_of(*each): self.here(*each) for each in asked}
        await asyncio.gather(*(each.raft.proposer.catch_up() for each in found.values()))

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        for _, known in self._batches.values():
            known.close()

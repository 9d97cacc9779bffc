"""Partitions of data groups, as Kafka clients of one node see them.

Each data group has a leader and an epoch of its own, and a session of this node for what clients
produce. A member without a replica of a partition takes nothing for it, and serves nothing. A
replica may hear of a new partition a moment after its leader has opened it: what is produced here
in that moment waits.

Invariant: what is said of a partition comes from the group that the table of placement names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from samelog.kafka.any_broker import AppendResult, BatchLog
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import ProducerLog
from samelog.placement.values import METADATA
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import Topic

MAKE_S = 3.0
"""How long a partition may take to be made before the client is told to ask again."""


class PlacedPartitions:
    """One node's."""

    def __init__(
        self,
        name: str,
        number: int,
        machine: StateMachine,
        groups: DataGroups,
        own: ProducerLog,
    ) -> None:
        """`name` and `number` are the node's; `machine` is of group 0, and so is `own`, for
        partitions of a converted topic that have yet to leave it.
        """
        self._own = own
        self._name = name
        self._number = number
        self._machine = machine
        self._groups = groups
        self._batches: dict[int, tuple[GroupReplica, ProducerLog]] = {}
        """Group -> for which replica of it, which may be a later one's by now."""
        self._in_making = InMaking(self, own.checker)

    def group_of(self, topic: Topic, index: int) -> int:
        """The group that has a partition."""
        return self._machine.state.placement.group_of(topic.partition_numbers[index])

    def members(self, topic: Topic, index: int) -> list[int]:
        """Who has a replica of a partition, the one that shall lead first, and those that only
        read last.
        """
        group = self._machine.state.placement.groups.get(self.group_of(topic, index))
        if group is None:
            return sorted(self._machine.state.members.by_number)
        return [*group.in_order, *(each.member for each in group.readers)]

    def behind(self, topic: Topic, index: int) -> list[int]:
        """Those of them whose replicas are on their way to vote, or have not all that there is."""
        group = self._machine.state.placement.groups.get(self.group_of(topic, index))
        if group is None:
            return []
        lacking = [each.member for each in group.replicas if not (each.votes and each.is_whole)]
        return lacking + [each.member for each in group.readers if not each.is_whole]

    def leader(self, topic: Topic, index: int) -> tuple[int, int] | None:
        """(epoch, member) of who leads a partition, as far as is known here."""
        return self._groups.leader(self.group_of(topic, index))

    def epoch_base(self, topic: Topic, index: int) -> int:
        """What a partition's leader epoch is more than its group's term."""
        state, number = self._machine.state, topic.partition_numbers[index]
        known = state.placement.partitions.get(number)
        return state.epochs.base_of(number) if known is None else known.epoch_base

    def here(self, topic: Topic, index: int) -> GroupReplica:
        """This member's replica. Raises ApiError: it has none, or does not know of it yet."""
        replica = self._groups.replica_of(self.group_of(topic, index))
        number = topic.partition_numbers[index]
        if replica is None or number not in replica.logs.machine.state.partitions.by_number:
            text = f"partition {index} of topic {topic.name!r} is on other nodes"
            raise ApiError(ErrorCode.not_leader_or_follower, text)
        return replica

    def batches(self, topic: Topic, index: int) -> BatchLog:
        """Where what clients produce goes. Raises ApiError."""
        if self._making(topic, index) is not None:
            return self._in_making
        return self._made(topic, index)

    def _making(self, topic: Topic, index: int) -> GroupReplica | None:
        """The replica of a partition's group that is here, and does not know of it yet."""
        replica = self._groups.replica_of(self.group_of(topic, index))
        number = topic.partition_numbers[index]
        is_known = replica is None or number in replica.logs.machine.state.partitions.by_number
        return None if is_known else replica

    async def made(self, topic: Topic, index: int) -> ProducerLog:
        """Where it goes, once the partition is made. Raises ApiError."""
        try:
            async with asyncio.timeout(MAKE_S):
                while (replica := self._making(topic, index)) is not None:
                    applied = replica.raft.replica
                    await applied.wait_applied(applied.applied_index + 1)
        except TimeoutError as error:
            text = f"partition {index} of topic {topic.name!r} is being made: ask again"
            raise ApiError(ErrorCode.not_leader_or_follower, text) from error
        return self._made(topic, index)

    def _made(self, topic: Topic, index: int) -> ProducerLog:
        """Raises ApiError."""
        group, here = self.group_of(topic, index), self.here(topic, index)
        if group == METADATA:
            return self._own
        replica, known = self._batches.get(group, (None, None))
        if known is None or replica is not here:
            if known is not None:
                known.close()
            known = ProducerLog(self._name, self._number, here.logs, cluster=self._machine)
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


class InMaking:
    """What takes batches for partitions that are being made: never open, and opened once they are
    there. Implements any_broker.BatchLog.
    """

    def __init__(self, placed: PlacedPartitions, checker: BatchChecker) -> None:
        self.checker = checker
        self._placed = placed

    async def open(self, topic: Topic, index: int) -> None:
        """Wait for it. Raises ApiError."""
        made = await self._placed.made(topic, index)
        await made.open(topic, index)

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> asyncio.Future[AppendResult] | None:
        """It is not open."""
        return None

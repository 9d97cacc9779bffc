"""Session bytes for partitions wherever they are on this member: in group 0, or in a data group.

Runs are group 0's, so is the word that one is closed: the next one may begin, in groups to which no
part of an older one is yet to come. Numbers of inputs are this member's: those of data groups have
the group's number in front. Implements replicator.interfaces.SessionIntake.

Invariant: bytes are taken for a partition only by a replica of the group that the table names, and
of one run of a session after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from samelog.format.names import check_topic_name
from samelog.replicator.interfaces import (
    HeldElsewhere,
    OpenedInput,
    RequestRefused,
    RollByte,
)
from samelog.replicator.watchers import IntakeListener
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.ending import comes_first, opening_of
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.runs import GROUP_BITS
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import OpenPlacedInput, Run
from samelog.sequencer.state.tables.topics import Topic
from samelog.wire.bounds import Holder
from samelog.wire.errors import FaultCode
from samelog.wire.receiver import ResumePoint

_INPUT = (1 << GROUP_BITS) - 1
SILENT_S = 5.0
"""So long a group that has not answered, and applies nothing, is asked for nothing."""


class RoutedIntake:
    """One member's."""

    def __init__(
        self, cluster: Intake, machine: StateMachine, groups: DataGroups, presence: Presence
    ) -> None:
        """`cluster` and `machine`: of group 0; `presence`: of this member."""
        self._cluster = cluster
        self.open_run, self.open_topic = cluster.open_run, cluster.open_topic
        self.end_run, self.check_topic = cluster.end_run, cluster.check_topic
        self.check_session = cluster.check_session
        self._machine = machine
        self._groups = groups
        self._presence = presence
        self._silent: dict[int, tuple[float, int]] = {}
        """Group that has not answered -> until when nothing is asked of it, and the last entry that
        this member has applied.
        """
        self.watchers = cluster.watchers

    def _of(self, number: int) -> tuple[Intake, int]:
        """The intake that has an input, and its number there. Raises RequestRefused."""
        group = number >> GROUP_BITS
        if not group:
            return self._cluster, number
        replica = self._groups.replicas.get(group)
        if replica is None:
            raise RequestRefused(FaultCode.NOT_READY, f"group {group} is not here", "reconnect")
        return replica.group_replica.logs.intake, number & _INPUT

    # --- opening ----------------------------------------------------------------------------------

    async def open_input(
        self,
        *,
        identity: str,
        session: str,
        run_id: str,
        topic: str,
        partition: int,
        topic_id: str | None = None,
        listener: IntakeListener | None = None,
    ) -> OpenedInput:
        """One partition of a run. Raises RequestRefused, HeldElsewhere."""
        await self._cluster.check_topic(topic_id)
        known = self._machine.state.topics.named(check_topic_name(topic))
        if known is None or not self._is_placed(known, partition):
            self._check_takes(topic, partition)
            known = await self._cluster.find_topic(topic, partition)
        if not self._is_placed(known, partition):
            return await self._cluster.open_input(
                identity=identity,
                session=session,
                run_id=run_id,
                topic=topic,
                partition=partition,
                listener=listener,
            )
        return await self._open_placed(session, run_id, known, partition, listener)

    def _is_placed(self, topic: Topic, partition: int) -> bool:
        """Whether a data group has a partition of a topic."""
        if not topic.is_placed or not 0 <= partition < topic.partitions:
            return False
        return self._machine.state.placement.group_of(topic.partition_numbers[partition]) > 0

    def _check_takes(self, topic: str, partition: int) -> None:
        """Where a site only reads, nobody takes what publishers bring: it copies merged bytes, once
        for the site. Raises HeldElsewhere.
        """
        state, own = self._machine.state, self._presence.number
        if state.placement.sites.only_reads(own):
            voters = (each for each in state.members.by_number.values() if each.voter)
            holders = [Holder(each.name, each.address, "") for each in voters]
            raise HeldElsewhere(topic, partition, holders)

    async def _open_placed(
        self,
        session: str,
        run_id: str,
        topic: Topic,
        partition: int,
        listener: IntakeListener | None,
    ) -> OpenedInput:
        number = topic.partition_numbers[partition]
        if not self._groups.is_to_come(number):
            raise HeldElsewhere(topic.name, partition, self._groups.holders(number))
        run = await self._cluster.note_input(session, run_id, topic, partition)
        replica = self._groups.holding(number)
        if (
            replica is None
            or number not in replica.group_replica.logs.machine.state.partitions.by_number
        ):
            text = f"partition {partition} of {topic.name!r} is being made here"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry")
        known, intake = (
            self._machine.state.sessions.by_name[session],
            replica.group_replica.logs.intake,
        )
        opened = self._over_before(session, run, topic, partition, replica)
        if opened is None:
            after = comes_first(self._machine.state, known, run, replica.number)
            opening = opening_of(known, run, topic.topic_id, partition, after=after)
            self._check_turn(replica, opening)
            try:
                opened = await intake.open_placed(opening, listener)
            except RequestRefused as refused:
                if isinstance(refused.__cause__, TimeoutError):
                    until = asyncio.get_running_loop().time() + SILENT_S
                    self._silent[replica.number] = until, replica.raft.applied_index
                raise
        elif listener is not None:
            self.watchers.watch_input(listener, intake.first_input | opened.input)
        return replace(opened, input=intake.first_input | opened.input)

    def _check_turn(self, replica: DataReplica, opening: OpenPlacedInput) -> None:
        """Raise RequestRefused without asking the group if an older run comes first, or if the
        group has not answered: the other requests of the session wait for this one.
        """
        sessions = replica.group_replica.logs.machine.state.sessions
        known = sessions.by_name.get(opening.session)
        if opening.after >= (0 if known is None else known.next_number):
            text = f"run {opening.after} of session {opening.session!r} comes to this group first"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry")
        until, applied = self._silent.get(replica.number, (0.0, -1))
        is_silent = replica.raft.applied_index == applied
        if is_silent and asyncio.get_running_loop().time() < until:
            text = f"data group {replica.number} does not answer"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry: does it have a leader?")

    def _over_before(
        self, session: str, run: Run, topic: Topic, partition: int, replica: DataReplica
    ) -> OpenedInput | None:
        """Of a run that was over before the partition came to its group, which knows only of later
        ones: the group has all of it (rule sessions.16).
        """
        machine, number = replica.group_replica.logs.machine, topic.partition_numbers[partition]
        there, noted = (
            machine.state.sessions.input_of(session, number),
            self._machine.state.sessions.input_of(session, number),
        )
        if not run.closed or there is None or noted is None or there.run <= run.number:
            return None
        if noted.number in run.to_come:
            return None
        if machine.state.sessions.run_of(session, run.run_id) is not None:
            return None
        ends = {each: (roll, byte) for each, roll, byte in run.ends}
        end = ends.get(noted.number, (0, 0))
        return OpenedInput(
            input=there.number,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            position=ResumePoint(*end),
            merged=end,
            end=end,
        )

    # --- bytes ------------------------------------------------------------------------------------

    def is_released(self, number: int, run_number: int, end: RollByte) -> bool:
        """Whether a majority has an input of a closed run merged-durable up to its end."""
        intake, own = self._of(number)
        return intake.is_released(own, run_number, end)

    def append(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """Take batches for a position. Raises RequestRefused."""
        if number <= _INPUT:
            return self._cluster.append(number, run_number, roll, byte, data)
        intake, own = self._of(number)
        return intake.append(own, run_number, roll, byte, data)

    def seal(self, number: int, run_number: int, roll: int, length: int) -> None:
        """The sender's file ends at `length`. Raises RequestRefused."""
        intake, own = self._of(number)
        intake.seal(own, run_number, roll, length)

    def start_at(self, number: int, run_number: int, roll: int, byte: int) -> None:
        """The sender has nothing below. Raises RequestRefused."""
        intake, own = self._of(number)
        intake.start_at(own, run_number, roll, byte)

    def refusals_kept(self, number: int, run_number: int, roll: int, start: int) -> None:
        """The sender has kept what was refused. Raises RequestRefused."""
        intake, own = self._of(number)
        intake.refusals_kept(own, run_number, roll, start)

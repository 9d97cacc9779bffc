"""Writes what the cluster has to tell to the topic `__events`, on the node that leads the group of
the topic: group 0, or a data group.

It takes the way of every record with a dedup id, so all clients read them as any others. The
topic's id is the dedup id, and the number of an event its record's id: what two leaders write is
there once, in order. Group 0 keeps an event until a majority of the group has merged it durably.

Invariant: what is not known to be written is written again, and what was written twice is merged
once; without the topic nothing is done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress

from samelog.config.tables.node import NodeConfig
from samelog.format import _kernels as kernels
from samelog.format.dedup import dedup_producer_id
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import OwnSession, ProducerLog
from samelog.runtime.loop import InLoop, end_all, spawn
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.ingest.node_sessions import events_session_of
from samelog.sequencer.merge.dedup import SEQUENCES
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import NOT_SAID, EventsWritten, NoteElection, ToldEvent
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.units.events import topic_of_events
from samelog.typed.schema import parse_schema
from samelog.typed.versions import FIRST, mark

LOOK_S = 0.2
AT_ONCE = 200
"""Events in one batch."""
BATCH_BYTES, RECORD_BYTES = 1 << 20, 64 << 10
SCHEMA = json.dumps(
    {
        "format": "json",
        "columns": [
            {"name": "number", "type": "int64", "nullable": False},
            {"name": "at_ms", "type": "int64", "nullable": False},
            {"name": "kind", "type": "string", "nullable": False},
            {"name": "subject", "type": "string", "nullable": False},
            {"name": "detail", "type": "string", "nullable": False},
        ],
    }
)
MARK = mark(FIRST, parse_schema(SCHEMA).fingerprint)


class EventWriter(InLoop):
    """Of one node. Implements sequencer.host.Service."""

    def __init__(
        self, name: str, number: int, raft: RaftParts, machine: StateMachine, groups: DataGroups
    ) -> None:
        """`name` and `number` are the node's; `raft` and `machine` are of group 0."""
        self._name, self._number = name, number
        self._raft, self._machine, self._groups = raft, machine, groups
        self._clock = raft.proposer.clock
        self._task: asyncio.Task[None] | None = None
        self._log: _EventLog | None = None

    def reconfigure(self, config: NodeConfig) -> None:
        """Nothing of it may change while the node runs."""

    async def start(self) -> None:
        """Begin to look for what is to be told."""
        self._task = spawn(self._run(), "events")

    async def close(self) -> None:
        """Write no more."""
        if self._task is not None:
            await end_all([self._task])
            self._task = None
        self._leave()

    async def _run(self) -> None:
        while True:
            await self.pause(LOOK_S)
            with suppress(ApiError, TimeoutError):  # the next look tries again
                await self.look()

    async def look(self) -> None:
        """Number an election, and write what waits, as far as this node leads. Raises ApiError,
        TimeoutError.
        """
        topic = topic_of_events(self._machine.state)
        if topic is not None and self._raft.group.is_leader:
            await self._prepare(topic)
        log = None if topic is None else self._log_of(topic)
        if log is None:
            self._leave()
            return
        if self._machine.state.events.waiting:
            await self._confirm(log)
            await log.write(self._machine.state.events.waiting, self._clock.wall_ms())

    async def _prepare(self, topic: Topic) -> None:
        """Let the topic have its schema, and number the election of this leader of group 0."""
        now_ms, propose = self._clock.wall_ms(), self._raft.proposer.propose
        if not topic.schemas:
            await propose(SetSchemaCommand(topic.topic_id, 0, SCHEMA, now_ms))
        term = self._raft.group.raft.term
        if self._machine.state.events.term < term:
            await propose(NoteElection(term, self._name, now_ms))

    def _log_of(self, topic: Topic) -> _EventLog | None:
        """Where this node writes events; None: it does not lead the group that has the topic."""
        partition = topic.partition_numbers[0]
        replica = self._groups.replica_of(self._machine.state.placement.group_of(partition))
        if replica is None or not replica.raft.group.is_leader:
            return None
        known = replica.logs.machine.state.topics.by_id.get(topic.topic_id)
        if known is None or not known.schemas:
            return None
        if self._log is None or not self._log.is_of(replica, topic):
            self._leave()
            self._log = _EventLog(self._name, self._number, replica, known)
        return self._log

    def _leave(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    async def _confirm(self, log: _EventLog) -> None:
        """Tell group 0 what it need not keep. Raises TimeoutError."""
        held = log.held()
        if held >= self._machine.state.events.waiting[0].number:
            await self._raft.proposer.propose(EventsWritten(log.topic_id, held))


class _EventLog:
    """The run in which a leader of the topic's group writes events; another run follows each that
    ended.

    Within a run numbers only grow, as batches carry the low 31 bits of their records' ids.
    """

    def __init__(self, name: str, number: int, replica: GroupReplica, topic: Topic) -> None:
        self.topic_id = topic.topic_id
        self._replica, self._topic = replica, topic
        self._session = OwnSession(events_session_of(number), topic.topic_id)
        self._batches = ProducerLog(name, number, replica.logs, self._session)
        self._writing: asyncio.Future[AppendResult] | None = None
        self._last = NOT_SAID
        """The number of the last event in the present run."""
        self._mark = NOT_SAID, 0
        """The topic has events up to this one below that offset."""
        self._batches.start()

    def is_of(self, replica: GroupReplica, topic: Topic) -> bool:
        """Whether it writes to this log of the topic."""
        numbers = self._topic.partition_numbers
        return self._replica is replica and numbers == topic.partition_numbers

    def close(self) -> None:
        """Write no more; what is written may be merged all the same."""
        self._batches.close()

    @property
    def _written(self) -> int:
        """The newest event that the topic has, by a committed entry of its group."""
        state, partition = self._replica.logs.machine.state, self._topic.partition_numbers[0]
        return state.watermarks.by_dedup_id.get(self.topic_id, {}).get(partition, NOT_SAID)

    def held(self) -> int:
        """The newest event that a majority of the group is known to have merged durably."""
        partition, (number, offset) = self._topic.partition_numbers[0], self._mark
        if self._replica.raft.coordinator.cursors.get(partition, 0) < offset:
            return NOT_SAID
        known = self._replica.logs.machine.state.partitions.by_number.get(partition)
        if known is not None:
            self._mark = self._written, known.next_offset
        return number

    async def write(self, waiting: Sequence[ToldEvent], now_ms: int) -> None:
        """Write the next of the events that the topic does not have, unless some are on their way.
        Raises ApiError.
        """
        if self._writing is not None:
            if not self._writing.done():
                return
            if self._writing.result().error is not ErrorCode.none:
                self._batches.end_run()
            self._writing = None
        await self._open(waiting)
        last = max(self._last, self._written)
        events = _consecutive([each for each in waiting if each.number > last])
        if events:
            self._last = events[-1].number
            data = memoryview(_batch(events, now_ms, self.topic_id))
            self._writing = self._batches.append(self._topic, 0, data, len(events))

    async def _open(self, waiting: Sequence[ToldEvent]) -> None:
        """Raises ApiError."""
        if self._batches.is_open(self._topic, 0):
            return
        self._last = NOT_SAID
        self._session.dedup_base = waiting[0].number
        await self._batches.open(self._topic, 0)


def _consecutive(events: Sequence[ToldEvent]) -> list[ToldEvent]:
    """The first of them, up to a number that is left out."""
    first = events[0].number if events else 0
    return [each for at, each in enumerate(events[:AT_ONCE]) if each.number == first + at]


def _batch(events: Sequence[ToldEvent], now_ms: int, dedup_id: str) -> bytes:
    times = [now_ms if each.at_ms < 0 else each.at_ms for each in events]
    return kernels.build_batches(
        [_value(each, at_ms) for each, at_ms in zip(events, times, strict=True)],
        keys=[each.kind.encode() for each in events],
        headers=[[MARK] for _ in events],
        timestamps=times,
        producer_id=dedup_producer_id(dedup_id),
        base_sequence=events[0].number % SEQUENCES,
        batch_bytes=BATCH_BYTES,
        max_record_bytes=RECORD_BYTES,
    )


def _value(event: ToldEvent, at_ms: int) -> bytes:
    told = {
        "number": event.number,
        "at_ms": at_ms,
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
    }
    return json.dumps(told, ensure_ascii=False).encode()

"""Writes what the cluster has to tell to the topic `__events`, on whichever node leads.

It takes the way of every idempotent producer's records, so all clients read them as any others. The
number of an event is its sequence: what two leaders write is there once, in order.

Invariant (216): what is not known to be written is written again, and what was written twice is
merged once; without the topic nothing is done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress

from samelog.config.tables.node import NodeConfig
from samelog.format import _kernels as kernels
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import ProducerLog
from samelog.runtime.clock import Clock
from samelog.runtime.loop import InLoop, end_all, spawn
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import NoteElection, ToldEvent
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.units.events import EVENTS_PRODUCER, topic_of_events, untold
from samelog.typed.schema import parse_schema
from samelog.typed.versions import FIRST, mark

LOOK_S = 0.2
WRITTEN_S = 10.0
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
        self, name: str, raft: RaftParts, machine: StateMachine, batches: ProducerLog, clock: Clock
    ) -> None:
        """`name` is the node's."""
        self._name = name
        self._raft, self._machine, self._batches, self._clock = raft, machine, batches, clock
        self._task: asyncio.Task[None] | None = None

    def reconfigure(self, config: NodeConfig) -> None:
        """Nothing of it may change while the node runs."""

    async def start(self) -> None:
        """Begin to look for what is to be told."""
        self._batches.start()
        self._task = spawn(self._run(), "events")

    async def close(self) -> None:
        """Write no more."""
        if self._task is not None:
            await end_all([self._task])
            self._task = None
        self._batches.close()

    async def _run(self) -> None:
        while True:
            await self.pause(LOOK_S)
            topic = topic_of_events(self._machine.state)
            if topic is not None and self._raft.group.is_leader:
                with suppress(ApiError, TimeoutError):  # the next look tries again
                    await self.tell(topic)

    async def tell(self, topic: Topic) -> None:
        """Write what waits. Raises ApiError, TimeoutError."""
        state, now_ms = self._machine.state, self._clock.wall_ms()
        propose = self._raft.proposer.propose
        if not topic.schemas:
            await propose(SetSchemaCommand(topic.topic_id, 0, SCHEMA, now_ms))
        term = self._raft.group.raft.term
        if state.events.term < term:
            await propose(NoteElection(term, self._name, now_ms))
        waiting = untold(state, topic)[:AT_ONCE]
        if not waiting:
            return
        await self._batches.open(topic, 0)
        written = self._batches.append(topic, 0, memoryview(_batch(waiting, now_ms)), len(waiting))
        if written is not None:
            async with asyncio.timeout(WRITTEN_S):
                await written


def _batch(events: Sequence[ToldEvent], now_ms: int) -> bytes:
    times = [now_ms if each.at_ms < 0 else each.at_ms for each in events]
    return kernels.build_batches(
        [_value(each, at_ms) for each, at_ms in zip(events, times, strict=True)],
        keys=[each.kind.encode() for each in events],
        headers=[[MARK] for _ in events],
        timestamps=times,
        producer_id=EVENTS_PRODUCER,
        producer_epoch=0,
        base_sequence=events[0].number,
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

"""Follows what other nodes take from Kafka clients: each node pulls the others' own sessions as
they grow, so that a Produce is on a majority one round trip after it came.

Other sessions reach every node from their publisher, and are pulled only when that fails (repair).

Invariant: what is pulled passes the same checks as what is pushed here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from samelog.format.errors import LogFormatError
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.repair_pull import SessionRunName
from samelog.runtime.clock import Clock
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.runtime.loop import end_all
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.peer_pulls import IntakeSink, PeerPulls
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.sessions import (
    Input,
)
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)

RETRY_S = 0.2
LOOK_S = 1.0


class Following:
    """One node's streams from its peers."""

    def __init__(
        self,
        number: int,
        pulls: PeerPulls,
        *,
        machine: StateMachine,
        intake: Intake,
        clock: Clock,
        is_there: Callable[[int], bool],
    ) -> None:
        self._number = number
        self._machine = machine
        self._intake = intake
        self._clock = clock
        self._is_there = is_there
        self._pulls = pulls
        self._inputs: list[tuple[int, int]] = []
        """(node, input) of what is to be followed."""
        self._looked = (0, -LOOK_S)
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._not_before: dict[int, float] = {}
        self._refused: set[int] = set()
        """Inputs of which their nodes had nothing to give, when they were asked last."""

    @property
    def is_busy(self) -> bool:
        """Whether anything that can be followed is not. Who had nothing, as after the loss of its
        directory, says so once it has more.
        """
        idle = self._busy.keys() | self._refused
        return any(
            number not in idle and self._is_there(node) and self._is_open(number)
            for node, number in self._inputs
        )

    def _is_open(self, number: int) -> bool:
        entry = self._machine.state.sessions.inputs.get(number)
        return (
            entry is not None
            and self._machine.state.sessions.open_run_of(entry.session) is not None
        )

    def tick(self) -> None:
        """Begin to follow what is not followed yet; to be called some times a second."""
        now = self._clock.now()
        if (
            self._looked[0] != self._machine.state.sessions.next_input
            or now - self._looked[1] >= LOOK_S
        ):
            self._looked = self._machine.state.sessions.next_input, now
            self._look()
        for node, number in self._inputs:
            due = number not in self._busy and self._not_before.get(number, 0.0) <= now
            if due and self._is_there(node):
                self._start(node, number)

    def _look(self) -> None:
        self._inputs = [
            (node, entry.number)
            for name in self._machine.index.of_nodes
            if (node := node_of(name)) is not None and node != self._number
            for entry in self._machine.state.sessions.inputs_of(name)
        ]
        known = {number for _, number in self._inputs}
        self._not_before = {n: at for n, at in self._not_before.items() if n in known}

    def _start(self, node: int, number: int) -> None:
        entry = self._machine.state.sessions.inputs.get(number)
        if entry is None or self._machine.state.sessions.open_run_of(entry.session) is None:
            return
        self._refused.discard(number)
        task = asyncio.create_task(self._follow(node, entry), name=f"follow input {number}")
        self._busy[number] = task
        task.add_done_callback(lambda _: self._busy.pop(number, None))

    async def _follow(self, node: int, entry: Input) -> None:
        """Take what comes until the connection breaks or the run ends."""
        try:
            await self._pull(node, entry)
        except PullRefused as refused:
            if refused.code is FaultCode.OUT_OF_RANGE:
                self._begin_later(entry)
            else:
                self._refused.add(entry.number)
        except (RuntimeFault, ProtocolFault, LogFormatError) as error:
            log_event(log, logging.DEBUG, "following ended", input=entry.number, error=error)
        self._not_before[entry.number] = self._clock.now() + RETRY_S

    async def _pull(self, node: int, entry: Input) -> None:
        """An entry that removes the input may be applied before the pull begins."""
        await self._intake.prepare(entry)
        if not self._is_open(entry.number):
            return
        state = self._machine.state
        partition = state.partitions.by_number[entry.partition]
        topic = state.topics.by_id[partition.topic_id]
        name = SessionRunName(entry.session, topic.name, topic.topic_id, partition.index, entry.run)
        start = ResumePoint(*self._intake.position(entry))
        pull = self._pulls.get(node)
        if pull is not None:
            sink = IntakeSink(self._intake, entry.number, entry.run, has_enough=lambda: False)
            await pull.follow(name, start, sink)

    def _begin_later(self, entry: Input) -> None:
        """The node holds only what comes behind: all before it is merged."""
        try:
            self._intake.start_at(entry.number, entry.run, entry.roll, entry.byte)
        except ProtocolFault as fault:
            log_event(log, logging.DEBUG, "not caught up yet", input=entry.number, error=fault)

    async def close(self) -> None:
        """End every stream."""
        await end_all(self._busy.values())

"""Pulls session bytes from a peer that has more of an input than this node.

A node that sees a peer ahead on an input for a moment, with nothing coming from the publisher,
pulls the difference, so that whatever reached one living node is merged (rule merge.3).

Invariant: what is pulled passes the same checks as what is pushed; one pull at a time for each
input.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.repair_pull import SessionRunName
from samelog.runtime.clock import Clock
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.runtime.loop import end_all
from samelog.sequencer.cluster.repair.plan import PATIENCE_S, RETRY_S
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.peer_pulls import IntakeSink, PeerPulls
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wanted:
    """A peer has an input up to `place`, and this node has not, since then."""

    since: float
    place: SessionPosition
    node: int


class SessionRepair:
    """One node's pulls of session bytes."""

    def __init__(
        self,
        pulls: PeerPulls,
        *,
        machine: StateMachine,
        sessions: SessionStore,
        intake: Intake,
        clock: Clock,
        is_up: Callable[[int], bool],
    ) -> None:
        """`is_up`: whether a peer can be asked. One that leads can, although it has reported
        nothing: that waits for what it names, of which it alone may have the bytes.
        """
        self._pulls = pulls
        self._machine = machine
        self._sessions = sessions
        self._intake = intake
        self._clock = clock
        self._is_up = is_up
        self._inputs: dict[int, _Wanted] = {}
        self._busy: dict[int, asyncio.Task[None]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether anything is lacking that a peer has."""
        return bool(self._inputs or self._busy)

    def peer_reported(self, node: int, places: Mapping[int, SessionPosition]) -> None:
        """A peer said up to where it holds inputs."""
        for number, place in places.items():
            if self._lacking(number, place) is None:
                continue
            known = self._inputs.get(number)
            if known is None or place > known.place:
                since = self._clock.now() if known is None else known.since
                self._inputs[number] = _Wanted(since, place, node)

    def tick(self) -> None:
        """Start the pulls that are due; to be called a few times in `PATIENCE_S`."""
        now = self._clock.now()
        for number, wanted in list(self._inputs.items()):
            self._look_at(number, wanted, now)

    def _look_at(self, number: int, wanted: _Wanted, now: float) -> None:
        entry = self._lacking(number, wanted.place)
        if entry is None or not self._is_up(wanted.node):  # gone: others may have it
            del self._inputs[number]
            return
        quiet_since = max(wanted.since, self._intake.received_at.get(number, 0.0))
        if now - quiet_since > PATIENCE_S and self._intake.stopped is None:
            self._start(entry, wanted)

    def _lacking(self, number: int, place: SessionPosition) -> Input | None:
        """The input, if this node does not hold it up to there, and that still counts: behind the
        end of a closed run nothing does, and whoever had it has released it.
        """
        entry = self._machine.state.sessions.inputs.get(number)
        if entry is None or place.run != entry.run or place <= self._sessions.written(entry):
            return None
        return None if self._machine.state.sessions.open_run_of(entry.session) is None else entry

    def _start(self, entry: Input, wanted: _Wanted) -> None:
        if entry.number not in self._busy:
            name = f"pull input {entry.number}"
            task = asyncio.create_task(self._guarded(entry, wanted), name=name)
            self._busy[entry.number] = task
            task.add_done_callback(lambda _: self._busy.pop(entry.number, None))

    async def _guarded(self, entry: Input, wanted: _Wanted) -> None:
        """Run a pull; after a failure, the same thing is tried again a little later."""
        try:
            await self._pull(entry, wanted)
        except (RuntimeFault, ProtocolFault, LogFormatError) as error:
            log_event(log, logging.INFO, "repair failed", input=entry.number, error=error)
            wanted.since = self._clock.now() + RETRY_S
        else:  # more may have come meanwhile, and nobody else brings it
            wanted.since = self._clock.now()

    async def _pull(self, entry: Input, wanted: _Wanted) -> None:
        """Entries that remove the input, or close its run, may be applied before the pull begins
        and at any time while it waits: nothing is lacking then, and the input has no files.
        """
        await self._intake.prepare(entry)
        if self._lacking(entry.number, wanted.place) is None:
            return
        names = self._machine.state
        partition = names.partitions.by_number[entry.partition]
        topic = names.topics.by_id[partition.topic_id]
        stream = SessionRunName(
            entry.session, topic.name, topic.topic_id, partition.index, entry.run
        )
        sink = IntakeSink(
            self._intake,
            entry.number,
            wanted.place.run,
            has_enough=lambda: self._lacking(entry.number, wanted.place) is None,
        )
        start = ResumePoint(*self._intake.position(entry))
        try:
            pull = self._pulls.get(wanted.node)
            if pull is not None:
                await pull.session(stream, start, sink)
        except PullRefused as refused:
            if refused.code is not FaultCode.OUT_OF_RANGE:
                raise
            self._intake.start_at(entry.number, entry.run, entry.roll, entry.byte)

    async def close(self) -> None:
        """End every pull."""
        await end_all(self._busy.values())

"""One push connection, at the publisher: the runs of a session, one after the other.

A run is opened, shipped, and ended once it is over here and all of it was sent; the next one is
opened when the cluster has closed it. The handles of closed runs stay until all of them is merged,
because only their acknowledgements tell when the files may go.

Invariant: nothing of a run is sent before the node has opened it, and nothing of a newer run before
the older one is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from samelog.format.directory_files import RunFile
from samelog.replicator.handler import ReplicatorHandler, failing, unexpected
from samelog.replicator.interfaces import InputName, Place, RunEnds
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.shipment import Channel, RunShipment
from samelog.replicator.turns import Turns
from samelog.runtime.clock import Clock
from samelog.runtime.network.transport import Connection
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    Ack,
    AnyMessage,
    Close,
    EndRun,
    OpenInput,
    OpenRun,
    Refused,
    RunClosed,
    RunOpened,
    SessionStartsAt,
    TopicGone,
    Welcome,
)
from samelog.wire.sender import Sender

READ_BYTES = 1 << 20
RUN_ANSWER_S = 90.0
ASK_AGAIN_S = 1.0


class PushEvents(Protocol):
    """What a push client does with what its conversations hear."""

    def on_reached(self, run: int, name: InputName, places: tuple[Place, Place, Place]) -> None:
        """A node tells durable, acknowledged, merged."""

    def on_run_closed(self, run: int, ends: RunEnds) -> None:
        """The cluster has closed a run; told by every node."""

    def on_topic_gone(self, run: int, name: InputName) -> None:
        """The topic of an input was deleted."""

    def is_given_up(self, run: int, name: InputName) -> bool:
        """Whether an input is left behind: no node takes it, and a newer run waits."""

    def on_fork(self, fault: ProtocolFault) -> None:
        """A node holds other bytes than this side at the same place."""

    def on_status(self) -> None:
        """The phase or a problem of a conversation has changed."""

    def merged(self, run: int, name: InputName) -> Place:
        """What is merged, by all that is known."""


class Phase(Enum):
    """Where a conversation is."""

    GREETING = auto()
    IDLE = auto()
    """Nothing to ship: every run there is was closed."""
    OPENING_RUN = auto()
    SHIPPING = auto()
    ENDING = auto()
    """All is sent; the cluster is to close the run."""
    OVER = auto()


class PushConversation(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        session: LocalSession,
        events: PushEvents,
        clock: Clock,
        *,
        cluster: str,
        on_over: Callable[[Exception | None], None],
    ) -> None:
        self.phase = Phase.GREETING
        self.node = ""
        self._connection = connection
        self._session = session
        self._events = events
        self._now = clock.now
        self._cluster = cluster
        self._on_over = on_over
        self._since = 0.0
        self._asked_at = 0.0
        self._turns = Turns(connection, self._step, self._rest, clock)
        self._channel: Channel | None = None
        self._shipment: RunShipment | None = None
        self._record: RunFile | None = None
        """Of the run that is being opened, shipped or ended."""
        self._closed: set[int] = set()
        self._looked_closely = False
        self._watched: dict[int, tuple[int, InputName, Place]] = {}
        """Handle -> run, input and end, of closed runs that are not wholly merged yet."""

    # --- from the client ----------------------------------------------------------------------

    def look(self) -> None:
        """Runs or inputs have changed."""
        with failing(self._connection):
            if self.phase is Phase.IDLE:
                self._next_run()
            elif self._shipment is not None:
                self._shipment.look()
                self._turns.work()

    def tick(self) -> None:
        """Some time has passed."""
        with failing(self._connection):
            if self.phase is Phase.OPENING_RUN and self._now() >= self._since + RUN_ANSWER_S:
                text = f"the node has not opened a run in {RUN_ANSWER_S:g} s"
                raise ProtocolFault(FaultCode.TIMEOUT, text)
            if self.phase is Phase.ENDING and self._now() >= self._asked_at + ASK_AGAIN_S:
                self._ask_for_run()
            if self._shipment is not None:
                self._shipment.tick()
                self._turns.work()

    @property
    def problems(self) -> dict[InputName, str]:
        """Inputs that cannot be shipped at the moment, and why."""
        return {} if self._shipment is None else self._shipment.problems

    def refuses(self, run: int, name: InputName) -> bool:
        """Whether the node will not take an input of this run."""
        shipment = self._shipment
        return shipment is not None and shipment.record.run == run and shipment.refuses(name)

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a push server sends."""
        match message:
            case Ack():
                self._acknowledged(message)
            case SessionStartsAt():
                self._opened(message)
            case Refused() | TopicGone():
                self._not_opened(message)
            case RunOpened():
                self._run_opened(message)
            case RunClosed():
                self._run_closed(message.run_id, message.ends)
            case Welcome():
                self._welcomed(message)
            case _:
                raise unexpected(message)

    def on_writable(self) -> None:
        """Go on sending."""
        self._turns.work()

    def on_closed(self, error: Exception | None) -> None:
        """Gone; the client connects again."""
        self.phase = Phase.OVER
        self._turns.close()
        if self._shipment is not None:
            self._shipment.close()
            self._shipment = None
        self._on_over(error)

    def _welcomed(self, message: Welcome) -> None:
        if self.phase is not Phase.GREETING:
            raise unexpected(message)
        if message.cluster != self._cluster:
            text = f"this is cluster {message.cluster!r}, wanted is {self._cluster!r}"
            raise ProtocolFault(FaultCode.WRONG_CLUSTER, text, "check the addresses of the nodes")
        self.node = message.node
        read_bytes = max(READ_BYTES, message.max_batch_bytes)
        self._channel = Channel(
            self._connection,
            Sender(window_bytes=message.window_bytes, read_bytes=read_bytes),
            self._turns,
            message.window_bytes,
            self._now,
        )
        self._next_run()

    # --- runs ---------------------------------------------------------------------------------

    def _next_run(self) -> None:
        """Open the oldest run that is not closed."""
        runs = (known for known in self._session.runs if known.run not in self._closed)
        self._record = next(runs, None)
        self._enter(Phase.IDLE if self._record is None else Phase.OPENING_RUN)
        self._ask_for_run()

    def _ask_for_run(self) -> None:
        self._asked_at = self._now()
        record = self._record
        if record is not None:
            self._connection.send(
                OpenRun(record.run, record.run_id, record.dedup_id, record.dedup_base, record.stage)
            )

    def _run_opened(self, message: RunOpened) -> None:
        record, channel = self._record, self._channel
        if record is None or channel is None or message.run_id != record.run_id:
            return  # asked again, and told meanwhile
        if message.closed:
            self._run_closed(message.run_id, message.ends)
        elif self.phase is Phase.OPENING_RUN:
            run = record.run
            self._enter(Phase.SHIPPING)
            self._looked_closely = False
            self._shipment = RunShipment(
                channel,
                self._session,
                record,
                on_gone=lambda name: self._events.on_topic_gone(run, name),
                is_given_up=self._events.is_given_up,
            )
            self._shipment.look()
            self._turns.work()

    def _run_closed(self, run_id: str, ends: tuple[RunEnd, ...]) -> None:
        """The cluster has closed the run in hand: keep an eye on what is not merged of it."""
        record = self._record
        if record is None or record.run_id != run_id:
            return  # told before
        places = {(end.topic, end.partition): (end.roll, end.byte) for end in ends}
        self._closed.add(record.run)
        kept = [] if self._shipment is None else self._shipment.close()
        self._watch(record, places, kept)
        self._shipment = None
        self._events.on_run_closed(record.run, places)
        self._next_run()

    def _watch(self, record: RunFile, ends: RunEnds, kept: list[tuple[int, InputName]]) -> None:
        """Keep the handles of what is still to be merged; open those that are not."""
        run = record.run
        names = {name: handle for handle, name in kept}
        for name in set(names) | (ends.keys() & set(self._session.inputs_of(run))):
            handle = names.get(name)
            end = ends.get(name, (0, 0))
            is_merged = self._events.merged(run, name) >= end
            if is_merged and handle is not None:
                self._connection.send(Close(handle))
            elif not is_merged and self._channel is not None:
                if handle is None:
                    handle = self._channel.new_handle()
                    self._connection.send(OpenInput(handle, *name, record.run_id))
                self._watched[handle] = (run, name, end)

    def _enter(self, phase: Phase) -> None:
        self.phase, self._since = phase, self._now()
        self._events.on_status()

    # --- inputs -------------------------------------------------------------------------------

    def _opened(self, message: SessionStartsAt) -> None:
        if message.handle in self._watched:
            return
        shipped = None if self._shipment is None else self._shipment.find(message.handle)
        if self._shipment is None or shipped is None:
            self._connection.send(Close(message.handle))  # its run was closed meanwhile
            return
        try:
            self._shipment.opened(shipped, message)
        except ProtocolFault as fault:
            if fault.code is FaultCode.FORK:
                self._events.on_fork(fault)
            raise

    def _not_opened(self, message: Refused | TopicGone) -> None:
        if self._watched.pop(message.handle, None) is not None or self._shipment is None:
            return
        shipped = self._shipment.find(message.handle)
        if shipped is None:
            return
        if isinstance(message, TopicGone) or message.code is FaultCode.TOPIC_GONE:
            self._shipment.gone(shipped)
        else:
            self._shipment.refused(shipped, message)
            if self.phase is Phase.ENDING:  # the end that was told may lie in what is refused
                self._enter(Phase.SHIPPING)
        self._events.on_status()
        self._turns.work()

    def _acknowledged(self, message: Ack) -> None:
        places = (
            (message.durable_roll, message.durable_byte),
            (message.acknowledged_roll, message.acknowledged_byte),
            (message.merged_roll, message.merged_byte),
        )
        watched = self._watched.get(message.handle)
        if watched is not None:
            run, name, end = watched
            self._events.on_reached(run, name, places)
            if places[2] >= end:
                del self._watched[message.handle]
                self._connection.send(Close(message.handle))
            return
        shipped = None if self._shipment is None else self._shipment.find(message.handle)
        if self._shipment is not None and shipped is not None:
            self._shipment.acknowledged(shipped, places[0])
            self._events.on_reached(self._shipment.record.run, shipped.name, places)

    # --- sending ------------------------------------------------------------------------------

    def _step(self) -> bool:
        return self._shipment is not None and self._shipment.step()

    def _rest(self) -> None:
        """Nothing to send just now: perhaps that was all of the run."""
        shipment, record = self._shipment, self._record
        if self.phase is not Phase.SHIPPING or shipment is None or record is None:
            return
        if not self._session.is_over(record.run) or not shipment.is_complete:
            return
        if not self._looked_closely:
            self._looked_closely = self._session.look_again()
            if self._looked_closely:
                shipment.look_closely()
                self._turns.work()
            return
        self._enter(Phase.ENDING)
        self._asked_at = self._now()
        self._connection.send(EndRun(record.run_id, shipment.ends()))

"""A subscriber's end of a pull connection: does what `samelog.wire.pull.receiver` decides.

Invariant: nothing is decided here; bytes are written only after their CRCs and offsets were
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from samelog.replicator.handler import ReplicatorHandler, failing
from samelog.replicator.pull.acknowledger import Acknowledger
from samelog.replicator.pull.copy import Copy, FindStart
from samelog.runtime.clock import Clock
from samelog.runtime.network.transport import Connection
from samelog.store.merged.truncation import LogStart
from samelog.wire.bounds import Holder
from samelog.wire.effects import Send
from samelog.wire.messages import AnyMessage, CaughtUp, Welcome
from samelog.wire.pull.copies import (
    ArchiveCopy,
    BeginCopy,
    CopyChanged,
    CopyEffect,
    CopyGivenUp,
    CopyNews,
    CutCopy,
    FindPlace,
    HeldByOthers,
    LeaveNode,
    LogBegunAnew,
    RollSegment,
    TakeCopy,
    TopicFound,
    TopicRefused,
)
from samelog.wire.pull.receiver import PullReceiver, PullTarget
from samelog.wire.pull.refusal import Refusal


class PullEvents(Protocol):
    """What a pull client does with what its conversations hear."""

    def on_cluster(self, cluster_id: str) -> None:
        """The node's cluster has this id (empty: none yet). Raises ProtocolFault if it is not the
        one of before.
        """

    def on_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        """The topic is so; its copies, made if need be."""

    def on_refused(self, topic: str, refusal: Refusal) -> None:
        """A topic is refused, for now."""

    @property
    def on_growth(self) -> Callable[[Copy], None]:
        """Takes copies that grew."""

    def on_change(self, copy: Copy) -> None:
        """It caught up, or its state changed."""

    def on_archived(self, copy: Copy, start: LogStart) -> None:
        """The cluster has archived what is before `start`; the copy has to go on there at least."""

    def on_cut(self, copy: Copy, base: int) -> None:
        """The cluster has compacted what the copy has from `base` on: it goes back to there."""

    def on_given_up(self, copy: Copy) -> None:
        """Every node refuses to go on with it."""

    def on_begun_anew(self, copy: Copy) -> None:
        """The cluster restarted the copy's log."""

    def on_taken(self, copy: Copy) -> None:
        """A node near the reader shall give the copy from now on."""

    def on_elsewhere(self, nodes: Sequence[Holder]) -> None:
        """The node has not all that was asked for: these, or others, have."""


class PullConversation(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        events: PullEvents,
        clock: Clock,
        target: PullTarget,
        *,
        find_start: FindStart,
        on_over: Callable[[Exception | None], None],
    ) -> None:
        self._connection = connection
        self._events = events
        self._on_change, self._on_growth = events.on_change, events.on_growth
        self._now = clock.now
        self._find_start = find_start
        self._on_over = on_over
        self._receiver: PullReceiver[Copy] = PullReceiver(target, clock.now())
        self._acknowledger = Acknowledger(connection)

    @property
    def node(self) -> str:
        """What the node is called; empty before it has said so."""
        return self._receiver.node

    # --- from the client ----------------------------------------------------------------------

    def follow(self, target: PullTarget) -> None:
        """The nodes that can be asked are these now."""
        self._receiver.target = target

    def replaced(self, old: Copy, new: Copy) -> None:
        """Go on with another copy."""
        self._receiver.replaced(old, new)
        self.tick()

    def found(self, copies: Iterable[Copy]) -> None:
        """These are to be copied, from this node as far as it has them and nobody else copies."""
        self._receiver.copies_made(copies, self._now())
        self._carry_out()

    def let_go(self, copy: Copy) -> None:
        """Another node shall give this copy."""
        if self._connection.is_open:
            self._receiver.let_go(copy, self._now())
            self._carry_out()

    def tick(self) -> None:
        """Some time has passed. What is over opens nothing: its answer would never come."""
        if self._connection.is_open:
            with failing(self._connection):
                try:
                    self._receiver.time_passed(self._now())
                finally:
                    self._carry_out()

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a pull server sends."""
        if isinstance(message, CaughtUp):
            copy = self._receiver.caught_up(message)
            if copy is not None:
                self._on_change(copy)
            return
        if isinstance(message, Welcome):
            self._events.on_cluster(message.cluster_id)
        try:
            self._receiver.receive(message, self._now())
        finally:
            self._carry_out()

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """A piece of a copy."""
        size = len(data)
        copy = self._receiver.take(handle, file, byte, size)
        if copy is None:
            self._carry_out()
            return
        next_offset = copy.log.append_copy(file, byte, data)
        self._acknowledger.note(handle, size)
        if copy.cluster_end is None or copy.cluster_end < next_offset:
            copy.cluster_end = next_offset
        self._on_growth(copy)

    def on_closed(self, error: Exception | None) -> None:
        """Gone; the client goes to the next node."""
        self._acknowledger.close()
        self._receiver.closed()
        self._on_over(error)

    # --- effects ------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Do what the receiver wants; what follows from one effect comes before the next one."""
        effects = self._receiver.effects
        while effects:
            effect, *rest = effects
            effects.clear()
            self._do(effect)
            effects += rest

    def _do(self, effect: CopyEffect[Copy]) -> None:
        match effect:
            case Send(message):
                self._connection.send(message)
            case FindPlace(handle, copy):
                self._receiver.place_found(handle, copy.place(self._find_start))
            case BeginCopy(copy, at):
                copy.begin(at.offset, at.base_offset, log_start=at.start_offset)
                self._receiver.begun(copy, at, self._now())
            case ArchiveCopy(copy, start):
                place = LogStart(start.offset, start.base_offset, start.checksum)
                self._events.on_archived(copy, place)
                self._receiver.archived(copy, start.handle)
            case RollSegment(copy):
                copy.log.roll()
            case TopicFound(topic, topic_id, partitions):
                copies = self._events.on_topic(topic, topic_id, partitions)
                self._receiver.copies_made(copies, self._now())
            case TopicRefused(topic, refusal):
                self._events.on_refused(topic, refusal)
            case LeaveNode():
                self._connection.close()
            case _:
                self._tell(effect)

    def _tell(self, news: CopyNews[Copy]) -> None:
        """What the client is to know, and to see to."""
        match news:
            case CopyChanged(copy):
                self._on_change(copy)
            case CopyGivenUp(copy):
                self._events.on_given_up(copy)
            case CutCopy(copy, base):
                self._events.on_cut(copy, base)
            case LogBegunAnew(copy):
                self._events.on_begun_anew(copy)
            case TakeCopy(copy):
                self._events.on_taken(copy)
            case HeldByOthers(nodes):
                self._events.on_elsewhere(nodes)

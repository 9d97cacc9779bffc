"""One pull connection, at the subscriber: learns its topics' partitions, and copies them.

A topic is asked for with a probe (its first partition, at the end), now and then again, because
partitions are added and topics deleted.

Invariant: bytes are written only where the copy ends, after their CRCs and offsets were checked;
what does not fit ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from samelog.replicator.handler import ReplicatorHandler, failing, unexpected
from samelog.replicator.pull.acknowledger import Acknowledger
from samelog.replicator.pull.copy import Copy, CopyState, FindStart
from samelog.replicator.pull.repair_pull import PullRefused
from samelog.runtime.clock import Clock
from samelog.runtime.network.transport import Connection
from samelog.store.merged.truncation import LogStart
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    Refused,
    SegmentSealed,
    Start,
    TopicGone,
    Welcome,
)
from samelog.wire.receiver import Receiver

PROBE_S = 10.0
RETRY_S = 1.0
ANSWER_S = 15.0
LAGGING_S = 5.0
"""A node that is not ready for a copy for so long is left for another one."""

DISAGREES = (FaultCode.FORK, FaultCode.OUT_OF_RANGE)
"""The node cannot go on with this copy; perhaps another one can."""


class PullEvents(Protocol):
    """What a pull client does with what its conversations hear."""

    def on_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        """The topic is so; its copies, made if need be."""

    def on_problem(self, topic: str, fault: PullRefused | None) -> None:
        """A topic is refused (for now); None: not any more."""

    def on_change(self, copy: Copy) -> None:
        """It grew, caught up, or its state changed."""

    def on_archived(self, copy: Copy, start: LogStart) -> None:
        """The cluster has archived what is before `start`; the copy has to go on there at least."""

    def on_disagreement(self, copy: Copy, fault: PullRefused) -> bool:
        """The node cannot go on with this copy; True: ask another node."""


class PullConversation(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        events: PullEvents,
        clock: Clock,
        *,
        cluster: str,
        topics: tuple[str, ...],
        find_start: FindStart,
        on_over: Callable[[Exception | None], None],
    ) -> None:
        self.node = ""
        self._connection = connection
        self._events = events
        self._now = clock.now
        self._cluster = cluster
        self._topics = topics
        self._find_start = find_start
        self._on_over = on_over
        self._receiver = Receiver()
        self._acknowledger = Acknowledger(connection)
        self._copies: dict[int, Copy] = {}
        self._known: set[Copy] = set()
        """Those that this connection is responsible for."""
        self._probes: dict[int, str] = {}
        self._probe_at = clock.now()
        self._next_handle = 0
        self._not_ready_since: dict[Copy, float] = {}

    # --- from the client ----------------------------------------------------------------------

    def replaced(self, old: Copy, new: Copy) -> None:
        """Go on with another copy."""
        self._known.discard(old)
        self._known.add(new)

    def tick(self) -> None:
        """Some time has passed. What is over opens nothing: its answer would never come."""
        if not self._connection.is_open:
            return
        with failing(self._connection):
            now = self._now()
            for copy in tuple(self._known):
                if copy.state is CopyState.WAITING and now >= copy.retry_at:
                    self._open(copy)
                elif copy.state is CopyState.OPENING and now >= copy.since + ANSWER_S:
                    text = f"the node has not opened {copy.name} in {ANSWER_S:g} s"
                    raise ProtocolFault(FaultCode.TIMEOUT, text)
            if self.node and now >= self._probe_at:
                self._probe()

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a pull server sends."""
        match message:
            case CaughtUp():
                self._caught_up(message)
            case SegmentSealed():
                self._sealed(message)
            case MergedStartsAt():
                self._opened(message)
            case LogArchived():
                self._archived(message)
            case Refused():
                refused = PullRefused(
                    message.code, message.message, message.remedy, message.earliest
                )
                self._refused(message.handle, refused)
            case TopicGone():
                self._gone(message)
            case Welcome():
                self._welcomed(message)
            case _:
                raise unexpected(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """A piece of a copy."""
        copy = self._copies.get(handle)
        if copy is None or not self._receiver.expects(handle):
            return
        if copy.state is not CopyState.COPYING:
            self._let_go(handle)
            self._connection.send(Close(handle))
            return
        self._receiver.receive(handle, file, byte, len(data))
        next_offset = copy.log.append_copy(file, byte, data)
        self._acknowledger.took(handle, len(data))
        if copy.cluster_end is None or copy.cluster_end < next_offset:
            copy.cluster_end = next_offset
        self._events.on_change(copy)

    def on_closed(self, error: Exception | None) -> None:
        """Gone; the client goes to the next node."""
        self._acknowledger.close()
        for copy in self._known:
            if copy.state in (CopyState.OPENING, CopyState.COPYING):
                copy.state = CopyState.WAITING
            copy.caught_up = False
        self._on_over(error)

    def _welcomed(self, message: Welcome) -> None:
        if message.cluster != self._cluster:
            text = f"this is cluster {message.cluster!r}, wanted is {self._cluster!r}"
            raise ProtocolFault(FaultCode.WRONG_CLUSTER, text, "check the addresses of the nodes")
        self.node = message.node
        self._probe()

    # --- topics -------------------------------------------------------------------------------

    def _probe(self) -> None:
        """Ask what the topics are like now."""
        self._probe_at = self._now() + PROBE_S
        asked = set(self._probes.values())
        for topic in self._topics:
            if topic not in asked:
                handle = self._new_handle()
                self._probes[handle] = topic
                self._connection.send(OpenMerged(handle, topic, None, 0, Start.LATEST))

    def _probed(self, topic: str, message: MergedStartsAt) -> None:
        self._connection.send(Close(message.handle))
        self._events.on_problem(topic, None)
        for copy in self._events.on_topic(topic, message.topic_id, message.partitions):
            if copy not in self._known:
                self._known.add(copy)
                if copy.state is CopyState.WAITING:
                    self._open(copy)

    # --- copies -------------------------------------------------------------------------------

    def _new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    def _open(self, copy: Copy) -> None:
        handle = self._new_handle()
        self._copies[handle] = copy
        self._enter(copy, CopyState.OPENING)
        self._connection.send(copy.request(handle, self._find_start))

    def _enter(self, copy: Copy, state: CopyState) -> None:
        copy.state, copy.since = state, self._now()

    def _opened(self, message: MergedStartsAt) -> None:
        topic = self._probes.pop(message.handle, None)
        if topic is not None:
            self._probed(topic, message)
            return
        copy = self._copies.get(message.handle)
        if copy is None:
            return
        copy.cluster_end = message.end_offset
        if not copy.is_begun:
            copy.begin(message.offset, message.base_offset, log_start=message.start_offset)
        if copy.log.end() != (message.base_offset, message.byte):
            self._begin_at_segment(copy, message)
            return
        self._receiver.expect(message.handle, message.base_offset, message.byte)
        self._enter(copy, CopyState.COPYING)
        copy.fault = None
        copy.refused_by.clear()
        self._not_ready_since.pop(copy, None)
        self._events.on_change(copy)

    def _begin_at_segment(self, copy: Copy, message: MergedStartsAt) -> None:
        """The wanted offset lies inside a segment: ask for all of it."""
        if copy.log.end() != (message.base_offset, 0):
            text = f"a copy that ends at {copy.log.end()} was opened at another place"
            raise ProtocolFault(
                FaultCode.PROTOCOL, f"{text}, {(message.base_offset, message.byte)}"
            )
        self._let_go(message.handle)
        self._connection.send(Close(message.handle))
        self._open(copy)

    def _let_go(self, handle: int) -> Copy | None:
        self._receiver.forget(handle)
        return self._copies.pop(handle, None)

    def _sealed(self, message: SegmentSealed) -> None:
        copy = self._copies.get(message.handle)
        if copy is None or not self._receiver.expects(message.handle):
            return
        self._receiver.sealed(
            message.handle, message.base_offset, message.length, message.next_offset
        )
        if message.next_offset != copy.log.next_offset:
            text = f"segment {message.base_offset} is followed by {message.next_offset}, "
            text += f"but its records end at {copy.log.next_offset}"
            raise ProtocolFault(FaultCode.PROTOCOL, text)
        copy.log.roll()

    def _archived(self, message: LogArchived) -> None:
        """The cluster has archived some of it."""
        copy = self._copies.get(message.handle)
        if copy is None or copy.state not in (CopyState.OPENING, CopyState.COPYING):
            return
        self._events.on_archived(
            copy, LogStart(message.offset, message.base_offset, message.checksum)
        )
        if self._receiver.expects(message.handle):
            self._receiver.jump(message.handle, *copy.log.end())

    def _caught_up(self, message: CaughtUp) -> None:
        copy = self._copies.get(message.handle)
        if copy is None or not self._receiver.expects(message.handle):
            return
        copy.cluster_end = message.end_offset
        copy.caught_up = copy.log.next_offset >= message.end_offset
        self._events.on_change(copy)

    # --- refusals -----------------------------------------------------------------------------

    def _gone(self, message: TopicGone) -> None:
        what = "its log was begun anew" if message.successor else "the topic was deleted"
        copy = self._copies.get(message.handle)
        if copy is not None:
            copy.successor = message.successor or ""
        self._refused(message.handle, PullRefused(FaultCode.TOPIC_GONE, what, ""))

    def _refused(self, handle: int, fault: PullRefused) -> None:
        topic = self._probes.pop(handle, None)
        if topic is not None:
            self._events.on_problem(topic, fault)
            self._probe_at = min(self._probe_at, self._now() + RETRY_S)
            return
        copy = self._let_go(handle)
        if copy is None:
            return
        copy.fault, copy.caught_up = fault, False
        if fault.code is FaultCode.TOPIC_GONE:
            self._enter(copy, CopyState.GONE)
        else:
            self._enter(copy, CopyState.WAITING)
            copy.retry_at = self._now() + RETRY_S
            self._consider_leaving(copy, fault)
        self._events.on_change(copy)

    def _consider_leaving(self, copy: Copy, fault: PullRefused) -> None:
        """Go to another node if that may help this copy."""
        if fault.code in DISAGREES:
            if self._events.on_disagreement(copy, fault):
                self._connection.close()
        elif fault.code is FaultCode.NOT_READY:
            since = self._not_ready_since.setdefault(copy, self._now())
            if self._now() >= since + LAGGING_S:
                self._connection.close()

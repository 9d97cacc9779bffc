"""A subscriber's end of a pull connection, as a pure state: learns its topics' partitions, and
copies them.

A topic is asked for with a probe (its first partition, at the end), now and then again, because
partitions are added and topics deleted. The driver passes in messages, answers and the time; after
each call it carries out `effects` in their order.

Invariant: bytes are taken only where the copy ends; what does not fit ends the connection. A copy
that has stopped takes nothing, and is never opened again from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple

from samelog.wire.effects import Send
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    ConfirmEnd,
    EndConfirmed,
    Holders,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    OpenRows,
    Refused,
    SegmentSealed,
    Start,
    TopicGone,
    Welcome,
)
from samelog.wire.pull.copies import (
    ArchiveCopy,
    BeginCopy,
    CopyChanged,
    CopyEffect,
    CopyGivenUp,
    CopyState,
    CopyT,
    CutCopy,
    FindPlace,
    HeldByOthers,
    LeaveNode,
    LogBegunAnew,
    RollSegment,
    StartAt,
    TakeCopy,
    TopicFound,
    TopicRefused,
)
from samelog.wire.pull.nearness import Nearness
from samelog.wire.pull.refusal import Refusal
from samelog.wire.receiver import Receiver, ResumePoint

PROBE_S = 10.0
FAR_S = 1.0
"""So long a node near the reader is waited for."""
LATE_S = 5.0
"""So long other nodes are waited for before one near the reader that is late is read from."""
RETRY_S = 1.0
ANSWER_S = 15.0
LAGGING_S = 5.0
"""A node that is not ready for a copy for so long is left for another one."""

DISAGREES = (FaultCode.FORK, FaultCode.OUT_OF_RANGE)
"""The node cannot go on with this copy; perhaps another one can."""


class PullTarget(NamedTuple):
    """What is asked for, of which of the nodes."""

    cluster: str
    topics: tuple[str, ...]
    address: str
    addresses: frozenset[str]
    is_far: bool = False
    """A nearer node may have it: wait a moment before it is copied from here."""
    is_near: bool = False
    """It is near the reader, and other nodes are not."""


class PullReceiver(Generic[CopyT]):
    """One connection."""

    def __init__(self, target: PullTarget, now: float) -> None:
        self.node = ""
        """What the node is called; empty before it has said so."""
        self.target = target
        self.effects: list[CopyEffect[CopyT]] = []
        """To be carried out in this order; whoever does takes them off."""
        self._receiver = Receiver()
        self._copies: dict[int, CopyT] = {}
        self._known: dict[CopyT, float] = {}
        """Those that this connection is responsible for, and since when."""
        self._probes: dict[int, str] = {}
        self._probe_at = now
        self._next_handle = 0
        self._not_ready_since: dict[CopyT, float] = {}
        self._not_before: dict[CopyT, float] = {}
        """When to ask this node again for what other nodes have."""
        self._near: Nearness[CopyT] = Nearness()
        self._not_here: set[CopyT] = set()
        """Those that this node has no replica of."""

    # --- what happens -------------------------------------------------------------------------

    def receive(self, message: AnyMessage, now: float) -> None:
        """Anything a pull server sends, but `caught_up`. Raises ProtocolFault."""
        match message:
            case SegmentSealed():
                self._sealed(message)
            case MergedStartsAt():
                self._opened(message, now)
            case LogArchived():
                self._archived(message)
            case Refused(handle, code, text, remedy, earliest):
                self._refused(handle, Refusal(code, text, remedy, earliest), now)
            case TopicGone(handle, successor):
                self._refused(handle, _gone(successor), now)
            case EndConfirmed():
                self._end_confirmed(message)
            case Welcome():
                self._welcomed(message, now)
            case Holders():
                self.effects.append(HeldByOthers(message.nodes))
            case _:
                text = f"unexpected {type(message).__name__}"
                raise ProtocolFault(FaultCode.PROTOCOL, text)

    def take(self, handle: int, file: int, byte: int, size_bytes: int) -> CopyT | None:
        """A piece came: the copy that it is to be appended to. Raises ProtocolFault."""
        copy = self._copies.get(handle)
        if copy is None or copy.state is CopyState.OPENING:
            return None
        if copy.state is not CopyState.COPYING:
            self._close(handle)
            return None
        self._receiver.receive(handle, file, byte, size_bytes)
        return copy

    def caught_up(self, message: CaughtUp) -> CopyT | None:
        """The node has no more for now: the copy for which this is news."""
        copy = self._copies.get(message.handle)
        if copy is None or copy.state is not CopyState.COPYING:
            return None
        before, end = (copy.cluster_end, copy.caught_up), message.end_offset
        first = copy.first_end
        copy.cluster_end = end if first is None or end > first else first
        copy.caught_up = copy.log.next_offset >= copy.cluster_end
        return copy if (copy.cluster_end, copy.caught_up) != before else None

    def time_passed(self, now: float) -> None:
        """Open again what waits, ask for topics again. Raises ProtocolFault when the node owes an
        answer.
        """
        own = frozenset(self._copies.values())
        for copy in tuple(self._known):
            if copy.state is CopyState.WAITING and self._is_due(copy, now):
                self._open(copy, now)
            elif copy in own and copy.state is CopyState.OPENING and now >= copy.since + ANSWER_S:
                text = f"the node has not opened {copy.name} in {ANSWER_S:g} s"
                raise ProtocolFault(FaultCode.TIMEOUT, text)
        if self.node:
            self._look_around(now)

    def _look_around(self, now: float) -> None:
        if now >= self._probe_at:
            self._probe(now)
        if self.target.is_near and self._near.is_due(now):
            self._check_near(now)

    def _is_due(self, copy: CopyT, now: float) -> bool:
        waits_s = FAR_S if self.target.is_far else LATE_S if self._near.is_late else 0.0
        begins_at = max(copy.since, self._known[copy]) + waits_s
        not_before = self._not_before.get(copy, now)
        return self.node != "" and now >= max(copy.retry_at, not_before, begins_at)

    # --- a node near the reader ---------------------------------------------------------------

    def _check_near(self, now: float) -> None:
        """See Nearness: one copy stands for all."""
        own = {copy: n for n, copy in self._copies.items() if copy.state is CopyState.COPYING}
        read = next((copy for copy in own if copy.first_end is not None), None)
        if read is not None and not self._near.has_kept_up(read):
            self._near.leave()
            for copy in own:
                self.let_go(copy, now)
        elif read is not None:
            self._near.ask(read)
            self.effects.append(Send(ConfirmEnd(own[read])))
        if (other := next(iter(self._copied_elsewhere()), None)) is not None:
            handle = self._new_handle()
            self._near.look(handle, other)
            log = other.log
            asked = OpenMerged(handle, log.topic, log.topic_id, log.partition, Start.LATEST)
            self.effects.append(Send(asked))

    def _copied_elsewhere(self) -> list[CopyT]:
        here = self._not_here.union(self._copies.values())
        return [c for c in self._known if c.state is CopyState.COPYING and c not in here]

    def _not_looked(self, handle: int, refusal: Refusal, now: float) -> bool:
        """Whether what was refused was a look at where the node ends."""
        copy = self._copies.get(handle) or self._near.looked_at(handle)
        if copy is not None and refusal.code is FaultCode.NOT_LEADER:
            self._not_here.add(copy)
        return self._looked(handle, None, now)

    def _looked(self, handle: int, end: int | None, now: float) -> bool:
        """Whether a node's answer was to a look at where it ends."""
        returns = self._near.looked(handle, end, now)
        if returns:
            self.effects += [TakeCopy(copy) for copy in self._copied_elsewhere()]
        return returns is not None

    def let_go(self, copy: CopyT, now: float) -> None:
        """Another node shall give this copy."""
        for handle in [n for n, known in self._copies.items() if known is copy]:
            self._close(handle)
            copy.enter(CopyState.WAITING, now)
            copy.caught_up = False
            self._not_before[copy] = now + LATE_S
            self.effects.append(CopyChanged(copy))

    def replaced(self, old: CopyT, new: CopyT) -> None:
        """Go on with another copy."""
        self._known.pop(old, None)
        self._known[new] = new.since

    def closed(self) -> None:
        """The connection is gone, and what it copied waits; what others copy goes on."""
        for copy in frozenset(self._copies.values()):
            if copy.state in (CopyState.OPENING, CopyState.COPYING):
                copy.state = CopyState.WAITING
            copy.caught_up = False
        self.effects.clear()

    def _welcomed(self, message: Welcome, now: float) -> None:
        wanted = self.target.cluster
        if message.cluster != wanted:
            text = f"this is cluster {message.cluster!r}, wanted is {wanted!r}"
            raise ProtocolFault(FaultCode.WRONG_CLUSTER, text, "check the addresses of the nodes")
        self.node = message.node
        self._probe(now)

    # --- topics -------------------------------------------------------------------------------

    def _probe(self, now: float) -> None:
        """Ask what the topics are like now."""
        self._probe_at = now + PROBE_S
        asked = set(self._probes.values())
        for topic in self.target.topics:
            if topic not in asked:
                handle = self._new_handle()
                self._probes[handle] = topic
                self.effects.append(Send(OpenMerged(handle, topic, None, 0, Start.LATEST)))

    def copies_made(self, copies: Iterable[CopyT], now: float) -> None:
        """The copies of a topic that was found."""
        for copy in copies:
            if copy not in self._known:
                self._known[copy] = now
                is_patient = self.target.is_far or self._near.is_late
                if copy.state is CopyState.WAITING and self.node and not is_patient:
                    self._open(copy, now)

    def _new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    # --- opening ------------------------------------------------------------------------------

    def _open(self, copy: CopyT, now: float) -> None:
        handle = self._new_handle()
        self._copies[handle] = copy
        copy.enter(CopyState.OPENING, now)
        self.effects.append(FindPlace(handle, copy))

    def place_found(self, handle: int, place: StartAt | ResumePoint) -> None:
        """Where a copy is to begin, or ends."""
        log, rows = self._copies[handle].log, self._copies[handle].rows
        is_begun = isinstance(place, ResumePoint)
        if isinstance(place, StartAt):
            self._copies[handle].is_from_end = place.start is Start.LATEST
        at = (Start.POSITION, -log.next_offset, *place) if is_begun else place
        whose = handle, log.topic, log.topic_id, log.partition
        asked = OpenMerged(*whose, *at) if rows is None else OpenRows(*whose, *at, rows=rows)
        self.effects.append(Send(asked))

    def _opened(self, message: MergedStartsAt, now: float) -> None:
        handle = message.handle
        if self._looked(handle, message.end_offset, now):
            self.effects.append(Send(Close(handle)))
            return
        topic = self._probes.pop(handle, None)
        if topic is not None:
            self.effects.append(Send(Close(handle)))
            self.effects.append(TopicFound(topic, message.topic_id, message.partitions))
            return
        copy = self._copies.get(handle)
        if copy is None:
            return
        if copy.state is not CopyState.OPENING:
            self._close(handle)
            return
        copy.cluster_end = max(message.end_offset, copy.first_end or 0)
        if copy.is_begun:
            self.begun(copy, message, now)
        else:
            self.effects.append(BeginCopy(copy, message))

    def begun(self, copy: CopyT, at: MergedStartsAt, now: float) -> None:
        """It is settled where the copy begins: take what follows. Raises ProtocolFault."""
        if copy.log.end() != (at.base_offset, at.byte):
            self._begin_at_segment(copy, at, now)
            return
        self._receiver.expect(at.handle, at.base_offset, at.byte)
        copy.enter(CopyState.COPYING, now)
        copy.fault = None
        copy.refused_by.clear()
        if copy.first_end is None:
            self.effects.append(Send(ConfirmEnd(at.handle)))
        else:
            self._not_ready_since.pop(copy, None)
        self.effects.append(CopyChanged(copy))

    def _end_confirmed(self, message: EndConfirmed) -> None:
        """This node may have had less: the copy has not caught up before it has that, too."""
        copy = self._copies.get(message.handle)
        if copy is None or copy.state is not CopyState.COPYING:
            return
        end = copy.first_end = message.end_offset
        self._near.confirmed(copy, end)
        copy.cluster_end = max(end, copy.cluster_end or 0)
        copy.caught_up = copy.caught_up and copy.log.next_offset >= end
        self._not_ready_since.pop(copy, None)
        self.effects.append(CopyChanged(copy))

    def _begin_at_segment(self, copy: CopyT, at: MergedStartsAt, now: float) -> None:
        """The wanted offset lies inside a segment: ask for all of it. A copy of what the cluster
        has compacted since goes back to where the compacted segment begins.
        """
        if (at.base_offset, at.byte) < copy.log.end() and at.byte == 0:
            self.effects.append(CutCopy(copy, at.base_offset))
        elif copy.log.end() != (at.base_offset, 0):
            text = f"a copy that ends at {copy.log.end()} was opened at another place"
            raise ProtocolFault(FaultCode.PROTOCOL, f"{text}, {(at.base_offset, at.byte)}")
        self._close(at.handle)
        self._open(copy, now)

    def _let_go(self, handle: int) -> CopyT | None:
        self._receiver.forget(handle)
        return self._copies.pop(handle, None)

    def _close(self, handle: int) -> None:
        self._let_go(handle)
        self.effects.append(Send(Close(handle)))

    # --- copying ------------------------------------------------------------------------------

    def _sealed(self, message: SegmentSealed) -> None:
        copy = self._copies.get(message.handle)
        if copy is None or copy.state is not CopyState.COPYING:
            return
        base, next_offset = message.base_offset, message.next_offset
        self._receiver.sealed(message.handle, base, message.length, next_offset)
        if next_offset != copy.log.next_offset:
            text = f"segment {base} is followed by {next_offset}, "
            text += f"but its records end at {copy.log.next_offset}"
            raise ProtocolFault(FaultCode.PROTOCOL, text)
        self.effects.append(RollSegment(copy))

    def _archived(self, message: LogArchived) -> None:
        """The cluster has archived some of it."""
        copy = self._copies.get(message.handle)
        if copy is not None and copy.state in (CopyState.OPENING, CopyState.COPYING):
            self.effects.append(ArchiveCopy(copy, message))

    def archived(self, copy: CopyT, handle: int) -> None:
        """Continue where the copy ends after it has archived, which may be further ahead."""
        if self._receiver.expects(handle):
            self._receiver.jump(handle, *copy.log.end())

    # --- refusals -----------------------------------------------------------------------------

    def _refused(self, handle: int, refusal: Refusal, now: float) -> None:
        if self._not_looked(handle, refusal, now):
            return
        topic = self._probes.pop(handle, None)
        if topic is not None and refusal.code is FaultCode.NOT_LEADER:
            self.effects.append(HeldByOthers())
            return
        if topic is not None:
            self.effects.append(TopicRefused(topic, refusal))
            self._probe_at = min(self._probe_at, now + RETRY_S)
            return
        copy = self._let_go(handle)
        if copy is None or copy.state not in (CopyState.OPENING, CopyState.COPYING):
            return
        copy.fault, copy.caught_up = refusal, False
        if refusal.code is FaultCode.NOT_LEADER:
            copy.enter(CopyState.WAITING, now)
            copy.retry_at, self._not_before[copy] = now, now + PROBE_S
            self.effects += (HeldByOthers(), CopyChanged(copy))
            return
        if refusal.code is FaultCode.TOPIC_GONE:
            self._gone(copy, refusal.successor, now)
        else:
            copy.enter(CopyState.WAITING, now)
            copy.retry_at = now + RETRY_S
            self._consider_leaving(copy, refusal, now)
            self.effects.append(CopyChanged(copy))

    def _gone(self, copy: CopyT, successor: str, now: float) -> None:
        copy.successor = successor
        copy.enter(CopyState.GONE, now)
        if successor:
            self.effects.append(LogBegunAnew(copy))
        self.effects.append(CopyChanged(copy))

    def _consider_leaving(self, copy: CopyT, refusal: Refusal, now: float) -> None:
        """Go to another node if that may help this copy."""
        if refusal.code in DISAGREES:
            self._disagreed(copy, refusal)
        elif refusal.code is FaultCode.NOT_READY:
            since = self._not_ready_since.setdefault(copy, now)
            if now >= since + LAGGING_S:
                self.effects.append(LeaveNode())

    def _disagreed(self, copy: CopyT, refusal: Refusal) -> None:
        """This node cannot go on with the copy. Once every node has said so, it stops."""
        target = self.target
        is_news = target.address not in copy.refused_by
        copy.refused_by[target.address] = refusal
        if copy.refused_by.keys() >= target.addresses:
            copy.state = CopyState.STOPPED
            self.effects.append(CopyGivenUp(copy))
        elif is_news:
            self.effects.append(LeaveNode())


def _gone(successor: str | None) -> Refusal:
    what = "its log was restarted" if successor else "the topic was deleted"
    return Refusal(FaultCode.TOPIC_GONE, what, successor=successor or "")

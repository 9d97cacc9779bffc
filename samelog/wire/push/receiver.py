"""A node's end of one session on a push connection, as a pure state: who may push what, which runs
and inputs are open, and what is taken, refused and told.

The driver passes in requests when it is their turn, what the intake answers and tells, and the
time; after each call it sends `messages` in their order. What it has to acknowledge it adds to the
acknowledgements of the connection.

Invariant: nothing is taken for a session, topic or dedup id that the peer has no right to, and
nothing for a handle that has ended, or whose run is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from samelog.wire.bounds import TEXT_LIMIT_CHARACTERS, RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    NO_BATCH,
    AnyMessage,
    Close,
    EndRun,
    Hello,
    OpenInput,
    OpenRun,
    OpenSession,
    OpenTopic,
    Refused,
    RunClosed,
    RunOpened,
    SessionStartsAt,
    TopicGone,
    TopicOpened,
)
from samelog.wire.push.acks import Acknowledgements
from samelog.wire.push.effects import CHECKED, InputName, ProgressTold, RollByte, RunEnds
from samelog.wire.receiver import ResumePoint
from samelog.wire.refusals import RecordsRefused, RefusedBatch

MAX_HANDLES = 1 << 16
"""Open at once."""
MAX_RUNS = 16
"""Open at once: a publisher ends one before it opens the next."""
PARTED_RUNS = 64
"""Closed runs with parts that are yet to come, of which inputs may be opened."""
UPGRADE = "publish with a newer version of samelog"
ABOUT_BYTES = frozenset({FaultCode.TOPIC_GONE, FaultCode.INVALID_BATCH, FaultCode.TOO_MANY})
"""What is wrong with the bytes of one input only: its handle ends, not the session."""
ABOUT_START = frozenset({FaultCode.TOPIC_GONE, FaultCode.OUT_OF_RANGE})
"""The same, of where the sender's bytes begin."""

PushRequest = OpenRun | OpenInput | OpenTopic | EndRun | Close
"""What has to wait for its turn."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """The number the cluster gave to a run; `ends` counts only when it is closed. `parts`: those of
    the ends that data groups have yet to reach.
    """

    number: int
    closed: bool
    ends: RunEnds = field(default_factory=dict)
    parts: frozenset[InputName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedInput:
    """An input; `input` is the number the intake has for it. `end`: where its part of the run is
    closed, though the run may be open; then `position` and `merged` say nothing.
    """

    input: int
    topic_id: str
    partitions: int
    position: ResumePoint
    merged: RollByte
    end: RollByte | None = None


class PushRights(Protocol):
    """Who may publish what."""

    def may_push(self, identity: str, session: str) -> bool:
        """Whether it may be the publisher of this session."""

    def may_publish(self, identity: str, session: str, topic: str) -> bool:
        """Whether it may write to this topic in this session."""

    def may_use_dedup_id(self, identity: str, dedup_id: str) -> bool:
        """Whether its runs may carry this dedup id."""


class ReleaseKnowledge(Protocol):
    """What is known of runs behind which a newer one has begun."""

    def is_released(self, number: int, run_number: int, end: RollByte) -> bool:
        """Whether a majority has an input of a closed run merged-durable up to its end."""


@dataclass(slots=True)
class HeldInput:
    """What a handle stands for. `end` is where a closed run ends, or a closed part of it."""

    number: int
    name: InputName
    run_id: str
    run_number: int
    end: RollByte | None = None
    told: tuple[int, int, int] = (-1, -1, -1)
    """The last batch of which was told what was refused."""


class PushReceiver:
    """One session on one connection."""

    def __init__(
        self,
        opened: OpenSession,
        hello: Hello,
        identity: str,
        rights: PushRights,
        releases: ReleaseKnowledge,
        *,
        acks: Acknowledgements,
    ) -> None:
        """Raises ProtocolFault when the peer may not push this session. `acks`: of the connection
        that sessions share.
        """
        self.opened = opened
        self.session = opened.session
        self.identity = identity
        self._hears_refusals = hello.refusals
        self.messages: list[AnyMessage] = []
        """To be sent in this order; whoever does takes them off."""
        self.left: set[int] = set()
        """Inputs that no handle stands for any more, to be taken off likewise."""
        self._acks = acks
        self._rights = rights
        self._releases = releases
        self._runs: dict[str, OpenedRun] = {}
        self._inputs: dict[int, HeldInput] = {}
        self._handles: dict[int, list[int]] = {}
        """The intake's number of an input -> the handles of its runs."""
        self.ends: dict[str, dict[InputName, RollByte]] = {}
        """Run -> its ends that the peer has told so far; the driver takes a complete list off."""
        self._opening: set[int] = set()
        self._last_handle = -1
        """Handles up to it that are not open have ended; what is still under way for them is
        dropped.
        """
        if not rights.may_push(identity, self.session):
            raise self._denied(f"publish as session {self.session!r}")

    # --- requests -----------------------------------------------------------------------------

    def admit(self, request: PushRequest) -> bool:
        """It is a request's turn: whether the intake is to be asked. Raises ProtocolFault."""
        match request:
            case OpenRun(run_id=run_id, dedup_id=dedup_id):
                self._check_run(run_id, dedup_id)
                self._forget_runs(run_id)
            case OpenInput():
                return self._admit_input(request)
            case OpenTopic(topic=topic):
                if not self._rights.may_publish(self.identity, self.session, topic):
                    self.refused(request, self._may_not_publish(topic))
                    return False
            case EndRun():
                return not self._run(request.run_id).closed and self._has_all_ends(request)
            case Close(handle=handle):
                if handle in self._inputs:
                    self._forget(handle)
                return False
        return True

    def _has_all_ends(self, request: EndRun) -> bool:
        """Note ends of a run; whether they are all. Raises ProtocolFault (TOO_MANY)."""
        noted = self.ends.setdefault(request.run_id, {})
        noted.update({(end.topic, end.partition): (end.roll, end.byte) for end in request.ends})
        if sum(map(len, self.ends.values())) > MAX_HANDLES:
            text = f"more than {MAX_HANDLES} ends of runs on one connection"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "reconnect")
        return not request.more

    def _check_run(self, run_id: str, dedup_id: str | None) -> None:
        if dedup_id is not None and not self._rights.may_use_dedup_id(self.identity, dedup_id):
            raise self._denied(f"use dedup id {dedup_id!r}")
        is_open = (not run.closed for known, run in self._runs.items() if known != run_id)
        if sum(is_open) >= MAX_RUNS:
            text = f"more than {MAX_RUNS} runs of session {self.session!r} are open"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "end some first")

    def _forget_runs(self, run_id: str) -> None:
        """Forget closed runs of which a publisher that opens another run opens no inputs."""
        parted = [known for known, run in self._runs.items() if run.closed and run.parts]
        kept = {run_id, *parted[-PARTED_RUNS:]}
        self._runs = {
            known: run for known, run in self._runs.items() if known in kept or not run.closed
        }

    def _admit_input(self, request: OpenInput) -> bool:
        handle = request.handle
        if handle <= self._last_handle:
            text = f"handle {handle} is not above {self._last_handle}, the last one"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "number handles upwards")
        self._last_handle = handle
        if len(self._inputs) + len(self._opening) >= MAX_HANDLES:
            text = f"more than {MAX_HANDLES} handles of session {self.session!r}"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "close some first")
        refusal = self._refusal(request, self._run(request.run_id))
        if refusal is not None:
            self._refuse(handle, refusal)
            return False
        self._opening.add(handle)
        return True

    def _refusal(self, request: OpenInput, run: OpenedRun) -> ProtocolFault | None:
        if not self._rights.may_publish(self.identity, self.session, request.topic):
            return self._may_not_publish(request.topic)
        if request.topic_id is None and self.is_over(request):
            return self.nothing_of(request)
        return None

    def is_over(self, request: OpenInput) -> bool:
        """Whether the run is closed and has nothing in the partition."""
        run = self._run(request.run_id)
        return run.closed and (request.topic, request.partition) not in run.ends

    @staticmethod
    def nothing_of(request: OpenInput) -> ProtocolFault:
        """The refusal then, unless the topic was deleted."""
        text = f"the run is closed, and has nothing in {request.topic}-{request.partition}"
        return ProtocolFault(FaultCode.OUT_OF_RANGE, text)

    def _run(self, run_id: str) -> OpenedRun:
        run = self._runs.get(run_id)
        if run is None:
            text = f"run {run_id} is not open in this session"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "open the run first")
        return run

    def _may_not_publish(self, topic: str) -> ProtocolFault:
        return self._denied(f"publish to topic {topic!r} in session {self.session!r}")

    def _denied(self, what: str) -> ProtocolFault:
        text = f"{self.identity} may not {what}"
        return ProtocolFault(FaultCode.NOT_AUTHORISED, text, "grant it in the nodes' configuration")

    # --- what the intake answers --------------------------------------------------------------

    def run_opened(self, request: OpenRun, opened: OpenedRun) -> None:
        """The cluster knows the run."""
        self._runs[request.run_id] = opened
        if opened.closed:
            self._end_inputs(request.run_id, opened)
        told = _told_ends(opened) if opened.closed else ((), ())
        self.messages.append(RunOpened(request.run_id, opened.number, opened.closed, *told))

    def input_opened(self, request: OpenInput, opened: OpenedInput, now: float) -> None:
        """The intake takes an input, or tells how far it is, if its run is closed. What is known of
        it is told with what is heard in this turn.
        """
        handle, run = request.handle, self._runs[request.run_id]
        name = request.topic, request.partition
        is_over = run.closed and name not in run.parts
        end = run.ends.get(name, (0, 0)) if is_over else opened.end
        position, committed = opened.position, opened.merged
        if end is not None:
            position, committed = ResumePoint(*end, NO_BATCH, 0), end
        self._inputs[handle] = HeldInput(opened.input, name, request.run_id, run.number, end)
        self._handles.setdefault(opened.input, []).append(handle)
        self.left.discard(opened.input)
        self._opening.discard(handle)
        self.messages.append(_starts_at(handle, opened, position))
        self._acks.open(self.opened.channel, handle)
        self._acks.reached(self.opened.channel, handle, (committed, committed, (0, 0)), now)

    def topic_opened(self, request: OpenTopic, partitions: int, *, is_checked: bool) -> None:
        """A topic has so many partitions."""
        reason = CHECKED if is_checked else ""
        self.messages.append(TopicOpened(request.topic, partitions, reason))

    def refused(self, request: OpenInput | OpenTopic, fault: ProtocolFault) -> None:
        """A topic or an input is not to be had; the session goes on."""
        if isinstance(request, OpenTopic):
            text = fault.message[:TEXT_LIMIT_CHARACTERS]
            self.messages.append(TopicOpened(request.topic, 0, text))
        else:
            self._opening.discard(request.handle)
            self._refuse(request.handle, fault)

    # --- bytes --------------------------------------------------------------------------------

    def taking(self, handle: int) -> HeldInput | None:
        """What a handle stands for; None when nothing more is taken for it. Raises
        ProtocolFault.
        """
        held = self._inputs.get(handle)
        if held is None and (handle > self._last_handle or handle in self._opening):
            text = f"handle {handle} is not open"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "open it, and wait for its position")
        return held if held is not None and held.end is None else None

    def bytes_refused(self, handle: int, fault: ProtocolFault) -> None:
        """The intake has not taken what came. Raises ProtocolFault, which ends the session."""
        self._end_handle(handle, fault, ABOUT_BYTES)

    def start_refused(self, handle: int, fault: ProtocolFault) -> None:
        """Older bytes are needed here, which the sender does not have. Raises as
        `bytes_refused`.
        """
        self._end_handle(handle, fault, ABOUT_START)

    def _end_handle(self, handle: int, fault: ProtocolFault, about: frozenset[FaultCode]) -> None:
        """End a handle, if that is what the fault is about and it has not ended meanwhile."""
        if handle not in self._inputs:
            return
        if fault.code not in about:
            raise fault
        self._forget(handle)
        self._refuse(handle, fault)

    def _forget(self, handle: int) -> None:
        held = self._inputs.pop(handle)
        handles = self._handles[held.number]
        handles.remove(handle)
        if not handles:
            del self._handles[held.number]
            self.left.add(held.number)
        self._acks.forget(self.opened.channel, handle)

    def _refuse(self, handle: int, fault: ProtocolFault) -> None:
        """Say no to one handle; the others go on."""
        if fault.code is FaultCode.TOPIC_GONE:
            self.messages.append(TopicGone(handle))
        else:
            text, remedy = fault.message[:TEXT_LIMIT_CHARACTERS], fault.remedy
            remedy = remedy[:TEXT_LIMIT_CHARACTERS]
            self.messages.append(Refused(handle, fault.code, text, remedy))

    # --- what the intake tells ----------------------------------------------------------------

    def progressed(
        self, number: int, run: int, places: ProgressTold, now: float, *, can_wait: bool = False
    ) -> bool:
        """How far a run of an input is, which may complete older ones; whether acknowledgements are
        due at another time now. `can_wait`: another node tells the publisher the same.
        """
        is_changed = False
        for handle in self._handles.get(number, ()):
            held = self._inputs[handle]
            if held.run_number == run:
                reached = places
            elif held.run_number < run and held.end is not None:
                is_merged = self._releases.is_released(number, held.run_number, held.end)
                reached = held.end, held.end, held.end if is_merged else (0, 0)
            else:
                continue
            is_changed |= self._acks.reached(
                self.opened.channel, handle, reached, now, can_wait=can_wait
            )
        return is_changed

    def records_refused(self, number: int, batches: Sequence[RefusedBatch]) -> None:
        """Tell, once, what was refused of the runs of an input; that input is not for who would not
        keep it.
        """
        for handle in tuple(self._handles.get(number, ())):
            held = self._inputs[handle]
            news = [b for b in batches if b.run == held.run_number and b.place > held.told]
            if news and not self._hears_refusals:
                text = "records do not fit the schema (schema.enforce), and it cannot be told which"
                self._forget(handle)
                self._refuse(handle, ProtocolFault(FaultCode.UNSUPPORTED_VERSION, text, UPGRADE))
            elif news:
                held.told = news[-1].place
                self.messages += [RecordsRefused(handle, each) for each in news]

    def kept(self, handle: int) -> HeldInput | None:
        """Of what the sender has kept what was refused; None: the handle has ended."""
        return self._inputs.get(handle)

    def run_closed(
        self,
        session: str,
        run_id: str,
        ends: RunEnds,
        parts: frozenset[InputName] = frozenset(),
    ) -> None:
        """Tell it, once; nothing more is taken for the run, but parts that are yet to come to data
        groups.
        """
        run = self._runs.get(run_id)
        if session != self.session or run is None or run.closed:
            return
        closed = self._runs[run_id] = replace(run, closed=True, ends=ends, parts=parts)
        self._end_inputs(run_id, closed)
        self.messages.append(RunClosed(run_id, *_told_ends(closed)))

    def part_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """Nothing more is taken of what is named; the run goes on."""
        if session == self.session:
            for held in self._inputs.values():
                if held.run_id == run_id and held.name in ends:
                    held.end = ends[held.name]

    def _end_inputs(self, run_id: str, closed: OpenedRun) -> None:
        """The inputs of a closed run take nothing more, except for parts that are yet to come;
        the others report progress only.
        """
        self.ends.pop(run_id, None)
        for held in self._inputs.values():
            if held.run_id == run_id and held.name not in closed.parts:
                held.end = closed.ends.get(held.name, (0, 0))

    def topic_gone(self, number: int) -> None:
        """The handles of the topic's inputs end."""
        for handle in tuple(self._handles.get(number, ())):
            self._forget(handle)
            self.messages.append(TopicGone(handle))

    def input_moved(self, number: int) -> None:
        """The handles of an input end, whose partition goes to other nodes."""
        fault = ProtocolFault(FaultCode.NOT_READY, "the partition goes to other nodes", "retry")
        for handle in tuple(self._handles.get(number, ())):
            self._forget(handle)
            self._refuse(handle, fault)

    def closed(self) -> None:
        """The session is over."""
        self._inputs.clear()
        self._handles.clear()
        self._acks.close(self.opened.channel)


def _told_ends(run: OpenedRun) -> tuple[tuple[RunEnd, ...], tuple[RunEnd, ...]]:
    """The ends of a closed run, and those of parts, as they go over the wire."""
    ends = [RunEnd(*name, *place) for name, place in sorted(run.ends.items())]
    parts = tuple(end for end in ends if end[:2] in run.parts)
    return tuple(end for end in ends if end[:2] not in run.parts), parts


def _starts_at(handle: int, opened: OpenedInput, position: ResumePoint) -> SessionStartsAt:
    """Where DATA starts; a batch that lies in another file says nothing about this one."""
    has_batch = 0 <= position.last_start < position.byte
    return SessionStartsAt(
        handle=handle,
        topic_id=opened.topic_id,
        partitions=opened.partitions,
        roll=position.file,
        byte=position.byte,
        last_start=position.last_start if has_batch else NO_BATCH,
        last_crc=position.last_crc if has_batch else 0,
    )

"""The publisher's end of a push connection, as a pure state: the runs of a session, one by one.

A run is opened, shipped, and ended once it is over here and all of it was sent; the next one is
opened when the cluster has closed it. Parts of a closed run may be yet to come to data groups: they
are shipped side by side with the next runs. A run is ended, too, when all that is left is of inputs
whose groups do not answer. A damaged run is shipped in parts, each under a run id of its own
(docs/formats.md, "Damage at a publisher"). The handles of closed runs stay until all of them is
merged, because only their acknowledgements tell when the files may be released.

The driver passes in messages, answers and the time; after each call it carries out `effects` in
their order, and continues with `next_step` as long as the connection takes more.

Invariant: nothing of a run is sent before the node has opened it, and nothing of a newer run before
the older one is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from samelog.format.directory_files import RunFile
from samelog.wire.bounds import ENDS_TOLD, Ack
from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import LONGEST_IN_DATA_BYTES
from samelog.wire.holds import DecideHolds
from samelog.wire.messages import (
    AnyMessage,
    Close,
    EndRun,
    Holders,
    OpenInput,
    OpenRun,
    Refused,
    RollSealed,
    RunClosed,
    RunOpened,
    SessionStartsAt,
    TopicGone,
    TopicOpened,
    Welcome,
)
from samelog.wire.push.effects import (
    CHECKED,
    ClusterKnowledge,
    HoldersTold,
    HoldsDecided,
    InputIsGone,
    InputName,
    InputState,
    KeepRefused,
    ListFiles,
    PushEffect,
    PushPhase,
    Reached,
    RollByte,
    RunEnds,
    RunIsClosed,
    RunIsOpen,
    ScanInput,
    SessionView,
    ShipInput,
    ShippedInput,
    StatusChanged,
    TopicTold,
    Unfollow,
)
from samelog.wire.push.inputs import OpenHandle, RunInputs, by_name, places_of
from samelog.wire.push.layout import Layout
from samelog.wire.push.topics import AskedTopics
from samelog.wire.refusals import RecordsRefused
from samelog.wire.sender import ReadRange, Sender, SharedWindow

READ_BYTES = 1 << 20
RUN_ANSWER_S = 90.0
ASK_AGAIN_S = 1.0
TRAILING_MOST = 32
"""Closed runs of which parts are shipped; then the cluster opens no more."""


class _Watched(NamedTuple):
    """An input of a closed run whose end is yet to be merged."""

    run: int
    name: InputName
    end: RollByte
    layout: Layout | None
    topic_id: str | None
    """The topic that the handle was opened for; None: the node has not named it."""


class PushSender:
    """One session on one connection."""

    def __init__(
        self,
        session: SessionView,
        cluster: ClusterKnowledge,
        cluster_name: str,
        window: SharedWindow,
        again: Callable[[], None],
    ) -> None:
        """`window`: of the connection; `again` is called when other sessions have made room."""
        self.phase = PushPhase.GREETING
        self.node = ""
        self.effects: list[PushEffect] = []
        """To be carried out in this order; whoever does takes them off."""
        self._topics = AskedTopics(cluster, self.effects)
        stream = Sender(window_bytes=0, read_bytes=1, shared=window, again=again)
        handles = count()
        self.inputs = RunInputs(
            session, cluster, self._topics, self.effects, stream, handles=handles
        )
        """Those of the run that is open."""
        self._session = session
        self._cluster = cluster
        self.trailing: list[RunInputs] = []
        """Those of closed runs, oldest first, that data groups have yet to take."""
        self._cluster_name = cluster_name
        self._since = 0.0
        self._asked_at = 0.0
        self._record: RunFile | None = None
        """The run that is being opened, shipped or ended."""
        self._closed: set[str] = set()
        """The ids of runs that the cluster has closed."""
        self._listed_at_end = False
        self._watched: dict[int, _Watched] = {}
        """Handle -> what is not wholly merged yet of closed runs."""

    @property
    def _all(self) -> tuple[RunInputs, ...]:
        """Of all runs that are shipped, oldest first."""
        return (*self.trailing, self.inputs)

    def _of_run(self, run: int) -> RunInputs | None:
        found = (each for each in self._all if each.run is not None and each.run.run == run)
        return next(found, None)

    def _of_handle(self, handle: int) -> RunInputs:
        for each in self.trailing:
            if handle in each.by_handle:
                return each
        return self.inputs

    def of(self, shipped: ShippedInput) -> RunInputs:
        """The inputs of the run that an input is shipped in."""
        for each in self.trailing:
            if each.has(shipped):
                return each
        return self.inputs

    @property
    def problems(self) -> dict[InputName, str]:
        """Inputs that cannot be shipped at the moment, and why."""
        found: dict[InputName, str] = {}
        for each in self._all:
            found |= each.problems
        return found

    def refuses(self, run: int, name: InputName, now: float) -> bool | None:
        """Whether the node has refused an input of a run for so long that it will not take it; None
        if it has no say.
        """
        inputs = self._of_run(run)
        return False if inputs is None else inputs.refuses(name, now)

    def lacks_start(self, run: int, name: InputName, now: float) -> bool | None:
        """Whether the node wants bytes of an input of a run that are lost; None: it has no say."""
        inputs = self._of_run(run)
        return False if inputs is None else inputs.lacks_start(name, now)

    # --- what happens -------------------------------------------------------------------------

    def receive(self, message: AnyMessage, now: float) -> None:
        """Anything a push server sends. Raises ProtocolFault."""
        match message:
            case SessionStartsAt():
                self._opened(message)
            case Refused() | TopicGone():
                self._not_opened(message, now)
            case RunOpened():
                self._run_opened(message, now)
            case RunClosed():
                self._run_closed(message, now)
            case TopicOpened() | Holders() | RecordsRefused() | DecideHolds():
                self._told(message)
            case Welcome():
                self._welcomed(message, now)
            case _:
                raise _unexpected(message)

    def _told(self, message: TopicOpened | Holders | RecordsRefused | DecideHolds) -> None:
        if isinstance(message, RecordsRefused):
            self._refused(message)
        elif isinstance(message, DecideHolds):
            self.effects.append(HoldsDecided(message.continues, message.topic_ids))
        elif isinstance(message, TopicOpened):
            is_checked = message.reason == CHECKED
            self.effects.append(TopicTold(message.topic, message.partitions, is_checked))
        else:
            self.effects.append(HoldersTold(message.nodes))

    def session_changed(self, now: float, name: InputName | None = None) -> None:
        """Runs or inputs, or this input only, have come or gone."""
        for trailing in self.trailing:
            trailing.open_new_inputs(now, name)
            self.effects.append(SendMore())
        if self.phase is PushPhase.IDLE:
            self._next_run(now)
        elif self.inputs.run is not None:
            self.inputs.open_new_inputs(now, name)
            self.effects.append(SendMore())

    def time_passed(self, now: float) -> None:
        """Ask again, open again what was blocked. Raises ProtocolFault when the node owes an
        answer.
        """
        if self.phase is PushPhase.OPENING_RUN and now >= self._since + RUN_ANSWER_S:
            text = f"the node has not opened a run in {RUN_ANSWER_S:g} s"
            raise ProtocolFault(FaultCode.TIMEOUT, text)
        if self.phase is PushPhase.ENDING and now >= self._asked_at + ASK_AGAIN_S:
            self._ask_for_run(now)
        if self._may_ask:
            self._topics.ask_again(now)
        for inputs in self._all:
            if inputs.run is not None:
                inputs.time_passed(now)
                self.effects.append(SendMore())
        if self.trailing:
            self._settle_trailing()
            if self.phase is PushPhase.IDLE:  # there may be room for another run
                self._next_run(now)

    def ask_topics(self, now: float) -> None:
        """The client wants to know more topics."""
        if self._may_ask:
            self._topics.ask(now)

    @property
    def _may_ask(self) -> bool:
        return self.phase not in (PushPhase.GREETING, PushPhase.OVER)

    def forget(self, name: InputName, now: float) -> None:
        """An input is shipped differently from now on; it is opened again if it may be shipped."""
        if self.phase is PushPhase.ENDING:  # the announced end has changed
            self._enter(PushPhase.SHIPPING, now)
        for handle in [handle for handle, each in self._watched.items() if each.name == name]:
            del self._watched[handle]
            self._send(Close(handle))
        self._topics.forget(name[0])
        for trailing in tuple(self.trailing):
            self._close_part(trailing, name)
        shipped = self.inputs.forget(name)
        if shipped is not None:
            self.effects.append(Unfollow((shipped,)))

    def closed(self) -> None:
        """The connection is gone."""
        self.phase = PushPhase.OVER
        for inputs in self._all:
            inputs.leave_run()
        self.trailing.clear()
        self.inputs.sender.close()

    @property
    def is_at_rest(self) -> bool:
        """Whether time alone brings nothing that is due soon."""
        if not all(each.is_at_rest for each in self.trailing):
            return False
        return self.phase in (PushPhase.IDLE, PushPhase.OVER) or (
            self.phase is PushPhase.SHIPPING and self.inputs.is_at_rest
        )

    # --- runs ---------------------------------------------------------------------------------

    def _welcomed(self, message: Welcome, now: float) -> None:
        if self.phase is not PushPhase.GREETING:
            raise _unexpected(message)
        if message.cluster != self._cluster_name:
            text = f"this is cluster {message.cluster!r}, wanted is {self._cluster_name!r}"
            raise ProtocolFault(FaultCode.WRONG_CLUSTER, text, "check the addresses of the nodes")
        self.node = message.node
        self.inputs.sender.welcomed(
            window_bytes=message.window_bytes,
            read_bytes=min(max(READ_BYTES, message.max_batch_bytes), LONGEST_IN_DATA_BYTES),
        )
        self.inputs.sender.takes_bytes = message.max_batch_bytes
        self.phase = PushPhase.IDLE
        self.ask_topics(now)
        self._next_run(now)

    def _next_run(self, now: float) -> None:
        """Open the oldest run that is not closed."""
        self._record = self._oldest_open()
        self._enter(PushPhase.IDLE if self._record is None else PushPhase.OPENING_RUN, now)
        self._ask_for_run(now)

    def _oldest_open(self) -> RunFile | None:
        if len(self.trailing) >= TRAILING_MOST:
            return None
        for known in self._session.runs:
            if known.run_id not in self._closed:
                return known
            if self._session.goes_on(known):
                return None  # its next part comes before any newer run
        return None

    def _ask_for_run(self, now: float) -> None:
        self._asked_at = now
        run = self._record
        if run is not None:
            self._send(OpenRun(run.run, run.run_id, run.dedup_id, run.dedup_base, run.stage))

    def _run_opened(self, message: RunOpened, now: float) -> None:
        run = self._record
        if run is None or message.run_id != run.run_id:
            return  # asked again, and told meanwhile
        if message.closed:
            self._run_closed(message, now)
        elif self.phase is PushPhase.OPENING_RUN:
            self._enter(PushPhase.SHIPPING, now)
            self.effects.append(RunIsOpen(run, message.number))
            self._listed_at_end = False
            self.inputs.begin_run(run, now)
            self.effects.append(SendMore())

    def _run_closed(self, message: RunClosed | RunOpened, now: float) -> None:
        """The cluster has closed the current run: continue to ship parts that are yet to come to
        data groups, and watch the rest until it is merged.
        """
        run = self._record
        if run is None or run.run_id != message.run_id:
            return  # told before
        parts = by_name(message.parts)
        places = {**by_name(message.ends), **parts}
        self._closed.add(run.run_id)
        if self._session.is_current(run):
            handles = self._trail(run, parts, now)
            self._watch(run, places, handles)
        else:  # the next part has begun, so all of this one is merged
            self.effects += [Send(Close(each.number)) for each in self.inputs.leave_run().values()]
        self.effects.append(RunIsClosed(run, places, frozenset(parts)))
        self._record = None  # the next run waits: damage where this one was closed may follow
        self._enter(PushPhase.IDLE, now)

    def _trail(self, run: RunFile, parts: RunEnds, now: float) -> dict[InputName, OpenHandle]:
        """Continue to ship these parts of a closed run, as far as they are not merged. Return the
        handles of the other inputs.
        """
        merged, to_ship = self._cluster.merged, set(self._session.to_ship(run.run))
        ends = {
            name: end
            for name, end in parts.items()
            if name in to_ship and merged(run.run, name) < end
        }
        if not ends:
            return self.inputs.leave_run()
        inputs = self.inputs
        inputs.parts = ends
        handles = inputs.leave([name for name in inputs.names if name not in ends])
        self.trailing.append(inputs)
        self.inputs = inputs.another()
        inputs.begin_run(run, now)
        self.effects.append(SendMore())
        return handles

    def _settle_trailing(self) -> None:
        """Close parts of closed runs that are merged, as any node has said."""
        for inputs in tuple(self.trailing):
            run, merged = inputs.run, self._cluster.merged
            for name, end in tuple(inputs.parts.items() if run and inputs.parts else ()):
                if run is not None and merged(run.run, name) >= end:
                    self._close_part(inputs, name)

    def _close_part(self, inputs: RunInputs, name: InputName) -> None:
        """Ship nothing more of a part of a closed run, if it is one."""
        if inputs.parts is None or inputs.parts.pop(name, None) is None:
            return
        for handle in inputs.leave((name,)).values():
            self._send(Close(handle.number))
        if not inputs.parts:
            inputs.leave_run()
            self.trailing.remove(inputs)

    def _trails(self, run: int, name: InputName) -> bool:
        inputs = self._of_run(run)
        return inputs is not None and inputs.parts is not None and name in inputs.parts

    def _watch(self, run: RunFile, ends: RunEnds, handles: dict[InputName, OpenHandle]) -> None:
        """Keep the handles of what is still to be merged; open those that are not."""
        for name in sorted(handles.keys() | (ends.keys() & set(self._session.inputs_of(run.run)))):
            handle = handles.get(name)
            end = ends.get(name, (0, 0))
            is_merged = self._cluster.merged(run.run, name) >= end
            if self._trails(run.run, name):
                continue
            if is_merged and handle is not None:
                self._send(Close(handle.number))
            elif not is_merged:
                self._watch_input(run, name, end, handle or self._ask_for(run, name))
        for name in self._session.to_ship(run.run):
            if name not in ends and self._session.topic_id(name) is not None:
                # the cluster has closed the run without the input: was its topic deleted before?
                self._watch_input(run, name, (0, 0), self._ask_for(run, name))

    def _ask_for(self, run: RunFile, name: InputName) -> OpenHandle:
        handle = OpenHandle(next(self.inputs.handles), self._session.topic_id(name))
        self._send(OpenInput(handle.number, *name, run.run_id, handle.topic_id))
        return handle

    def _watch_input(
        self, run: RunFile, name: InputName, end: RollByte, handle: OpenHandle
    ) -> None:
        layout = self._session.tail(run.run, name).layout
        self._watched[handle.number] = _Watched(run.run, name, end, layout, handle.topic_id)

    def _enter(self, phase: PushPhase, now: float) -> None:
        self.phase, self._since = phase, now
        self.effects.append(StatusChanged())

    def _send(self, message: AnyMessage) -> None:
        self.effects.append(Send(message))

    # --- inputs -------------------------------------------------------------------------------

    def _opened(self, message: SessionStartsAt) -> None:
        """The node names the topic of a handle. A node that lags may know only a former one, whose
        positions say nothing of bytes that follow.
        """
        handle, topic_id = message.handle, message.topic_id
        watched = self._watched.get(handle)
        if watched is None:
            self._of_handle(handle).opened(message)
        elif self._session.is_former(watched.name, topic_id):
            del self._watched[handle]
            self._send(Close(handle))
        else:
            self._watched[handle] = watched._replace(topic_id=topic_id)

    def _not_opened(self, message: Refused | TopicGone, now: float) -> None:
        is_gone = isinstance(message, TopicGone) or message.code is FaultCode.TOPIC_GONE
        watched = self._watched.pop(message.handle, None)
        if watched is not None:
            if is_gone and watched.topic_id is not None:
                self.effects.append(InputIsGone(watched.run, watched.name, watched.topic_id))
            return
        inputs = self._of_handle(message.handle)
        shipped = inputs.by_handle.get(message.handle)
        if shipped is None:
            return
        if isinstance(message, TopicGone) or is_gone:
            inputs.gone(shipped, now)
            if shipped.state is InputState.GONE:
                self._close_part(inputs, shipped.name)
        else:
            self._refused_input(inputs, shipped, message, now)
        self.effects += (StatusChanged(), SendMore())

    def _refused_input(
        self, inputs: RunInputs, shipped: ShippedInput, message: Refused, now: float
    ) -> None:
        inputs.refused(shipped, message, now)
        if self.phase is PushPhase.ENDING and inputs is self.inputs:
            self._enter(PushPhase.SHIPPING, now)  # the named end may lie in refused bytes

    def acknowledged(self, message: Ack) -> None:
        """The node tells how far it and the cluster are with a handle."""
        inputs = self._of_handle(message.handle) if self.trailing else self.inputs
        shipped = inputs.by_handle.get(message.handle)
        if shipped is not None and inputs.run is not None:
            inputs.acknowledged(shipped, message)
            if inputs.parts and places_of(message)[2] >= inputs.parts[shipped.name]:
                self._close_part(inputs, shipped.name)
            return
        places = places_of(message)
        merged = places[2]
        watched = self._watched.get(message.handle)
        if watched is not None:
            self.effects.append(Reached(watched.run, watched.name, places, watched.layout))
            if merged >= watched.end:
                del self._watched[message.handle]
                self._send(Close(message.handle))

    def _refused(self, message: RecordsRefused) -> None:
        """Records of a batch will never be merged."""
        handle, inputs = message.handle, self._of_handle(message.handle)
        shipped, run = inputs.by_handle.get(handle), inputs.run
        if shipped is not None and run is not None:
            place = run.run, shipped.name
        elif (watched := self._watched.get(handle)) is not None:
            place = watched.run, watched.name
        else:
            return
        self.effects.append(KeepRefused(handle, *place, message.batch))

    # --- the end of a run ---------------------------------------------------------------------

    def rest(self, now: float) -> None:
        """Nothing to send just now: perhaps that was all of the run."""
        run = self.inputs.run
        if self.phase is PushPhase.ENDING and self.inputs.has_named_damage:
            self._enter(PushPhase.SHIPPING, now)
        if self.phase is not PushPhase.SHIPPING or run is None or not self._may_end(run.run, now):
            return
        if not self._listed_at_end or self._session.has_unnoted_damage(run.run):
            self.effects.append(ListFiles(None))
            return
        self._enter(PushPhase.ENDING, now)
        self._asked_at = now
        ends = self.inputs.name_ends()
        for start in range(0, len(ends) or 1, ENDS_TOLD):
            stop = start + ENDS_TOLD
            self._send(EndRun(run.run_id, ends[start:stop], more=stop < len(ends)))

    def _may_end(self, run: int, now: float) -> bool:
        if not self._session.is_over(run) or self._session.stays_open(run):
            return False
        if self.inputs.is_complete:
            return True
        next_waits = self._session.runs[-1].run > run
        return next_waits and self.inputs.is_held_up(now, is_listed=self._listed_at_end)

    def next_step(self) -> ShipInput | ScanInput | RollSealed | None:
        """What to do next: ship, look for more, say that a roll is sent; None: nothing, or the
        window is full.
        """
        wanted = self.inputs.sender.next_read()
        if wanted is None:
            inputs = self._unscanned() if self.trailing else self.inputs
            if not (inputs.unscanned and self.inputs.sender.has_room):
                return None
            shipped = next(iter(inputs.unscanned))
            del inputs.unscanned[shipped]
            return ScanInput(shipped)
        inputs = self._of_handle(wanted.handle) if self.trailing else self.inputs
        shipped = inputs.by_handle[wanted.handle]
        if isinstance(wanted, ReadRange):
            place = wanted.file, wanted.byte
            return ShipInput(shipped, *place, wanted.limit_bytes, is_part=wanted.is_part)
        inputs.offer(shipped)
        return RollSealed(wanted.handle, wanted.file, wanted.length)

    def _unscanned(self) -> RunInputs:
        return next((each for each in self.trailing if each.unscanned), self.inputs)

    @property
    def has_more(self) -> bool:
        """Whether there may be more to do at once."""
        return bool(self.inputs.sender.ready) or any(each.unscanned for each in self._all)

    def files_listed(self, shipped: ShippedInput | None, now: float, *, is_sure: bool) -> None:
        """The answer to ListFiles; `is_sure`: all could be listed."""
        if shipped is not None:
            self.of(shipped).listed(shipped, now)
            return
        self._listed_at_end = is_sure
        if is_sure and self.inputs.run is not None:
            self.inputs.scan_all(now)
            self.effects.append(SendMore())


def _unexpected(message: AnyMessage) -> ProtocolFault:
    return ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}")

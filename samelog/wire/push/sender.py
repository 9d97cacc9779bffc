"""The publisher's end of a push connection, as a pure state: the runs of a session, one by one.

A run is opened, shipped, and ended once it is over here and all of it was sent; the next one is
opened when the cluster has closed it. A damaged run is shipped in parts, each under a
run id of its own (docs/formats.md, "Damage at a publisher"). The handles of closed runs stay until
all of them is merged, because only their acknowledgements tell when the files may be released.

The driver passes in messages, answers and the time; after each call it carries out `effects` in
their order, and goes on with `inputs.next_step` as long as the connection takes more.

Invariant: nothing of a run is sent before the node has opened it, and nothing of a newer run before
the older one is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from samelog.format.directory_files import RunFile
from samelog.wire.bounds import ENDS_TOLD, Ack, RunEnd
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
    KeepRefused,
    ListFiles,
    PushEffect,
    PushPhase,
    Reached,
    RollByte,
    RunEnds,
    RunIsClosed,
    RunIsOpen,
    SessionView,
    ShippedInput,
    StatusChanged,
    TopicTold,
)
from samelog.wire.push.inputs import OpenHandle, RunInputs, by_name, places_of
from samelog.wire.push.layout import Layout
from samelog.wire.push.topics import AskedTopics
from samelog.wire.refusals import RecordsRefused
from samelog.wire.sender import Sender, SharedWindow

READ_BYTES = 1 << 20
RUN_ANSWER_S = 90.0
ASK_AGAIN_S = 1.0


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
        self.inputs = RunInputs(
            session,
            cluster,
            self._topics,
            self.effects,
            Sender(window_bytes=0, read_bytes=1, shared=window, again=again),
        )
        self._session = session
        self._cluster = cluster
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

    def refuses(self, run: int, name: InputName, now: float) -> bool | None:
        """Whether the node has refused an input of a run for so long that it will not take it; None
        if it has no say.
        """
        shipped = self.inputs.run
        if shipped is None or shipped.run != run:
            return False
        return self.inputs.refuses(name, now)

    def lacks_start(self, run: int, name: InputName, now: float) -> bool | None:
        """Whether the node wants bytes of an input of a run that are lost; None: it has no say."""
        shipped = self.inputs.run
        if shipped is None or shipped.run != run:
            return False
        return self.inputs.lacks_start(name, now)

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
                self._run_closed(message.run_id, message.ends, now)
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
        if self.inputs.run is not None:
            self.inputs.time_passed(now)
            self.effects.append(SendMore())

    def ask_topics(self, now: float) -> None:
        """The client wants to know more topics."""
        if self._may_ask:
            self._topics.ask(now)

    @property
    def _may_ask(self) -> bool:
        return self.phase not in (PushPhase.GREETING, PushPhase.OVER)

    def forget(self, name: InputName, now: float) -> ShippedInput | None:
        """An input is shipped differently from now on; it is opened again if it may be shipped."""
        if self.phase is PushPhase.ENDING:  # the announced end has changed
            self._enter(PushPhase.SHIPPING, now)
        for handle in [handle for handle, each in self._watched.items() if each.name == name]:
            del self._watched[handle]
            self._send(Close(handle))
        self._topics.forget(name[0])
        return self.inputs.forget(name)

    def closed(self) -> None:
        """The connection is gone."""
        self.phase = PushPhase.OVER
        self.inputs.leave_run()
        self.inputs.sender.close()

    @property
    def is_at_rest(self) -> bool:
        """Whether time alone brings nothing that is due soon."""
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
        self.inputs.takes_bytes = message.max_batch_bytes
        self.phase = PushPhase.IDLE
        self.ask_topics(now)
        self._next_run(now)

    def _next_run(self, now: float) -> None:
        """Open the oldest run that is not closed."""
        self._record = self._oldest_open()
        self._enter(PushPhase.IDLE if self._record is None else PushPhase.OPENING_RUN, now)
        self._ask_for_run(now)

    def _oldest_open(self) -> RunFile | None:
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
            self._run_closed(message.run_id, message.ends, now)
        elif self.phase is PushPhase.OPENING_RUN:
            self._enter(PushPhase.SHIPPING, now)
            self.effects.append(RunIsOpen(run, message.number))
            self._listed_at_end = False
            self.inputs.begin_run(run, now)
            self.effects.append(SendMore())

    def _run_closed(self, run_id: str, ends: tuple[RunEnd, ...], now: float) -> None:
        """The cluster has closed the run in hand: keep an eye on what is not merged of it."""
        run = self._record
        if run is None or run.run_id != run_id:
            return  # told before
        places = by_name(ends)
        self._closed.add(run.run_id)
        handles = self.inputs.leave_run()
        if self._session.is_current(run):
            self._watch(run, places, handles)
        else:  # the next part has begun, so all of this one is merged
            self.effects += [Send(Close(handle.number)) for handle in handles.values()]
        self.effects.append(RunIsClosed(run, places))
        self._next_run(now)

    def _watch(self, run: RunFile, ends: RunEnds, handles: dict[InputName, OpenHandle]) -> None:
        """Keep the handles of what is still to be merged; open those that are not."""
        for name in sorted(handles.keys() | (ends.keys() & set(self._session.inputs_of(run.run)))):
            handle = handles.get(name)
            end = ends.get(name, (0, 0))
            is_merged = self._cluster.merged(run.run, name) >= end
            if is_merged and handle is not None:
                self._send(Close(handle.number))
            elif not is_merged:
                self._watch_input(run, name, end, handle or self._ask_for(run, name))
        for name in self._session.to_ship(run.run):
            if name not in ends and self._session.topic_id(name) is not None:
                # the cluster has closed the run without the input: was its topic deleted before?
                self._watch_input(run, name, (0, 0), self._ask_for(run, name))

    def _ask_for(self, run: RunFile, name: InputName) -> OpenHandle:
        handle = OpenHandle(self.inputs.new_handle(), self._session.topic_id(name))
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
            self.inputs.opened(message)
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
        shipped = self.inputs.by_handle.get(message.handle)
        if shipped is None:
            return
        if isinstance(message, TopicGone) or is_gone:
            self.inputs.gone(shipped, now)
        else:
            self.inputs.refused(shipped, message, now)
            if self.phase is PushPhase.ENDING:  # the end that was told may lie in what is refused
                self._enter(PushPhase.SHIPPING, now)
        self.effects += (StatusChanged(), SendMore())

    def acknowledged(self, message: Ack) -> None:
        """The node tells how far it and the cluster are with a handle."""
        shipped = self.inputs.by_handle.get(message.handle)
        if shipped is not None and self._record is not None:
            self.inputs.acknowledged(shipped, message)
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
        handle, shipped = message.handle, self.inputs.by_handle.get(message.handle)
        if shipped is not None and self._record is not None:
            place = self._record.run, shipped.name
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
        if self.phase is not PushPhase.SHIPPING or run is None or not self._may_end(run.run):
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

    def _may_end(self, run: int) -> bool:
        is_sent = self._session.is_over(run) and self.inputs.is_complete
        return is_sent and not self._session.stays_open(run)

    def files_listed(self, shipped: ShippedInput | None, now: float, *, is_sure: bool) -> None:
        """The answer to ListFiles; `is_sure`: all could be listed."""
        if shipped is not None:
            self.inputs.listed(shipped, now)
            return
        self._listed_at_end = is_sure
        if is_sure and self.inputs.run is not None:
            self.inputs.scan_all(now)
            self.effects.append(SendMore())


def _unexpected(message: AnyMessage) -> ProtocolFault:
    return ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}")

"""The publisher's end of one session on a push connection: does what `samelog.wire.push.sender`
decides.

Invariant: nothing is decided here; the session's files are only read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from samelog.format.directory_files import RunFile
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.replicator.handler import ReplicatorHandler, fail
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.session_tail import RunTail
from samelog.replicator.turns import Turns
from samelog.runtime.clock import Clock
from samelog.runtime.loop import spawn
from samelog.runtime.network.channel import Channel
from samelog.store.disk.disk_errors import DiskFault, NoSuchFile
from samelog.wire.bounds import Ack, Holder
from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import ProtocolFault
from samelog.wire.frames import LONGEST_IN_DATA_BYTES, PART_BYTES
from samelog.wire.holds import HeldPart, SessionHolds
from samelog.wire.messages import AnyMessage, Welcome
from samelog.wire.push.effects import (
    BeginAt,
    Bind,
    ClusterKnowledge,
    FindBatch,
    Follow,
    Forked,
    HoldersTold,
    HoldsDecided,
    InputIsGone,
    InputName,
    KeepRefused,
    ListFiles,
    LoseStart,
    News,
    ProgressTold,
    PushPhase,
    Reached,
    RunEnds,
    RunIsClosed,
    RunIsOpen,
    ScanInput,
    ShipInput,
    ShippedInput,
    StatusChanged,
    TopicTold,
    Unfollow,
)
from samelog.wire.push.layout import Layout
from samelog.wire.push.sender import PushSender
from samelog.wire.refusals import RefusalsKept, RefusedBatch
from samelog.wire.sender import SharedWindow


class PushEvents(ClusterKnowledge, Protocol):
    """What a push client does with what its conversations hear."""

    def knows_cluster(self, cluster_id: str) -> bool:
        """Whether the session was shipped to the cluster with this id (empty: it has none yet)."""

    async def on_cluster(self, cluster_id: str) -> None:
        """Note durably that the node's cluster has this id. Raises ProtocolFault if the session
        belongs to another cluster, LogFormatError.
        """

    def on_reached(
        self, run: int, name: InputName, places: ProgressTold, layout: Layout | None
    ) -> None:
        """A node tells durable, acknowledged, merged, as `layout` counts."""

    async def on_refused(self, run: int, name: InputName, batch: RefusedBatch) -> None:
        """Keep, durably, what was refused of a batch. Raises LogFormatError."""

    def on_run_opened(self, run: RunFile, number: int) -> None:
        """A node has opened a run, to which the cluster gave this number."""

    def on_run_closed(self, run: RunFile, ends: RunEnds, parts: Container[InputName] = ()) -> None:
        """The cluster has closed a run, or a part of it; told by every node. `parts`: inputs that
        are yet to come to data groups, and not committed up to their ends.
        """

    def on_topic_gone(self, run: int, name: InputName, topic_id: str) -> None:
        """The cluster deleted the topic that an input was opened for."""

    def on_topic_told(self, topic: str, partitions: int, *, is_checked: bool) -> None:
        """How many partitions a topic has, by one node; 0: it cannot say. `is_checked`: what is
        published to it is to be.
        """

    def on_holders(self, nodes: Sequence[Holder]) -> None:
        """These nodes have a partition that this one has not."""

    def on_holds_decided(self, topic_ids: Sequence[str], *, continues: bool) -> None:
        """An operator decides on what is held for these deleted topics."""

    def on_fork(self, fault: ProtocolFault) -> None:
        """A node holds other bytes than this side at the same place."""

    def on_status(self) -> None:
        """The phase or a problem of a conversation has changed."""


class PushConversation(ReplicatorHandler):
    """One session at one node. Implements transport.Handler, for its channel."""

    def __init__(
        self,
        connection: Channel,
        session: LocalSession,
        events: PushEvents,
        clock: Clock,
        *,
        cluster: str,
        turns: Turns,
        window: SharedWindow,
        on_over: Callable[[Exception | None], None],
    ) -> None:
        """`turns` and `window` are of the connection that sessions share."""
        self._connection = connection
        self._session = session
        self._events = events
        self._now = clock.now
        self._on_over = on_over
        self._turn = turns.join(connection, self._step, self._rest)
        self._sender = PushSender(session, events, cluster, window, self._turn.work_later)
        self._writing: set[asyncio.Task[None]] = set()
        """Tasks that wait for small files to be durable."""
        self._is_keeping = False
        """Whether refused records are being kept."""
        self._waiting: deque[AnyMessage | Ack] = deque()
        """The node's messages behind those, in order."""
        self._told_holds: tuple[HeldPart, ...] = ()
        self._followed: dict[ShippedInput, tuple[RunTail, Callable[[], None]]] = {}

    @property
    def phase(self) -> PushPhase:
        """Where it is."""
        return self._sender.phase

    @property
    def node(self) -> str:
        """What the node is called; empty before it has said so."""
        return self._sender.node

    @property
    def problems(self) -> dict[InputName, str]:
        """Inputs that cannot be shipped at the moment, and why."""
        return self._sender.problems

    def refuses(self, run: int, name: InputName) -> bool | None:
        """Whether the node will not take an input of this run; None if it has no say."""
        return self._sender.refuses(run, name, self._now())

    def lacks_start(self, run: int, name: InputName) -> bool | None:
        """Whether the node wants bytes of an input that are lost; None if it has no say."""
        return self._sender.lacks_start(run, name, self._now())

    @property
    def is_at_rest(self) -> bool:
        """Whether the conversation waits for an event."""
        return self._sender.is_at_rest and not self._is_keeping

    def close(self) -> None:
        """Ship no more."""
        self._connection.close()

    # --- what happens -------------------------------------------------------------------------

    def session_changed(self) -> None:
        """Runs or inputs have come or gone."""
        self._guarded(self._sender.session_changed)

    def reset_input(self, name: InputName) -> None:
        """An input is shipped differently from now on."""
        self._sender.forget(name, self._now())
        self._carry_out()
        self._guarded(partial(self._sender.session_changed, name=name))

    def tell_holds(self, parts: tuple[HeldPart, ...]) -> None:
        """Report what is held, if that is news to the node."""
        is_connected = self.phase not in (PushPhase.GREETING, PushPhase.OVER)
        if is_connected and parts != self._told_holds:
            self._told_holds = parts
            self._connection.send(SessionHolds(parts))

    def topics_wanted(self) -> None:
        """The client wants to know more topics."""
        self._guarded(self._sender.ask_topics)

    def time_passed(self) -> None:
        """To be called about once a second."""
        self._guarded(self._sender.time_passed)

    def _guarded(self, tell: Callable[[float], None]) -> None:
        try:
            try:
                tell(self._now())
            finally:
                self._carry_out()
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            fail(self._connection, error)

    def _files_changed(self, shipped: ShippedInput) -> None:
        try:
            sender = self._sender
            inputs = sender.of(shipped) if sender.trailing else sender.inputs
            if inputs.files_changed(shipped):
                self._turn.work()
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            fail(self._connection, error)

    def on_message(self, message: AnyMessage) -> None:
        """Anything a push server sends."""
        if self._is_keeping:
            self._waiting.append(message)
        elif isinstance(message, Welcome) and not self._events.knows_cluster(message.cluster_id):
            self._while_written(self._meet(message), "meet a cluster")
        else:
            try:
                self._sender.receive(message, self._now())
            finally:
                self._carry_out()

    async def _meet(self, welcome: Welcome) -> None:
        try:
            await self._events.on_cluster(welcome.cluster_id)
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            fail(self._connection, error)
        else:
            self._guarded(partial(self._sender.receive, welcome))

    def _while_written(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Wait for the disk in a task."""
        task = spawn(work, name)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def on_ack(self, ack: Ack) -> None:
        """How far the node and the cluster are with a handle."""
        if self._is_keeping:
            self._waiting.append(ack)
            return
        try:
            self._sender.acknowledged(ack)
        finally:
            self._carry_out()

    def on_closed(self, error: Exception | None) -> None:
        """Gone; the client connects again."""
        self._turn.close()
        for task in self._writing:
            task.cancel()
        self._sender.closed()
        self._sender.effects.clear()
        self._waiting.clear()
        self._unfollow(tuple(self._followed))
        self._on_over(error)

    # --- effects ------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Do what the sender wants; what follows from one effect comes before the next one."""
        effects = self._sender.effects
        wanted = tuple(effects)
        effects.clear()
        for effect in wanted:
            match effect:
                case Reached(run, name, places, layout):
                    self._events.on_reached(run, name, places, layout)
                case Send(message):
                    self._connection.send(message)
                case SendMore():
                    self._turn.work()
                case Follow() | Unfollow() | LoseStart() | ListFiles():
                    self._use_files(effect)
                case Bind() | FindBatch() | BeginAt():
                    self._prepare(effect)
                case _:
                    self._tell(effect)
            if effects:
                self._carry_out()

    def _use_files(self, effect: Follow | Unfollow | LoseStart | ListFiles) -> None:
        """Follow, stop following, or list the session's files."""
        match effect:
            case Follow(shipped):
                self._follow(shipped)
            case Unfollow(inputs):
                self._unfollow(inputs)
            case LoseStart(shipped):
                self._followed[shipped][0].lose_start()
            case ListFiles(shipped):
                is_sure = self._session.look_again(None if shipped is None else shipped.name)
                self._sender.files_listed(shipped, self._now(), is_sure=is_sure)

    def _tell(self, news: News) -> None:
        """What the client is to know."""
        match news:
            case StatusChanged():
                self._events.on_status()
            case RunIsOpen(run, number):
                self._events.on_run_opened(run, number)
            case RunIsClosed(run, ends, parts):
                self._events.on_run_closed(run, ends, parts)
                self._sender.session_changed(self._now())
            case InputIsGone(run, name, topic_id):
                self._events.on_topic_gone(run, name, topic_id)
            case TopicTold(topic, partitions, is_checked):
                self._events.on_topic_told(topic, partitions, is_checked=is_checked)
            case HoldersTold(nodes):
                self._events.on_holders(nodes)
            case HoldsDecided(continues, topic_ids):
                self._events.on_holds_decided(topic_ids, continues=continues)
            case KeepRefused():
                self._is_keeping = True
                self._while_written(self._keep(news), "keep refused records")
            case Forked(fault):
                self._events.on_fork(fault)
                raise fault

    async def _keep(self, refused: KeepRefused) -> None:
        """Keep refused records; nothing that the node says behind them counts before they are."""
        batch = refused.batch
        try:
            await self._events.on_refused(refused.run, refused.name, batch)
            self._connection.send(RefusalsKept(refused.handle, batch.roll, batch.start))
            self._receive_waiting()
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            fail(self._connection, error)

    def _receive_waiting(self) -> None:
        """Receive what waits, up to the next refused batch."""
        self._is_keeping = False
        while self._waiting and not self._is_keeping:
            message = self._waiting.popleft()
            if isinstance(message, Ack):
                self.on_ack(message)
            else:
                self.on_message(message)

    def _prepare(self, effect: Bind | FindBatch | BeginAt) -> None:
        """What comes before an input is shipped; what fails is tried again later."""
        inputs, shipped = self._sender.of(effect.input), effect.input
        if shipped not in self._followed:
            return  # its run was closed meanwhile
        tail = self._followed[shipped][0]
        try:
            match effect:
                case Bind(topic_id=topic_id) if self._session.is_bound(shipped.name, topic_id):
                    inputs.bound(shipped, self._now(), is_same=True)
                case Bind():
                    self._while_written(self._bind(effect), "bind an input")
                case FindBatch():
                    own = tail.find_batch(effect.roll, effect.start, effect.stop)
                    inputs.batch_found(shipped, own)
                case BeginAt():
                    tail.raise_to(effect.place)
                    inputs.begin(shipped)
        except LogFormatError as error:
            inputs.unreadable(shipped, str(error), self._now())

    async def _bind(self, effect: Bind) -> None:
        inputs, shipped, tell = self._sender.of(effect.input), effect.input, None
        try:
            is_same = await self._session.bind(shipped.name, effect.topic_id)
        except LogFormatError as error:
            tell = partial(inputs.unreadable, shipped, str(error))
        else:
            tell = partial(inputs.bound, shipped, is_same=is_same)
        if shipped in self._followed and shipped.topic_id == effect.topic_id:
            self._guarded(tell)

    def _follow(self, shipped: ShippedInput) -> None:
        tail, listener = shipped.files, partial(self._files_changed, shipped)
        if not isinstance(tail, RunTail):
            raise TypeError("the files of a LocalSession are RunTails")
        tail.add_listener(listener)
        self._followed[shipped] = tail, listener

    def _unfollow(self, inputs: Iterable[ShippedInput]) -> None:
        for shipped in inputs:
            if shipped in self._followed:
                tail, listener = self._followed.pop(shipped)
                tail.remove_listener(listener)

    # --- shipping -----------------------------------------------------------------------------

    def _step(self) -> bool:
        """Send a piece, or look for one; False: there is no more, or the window is full."""
        sender = self._sender
        step = sender.next_step()
        match step:
            case None:
                return False
            case ShipInput():
                self._ship(step)
            case ScanInput(shipped):
                self._scan(shipped)
            case _:
                self._connection.send(step)
        if sender.effects:
            self._carry_out()
        if sender.trailing:
            return sender.has_more
        return bool(sender.inputs.sender.ready or sender.inputs.unscanned)

    def _scan(self, shipped: ShippedInput) -> None:
        """Look for more in an input's files."""
        sender, (tail, listener) = self._sender, self._followed[shipped]
        inputs = sender.of(shipped) if sender.trailing else sender.inputs
        try:
            inputs.scanned(shipped, has_moved=tail.advance(listener))
        except LogFormatError as error:
            inputs.unreadable(shipped, str(error), self._now())

    def _ship(self, wanted: ShipInput) -> None:
        shipped, roll, byte = wanted.input, wanted.roll, wanted.byte
        sender, tail = self._sender, self._followed[shipped][0]
        inputs = sender.of(shipped) if sender.trailing else sender.inputs
        try:
            read = tail.read_part if wanted.is_part else tail.read
            data = read(roll, byte, wanted.limit_bytes)
        except NoSuchFile as error:
            self._session.look_again(shipped.name)
            inputs.not_there(shipped, str(error), self._now())
        except LogFormatError as error:
            if isinstance(error, CorruptLog):
                with suppress(DiskFault):  # it is judged again with the next attempt
                    tail.judge((roll, byte))
            inputs.unreadable(shipped, str(error), self._now())
        else:
            size = len(data)
            if wanted.is_part or size > LONGEST_IN_DATA_BYTES:
                self._ship_part(wanted, data)
                return
            self._connection.send_data(shipped.handle, roll, byte, data)
            sender.inputs.sender.sent(shipped.handle, size)

    def _ship_part(self, wanted: ShipInput, data: bytes | memoryview) -> None:
        """The next part of a batch, or the first one if it is this batch's turn."""
        stream, handle = self._sender.inputs.sender, wanted.input.handle
        takes = stream.takes_bytes
        if not wanted.is_part and len(data) > takes:
            text = f"a batch of {len(data)} bytes; the node takes up to {takes}"
            self._sender.of(wanted.input).unreadable(wanted.input, text, self._now())
        elif wanted.is_part or stream.begin_part(handle, len(data)):
            part = memoryview(data)[:PART_BYTES]
            self._connection.send_part(handle, wanted.roll, wanted.byte, part)
            stream.sent(handle, len(part))

    def _rest(self) -> None:
        """All is sent that can be."""
        self._sender.rest(self._now())
        if self._sender.effects:
            self._carry_out()

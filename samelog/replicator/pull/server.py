"""The node's end of a pull connection: sends logs as they grow, to subscribers and to peers.

Growth is sent from within the callback that tells of it, if nothing else was sent in this turn of
the event loop; what grows later in the turn is sent together at its end. A turn's work is bounded,
handles take turns, and nothing is read before the connection can take it. What is sent is decided
in `samelog.wire.pull.sender`.

Invariant: a peer reads only what it has the right to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from samelog.config.authorisation import Rights
from samelog.format.errors import LogFormatError
from samelog.replicator.handler import ReplicatorHandler, fail, unexpected
from samelog.replicator.interfaces import (
    FilePosition,
    HeldElsewhere,
    RequestRefused,
    RowSource,
    StreamListener,
)
from samelog.replicator.pull.served_rows import ServedRows
from samelog.replicator.pull.streams import Served, ServedMerged, ServedSession
from samelog.replicator.turns import Turns
from samelog.runtime.clock import Clock, SystemClock
from samelog.runtime.counters import Meter
from samelog.runtime.errors import PeerFault
from samelog.runtime.faults import make_fault
from samelog.runtime.loop import spawn
from samelog.runtime.network.transport import Connection
from samelog.store.disk.files import NoSuchFile
from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import LONGEST_IN_DATA_BYTES, PART_BYTES, encode_part
from samelog.wire.messages import (
    AnyMessage,
    Close,
    ConfirmEnd,
    ConnectionRole,
    EndConfirmed,
    Hello,
    Holders,
    MergedStartsAt,
    OpenMerged,
    OpenRows,
    OpenSessionLog,
    Received,
    RollSealed,
    SegmentSealed,
    SessionStartsAt,
    Start,
)
from samelog.wire.pull.refusal import Refusal
from samelog.wire.pull.sender import READ_BYTES, LetGo, PullSender
from samelog.wire.sender import ReadRange, Sender
from samelog.wire.shared_sender import SharedSender
from samelog.wire.transaction_messages import FindAborted

WINDOW_BYTES = 16 << 20
LET_GO_AT_ONCE = 128
READERS_MAX = 16
"""Handles of one partition on one connection: each is called when its log grows."""


@dataclass(slots=True)
class _Readers:
    """The topic and partition of each handle of a merged log, and how many handles each has."""

    names: dict[int, tuple[str, int]] = field(default_factory=dict)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)


SOONEST_S = 0.002


class PullServer(ReplicatorHandler):
    """One pull connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        source: RowSource,
        rights: Rights,
        *,
        hello: Hello = Hello(ConnectionRole.PULL),  # noqa: B008 - a frozen value
        sender: Sender | SharedSender | None = None,
        clock: Clock | None = None,
        on_merged_sent: Callable[[bytes], None] | None = None,
        on_over: Callable[[PullServer], None] = lambda server: None,
    ) -> None:
        """`hello`: what the reader takes. `sender`: what bounds what is under way; None: one
        window. `on_merged_sent` is told of batches of merged logs.
        """
        self._connection = connection
        self._identity = str(connection.identity)
        self._source = source
        self._rights = rights
        self._loop = asyncio.get_running_loop()
        one_window = Sender(window_bytes=WINDOW_BYTES, read_bytes=READ_BYTES)
        self._sender = PullSender(sender or one_window)
        self._hello = hello
        self._served: dict[int, tuple[Served, StreamListener]] = {}
        self._readers = _Readers()
        self._timer: asyncio.TimerHandle | None = None
        self.since = self._loop.time()
        self.sent = Meter(self.since)
        """Bytes of batches."""
        self._on_merged_sent = on_merged_sent
        self._on_over = on_over
        turns = Turns(connection, clock or SystemClock())
        self._turns = turns.join(connection, self._step, self._rest)

    @property
    def link(self) -> Connection:
        """The connection."""
        return self._connection

    @property
    def places(self) -> list[tuple[Served, FilePosition]]:
        """What is read, and up to where it was sent."""
        return [
            (served, self._sender.position(number)) for number, (served, _) in self._served.items()
        ]

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a subscriber, or a peer that repairs itself, sends."""
        match message:
            case Received():
                self._sender.received(message.handle, message.size_bytes)
            case OpenMerged():
                self._open(message.handle, partial(self._open_merged, message))
            case OpenSessionLog():
                self._open(message.handle, partial(self._open_session, message))
            case Close():
                self._sender.close(message.handle)
            case ConfirmEnd():
                self._confirm_end(message.handle)
            case FindAborted():
                self._find_aborted(message)
            case _:
                raise unexpected(message)
        self._carry_out()

    def on_writable(self) -> None:
        """Go on sending."""
        self._turns.work()

    def on_closed(self, error: Exception | None) -> None:
        """Gone; a reader that got a bad batch says so on leaving."""
        if isinstance(error, PeerFault) and error.code is FaultCode.INVALID_BATCH:
            for served, _ in self._served.values():
                served.suspect()
        self._on_over(self)
        self._turns.close()
        if self._timer is not None:
            self._timer.cancel()
        self._let_all_go()

    def _let_all_go(self) -> None:
        """Forget the handles, some in each turn of the event loop: the garbage collector would free
        all of them in one turn, thousands in tens of milliseconds.
        """
        for number in tuple(islice(self._served, LET_GO_AT_ONCE)):
            self._sender.close(number)
        self._carry_out()
        if self._served:
            self._loop.call_soon(self._let_all_go)

    # --- opening ------------------------------------------------------------------------------

    def _open(self, number: int, open_it: Callable[[], None]) -> None:
        self._sender.check_free(number)
        try:
            open_it()
        except ProtocolFault as fault:
            if self._hello.roams and isinstance(fault, HeldElsewhere):
                self._connection.send(Holders(fault.holders))
            self._sender.refuse(number, _refusal(fault))
        except LogFormatError as error:
            self._sender.refuse(number, _unreadable(error))

    def _open_merged(self, message: OpenMerged) -> None:
        if not self._rights.may_subscribe(self._identity, message.topic):
            raise self._denied(f"subscribe to topic {message.topic!r}")
        name = message.topic, message.partition
        if self._readers.counts[name] >= READERS_MAX:
            text = f"more than {READERS_MAX} handles of {message.topic}-{message.partition}"
            raise RequestRefused(FaultCode.TOO_MANY, text, "close one of them")
        served = self._served_merged(message)
        stream = served.stream
        offset, place = served.start(message)
        opened = MergedStartsAt(
            handle=message.handle,
            topic_id=stream.topic_id,
            partitions=stream.partitions,
            base_offset=place[0],
            byte=place[1],
            offset=offset,
            start_offset=stream.log.start_offset,
            end_offset=stream.log.next_offset,
        )
        skips = message.start is Start.POSITION and place > (message.base_offset, message.byte)
        self._readers.counts[name] += 1
        self._readers.names[message.handle] = name
        self._begin(message.handle, served, opened, place, skips=skips)

    def _served_merged(self, message: OpenMerged) -> ServedMerged:
        """The partition, or what passes of it. Raises RequestRefused."""
        stream = self._source.open_merged(message.topic, message.topic_id, message.partition)
        asked = message.rows if isinstance(message, OpenRows) else None
        reading = self._source.rows_of(stream, asked, self._identity, self._rights)
        return ServedMerged(stream) if reading is None else ServedRows(reading)

    def _open_session(self, message: OpenSessionLog) -> None:
        if not self._rights.is_peer(self._identity):
            raise self._denied("read session logs")
        stream = self._source.open_session(
            session=message.session,
            topic=message.topic,
            topic_id=message.topic_id,
            partition=message.partition,
            run=message.run,
        )
        served = ServedSession(stream, message.run)
        place = served.start(message)
        opened = SessionStartsAt(message.handle, stream.topic_id, stream.partitions, *place)
        self._begin(message.handle, served, opened, place)

    def _begin(
        self,
        number: int,
        served: Served,
        opened: AnyMessage,
        place: FilePosition,
        *,
        skips: bool = False,
    ) -> None:
        listener = partial(self._changed, number)
        served.stream.add_listener(listener)
        self._served[number] = served, listener
        self._sender.open(number, served, opened, place, skips=skips)

    def _confirm_end(self, number: int) -> None:
        """Have the cluster say where a merged log ends. (A handle may be refused by now.)"""
        served = self._merged(number)
        if served is None:
            return
        if served.is_asked:
            raise ProtocolFault(FaultCode.PROTOCOL, f"handle {number} is asked about already")
        served.is_asked = True
        spawn(self._confirm(number, served), "pull: the end of a log")

    def _merged(self, number: int) -> ServedMerged | None:
        known = self._served.get(number)
        served = None if known is None else known[0]
        if served is None or isinstance(served, ServedMerged):
            return served
        raise ProtocolFault(FaultCode.PROTOCOL, f"handle {number} is no merged log")

    def _find_aborted(self, message: FindAborted) -> None:
        served = self._merged(message.handle)
        if served is None:
            return
        try:
            self._connection.send(served.find_aborted(message))
        except LogFormatError as error:
            self._sender.refuse(message.handle, _unreadable(error))

    async def _confirm(self, number: int, served: ServedMerged) -> None:
        answer = await self._confirmed(number, served)
        served.is_asked = False
        known = self._served.get(number)
        if known is None or known[0] is not served:
            return
        if isinstance(answer, Refusal):
            self._sender.refuse(number, answer)
        else:
            self._connection.send(answer)
            self._sender.confirmed(number, answer.end_offset)
        self._carry_out()

    async def _confirmed(self, number: int, served: ServedMerged) -> EndConfirmed | Refusal:
        try:
            return EndConfirmed(number, await self._source.confirm_end(served.stream))
        except RequestRefused as fault:
            return _refusal(fault)

    def _denied(self, what: str) -> RequestRefused:
        text = f"{self._identity} may not {what}"
        return RequestRefused(
            FaultCode.NOT_AUTHORISED, text, "grant it in the nodes' configuration"
        )

    def _let_go(self, number: int) -> None:
        served, listener = self._served.pop(number)
        if number in self._readers.names:
            self._readers.counts[self._readers.names.pop(number)] -= 1
        served.stream.remove_listener(listener)

    # --- sending ------------------------------------------------------------------------------

    def _changed(self, number: int) -> None:
        """A stream has changed. (One that was let go of a moment ago may still call.)"""
        try:
            known = self._served.get(number)
            if known is None:
                return
            fault, sender, has_more = known[0].stream.fault, self._sender, False
            if fault is not None:
                sender.refuse(number, _refusal(fault))
            else:
                has_more = sender.changed(number)
            if sender.effects:
                self._carry_out()
            if has_more:
                self._turns.work()
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            fail(self._connection, error)

    def _carry_out(self) -> None:
        effects = self._sender.effects
        while effects:
            match effects.pop(0):
                case SendMore():
                    self._turns.work()
                case Send(message):
                    self._connection.send(message)
                case LetGo(number):
                    self._let_go(number)

    def _step(self) -> bool:
        """Send one piece; False: there is nothing more to send, or the window is full."""
        step = self._sender.next_step()
        match step:
            case ReadRange():
                self._ship(step)
            case RollSealed() | SegmentSealed():
                self._connection.send(step)
        if self._sender.effects:
            self._carry_out()
        return step is not None and bool(self._sender.ready)

    def _ship(self, wanted: ReadRange) -> None:
        number, file, byte = wanted.handle, wanted.file, wanted.byte
        served = self._served[number][0]
        try:
            read = served.read_part if wanted.is_part else served.read
            data = read(file, byte, wanted.limit_bytes)
        except NoSuchFile as error:
            self._sender.refuse(number, self._no_file(served, file, error))
            return
        except LogFormatError as error:
            served.suspect()
            self._sender.refuse(number, _unreadable(error))
            return
        size = len(data)
        if wanted.is_part or size > LONGEST_IN_DATA_BYTES:
            self._ship_part(wanted, data)
            return
        self._connection.send_data(number, file, byte, data)
        self._sender.sent(number, size)
        if data:
            self.sent.add(size, self._loop.time())
            if self._on_merged_sent is not None and isinstance(served, ServedMerged):
                self._on_merged_sent(data)

    def _ship_part(self, wanted: ReadRange, data: bytes) -> None:
        """The next part of a batch, or the first one if it is this batch's turn."""
        number = wanted.handle
        if not self._hello.parts:
            text = f"a batch of {len(data)} bytes; this reader takes up to {LONGEST_IN_DATA_BYTES}"
            fault = ProtocolFault(FaultCode.NOT_READY, text, "upgrade the reader")
            self._sender.refuse(number, _refusal(fault))
        elif wanted.is_part or self._begin_part(number, data):
            part = memoryview(data)[:PART_BYTES]
            self._connection.send_bytes(encode_part(number, wanted.file, wanted.byte, part))
            self._sender.sent(number, len(part))
            self.sent.add(len(part), self._loop.time())

    def _begin_part(self, number: int, batch: bytes) -> bool:
        begun = self._sender.begin_part(number, len(batch))
        served = self._served[number][0]
        if begun and self._on_merged_sent is not None and isinstance(served, ServedMerged):
            self._on_merged_sent(batch)
        return begun

    @staticmethod
    def _no_file(served: Served, file: int, error: NoSuchFile) -> Refusal:
        """It was released or archived; or it should be there, and somebody removed it."""
        if isinstance(served, ServedMerged) and file >= served.log_start()[1]:
            served.suspect()
            return _unreadable(error)
        return _refusal(ProtocolFault(FaultCode.OUT_OF_RANGE, str(error), "start over"))

    def _rest(self) -> None:
        """All is sent that can be."""
        again_at = self._sender.rest(self._loop.time())
        if self._sender.effects:
            self._carry_out()
        if again_at is not None:  # uvloop's handle of what is due at once has no `when`
            again_at = max(again_at, self._loop.time() + SOONEST_S)
        if again_at is not None and (self._timer is None or again_at < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(again_at, self._rest_again)

    def _rest_again(self) -> None:
        self._timer = None
        self._rest()


def _unreadable(error: LogFormatError) -> Refusal:
    text = f"this node cannot read it: {error}"
    return _refusal(ProtocolFault(FaultCode.NOT_READY, text, "ask another node"))


def _refusal(fault: ProtocolFault) -> Refusal:
    """What a fault tells the reader: as the end of a connection would, within its bounds."""
    said = make_fault(fault.code, fault.message, fault.remedy)
    if isinstance(fault, RequestRefused):
        return Refusal(said.code, said.message, said.remedy, fault.earliest, fault.successor)
    return Refusal(said.code, said.message, said.remedy)

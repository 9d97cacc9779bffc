"""The node's end of a pull connection: sends logs as they grow, to subscribers and to peers.

Growth is sent from within the callback that tells of it, if nothing else was sent in this turn of
the event loop; what grows later in the turn is sent together at its end. A turn's work is bounded,
handles take turns, and nothing is read before the connection can take it.

Invariant: a peer reads only what it has the right to; what is sent for a handle is contiguous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from samelog.config.authorisation import Rights
from samelog.format.errors import LogFormatError
from samelog.replicator.handler import ReplicatorHandler, failing, unexpected
from samelog.replicator.interfaces import LogSource, Place, Refused, StreamListener
from samelog.replicator.pull.streams import Served, ServedMerged, ServedSession
from samelog.replicator.turns import Turns
from samelog.runtime.clock import Clock, SystemClock
from samelog.runtime.counters import Meter
from samelog.runtime.errors import PeerFault
from samelog.runtime.faults import make_fault
from samelog.runtime.network.transport import Connection
from samelog.store.disk.files import NoSuchFile
from samelog.store.merged.truncation import LogStart
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    Hello,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    OpenSession,
    Received,
    SessionStartsAt,
    Start,
    TopicGone,
)
from samelog.wire.messages import Refused as RefusedAnswer
from samelog.wire.sender import ReadRange, Seal, Sender

BEGINNING = LogStart(0, 0, 0)
WINDOW_BYTES = 16 << 20
READ_BYTES = 1 << 20
MAX_HANDLES = 1 << 14
WATERMARK_INTERVAL_S = 0.1
"""A watermark follows new data at most this often; the first one at once."""


@dataclass(slots=True)
class _Handle:
    """One open handle. `offered`: the file that is being sent, and how far it reaches."""

    number: int
    served: Served
    listener: StreamListener
    offered: Place = (-1, 0)
    told_start: LogStart = BEGINNING
    watermark: Place | None = None
    next_watermark_at: float = 0.0


class PullServer(ReplicatorHandler):
    """One pull connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        hello: Hello,
        source: LogSource,
        rights: Rights,
        *,
        window_bytes: int = WINDOW_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._identity = str(connection.identity)
        self._source = source
        self._rights = rights
        self._loop = asyncio.get_running_loop()
        self._sender = Sender(window_bytes=window_bytes, read_bytes=READ_BYTES)
        self._handles: dict[int, _Handle] = {}
        self._sent_to: set[int] = set()
        """Handles that may have caught up since their last watermark."""
        self._timer: asyncio.TimerHandle | None = None
        self.since = self._loop.time()
        self.sent = Meter(self.since)
        """Bytes of batches."""
        self.on_merged_sent: Callable[[bytes], None] = lambda data: None
        self.on_over: Callable[[], None] = lambda: None
        self._turns = Turns(connection, self._step, self._rest, clock or SystemClock())

    @property
    def link(self) -> Connection:
        """The connection."""
        return self._connection

    @property
    def places(self) -> list[tuple[Served, Place]]:
        """What is read, and up to where it was sent."""
        position = self._sender.position
        return [(each.served, position(each.number)) for each in self._handles.values()]

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a subscriber, or a peer that repairs itself, sends."""
        match message:
            case OpenMerged():
                self._open(message.handle, lambda: self._open_merged(message))
            case OpenSession():
                self._open(message.handle, lambda: self._open_session(message))
            case Received():
                self._sender.received(message.handle, message.size_bytes)
                self._turns.work()
            case Close():
                self._let_go(message.handle)
            case _:
                raise unexpected(message)

    def on_writable(self) -> None:
        """Go on sending."""
        self._turns.work()

    def on_closed(self, error: Exception | None) -> None:
        """Gone; a reader that got a bad batch says so on leaving."""
        if isinstance(error, PeerFault) and error.code is FaultCode.INVALID_BATCH:
            for handle in self._handles.values():
                handle.served.suspect()
        for number in tuple(self._handles):
            self._let_go(number)
        self.on_over()
        self._turns.close()
        if self._timer is not None:
            self._timer.cancel()

    # --- opening ------------------------------------------------------------------------------

    def _open(self, number: int, open_it: Callable[[], _Handle]) -> None:
        if number in self._handles:
            raise ProtocolFault(FaultCode.PROTOCOL, f"handle {number} is open already")
        if len(self._handles) >= MAX_HANDLES:
            raise ProtocolFault(FaultCode.TOO_MANY, f"more than {MAX_HANDLES} handles")
        try:
            handle = open_it()
        except ProtocolFault as fault:
            self._refuse(number, fault)
        except LogFormatError as error:
            self._refuse(number, _unreadable(error))
        else:
            self._handles[number] = handle
            self._sent_to.add(number)
            handle.served.stream.add_listener(handle.listener)
            self._grew(handle)

    def _open_merged(self, message: OpenMerged) -> _Handle:
        if not self._rights.may_subscribe(self._identity, message.topic):
            raise self._denied(f"subscribe to topic {message.topic!r}")
        stream = self._source.open_merged(message.topic, message.topic_id, message.partition)
        served = ServedMerged(stream)
        offset, place = served.start(message)
        handle = _Handle(message.handle, served, lambda: self._told(message.handle))
        if message.start is Start.POSITION and place > (message.base_offset, message.byte):
            self._tell_start(handle)
        self._connection.send(
            MergedStartsAt(
                handle=message.handle,
                topic_id=stream.topic_id,
                partitions=stream.partitions,
                base_offset=place[0],
                byte=place[1],
                offset=offset,
                start_offset=stream.log.start_offset,
                end_offset=stream.log.next_offset,
            )
        )
        self._sender.add(message.handle, *place)
        return handle

    def _open_session(self, message: OpenSession) -> _Handle:
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
        position = SessionStartsAt(message.handle, stream.topic_id, stream.partitions, *place)
        self._connection.send(position)
        self._sender.add(message.handle, *place)
        return _Handle(message.handle, served, lambda: self._told(message.handle))

    def _denied(self, what: str) -> Refused:
        text = f"{self._identity} may not {what}"
        return Refused(FaultCode.NOT_AUTHORISED, text, "grant it in the nodes' configuration")

    # --- ending a handle ----------------------------------------------------------------------

    def _refuse(self, number: int, fault: ProtocolFault) -> None:
        """End one handle; the connection goes on."""
        self._let_go(number)
        if fault.code is FaultCode.TOPIC_GONE:
            successor = fault.successor if isinstance(fault, Refused) else ""
            self._connection.send(TopicGone(number, successor or None))
        else:
            said = make_fault(fault.code, fault.message, fault.remedy)
            earliest = fault.earliest if isinstance(fault, Refused) else -1
            self._connection.send(
                RefusedAnswer(number, said.code, said.message, said.remedy, earliest)
            )

    def _let_go(self, number: int) -> None:
        self._sender.remove(number)
        self._sent_to.discard(number)
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.served.stream.remove_listener(handle.listener)

    # --- sending ------------------------------------------------------------------------------

    def _told(self, number: int) -> None:
        """A stream has changed. (One that was let go of a moment ago may still call.)"""
        handle = self._handles.get(number)
        if handle is not None:
            with failing(self._connection):
                self._grew(handle)

    def _grew(self, handle: _Handle) -> None:
        fault = handle.served.stream.fault
        if fault is not None:
            self._refuse(handle.number, fault)
            return
        self._follow_start(handle)
        if self._offer(handle):
            self._sent_to.add(handle.number)
            self._turns.work()

    def _follow_start(self, handle: _Handle) -> None:
        """What is archived is sent no more; the other side archives it too."""
        segment = self._tell_start(handle)
        if self._sender.position(handle.number) < (segment, 0):
            self._sender.jump(handle.number, segment, 0)
            handle.offered = (-1, 0)

    def _tell_start(self, handle: _Handle) -> int:
        """Tell the other side where the log starts now, if that is news; the segment."""
        start = handle.served.log_start() or BEGINNING
        if start != handle.told_start:
            handle.told_start = start
            number, (offset, segment, checksum) = handle.number, start
            self._connection.send(LogArchived(number, segment, offset, checksum))
        return start.segment

    def _offer(self, handle: _Handle) -> bool:
        """Tell the sender how far the file reaches that it is sending; False: the handle ended."""
        file, byte = self._sender.position(handle.number)
        extent = handle.served.extent(file)
        least = handle.offered[1] if handle.offered[0] == file else byte
        if extent is None or extent.end < least:
            cut = Refused(FaultCode.NOT_READY, "this node's log was cut here", "ask another node")
            self._refuse(handle.number, cut)
            return False
        handle.offered = (file, extent.end)
        self._sender.available(handle.number, file, extent.end, next_file=extent.next_file)
        return True

    def _step(self) -> bool:
        """Send one piece; False: there is nothing to send, or the window is full."""
        step = self._sender.next_read()
        if step is None:
            return False
        handle = self._handles[step.handle]
        if isinstance(step, Seal):
            self._connection.send(handle.served.sealed(step))
            self._sent_to.add(handle.number)
            self._offer(handle)
        else:
            self._send(handle, step)
        return True

    def _send(self, handle: _Handle, wanted: ReadRange) -> None:
        try:
            data = handle.served.read(wanted.file, wanted.byte, wanted.limit_bytes)
        except NoSuchFile as error:
            self._refuse(handle.number, self._no_file(handle, wanted, error))
            return
        except LogFormatError as error:
            handle.served.suspect()
            self._refuse(handle.number, _unreadable(error))
            return
        self._connection.send_data(handle.number, wanted.file, wanted.byte, data)
        self._sender.sent(handle.number, len(data))
        if data:
            self.sent.add(len(data), self._loop.time())
            if isinstance(handle.served, ServedMerged):
                self.on_merged_sent(data)
        self._sent_to.add(handle.number)

    @staticmethod
    def _no_file(handle: _Handle, wanted: ReadRange, error: NoSuchFile) -> Refused:
        """It was released or archived; or it should be there, and somebody removed it."""
        start = handle.served.log_start()
        if start is not None and wanted.file >= start.segment:
            handle.served.suspect()
            return _unreadable(error)
        return Refused(FaultCode.OUT_OF_RANGE, str(error), "start anew")

    # --- watermarks ---------------------------------------------------------------------------

    def _rest(self) -> None:
        """All is sent that can be: tell who has caught up, those told a moment ago a bit later."""
        now = self._loop.time()
        later = set()
        for number in self._sent_to:
            handle = self._handles[number]
            end = handle.served.end()
            if self._sender.position(number) != end or handle.watermark == end:
                continue
            if now < handle.next_watermark_at:
                later.add(number)
                continue
            handle.watermark, handle.next_watermark_at = end, now + WATERMARK_INTERVAL_S
            self._connection.send(CaughtUp(number, handle.served.end_offset()))
        self._sent_to = later
        if later and self._timer is None:
            self._timer = self._loop.call_later(WATERMARK_INTERVAL_S, self._later)

    def _later(self) -> None:
        self._timer = None
        self._rest()


def _unreadable(error: LogFormatError) -> Refused:
    return Refused(FaultCode.NOT_READY, f"this node cannot read it: {error}", "ask another node")

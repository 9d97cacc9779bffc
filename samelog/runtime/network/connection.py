"""One connection over TLS: callbacks only, no task and no copy per frame.

What it carries is frames, or, where the client asked for HTTP, the bytes of a `ByteStream`.

A frame belongs to a channel: to the connection itself, or to one of the conversations that share it
(`channel`).

Payloads are handed on as memoryviews into the receive buffer, valid during the call. Every wait
for the peer has a deadline (`peer_watch`), kept by one timer. The work per turn of the event loop
is bounded. A frame is sent at once after a pause; others that follow it are sent together at the
end of the turn.

An exception out of a handler ends its connection with a Fault frame that says why. InvariantError
is not for the peer: it goes to the event loop's exception handler, which ends the process
(`samelog.runtime.loop`).

Invariant: for every connection whose handler was made, `on_closed` is called exactly once, and is
the last call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Protocol, cast

from samelog.config.values import Address
from samelog.format.batch import Bytes
from samelog.format.errors import InvariantError, LogFormatError
from samelog.runtime.errors import (
    ConnectFault,
    ConnectionLost,
    DeadlinePassed,
    IdentityFault,
    PeerFault,
    RuntimeFault,
)
from samelog.runtime.faults import fault_of, handshake_fault, lost, make_fault
from samelog.runtime.log import format_event
from samelog.runtime.network._tls import ReceiveBuffer
from samelog.runtime.network.byte_stream import ByteStream, OpenProtocol
from samelog.runtime.network.channel import Channel, Handler
from samelog.runtime.network.peer_watch import Deadlines, PeerWatch
from samelog.runtime.network.tls import HTTP_ALPN, NODE_PREFIX, Identity, identity_of
from samelog.runtime.network.tls_session import open_session
from samelog.runtime.slices import SLICE_S, in_slice, slices
from samelog.wire.errors import FaultCode, ProtocolFault, WireError
from samelog.wire.frames import (
    DATA_HEADER_BYTES,
    FrameType,
    decode_data_header,
    encode_data_header,
    encode_header,
    encode_part,
)
from samelog.wire.messages import AnyMessage, Fault, Ping, decode_message, encode_message

log = logging.getLogger(__name__)

HIGH_WATER_BYTES = 1 << 20
LOW_WATER_BYTES = 256 << 10
"""What waits in this process for the socket; more would fall out of the processor's cache."""
TURN_BYTES = 1 << 20
"""Received from one connection before others have their turn."""
TURN_FRAMES = 32
"""Handled of one connection before others have their turn: a socket's read has room for thousands,
each of which may open a log.
"""
ENDED_IN_TURN = 64
"""Channels that end in one turn of the loop when their connection is over."""
LONG_BYTES = 512
"""A message counts as one more for each of these."""
SCRATCH_BYTES = 256 << 10
STALL_S = 0.5
"""A timer that is so late shows that this process, or its host, stood still."""
READ_S = 0.05
"""For reading what came meanwhile."""
PIECE_BYTES = 64 << 10
"""Encrypted and handed to the socket at once; larger pieces were measured to be slower."""
RECENT_S = 0.002
"""A frame that follows another one sooner waits for the end of the turn, to be sent with more."""

EXPECTED_ERRORS = (WireError, LogFormatError, RuntimeFault)
"""What a handler may raise without being at fault itself; its user hears of it in `on_closed`."""


OpenHandler = Callable[["Connection"], Handler]
"""Makes the handler once the peer is known. What it raises ends the connection with a Fault."""


class Endpoint(Protocol):
    """What a connection asks of the side that made it."""

    server_side: bool
    deadlines: Deadlines

    def context(self) -> ssl.SSLContext:
        """The TLS context for a new connection."""

    def arrived(self, connection: Connection) -> None:
        """The TCP connection is there, the peer unknown. Raises ConnectFault to refuse it."""

    def is_preferred(self, host: str) -> bool:
        """Whether handshakes of this host come before those of others."""

    def opened(self, connection: Connection) -> Handler | ByteStream:
        """The peer is known: admit it, or raise. A ByteStream: no frames are spoken."""

    def ended(self, connection: Connection, error: Exception | None) -> None:
        """It is over and its socket closed; `error` is a ConnectFault if it never opened."""


class _Own:
    """The connection's own conversation, channel 0, which opens and closes the others."""

    __slots__ = ("channels", "handler", "last_channel")

    def __init__(self) -> None:
        self.handler: Handler | ByteStream | None = None
        self.channels: dict[int, Channel] = {}
        """The other channels that are open, by number."""
        self.last_channel = 0


class _State(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


_OPENING, _OPEN, _CLOSING, _CLOSED = _State
_DATA, _RAFT, _PART = FrameType.DATA, FrameType.RAFT, FrameType.PART
_CONTROL = FrameType.CONTROL
"""Looking a member up in its class takes as long as a call; each frame asks several times."""


class _Scratch(threading.local):
    """Where the sockets of one thread's event loop read to; used up before the next read."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(SCRATCH_BYTES))


_scratch = _Scratch()


class _Turn:
    """How far a connection is with its bytes."""

    __slots__ = ("has_next", "has_peer_closed", "is_gathering", "read_bytes")

    def __init__(self) -> None:
        self.read_bytes = 0
        """Read from the socket since others had their turn."""
        self.has_next = False
        """Whether the connection waits for its next turn."""
        self.has_peer_closed = False
        self.is_gathering = False
        """Whether frames wait for the end of the turn."""


class Connection(asyncio.BufferedProtocol):
    """One connection; made by `connect` and `serve` only."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.identity = Identity("")
        """Who the peer is, by its certificate; empty until that is known."""
        self.host = "unknown"
        self.peername = "unknown"
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._watch = PeerWatch(endpoint.deadlines, self._loop.time())
        self._tls = open_session(endpoint.context(), server_side=endpoint.server_side)
        self._scratch = _scratch.memory
        self._buffer = ReceiveBuffer()
        self._state = _OPENING
        self._error: Exception | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.writable = False
        """Whether less than the high-water mark waits to be sent; beyond it, sending piles up."""
        self._own = _Own()
        self._has_room = True
        self._corks = 0
        self._reading_paused = False
        self._turn = _Turn()

    def __repr__(self) -> str:
        return f"<Connection {self._state.name} {self.identity!s} at {self.peername}>"

    # --- what users call ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent and come in."""
        return self._state is _OPEN

    @property
    def descriptor(self) -> int:
        """The number of its socket."""
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def is_http(self) -> bool:
        """Whether the peer, which is known, has asked for HTTP."""
        return self._tls.ssl_object.selected_alpn_protocol() == HTTP_ALPN

    @property
    def channels(self) -> dict[int, Channel]:
        """The open channels, by number."""
        return self._own.channels

    @property
    def last_received(self) -> float:
        """Event-loop time when bytes last came."""
        return self._watch.last_received

    def send(self, message: AnyMessage, channel: int = 0) -> None:
        """Send a message. On a connection that is over nothing happens: `on_closed` tells."""
        if self._state is _OPEN:
            self._write(b"", encode_message(message, channel))

    def send_raft(self, payload: bytes) -> None:
        """Send a frame of consensus messages."""
        if self._state is _OPEN:
            self._write(encode_header(_RAFT, len(payload)), payload)

    def send_data(
        self, handle: int, file: int, byte: int, data: bytes | memoryview, channel: int = 0
    ) -> None:
        """Send whole record batches for a position; `data` is free again on return."""
        if self._state is _OPEN:
            self._write(encode_data_header(handle, file, byte, len(data), channel), data)

    def send_part(
        self, handle: int, file: int, byte: int, part: bytes | memoryview, channel: int = 0
    ) -> None:
        """Send a piece of a record batch that is longer than a DATA frame."""
        if self._state is _OPEN:
            self._write(b"", encode_part(handle, file, byte, part, channel))

    def open_channel(
        self,
        number: int,
        on_end: Callable[[Channel, Fault | None], None],
    ) -> Channel:
        """Open a channel, whose handler the caller sets. `on_end` reports to the peer that this
        side ends it. Raises ProtocolFault unless the number is higher than all before.
        """
        if number <= self._own.last_channel:
            text = f"channel {number} is not above {self._own.last_channel}, the last one"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "number channels upwards")
        self._own.last_channel = number
        self.channels[number] = channel = Channel(self, number, on_end)
        return channel

    def find_channel(self, number: int) -> Channel | None:
        """Return the open channel that the peer names, or None if it was closed meanwhile. Raises
        ProtocolFault for a channel that was never open.
        """
        channel = self._own.channels.get(number)
        if channel is not None and channel.handler is not None:
            return channel
        if number <= self._own.last_channel:
            return None
        text = f"channel {number} is not open"
        raise ProtocolFault(FaultCode.PROTOCOL, text, "open it first")

    def cork(self) -> None:
        """Gather what is sent until `uncork`."""
        self._corks += 1

    def uncork(self) -> None:
        """Send what was gathered."""
        self._corks -= 1
        if not self._corks and self._tls.to_send:
            self._flush()

    def limit_waiting(self, high_bytes: int, low_bytes: int) -> None:
        """Be writable while less than `high_bytes` wait to be sent, and again below `low_bytes`."""
        self._transport.set_write_buffer_limits(high_bytes, low_bytes)

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole frames that were encoded before, or bytes that are no frames."""
        if self._state is _OPEN:
            self._write(b"", data)

    def open_stream(self, open_protocol: OpenProtocol) -> ByteStream:
        """Give the connection's bytes to another protocol from now on, such as HTTP."""
        self._watch.unwatched(self._loop.time())
        return ByteStream(self, self._transport, self._tls.ssl_object, open_protocol())

    def pause_reading(self) -> None:
        """Take nothing from the peer until `resume_reading`; its deadlines stand still."""
        if self._state is _OPEN and not self._reading_paused:
            self._reading_paused = True
            self._watch.paused(self._loop.time())
            self._read_socket(going_on=False)

    def resume_reading(self) -> None:
        """Read from the peer again, beginning with bytes that have already arrived."""
        if self._state is _OPEN and self._reading_paused:
            self._reading_paused = False
            self._watch.resumed(self._loop.time())
            self._wait_for_turn()

    def hand_over(self, handler: Handler) -> None:
        """Have another handler take everything from the next frame on."""
        self._own.handler = handler

    def close(self, fault: Fault | None = None) -> None:
        """End the connection: send what waits, and the fault if any, for at most `close_s`."""
        error = None if fault is None else ProtocolFault(fault.code, fault.message, fault.remedy)
        self._end(error, fault)

    def abort(self) -> None:
        """End the connection at once, without sending what waits."""
        self._end(None)
        self._transport.abort()

    async def wait_ended(self) -> None:
        """Return when the connection is over and its socket closed."""
        await asyncio.shield(self._ended)

    # --- what the event loop calls ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection is there: start the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        self.host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peername = str(Address(self.host, port))
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._endpoint.arrived(self)
        except ConnectFault as fault:
            self._end(fault)
            return
        self._check_deadlines()
        self._receive()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer into which the socket reads."""
        return self._scratch

    def buffer_updated(self, count: int) -> None:
        """The socket has read `count` bytes."""
        if self._state is not _OPEN:
            if self._state is _OPENING:
                self._shake_hands(self._scratch[:count])
            return
        self._watch.last_received = self._loop.time()
        self._tls.feed(self._scratch[:count])
        self._receive()
        self._tls.let_go()
        turn = self._turn
        turn.read_bytes += count
        if turn.read_bytes >= TURN_BYTES and self._state is _OPEN:
            turn.read_bytes = 0
            self._wait_for_turn()

    def eof_received(self) -> bool:
        """The peer's side of the TCP connection has ended."""
        if self._state in (_OPENING, _OPEN):
            self._end(lost(None))
        return False

    def pause_writing(self) -> None:
        """More than the high-water mark waits to be sent."""
        self._has_room = self.writable = False
        if self._state is _OPEN and isinstance(self._own.handler, ByteStream):
            self._own.handler.on_full()

    def resume_writing(self) -> None:
        """Less than the low-water mark waits to be sent."""
        self._has_room = True
        self.writable = self._state is _OPEN
        if self.writable and self._own.handler is not None:
            self._guard(self._own.handler.on_writable)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if self._state in (_OPENING, _OPEN):
            self._end(lost(exc))
        self._enter(_CLOSED)
        if self._timer is not None:
            self._timer.cancel()
        self._endpoint.ended(self, self._error)
        self._ended.set_result(None)

    # --- receiving ----------------------------------------------------------------------------

    def _shake_hands(self, data: memoryview) -> None:
        """Continue the handshake; at a server in a slice of the peer's host (rule turns.13)."""
        self._watch.last_received = self._loop.time()
        if not self._endpoint.server_side:
            self._take_handshake(data)
            return
        self._read_socket(going_on=False)
        work = partial(self._take_handshake, bytes(data))
        in_slice(self.host, work, preferred=self._endpoint.is_preferred(self.host))

    def _take_handshake(self, data: Bytes) -> None:
        """It is the turn of this handshake."""
        if self._state is _OPENING:
            self._read_socket(going_on=True)
            self._tls.feed(data)
            self._receive()
            self._tls.let_go()

    def _receive(self) -> None:
        """Take what was fed, as far as it goes; send what that gave rise to at once."""
        self._corks += 1
        try:
            if self._state is _OPENING and self._tls.handshake():
                self._open()
            if self._state is _OPEN:
                self._turn.has_peer_closed |= not self._tls.read_into(self._buffer)
                is_stream = self._own.handler.__class__ is ByteStream
                (self._read_stream if is_stream else self._read)()
        except ssl.SSLError as error:
            is_late = self._watch.has_talked
            self._end(lost(error) if is_late else handshake_fault(error, self.peername))
        except Exception as error:  # noqa: BLE001 - the seam: what a handler raises ends it here
            self._fail(error)
        finally:
            self._corks -= 1
            if not self._corks and self._tls.to_send:
                self._flush()

    def _enter(self, state: _State) -> None:
        self._state = state
        self.writable = self._has_room and state is _OPEN

    def _open(self) -> None:
        self._enter(_OPEN)
        self._watch.opened(self._loop.time())
        server_side = self._endpoint.server_side
        try:
            self.identity = identity_of(self._tls.ssl_object, server_side=server_side)
        except IdentityFault as fault:
            raise handshake_fault(fault, self.peername) from fault
        self._own.handler = self._endpoint.opened(self)

    def _read(self) -> None:
        buffer, watch, now = self._buffer, self._watch, self._loop.time()
        left, asked, stop = TURN_FRAMES, 0, time.monotonic() + SLICE_S
        while (
            self._state is _OPEN
            and not self._reading_paused
            and (left > 0 or self._may_go_on(asked))
        ):
            frame = buffer.next()
            if frame is None:
                return self._end_with_peer() if self._turn.has_peer_closed else None
            kind, number, payload = frame
            left -= 1
            if kind is _CONTROL:  # a late one is the last of this turn
                more = payload.nbytes // LONG_BYTES + TURN_FRAMES * (time.monotonic() >= stop)
                left, asked = left - more, asked + 1 + more
            if number:
                self._handle_in_channel(number, kind, payload)
                is_ping = False
            else:
                is_ping = self._handle_frame(kind, payload)
            watch.last_frame = now
            if not (watch.has_talked or is_ping):
                watch.first_frame(now)
        return None

    def _read_stream(self) -> None:
        if not self._reading_paused:
            if len(self._buffer):
                cast(ByteStream, self._own.handler).on_bytes(self._buffer.take_all())
            if self._turn.has_peer_closed:
                self._end_with_peer()

    def _end_with_peer(self) -> None:
        self._end(ConnectionLost("the peer closed the connection"))

    def _may_go_on(self, asked: int) -> bool:
        """Whether more frames can be handled now; if not, the connection waits. Messages of clients
        share the slices of long work (rule turns.14); records, and what nodes send, wait for one
        turn.
        """
        who, is_server = self.identity, self._endpoint.server_side
        if asked * 2 <= TURN_FRAMES or not is_server or who.startswith(NODE_PREFIX):
            self._wait_for_turn()
            return False
        if slices().may_work():
            return True
        if not self._turn.has_next:
            self._turn.has_next = True
            self._read_socket(going_on=False)
            in_slice(who, self._next_turn)
        return False

    def _wait_for_turn(self) -> None:
        """Read nothing more in this turn of the event loop."""
        if not self._turn.has_next:
            self._turn.has_next = True
            self._read_socket(going_on=False)
            self._loop.call_soon(self._next_turn)

    def _handle_frame(
        self, frame_type: FrameType, payload: memoryview, channel: Channel | None = None
    ) -> bool:
        """Hand one frame on; whether it was a Ping."""
        handler: Handler = (channel or self._own).handler  # type: ignore[assignment]  # it has one
        number = 0 if channel is None else channel.number
        with payload:
            if frame_type is _DATA:
                handle, file, byte = decode_data_header(payload)
                with payload[DATA_HEADER_BYTES:] as data:
                    handler.on_data(handle, file, byte, data)
                return False
            if frame_type is _RAFT:
                handler.on_raft(payload)
                return False
            if frame_type is _PART:
                self._buffer.partial.take_frame(payload, number, handler.on_data)
                return False
            message = decode_message(payload)
        if isinstance(message, Ping):
            return True
        if isinstance(message, Fault):
            self._end(PeerFault(message.code, message.message, message.remedy))
        else:
            handler.on_message(message)
        return False

    def _handle_in_channel(self, number: int, frame_type: FrameType, payload: memoryview) -> None:
        """Hand on a frame of a channel; an error ends the channel. Raises ProtocolFault for a
        channel that was never open.
        """
        channel = self._own.channels.get(number)
        if channel is None or channel.handler is None:
            channel = self.find_channel(number)
            if channel is None:
                return
        try:
            self._handle_frame(frame_type, payload, channel)
        except Exception as error:  # noqa: BLE001 - the seam: it ends the channel
            channel.failed(error)

    def _next_turn(self) -> None:
        """Others have had their turn, or the user wants to take again."""
        self._turn.has_next = False
        if self._state is _OPEN and not self._reading_paused:
            self._receive()
        if self._state is _OPEN and not (self._reading_paused or self._turn.has_next):
            self._read_socket(going_on=True)

    def _read_socket(self, *, going_on: bool) -> None:
        """Whether the event loop is to read from the socket; one that is closing cannot be told."""
        if not (transport := self._transport).is_closing():
            (transport.resume_reading if going_on else transport.pause_reading)()

    # --- sending ------------------------------------------------------------------------------

    def _write(self, header: bytes, payload: bytes | bytearray | memoryview) -> None:
        watch, now = self._watch, self._loop.time()
        is_first, watch.last_sent = now - watch.last_sent > RECENT_S, now
        size = len(payload)
        if size <= PIECE_BYTES:
            self._tls.write(header, payload)
            if is_first and not self._corks:
                if not self._transport.is_closing():
                    self._transport.write(self._tls.take())
            elif self._tls.to_send >= PIECE_BYTES:
                self._flush()
            elif not (self._corks or self._turn.is_gathering):
                self._turn.is_gathering = True
                self._loop.call_soon(self._flush_gathered)
            return
        view = memoryview(payload)
        for start in range(0, size, PIECE_BYTES):
            self._tls.write(header, view[start : start + PIECE_BYTES])
            self._flush()
            header = b""

    def _flush_gathered(self) -> None:
        self._turn.is_gathering = False
        if self._tls.to_send and not self._corks:
            self._flush()

    def _flush(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._tls.take())

    # --- ending -------------------------------------------------------------------------------

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the seam: what a handler raises ends it here
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """A handler, or what it was to be given, failed."""
        self.report(error)
        self._end(error, fault_of(error))

    def report(self, error: Exception) -> None:
        """Log what a handler raised, unless that may happen; a broken invariant ends the
        process.
        """
        if isinstance(error, InvariantError):
            context = {"message": "a broken invariant", "exception": error, "protocol": self}
            self._loop.call_exception_handler(context)
        elif not isinstance(error, EXPECTED_ERRORS):
            event = format_event("connection failed", peer=self.peername, error=error)
            log.error("%s", event, exc_info=error)

    def _end(self, error: Exception | None, fault: Fault | None = None) -> None:
        """The conversation is over; the socket follows when the peer has seen it, or in time."""
        if self._state not in (_OPENING, _OPEN):
            return
        if self._state is _OPENING and error is not None:
            error = handshake_fault(error, self.peername)
        self._error = error
        if fault is not None and not self.is_http:
            self.send(fault)
        self._enter(_CLOSING)
        self._buffer = ReceiveBuffer()
        self._loop.call_soon(self._tell_closed)
        self._watch.closing(self._loop.time())
        # Given up while connecting, it is closed and does not say so; reset, nobody can be told.
        with contextlib.suppress(RuntimeError, OSError):
            self._finish_sending()
            self._read_socket(going_on=True)
        self._check_deadlines()

    def _finish_sending(self) -> None:
        if not self._transport.is_closing():
            self._tls.say_goodbye()
            if self._tls.to_send:
                self._flush()
        if not self._transport.is_closing():  # a write that fails at once closes it
            self._transport.write_eof()

    def _tell_closed(self) -> None:
        channels = self._own.channels
        for number in tuple(islice(channels, ENDED_IN_TURN)):
            self._guard(partial(channels.pop(number).connection_over, self._error))
        if channels:
            self._loop.call_soon(self._tell_closed)
            return
        if self._own.handler is not None:
            self._own.handler.on_closed(self._error)

    def _check_deadlines(self) -> None:
        """Act on what is overdue; see to it that this is called again."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        missed = self._watch.missed(now)
        if missed is None:
            self._keep_alive(now)
            due = self._watch.next_check(now)
            self._timer = self._loop.call_at(due, self._on_time, due)
        elif self._state is _CLOSING:
            self._transport.abort()
        else:
            self._end(DeadlinePassed(missed), make_fault(FaultCode.TIMEOUT, missed))

    def _on_time(self, due: float) -> None:
        """The timer rang. If it is late, this process stood still, and what the peer sent meanwhile
        is still to be read: nobody is judged before.
        """
        late_s = self._loop.time() - due
        if late_s < STALL_S:
            self._check_deadlines()
            return
        self._watch.stood_still(late_s)
        self._timer = self._loop.call_later(READ_S, self._check_deadlines)

    def _keep_alive(self, now: float) -> None:
        self._buffer.trim()
        if self.writable and self._watch.ping_due(now):
            self.send(Ping())

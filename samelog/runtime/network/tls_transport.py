"""TLS below a protocol of asyncio's, at a server: as the event loop's own, but OpenSSL is called as
connections between peers call it (`tls_session`).

Why: event loops go through Python's `ssl`, with a call and a copy for each 16 KB in each direction.
That was half of what a consumer of a GB cost a node.

What is written waits here as it is, and is encrypted when the socket has room for it: a client that
does not read costs no second copy.

Invariant: the protocol is made when the handshake is done, and never if it fails; `connection_lost`
is then called exactly once, and is the last call.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

from samelog.format.batch import Bytes
from samelog.runtime.network._tls import ReceiveBuffer
from samelog.runtime.network.byte_stream import OpenProtocol
from samelog.runtime.network.tls_session import JOIN_BYTES, open_session
from samelog.runtime.slices import in_slice

SCRATCH_BYTES = 256 << 10
PIECE_BYTES = 256 << 10
"""Encrypted at once. Of 64 KiB, a GB read by a client took a node 1.4 s instead of 1.25."""
RECORD_BYTES = 16 << 10
"""Of a TLS record at most: what fits is joined into one."""
HIGH_WATER_BYTES, LOW_WATER_BYTES = 256 << 10, 64 << 10
"""Encrypted, and waiting for the socket."""


class TlsServing(NamedTuple):
    """What a listener gives each of its connections."""

    context: ssl.SSLContext
    open_protocol: OpenProtocol
    refused: Callable[[str, str], None]
    """A handshake has failed: the peer's host, and why."""
    handshake_s: float
    close_s: float
    """For sending what waits, at the end."""


class _Shared(threading.local):
    """What one thread's event loop reads into; used up before the next read."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(SCRATCH_BYTES))
        self.plain = ReceiveBuffer()


_shared = _Shared()


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the protocol of the socket's transport, and the transport of another."""

    def __init__(self, serving: TlsServing) -> None:
        super().__init__()
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._tls = open_session(serving.context, server_side=True)
        self._shared = _shared
        self._protocol: asyncio.Protocol | None = None
        self._waiting: deque[Bytes] = deque()
        self._waiting_bytes = 0
        self._high, self._low = HIGH_WATER_BYTES, LOW_WATER_BYTES
        self._is_full = False
        """The protocol was told to pause."""
        self._has_room = True
        self._is_closing = False
        self._error: Exception | None = None
        self._timer = self._loop.call_later(serving.handshake_s, self._is_late)

    # --- called by the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection is there; the client speaks first."""
        self._below = cast(asyncio.Transport, transport)
        self._below.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer into which the socket reads."""
        return self._shared.memory

    def buffer_updated(self, count: int) -> None:
        """The socket has read `count` bytes."""
        data = self._shared.memory[:count]
        if self._protocol is not None:
            self._take(data)
            return
        if self.is_closing():
            return
        self._below.pause_reading()
        in_slice(self._host, partial(self._take_handshake, bytes(data)))

    def _take_handshake(self, data: bytes) -> None:
        """It is the turn of this handshake (rule turns.13)."""
        if not self.is_closing():
            self._below.resume_reading()
            self._take(data)

    def _take(self, data: Bytes) -> None:
        tls = self._tls
        tls.feed(data)
        try:
            if self._protocol is not None or self._shake_hands():
                self._read()
        except ssl.SSLError as error:
            self._break(error)
        finally:
            tls.let_go()

    def eof_received(self) -> bool:
        """The client sends no more, goodbye or not; it gets what waits for it."""
        if self._protocol is None:
            return False
        self._protocol.eof_received()
        self.close()
        return True

    def pause_writing(self) -> None:
        """Enough waits for the socket."""
        self._has_room = False

    def resume_writing(self) -> None:
        """The socket has room again."""
        self._has_room = True
        self._encrypt()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._timer.cancel()
        self._is_closing = True
        self._waiting.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(exc or self._error)

    # --- called by the protocol ---------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The same keys as for any TLS transport."""
        if name == "ssl_object":
            return self._tls.ssl_object
        return self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is to pause, and when to go on."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """What waits, in bytes."""
        return self._waiting_bytes + self._below.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, unless the connection is over."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        """Send all of these, unless the connection is over."""
        if self.is_closing():
            return
        for data in list_of_data:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        self._encrypt()

    def is_reading(self) -> bool:
        """Whether bytes may come."""
        return self._below.is_reading()

    def pause_reading(self) -> None:
        """Take nothing more from the client."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._below.resume_reading()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closing or self._below.is_closing()

    def close(self) -> None:
        """End the connection when all is sent, or after a while."""
        if self.is_closing():
            return
        self._begin_closing()
        self._encrypt()

    def abort(self) -> None:
        """End the connection at once."""
        self._is_closing = True
        self._below.abort()

    # --- receiving ----------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Go on with the handshake; whether it is done. Raises ssl.SSLError."""
        is_done = self._tls.handshake()
        self._flush()
        if is_done:
            self._timer.cancel()
            self._protocol = self._serving.open_protocol()
            self._protocol.connection_made(self)
        return is_done

    def _read(self) -> None:
        """Give the protocol what has come. Raises ssl.SSLError."""
        goes_on = self._tls.read_into(self._shared.plain)
        data = self._shared.plain.take_all()
        if self._tls.to_send:  # a new key was asked for
            self._flush()
        if data and self._protocol is not None and not self._is_closing:
            self._protocol.data_received(data)
        if not goes_on:
            self.eof_received()

    def _break(self, error: ssl.SSLError) -> None:
        """What came is no TLS, or none that is taken here: the client is told by an alert."""
        self._shared.plain.take_all()
        self._error = error
        if self._protocol is None:
            self._serving.refused(self._host, f"{error.reason or error}")
        self._begin_closing()
        self._flush()
        self._below.close()

    def _begin_closing(self) -> None:
        self._is_closing = True
        self._timer.cancel()
        self._timer = self._loop.call_later(self._serving.close_s, self._below.abort)

    def _is_late(self) -> None:
        self._serving.refused(self._host, "the handshake was not done in time")
        self.abort()

    @property
    def _host(self) -> str:
        return str((self._below.get_extra_info("peername") or ("unknown",))[0])

    # --- sending ------------------------------------------------------------------------------

    def _flush(self) -> None:
        data = self._tls.take()
        if data and not self._below.is_closing():
            self._below.write(data)

    def _encrypt(self) -> None:
        """Encrypt what waits as long as the socket has room; at the end, say goodbye."""
        while self._waiting and self._has_room and not self._below.is_closing():
            self._tls.write(*self._next_piece())
            self._flush()
        self._tell()
        if self._is_closing and not self._waiting and not self._below.is_closing():
            self._tls.say_goodbye()
            self._flush()
            self._below.close()

    def _next_piece(self) -> tuple[bytes, Bytes]:
        """What is encrypted next: small pieces as one, and a part of a large one behind them."""
        waiting = self._waiting
        if self._waiting_bytes <= RECORD_BYTES:
            data = b"".join(waiting)
            waiting.clear()
            self._waiting_bytes = 0
            return b"", data
        head = b""
        while waiting and len(waiting[0]) + len(head) <= JOIN_BYTES:
            head += waiting.popleft()
        part: Bytes = b""
        if waiting:
            first = memoryview(waiting.popleft())
            part = first[:PIECE_BYTES]
            if len(first) > PIECE_BYTES:
                waiting.appendleft(first[PIECE_BYTES:])
        self._waiting_bytes -= len(head) + len(part)
        return head, part

    def _tell(self) -> None:
        """Have the protocol pause, or go on, as what waits demands."""
        if self._protocol is None or not (self._waiting or self._is_full):
            return
        size = self.get_write_buffer_size()
        if not self._is_full and size > self._high:
            self._is_full = True
            self._protocol.pause_writing()
        elif self._is_full and (size <= self._low or not self._waiting):
            self._is_full = False
            self._protocol.resume_writing()

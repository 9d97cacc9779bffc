"""TLS of one connection, between bytes from the network and bytes for frames.

The library's own TLS transports drop the alert that tells a peer why its handshake failed; with
the session in our hands the alert is sent, writes are cut into pieces that stay in the processor's
cache, and nothing is buffered twice.

Invariant: after every call, what is to be sent is in `take()`.
"""

from __future__ import annotations

import contextlib
import ssl

from samelog.runtime.network.receive_buffer import ReceiveBuffer

PIECE_BYTES = 64 << 10
"""Encrypted and handed to the socket at once; larger pieces were measured to be slower."""


class TlsSession:
    """One side of one TLS connection, without a socket."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.feed = self._incoming.write
        self.take = self._outgoing.read
        self.write = self._ssl.write

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """For the peer's certificate, once the handshake is done."""
        return self._ssl

    @property
    def has_output(self) -> bool:
        """Whether there is something to send."""
        return self._outgoing.pending > 0

    def handshake(self) -> bool:
        """Go on with the handshake; True: done. Raises ssl.SSLError (its alert is in `take`)."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, buffer: ReceiveBuffer) -> bool:
        """Decrypt all that was fed; False when the peer has ended its side. Raises ssl.SSLError."""
        incoming, session = self._incoming, self._ssl
        used = size = 0
        room = memoryview(b"")
        try:
            while incoming.pending or session.pending():
                if used == size:
                    buffer.received(used)
                    room = buffer.room(incoming.pending + session.pending())
                    used, size = 0, len(room)
                count = session.read(size - used, room[used:])
                if not count:
                    return False
                used += count  # type: ignore[operator]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return False
        finally:
            buffer.received(used)
        return True

    def say_goodbye(self) -> None:
        """Tell the peer that this side sends no more."""
        # The peer's own goodbye is not waited for, and a broken session needs none.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()

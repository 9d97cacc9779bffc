"""TLS of one connection, between bytes from the network and bytes for frames.

The library's own TLS transports drop the alert that tells a peer why its handshake failed; with
the session in our hands the alert is sent, writes are cut into pieces that stay in the processor's
cache, and nothing is buffered twice.

Invariant: after every call, what is to be sent is in `output`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from samelog.format.batch import Bytes
from samelog.runtime.network.receive_buffer import ReceiveBuffer

PIECE_BYTES = 64 << 10
"""Encrypted and handed to the socket at once; larger pieces were measured to be slower."""


class TlsSession:
    """One side of one TLS connection, without a socket."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._input = ssl.MemoryBIO()
        self.output = ssl.MemoryBIO()
        """What is to be sent; `output.pending` bytes."""
        self._ssl = context.wrap_bio(self._input, self.output, server_side=server_side)
        inner: Any = getattr(self._ssl, "_sslobj", self._ssl)  # the public one only forwards
        self.feed = self._input.write
        self.write: Callable[[Bytes], int] = inner.write
        self._read: Callable[[int, memoryview], int] = inner.read

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """The TLS object, which has the peer's certificate once the handshake is done."""
        return self._ssl

    def handshake(self) -> bool:
        """Go on with the handshake; True: done. Raises ssl.SSLError (its alert is in `output`)."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, buffer: ReceiveBuffer) -> bool:
        """Decrypt all that was fed; False when the peer has ended its side. Raises ssl.SSLError.

        A read that leaves room behind has emptied its TLS record: nothing of it is pending.
        """
        given, session, read = self._input, self._ssl, self._read
        room, used = buffer.memory[buffer.stop :], 0
        if len(room) < given.pending:
            room = buffer.room(given.pending)
        try:
            while given.pending or (used == len(room) and session.pending()):
                if used == len(room):
                    buffer.stop += used
                    room, used = buffer.room(given.pending + session.pending()), 0
                count = read(len(room) - used, room[used:])
                if not count:
                    return False
                used += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return False
        finally:
            buffer.stop += used
        return True

    def read_bytes(self) -> tuple[bytes, bool]:
        """All that was fed, decrypted; False when the peer has ended its side. Raises
        ssl.SSLError.
        """
        parts = []
        try:
            while part := self._ssl.read(PIECE_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), True
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(parts), False

    def say_goodbye(self) -> None:
        """Tell the peer that this side sends no more."""
        # The peer's own goodbye is not waited for, and a broken session needs none.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()

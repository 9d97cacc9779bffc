"""TLS of one connection, between bytes from the network and bytes for frames.

The library's own TLS transports drop the alert that tells a peer why its handshake failed; with
the session in our hands the alert is sent, writes are cut into pieces that stay in the processor's
cache, and nothing is buffered twice.

There are two kinds that behave alike. The compiled `Session` calls OpenSSL directly. `BioSession`
goes through Python's `ssl` alone, at twice the cost: it is for Pythons whose OpenSSL cannot be
called (linked statically, or another library), and for contexts that are not `ssl`'s own.

Invariant: after every call, what is to be sent is what `take` gives.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from samelog.format.batch import Bytes
from samelog.runtime.network import _tls
from samelog.runtime.network._tls import ReceiveBuffer, Session

JOIN_BYTES = 8 << 10
"""Payloads up to this size are copied behind their header: one TLS record is cheaper than two."""


class BioSession:
    """One side of one TLS connection, without a socket."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._input, self._output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._input, self._output, server_side=server_side)
        """The TLS object, which has the peer's certificate once the handshake is done."""
        inner: Any = getattr(self.ssl_object, "_sslobj", self.ssl_object)  # which only forwards
        self.feed: Callable[[Bytes], object] = self._input.write
        self.take: Callable[[], bytes] = self._output.read
        self._write: Callable[[Bytes], int] = inner.write
        self._read: Callable[[int, memoryview], int] = inner.read

    @property
    def to_send(self) -> int:
        """How many bytes `take` would give."""
        return self._output.pending

    def let_go(self) -> None:
        """The memory that was fed is used again from now on; here there is a copy."""

    def handshake(self) -> bool:
        """Go on with the handshake; True: done. Raises ssl.SSLError (its alert is to be sent)."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, buffer: ReceiveBuffer) -> bool:
        """Decrypt all that was fed; False when the peer has ended its side. Raises ssl.SSLError.

        A read that leaves room behind has emptied its TLS record: nothing of it is pending.
        """
        given, session, read = self._input, self.ssl_object, self._read
        room, used = buffer.room(given.pending), 0
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

    def write(self, header: bytes, payload: Bytes) -> None:
        """Encrypt; `payload` is free again on return. Raises ssl.SSLError."""
        pieces = (header + payload,) if len(payload) <= JOIN_BYTES else (header, payload)
        for piece in filter(len, pieces):
            self._write(piece)

    def say_goodbye(self) -> None:
        """Tell the peer that this side sends no more."""
        # The peer's own goodbye is not waited for, and a broken session needs none.
        with contextlib.suppress(ssl.SSLError):
            self.ssl_object.unwrap()


def open_session(context: ssl.SSLContext, *, server_side: bool) -> Session | BioSession:
    """The faster kind, if it is possible here."""
    if _tls.is_usable and isinstance(context, ssl.SSLContext):
        return Session(context, server_side=server_side)
    return BioSession(context, server_side=server_side)

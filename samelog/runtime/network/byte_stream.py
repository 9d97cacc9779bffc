"""A connection that carries bytes instead of frames, as an asyncio protocol of another kind (HTTP)
sees it.

The peer has passed the same handshake, checks and limits as any other; only what is spoken
afterwards differs. Invariant: `connection_lost` is called exactly once, and is the last call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

OpenProtocol = Callable[[], asyncio.Protocol]
"""Makes the protocol of one new connection."""


class ByteCarrier(Protocol):
    """The connection below: what a stream uses of it."""

    @property
    def is_open(self) -> bool:
        """Whether bytes can be sent and come in."""

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Send, unless it is over."""

    def pause_reading(self) -> None:
        """Take nothing from the peer for a while."""

    def resume_reading(self) -> None:
        """Take from the peer again."""

    def close(self) -> None:
        """End it when all is sent."""

    def abort(self) -> None:
        """End it at once."""


class ByteStream(asyncio.Transport):
    """The transport that the protocol is given."""

    def __init__(
        self,
        carrier: ByteCarrier,
        below: asyncio.BaseTransport,
        ssl_object: ssl.SSLObject,
        protocol: asyncio.Protocol,
    ) -> None:
        super().__init__()
        self._carrier, self._below, self._ssl_object = carrier, below, ssl_object
        self._protocol = protocol
        self._is_reading = True
        protocol.connection_made(self)

    # --- called by the protocol ---------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The same keys as for any TLS transport."""
        if name == "ssl_object":
            return self._ssl_object
        return self._below.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that uses this stream."""
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, unless the connection is over."""
        self._carrier.send_bytes(data)

    def is_reading(self) -> bool:
        """Whether bytes may come."""
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        """Stop giving bytes to the protocol."""
        self._is_reading = False
        self._carrier.pause_reading()

    def resume_reading(self) -> None:
        """Give bytes to the protocol again."""
        self._is_reading = True
        self._carrier.resume_reading()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return not self._carrier.is_open

    def close(self) -> None:
        """End the connection when all is sent."""
        self._carrier.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._carrier.abort()

    # --- called by the connection -------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """The peer has sent this."""
        self._protocol.data_received(data)

    def on_full(self) -> None:
        """More than the high-water mark waits to be sent."""
        self._protocol.pause_writing()

    def on_writable(self) -> None:
        """Less than the low-water mark waits to be sent."""
        self._protocol.resume_writing()

    def on_closed(self, error: Exception | None) -> None:
        """The connection is over."""
        self._protocol.connection_lost(error)

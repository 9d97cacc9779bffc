"""One framed connection over TLS: callbacks only, no task and no copy per frame.

Payloads are handed on as memoryviews into the receive buffer, valid during the call. Every wait of a peer has a
deadline, kept by one timer: the first frame, a frame begun, silence. Work per turn of the event loop is bounded.

An exception out of a handler ends its connection with a Fault frame that says why. InvariantError is not for the peer:
it goes to the event loop's exception handler, which ends the process (`shiplog.runtime.loop`).

Invariant: for every connection whose handler was made, `on_closed` is called exactly once, and is the last call.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, cast

from shiplog.logformat.errors import InvariantError
from shiplog.runtime.errors import ConnectionLost, DeadlinePassed, PeerFault
from shiplog.runtime.faults import fault_of, lost
from shiplog.runtime.receive_buffer import ReceiveBuffer
from shiplog.runtime.tls import Identity
from shiplog.wire.errors import FaultCode, ProtocolFault
from shiplog.wire.frames import (
    DATA_HEADER_BYTES,
    FrameType,
    decode_data_header,
    encode_data_header,
    encode_frame,
)
from shiplog.wire.messages import AnyMessage, Fault, Ping, decode_message, encode_message

log = logging.getLogger(__name__)

HIGH_WATER_BYTES = 4 << 20
LOW_WATER_BYTES = 1 << 20
TURN_BYTES = 1 << 20
"""Received and handled before other connections have their turn."""
JOIN_BYTES = 16 << 10
"""Payloads up to this size are copied behind their header: one TLS record is cheaper than two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a peer may take, in seconds."""

    connect_s: float = 5.0
    handshake_s: float = 5.0
    first_frame_s: float = 5.0
    frame_s: float = 20.0
    idle_s: float = 10.0
    ping_s: float = 2.0
    close_s: float = 5.0


class Handler(Protocol):
    """What a connection's user does with what comes. Called in the event loop; must not block it."""

    def on_message(self, message: AnyMessage) -> None:
        """A control message; Ping and Fault are the connection's own."""

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Record batches for a position; `data` is valid during the call only."""

    def on_raft(self, payload: memoryview) -> None:
        """A frame of consensus messages; `payload` is valid during the call only."""

    def on_writable(self) -> None:
        """`writable` is true again after it was not."""

    def on_closed(self, error: Exception | None) -> None:
        """The connection is over. None: this side closed it without a fault."""


OpenHandler = Callable[["Connection"], Handler]
"""Makes the handler of a connection once the peer is known. May raise: the connection ends with a Fault."""


class _State(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class Connection(asyncio.BufferedProtocol):
    """One connection; made by `connect` and `serve` only."""

    identity: Identity
    """Who the peer is, by its certificate."""
    peername: str
    """The peer's address, for humans."""
    last_received: float
    """Event-loop time of the last bytes received."""

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent and come in."""
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        """Whether less than the high-water mark waits to be sent. Sending more is possible, but piles up."""
        raise NotImplementedError

    def send(self, message: AnyMessage) -> None:
        """Send a message. After the end of the connection nothing happens: `on_closed` says so."""
        raise NotImplementedError

    def send_data(self, handle: int, file: int, byte: int, data: bytes | memoryview) -> None:
        """Send whole record batches for a position; `data` is free again on return."""
        raise NotImplementedError

    def send_raft(self, payload: bytes) -> None:
        """Send consensus messages."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Take nothing from the peer until `resume_reading`; it is not held to its deadlines meanwhile."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Take from the peer again."""
        raise NotImplementedError

    def close(self, fault: Fault | None = None) -> None:
        """Send what waits, then the fault if any, and end the connection; at the latest after `close_s`."""
        raise NotImplementedError

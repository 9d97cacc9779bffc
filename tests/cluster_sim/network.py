"""The simulated network: TCP as applications see it when everything between hosts may go wrong.

Within one connection bytes keep their order; between connections nothing does. A cut holds bytes
back (as lost packets do, that are sent again) until it is mended or somebody loses patience; a
connection may break at any byte, and its two ends hear of it at different times.

Invariant: what arrives on a connection is a prefix of what was sent on it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from tests.cluster_sim.loop import SimLoop
from tests.cluster_sim.pipe import Pipe
from tests.cluster_sim.process import Process

RETRY_S = 0.1
LONGEST_RETRY_S = 1.0
"""How often somebody who cannot be reached is tried again: more and more rarely, as TCP does."""

Address = tuple[str, int]


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, process: Process, peer: Address) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.peer = peer
        self.protocol: asyncio.BufferedProtocol
        self.other: Transport
        self.outgoing: Pipe
        self.is_over = False
        self.is_held = False
        """The protocol wants nothing at the moment."""
        self._closing = False

    # --- what protocols call ----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer, "socket": self}.get(name, default)

    def setsockopt(self, *arguments: int) -> None:
        """It is its own socket."""

    def fileno(self) -> int:
        """A low one: descriptors of sockets are not simulated."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.outgoing.high_bytes, self.outgoing.low_bytes = high or 0, low or 0

    def is_closing(self) -> bool:
        return self._closing or self.is_over

    def write(self, data: Any) -> None:
        if self.is_over or self.outgoing.is_ended:
            return
        self.process.effect()
        self.outgoing.send(bytes(data))

    def write_eof(self) -> None:
        if not self.is_over:
            self.outgoing.end()

    def pause_reading(self) -> None:
        self.is_held = True

    def resume_reading(self) -> None:
        if self.is_held:
            self.is_held = False
            self.other.outgoing.resume()

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        self.outgoing.end()
        self.network.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        if not self.is_over:
            self.network.break_end(self.other)
            self._closing = True
            self.network.loop.call_soon(self.lose, None)

    # --- what happens to it -----------------------------------------------------------------------

    def lose(self, error: Exception | None) -> None:
        """It is over for this end."""
        if self.is_over:
            return
        self.is_over = True
        self.network.transports.pop(self, None)
        self.protocol.connection_lost(error)


class _Listener:
    """What `create_server` gives."""

    def __init__(self, network: Network, process: Process, factory: Any, address: Address) -> None:
        self.process = process
        self.factory = factory
        self.sockets = (self,)
        self._network = network
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]


class Network:
    """All connections between hosts."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(f"network {seed}")
        self.latency_s = 0.0005
        self.slow_chance = 0.0
        self.slow_s = 0.0
        self.split_chance = 0.0
        """How often a piece arrives in two."""
        self.listeners: dict[Address, _Listener] = {}
        self.transports: dict[Transport, None] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.powered_off: set[str] = set()
        self.note: Callable[[str], None] = lambda text: None

    # --- connecting -------------------------------------------------------------------------------

    def listen(self, process: Process, factory: Any, address: Address) -> _Listener:
        """Raises OSError when the address is taken."""
        known = self.listeners.get(address)
        if known is not None and known.process.is_alive:
            raise OSError(f"{address} is taken")
        self.listeners[address] = _Listener(self, process, factory, address)
        return self.listeners[address]

    async def connect(self, process: Process, factory: Any, address: Address) -> Any:
        """Raises ConnectionRefusedError; waits while nobody answers at all."""
        host, retry_s = address[0], RETRY_S
        while self._is_cut(process.host, host) or host in self.powered_off:
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)
        await asyncio.sleep(self.delay())
        listener = self.listeners.get(address)
        if listener is None or not listener.process.is_alive:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        here = Transport(self, process, address)
        there = Transport(self, listener.process, (process.host, 40_000))
        here.other, there.other = there, here
        here.outgoing, there.outgoing = Pipe(here), Pipe(there)
        self.transports[here] = self.transports[there] = None
        here.protocol = protocol = factory()
        self.loop.call_in(listener.process, self.delay(), self._accept, listener, there)
        protocol.connection_made(here)
        return here, protocol

    def _accept(self, listener: _Listener, there: Transport) -> None:
        if there.is_over:
            return
        there.protocol = listener.factory()
        cast(Any, there.protocol).connection_made(there)
        there.other.outgoing.resume()

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self.cuts or (other, one) in self.cuts

    def delay(self) -> float:
        """How long the next piece takes."""
        random = self.chance.random
        if random() < self.slow_chance:
            return self.slow_s * random()
        return self.latency_s * (0.5 + 1.5 * random())

    # --- what goes wrong --------------------------------------------------------------------------

    def mend(self) -> None:
        """Everybody hears everybody again."""
        self.cuts.clear()
        for transport in tuple(self.transports):
            transport.outgoing.resume()

    def reset(self, transport: Transport) -> None:
        """A connection breaks: each end hears of it some time, and may get some bytes before."""
        for end in (transport, transport.other):
            end.outgoing.tear(self.chance)
            self.break_end(end, self.chance.uniform(0, 0.2))

    def break_end(self, end: Transport, delay: float | None = None) -> None:
        """One end hears that the connection is no more."""
        delay = self.delay() if delay is None else delay
        self.loop.call_in(end.process, delay, self._broken, end)

    def _broken(self, end: Transport, retry_s: float = RETRY_S) -> None:
        if self.cuts and self._is_cut(end.process.host, end.other.process.host):
            longer_s = min(2 * retry_s, LONGEST_RETRY_S)
            self.loop.call_in(end.process, retry_s, self._broken, end, longer_s)
        elif hasattr(end, "protocol"):
            end.lose(ConnectionResetError("reset by the peer"))
        else:
            end.is_over = True
            self.transports.pop(end, None)

    def process_died(self, process: Process, *, silently: bool) -> None:
        """The kernel closes a killed process's connections; a host without power says nothing."""
        for transport in [t for t in self.transports if t.process is process]:
            self.transports.pop(transport)
            transport.is_over = True
            if not silently:
                transport.outgoing.tear(self.chance)
                self.break_end(transport.other)

    def host_came_back(self, host: str) -> None:
        """A host that has lost its power runs again: it knows nothing of its old connections."""
        self.powered_off.discard(host)
        for transport in tuple(self.transports):
            if transport.other.process.host == host and not transport.other.process.is_alive:
                self.break_end(transport)

"""Making connections: the client's `connect`, the server's `serve`, and whom a server lets in.

A node is known by authority and identity, never by host name. A refused connection is a line in
the log with peer, problem and remedy, limited in rate; it never disturbs another one.

Invariant: a handler is only ever made for a peer whose certificate has passed; counts of
connections and handshakes never exceed the limits.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable

from samelog.config.tables.node import ConnectionLimits
from samelog.config.values import Address
from samelog.runtime.clock import SystemClock
from samelog.runtime.descriptors import REMEDY, descriptors
from samelog.runtime.errors import ConnectFault, ConnectProblem
from samelog.runtime.faults import handshake_fault, lost
from samelog.runtime.log import RateLimitedLog
from samelog.runtime.network.byte_stream import ByteStream, OpenProtocol
from samelog.runtime.network.channel import Handler
from samelog.runtime.network.connection import Connection, OpenHandler
from samelog.runtime.network.peer_watch import Deadlines
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.wire.errors import FaultCode, ProtocolFault

__all__ = [
    "Address",
    "Connection",
    "Deadlines",
    "Handler",
    "OpenHandler",
    "Server",
    "connect",
    "serve",
]

log = logging.getLogger(__name__)

BACKLOG = 256
PEER_HOSTS = 256
"""Whose handshakes come first; a cluster has fewer nodes."""
DEFAULT_DEADLINES = Deadlines()
DEFAULT_LIMITS = ConnectionLimits()


async def connect(
    address: Address,
    tls: ReloadingContext,
    open_handler: OpenHandler,
    *,
    expected_identity: str | None,
    deadlines: Deadlines = DEFAULT_DEADLINES,
) -> Connection:
    """Connect to a node; `expected_identity` None: any identity `samelog://node/...`.

    Raises:
        ConnectFault: there is no such connection; nothing is left open, nor is when this is
        cancelled. (That the node refuses this side's certificate may come to light only after the
        handshake: then `on_closed` gets the ConnectFault.) Exception: whatever `open_handler`
        raised.
    """
    loop = asyncio.get_running_loop()
    client = _Client(address, tls, open_handler, expected_identity, deadlines)
    try:
        try:
            async with asyncio.timeout(deadlines.connect_s):
                await loop.create_connection(lambda: Connection(client), address.host, address.port)
                client.is_connected = True
        except (OSError, UnicodeError) as error:
            raise handshake_fault(error, str(address)) from error
        return await client.result
    except BaseException:  # a cancellation may come when all is open already
        await client.abandon()
        raise


class _Client:
    """The connecting side of one connection."""

    server_side = False

    def __init__(
        self,
        address: Address,
        tls: ReloadingContext,
        open_handler: OpenHandler,
        expected_identity: str | None,
        deadlines: Deadlines,
    ) -> None:
        self.deadlines = deadlines
        self.result: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._address = address
        self._tls = tls
        self._open_handler = open_handler
        self._expected = expected_identity
        self._connection: Connection | None = None
        self.is_connected = False

    async def abandon(self) -> None:
        """Nobody wants the connection any more, however far it has come."""
        self.result.cancel()
        if self._connection is not None:
            self._connection.close()
            if not self.is_connected:  # uvloop has closed the socket, and tells nobody
                self._connection.connection_lost(None)
            await self._connection.wait_ended()

    def context(self) -> ssl.SSLContext:
        """As the files are now."""
        return self._tls.client

    def arrived(self, connection: Connection) -> None:
        """The TCP connection is there."""
        self._connection = connection

    def is_preferred(self, host: str) -> bool:
        """A client has one handshake."""
        return True

    def opened(self, connection: Connection) -> Handler:
        """Verify that the node is the one wanted."""
        identity, expected = connection.identity, self._expected
        if identity != expected if expected else not identity.startswith(NODE_PREFIX):
            wanted = expected or f"{NODE_PREFIX}<name>"
            raise ConnectFault(
                ConnectProblem.WRONG_IDENTITY,
                str(self._address),
                f"the peer is {identity}, wanted is {wanted}",
                remedy="check the address, and the node's certificate",
            )
        handler = self._open_handler(connection)
        if not self.result.done():
            self.result.set_result(connection)
        return handler

    def ended(self, connection: Connection, error: Exception | None) -> None:
        """Nothing to do unless `connect` still waits."""
        if not self.result.done():
            self.result.set_exception(error or lost(None))


async def serve(
    address: Address,
    tls: ReloadingContext,
    open_handler: OpenHandler,
    *,
    open_http: OpenProtocol | None = None,
    is_admin: Callable[[str], bool] | None = None,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    deadlines: Deadlines = DEFAULT_DEADLINES,
) -> Server:
    """Listen; port 0: any free one. `open_http`: who answers clients that ask for HTTP; None:
    they are refused. `is_admin`: which of them are answered while clients are refused for lack of
    descriptors. Raises OSError when the address cannot be had.
    """
    server = Server(
        tls, open_handler, open_http, is_admin=is_admin, limits=limits, deadlines=deadlines
    )
    await server.start(address)
    return server


class Server:
    """Listens, admits connections within limits, and knows those that are open."""

    server_side = True

    def __init__(
        self,
        tls: ReloadingContext,
        open_handler: OpenHandler,
        open_http: OpenProtocol | None,
        *,
        is_admin: Callable[[str], bool] | None,
        limits: ConnectionLimits,
        deadlines: Deadlines,
    ) -> None:
        self.deadlines = deadlines
        self._tls = tls
        self._open_handler, self._open_http = open_handler, open_http
        self._is_admin = is_admin
        self.limits = limits
        """May be replaced: they count for connections to come."""
        self._listener: asyncio.Server | None = None
        self._is_closed = False
        self._connections: dict[Connection, str] = {}
        """Every connection, and its host while the peer is unknown (then "")."""
        self._opening: Counter[str] = Counter()
        self._peer_hosts: dict[str, None] = {}
        """Hosts from which nodes have connected, the latest of them."""
        self._identities: Counter[str] = Counter()
        self._log = RateLimitedLog(log, SystemClock())

    @property
    def port(self) -> int:
        """The port listened on. Raises RuntimeError before `start` and after `close`."""
        if self._listener is None or not self._listener.sockets:
            raise RuntimeError("the server does not listen")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """Connections there are now, those being opened and closed included."""
        return len(self._connections)

    async def start(self, address: Address) -> None:
        """Listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), address.host, address.port, backlog=BACKLOG
        )

    def close(self) -> None:
        """Accept no more, and close the connections there are."""
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.close()

    async def wait_closed(self) -> None:
        """Return when every connection is over and its socket closed; after `close`."""
        while self._connections:
            await next(iter(self._connections)).wait_ended()

    # --- as the endpoint of its connections ---------------------------------------------------

    def context(self) -> ssl.SSLContext:
        """As the files are now."""
        return self._tls.server

    def arrived(self, connection: Connection) -> None:
        """Admit a connection to the handshake. Raises ConnectFault."""
        host = connection.host
        self._connections[connection] = host
        self._opening[host] += 1
        if self._is_closed:  # it was accepted in the same turn of the loop
            raise ConnectFault(ConnectProblem.UNREACHABLE, connection.peername, "closing")
        problem = descriptors().refusal(connection.descriptor, is_peer=True)  # it may be one
        if problem is not None:
            kind, peer = ConnectProblem.TOO_MANY, connection.peername
            raise ConnectFault(kind, peer, problem, remedy=REMEDY)
        limits, opening = self.limits, self._opening
        count = len(self._connections)
        self._check(connection, count, limits.connections, "connections")
        self._check(connection, opening.total(), limits.handshakes, "handshakes")
        self._check(connection, opening[host], limits.handshakes_per_host, "handshakes_per_host")

    def is_preferred(self, host: str) -> bool:
        """Whether nodes connect from this host."""
        return host in self._peer_hosts

    def opened(self, connection: Connection) -> Handler | ByteStream:
        """Admit a peer that is known now. Raises what is to be its Fault."""
        self._forget_opening(connection)
        identity = connection.identity
        self._identities[identity] += 1
        is_peer = identity.startswith(NODE_PREFIX)
        if is_peer and connection.host not in self._peer_hosts:
            self._peer_hosts[connection.host] = None
            if len(self._peer_hosts) > PEER_HOSTS:
                del self._peer_hosts[next(iter(self._peer_hosts))]
        may_use_reserve = is_peer or self._is_operator(connection)
        problem = descriptors().refusal(connection.descriptor, is_peer=may_use_reserve)
        if problem is not None:
            raise ProtocolFault(FaultCode.TOO_MANY, problem, REMEDY)
        if self._identities[identity] > self.limits.connections_per_identity:
            message = f"{identity} has {self.limits.connections_per_identity} connections already"
            remedy = "close some, or raise limits.connections_per_identity in the node's file"
            raise ProtocolFault(FaultCode.TOO_MANY, message, remedy)
        if not connection.is_http:
            return self._open_handler(connection)
        if self._open_http is None:
            raise ProtocolFault(FaultCode.PROTOCOL, "HTTP is not spoken here")
        return connection.open_stream(self._open_http)

    def _is_operator(self, connection: Connection) -> bool:
        """Return whether the peer is an administrator that uses HTTP."""
        is_admin = self._is_admin
        return connection.is_http and is_admin is not None and is_admin(connection.identity)

    def ended(self, connection: Connection, error: Exception | None) -> None:
        """Forget a connection; say why, if it was refused (INFO: one that just went away)."""
        self._forget_opening(connection)
        del self._connections[connection]
        if connection.identity:
            _count_down(self._identities, connection.identity)
        if isinstance(error, ConnectFault):
            harmless = error.problem is ConnectProblem.UNREACHABLE
            self._log.event(
                logging.INFO if harmless else logging.WARNING,
                "connection refused",
                peer=connection.peername,
                problem=error.problem.value,
                message=error.message,
                remedy=error.remedy,
            )

    def _forget_opening(self, connection: Connection) -> None:
        host = self._connections[connection]
        if host:
            self._connections[connection] = ""
            _count_down(self._opening, host)

    def _check(self, connection: Connection, count: int, limit: int, key: str) -> None:
        if count > limit:
            message = f"more than {limit} {key.replace('_', ' ')} at once"
            remedy = f"find out who connects so often, or raise limits.{key} in the node's file"
            raise ConnectFault(ConnectProblem.TOO_MANY, connection.peername, message, remedy=remedy)


def _count_down(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]

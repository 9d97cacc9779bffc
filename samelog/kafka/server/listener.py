"""One port that Kafka clients connect to.

Invariant: connections never exceed the limits; whatever one client does, others are served.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.config.authorisation import ANONYMOUS
from samelog.config.tables.kafka import (
    KafkaConfig,
    KafkaListener,
    Security,
)
from samelog.config.tables.shared import TlsFiles
from samelog.format.errors import InvariantError
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.clients.pipeline import PipelineLimits
from samelog.kafka.clients.quotas import Allowances, Memory
from samelog.kafka.clients.sasl import Authenticator
from samelog.kafka.server.connection import KafkaConnection
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.runtime.clock import SystemClock
from samelog.runtime.counters import ListenerTally
from samelog.runtime.descriptors import REMEDY, descriptors
from samelog.runtime.errors import IdentityFault, TlsFault
from samelog.runtime.log import RateLimitedLog
from samelog.runtime.network.tls import identity_of_certificate, open_context
from samelog.runtime.network.tls_transport import TlsServing, TlsTransport

log = logging.getLogger(__name__)

BACKLOG = 512
CHECK_S = 1.0
CLOSE_S = 2.0
HANDSHAKE_S = 10.0


class ListenerFault(Exception):
    """A listener cannot be opened; the message says which, and what to do."""


class Listener:
    """Accepts connections until closed."""

    def __init__(
        self,
        config: KafkaListener,
        limits: KafkaConfig,
        dispatcher: ApiDispatcher[Any],
        *,
        node_tls: TlsFiles,
        allowances: Allowances | None = None,
    ) -> None:
        """`allowances`: what clients have used of their quotas, at all listeners together."""
        self.config = config
        self.authenticator: Authenticator | None = None
        """Whom it lets in, where names and passwords are asked for."""
        self._node_tls = node_tls
        self._newest: ssl.SSLContext | None = None
        """Of the files as they are now."""
        self.port = 0
        self._limits = limits
        self._dispatcher = dispatcher
        self._allowances = allowances
        self._memory: Memory[KafkaConnection] = Memory(limits.max_memory_bytes, self._pace)
        self.tally = ListenerTally(held=lambda: self._memory.total)
        self._connections: dict[KafkaConnection, KafkaClient] = {}
        self._hosts: Counter[str] = Counter()
        self._log = RateLimitedLog(log, SystemClock())
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen. Raises ListenerFault."""
        loop = asyncio.get_running_loop()
        address, security = self.config.listen, self.config.security
        try:
            self._newest = None if security is Security.PLAINTEXT else self._make_context()
            self._server = await loop.create_server(
                self._accept if self._newest is None else self._accept_tls,
                address.host,
                address.port,
                backlog=BACKLOG,
            )
        except TlsFault as fault:
            raise ListenerFault(f"kafka listener {self.config.name!r}: {fault}") from fault
        except OSError as error:
            raise ListenerFault(
                f"kafka listener {self.config.name!r} cannot listen on {address}: {error.strerror}"
            ) from error
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._timer = loop.call_later(CHECK_S, self._check_deadlines)

    @property
    def files(self) -> TlsFiles:
        """Its certificates."""
        return self.config.tls or self._node_tls

    def renew(self) -> None:
        """Take changed certificates for new connections. Raises TlsFault, changing nothing."""
        if self._newest is not None:
            self._newest = self._make_context()

    def _make_context(self) -> ssl.SSLContext:
        """Raises TlsFault."""
        is_mutual = self.config.security is Security.MTLS
        return open_context(self.files, ask_certificate=is_mutual)

    def _accept_tls(self) -> TlsTransport:
        if self._newest is None:
            raise InvariantError(f"listener {self.config.name} takes TLS without files for it")
        return TlsTransport(
            TlsServing(self._newest, self._accept, self._refused, HANDSHAKE_S, CLOSE_S)
        )

    def _accept(self) -> KafkaConnection:
        limits = PipelineLimits(
            request_bytes=self._limits.max_request_bytes,
            waiting_bytes=self._limits.max_request_bytes,
            frame_s=self._limits.request_s,
            idle_s=self._limits.idle_s,
        )
        return KafkaConnection(
            self._dispatcher,
            limits,
            self._memory,
            admit=self._admit,
            ended=self._ended,
        )

    def _admit(
        self, connection: KafkaConnection, transport: asyncio.Transport
    ) -> KafkaClient | None:
        host = str((transport.get_extra_info("peername") or ("unknown",))[0])
        problem = self._too_many(host) or _lacks_descriptor(transport)
        if problem is not None:
            self._refused(host, problem)
            return None
        try:
            identity = self._identity(transport)
        except IdentityFault as fault:
            self._refused(host, str(fault))
            return None
        client = KafkaClient(
            identity,
            self.config.name,
            host,
            authenticator=self.authenticator,
            memory=self._memory,
            allowances=self._allowances,
            tally=self.tally,
        )
        self.tally.connections += 1
        self._connections[connection] = client
        self._hosts[host] += 1
        return client

    def _refused(self, host: str, reason: str) -> None:
        self.tally.refused += 1
        self._log.event(logging.WARNING, "Kafka client refused", peer=host, reason=reason)

    def _identity(self, transport: asyncio.Transport) -> str:
        """Who the client is; empty if it has to say. Raises IdentityFault."""
        if self.config.security is Security.SASL_TLS:
            return ""
        if self.config.security is not Security.MTLS:
            return ANONYMOUS
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return str(identity_of_certificate(certificate, purpose=ExtendedKeyUsageOID.CLIENT_AUTH))

    def _too_many(self, host: str) -> str | None:
        limits = self._limits
        if len(self._connections) >= limits.max_connections:
            return f"{limits.max_connections} connections are open (max_connections)"
        if self._hosts[host] >= limits.max_connections_per_host:
            count = limits.max_connections_per_host
            return f"{count} connections of this host are open (max_connections_per_host)"
        return None

    def _ended(self, connection: KafkaConnection, reason: str) -> None:
        client = self._connections.pop(connection, None)
        if client is None:
            return
        self.tally.connections -= 1
        self._hosts[client.host] -= 1
        if not self._hosts[client.host]:
            del self._hosts[client.host]
        if reason:
            peer = f"{client.host} {client.software}".strip()
            self._log.event(logging.INFO, "Kafka connection closed", peer=peer, reason=reason)

    def _check_deadlines(self) -> None:
        """Close connections whose client lets deadlines pass."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self._connections):
            connection.check_deadlines(now)
        self._make_room()
        self._timer = loop.call_later(CHECK_S, self._check_deadlines)

    def _pace(self) -> None:
        """Memory has got short, or is no longer."""
        for connection in tuple(self._connections):
            connection.paced()

    def _make_room(self) -> None:
        """Close who holds most if memory has been short since the last check: what lies there may
        be begun requests, of which none can go on.
        """
        largest = self._memory.largest()
        if self._memory.stays_short() and largest:
            largest.close("the memory for clients is full, and this one has most of it")

    async def close(self) -> None:
        """Take no more connections, and end those there are."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.close("the node stops")
        deadline = asyncio.get_running_loop().time() + CLOSE_S
        while self._connections and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _lacks_descriptor(transport: asyncio.Transport) -> str | None:
    """Return why the process has no descriptor for a connection, or None if it has."""
    problem = descriptors().refusal(transport.get_extra_info("socket").fileno())
    return None if problem is None else f"{problem}: {REMEDY}"

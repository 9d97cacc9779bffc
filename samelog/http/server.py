"""Listens for HTTP on a port of its own, as `[http]` says: for probes, metrics and browsers.

Invariant: unusable certificate files never replace ones that can be used.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial

from samelog.config.tables.shared import HttpConfig, HttpSecurity, TlsFiles
from samelog.config.values import Address
from samelog.http.application import CLOSE_S, HttpApplication
from samelog.http.routes import HttpApi
from samelog.runtime.errors import RuntimeFault, TlsFault
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import open_context
from samelog.runtime.network.tls_transport import TlsServing, TlsTransport
from samelog.runtime.watch import FileWatch

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
BACKLOG = 64


class HttpFault(RuntimeFault):
    """HTTP cannot be answered; the message says why."""


class HttpServer:
    """One listener."""

    def __init__(self, config: HttpConfig, own: TlsFiles, api: HttpApi) -> None:
        """`own`: the process's own files, where the listener has none."""
        self._config = config
        self._files = config.tls or own
        is_local = config.security is HttpSecurity.PLAINTEXT
        self._application = HttpApplication(api, is_local=is_local)
        self._newest: ssl.SSLContext | None = None
        self._watch: FileWatch | None = None
        self._listener: asyncio.Server | None = None
        self.address = config.listen
        """Where it listens."""

    async def start(self) -> None:
        """Listen. Raises HttpFault."""
        address = self._config.listen
        context = self._first_context()
        await self._application.start()
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._application.open if context is None else partial(self._accept_tls, context),
                address.host,
                address.port,
                backlog=BACKLOG,
            )
        except OSError as error:
            await self._application.close()
            raise HttpFault(f"cannot answer HTTP on {address}: {error.strerror}") from error
        self.address = Address(address.host, int(self._listener.sockets[0].getsockname()[1]))

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._watch is not None:
            self._watch.close()
        if self._listener is not None:
            self._listener.close()
        await self._application.close()

    # --- TLS --------------------------------------------------------------------------------------

    def _first_context(self) -> ssl.SSLContext | None:
        """Raises HttpFault."""
        if self._config.security is HttpSecurity.PLAINTEXT:
            return None
        try:
            self._newest = first = self._context()
        except TlsFault as fault:
            raise HttpFault(f"cannot answer HTTP on {self._config.listen}: {fault}") from fault
        self._watch = FileWatch(self._files.paths, self._reload)
        return first

    def _accept_tls(self, first: ssl.SSLContext) -> TlsTransport:
        context = self._newest or first
        given = context, self._application.open, _refused, HANDSHAKE_S, CLOSE_S
        return TlsTransport(TlsServing(*given))

    def _context(self) -> ssl.SSLContext:
        return open_context(self._files, ask_certificate=True, may_lack=True)

    def _reload(self) -> None:
        """Take changed files for new connections; unusable ones change nothing."""
        try:
            self._newest = self._context()
        except TlsFault as fault:
            log_event(log, logging.ERROR, "HTTP keeps its old certificate", error=fault)


def _refused(host: str, reason: str) -> None:
    log_event(log, logging.DEBUG, "HTTP client refused", peer=host, reason=reason)

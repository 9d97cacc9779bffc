"""Answers HTTP requests by a table of routes.

On loopback without TLS everybody is `samelog://user/anonymous`, and may look; with mutual TLS the
identity is that of the certificate, as everywhere. A client without a certificate gets no further
than the probes, which have none to show.

Invariant: whoever asks whatever gets an answer that says what was wrong; what changes something is
written down with who asked; memory and connections are bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.config.authorisation import ANONYMOUS
from samelog.config.tables.shared import HttpConfig, HttpSecurity, TlsFiles
from samelog.config.values import Address, is_loopback
from samelog.format.errors import InvalidName, InvariantError
from samelog.http.connection import Conversation, Refused, conversation
from samelog.http.problem import Problem, problem_response
from samelog.http.routes import Access, Api, Asked, Route, Text, asked_of_get, asked_of_post
from samelog.runtime.audit import note_change
from samelog.runtime.errors import IdentityFault, RuntimeFault, TlsFault
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import hand_on, identity_of_certificate, open_context
from samelog.runtime.watch import FileWatch
from samelog.wire.plain import to_json

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 << 10
CONNECTIONS_MAX = 256
REQUESTS_MAX = 32
REQUEST_S = 30.0
HANDSHAKE_S = 10.0
CLOSE_S = 1.0
BACKLOG = 64
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpFault(RuntimeFault):
    """HTTP cannot be answered; the message says why."""


class HttpServer:
    """One listener."""

    def __init__(self, config: HttpConfig, own: TlsFiles, api: Api) -> None:
        """`own`: the process's own files, where the listener has none."""
        self._config = config
        self._files = config.tls or own
        self._api = api
        self._under_way = 0
        self._newest: ssl.SSLContext | None = None
        self._watch: FileWatch | None = None
        self._listener: asyncio.Server | None = None
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            shutdown_timeout=CLOSE_S,
        )
        self.address = config.listen
        """Where it listens."""

    def _application(self) -> web.Application:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        application = web.Application(middlewares=[guard], client_max_size=BODY_BYTES_MAX)
        for route in self._api.routes:
            application.router.add_route(route.method, route.path, self._handler(route))
        return application

    async def start(self) -> None:
        """Listen. Raises HttpFault."""
        address = self._config.listen
        context = self._first_context()
        await self._runner.setup()
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._accept,
                address.host,
                address.port,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S if context else None,
                ssl_shutdown_timeout=CLOSE_S if context else None,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise HttpFault(f"cannot answer HTTP on {address}: {error.strerror}") from error
        self.address = Address(address.host, int(self._listener.sockets[0].getsockname()[1]))

    async def close(self) -> None:
        """Answer no more."""
        if self._watch is not None:
            self._watch.close()
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    # --- TLS --------------------------------------------------------------------------------------

    def _first_context(self) -> ssl.SSLContext | None:
        """Raises HttpFault."""
        if self._config.security is HttpSecurity.PLAINTEXT:
            return None
        try:
            self._newest = first = self._context()
        except TlsFault as fault:
            raise HttpFault(f"cannot answer HTTP on {self._config.listen}: {fault}") from fault
        hand_on(first, lambda: self._newest or first)
        files = self._files
        self._watch = FileWatch(files.paths, self._reload)
        return first

    def _context(self) -> ssl.SSLContext:
        return open_context(self._files, ask_certificate=True, may_lack=True)

    def _reload(self) -> None:
        """Take changed files for new connections; unusable ones change nothing."""
        try:
            self._newest = self._context()
        except TlsFault as fault:
            log_event(log, logging.ERROR, "HTTP keeps its old certificate", error=fault)

    # --- requests ---------------------------------------------------------------------------------

    def _accept(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= CONNECTIONS_MAX:
            return Refused()
        return conversation(server)

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whatever goes wrong becomes a problem."""
        if self._config.security is HttpSecurity.PLAINTEXT and not _is_here(request.host):
            text = f"this is not {request.host!r}: without TLS, ask by a name of this host"
            return problem_response(Problem(HTTPStatus.MISDIRECTED_REQUEST, text))
        if self._under_way >= REQUESTS_MAX:
            text = f"{REQUESTS_MAX} requests are under way"
            return problem_response(Problem(HTTPStatus.SERVICE_UNAVAILABLE, text))
        self._under_way += 1
        protocol = request.protocol
        if isinstance(protocol, Conversation):
            protocol.take()
        try:
            async with asyncio.timeout(REQUEST_S):
                return await handler(request)
        except Problem as problem:
            return problem_response(problem)
        except web.HTTPException as error:
            response = problem_response(_problem_of_aiohttp(request, error))
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except InvalidName as error:
            return problem_response(Problem(HTTPStatus.BAD_REQUEST, str(error)))
        except TimeoutError:
            text = "the answer is not there in time; what was asked may be done all the same"
            return problem_response(Problem(HTTPStatus.GATEWAY_TIMEOUT, text))
        except Exception as error:  # noqa: BLE001 - the seam: a defect is logged, the client told so
            return problem_response(self._defect(request, error))
        finally:
            self._under_way -= 1
            if isinstance(protocol, Conversation):
                protocol.wait()

    @staticmethod
    def _defect(request: web.Request, error: Exception) -> Problem:
        if isinstance(error, InvariantError):  # which ends the process
            context = {"message": "a request broke an invariant", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the log of this process")

    def _handler(self, route: Route) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            note = _Note(request)
            if not route.changes:
                return await self._answer(route, request, note)
            with note:
                return await self._answer(route, request, note)

        return handle

    async def _answer(self, route: Route, request: web.Request, note: _Note) -> web.Response:
        """Raises Problem, and whatever the route's handler does."""
        identity = self._identity(request)
        note.who = identity or "nobody"
        self._check_access(route, identity)
        note.asked = await _asked(route, request)
        return _response(await route.handle(note.asked))

    def _identity(self, request: web.Request) -> str | None:
        """Who asks; None: somebody without a certificate. Raises Problem."""
        if self._config.security is HttpSecurity.PLAINTEXT:
            return ANONYMOUS
        session = request.get_extra_info("ssl_object")
        certificate = None if session is None else session.getpeercert(binary_form=True)
        if certificate is None:
            return None
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        try:
            return str(identity_of_certificate(certificate, purpose=purpose))
        except IdentityFault as fault:
            raise Problem(HTTPStatus.FORBIDDEN, str(fault)) from fault

    def _check_access(self, route: Route, identity: str | None) -> None:
        """Raises Problem."""
        if route.access is Access.ANYBODY:
            return
        if identity is None:
            text = f"{route.path} is answered to who shows a certificate"
            raise Problem(HTTPStatus.FORBIDDEN, text)
        is_local = self._config.security is HttpSecurity.PLAINTEXT
        if route.access is Access.CHANGE:
            may = self._api.may_change(identity)
        else:
            may = route.access is Access.KNOWN or is_local or self._api.may_look(identity)
        if not may:
            remedy = "grant admin in the node's configuration"
            raise Problem(HTTPStatus.FORBIDDEN, f"{identity} is no administrator", remedy=remedy)


class _Note:
    """A line in the audit log: what was asked by whom, and what came of it."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.who = "unknown"
        self.asked: Asked | None = None
        """None: it was not looked at, or could not be taken."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        note_change(
            who=self.who,
            peer=self._request.remote,
            what=f"{self._request.method} {self._request.path}",
            asked=self.asked,
            error=None if error is None else str(error) or type(error).__name__,
        )


def _is_here(host: str) -> bool:
    """Whether a request means this host. A page of a stranger, open in a browser here, may lead to
    its own name, which it lets mean this host: it must not get to see anything.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return is_loopback(Address(name.strip("[]"), 0))


async def _asked(route: Route, request: web.Request) -> Asked:
    """Raises Problem, HTTPRequestEntityTooLarge."""
    path = request.match_info
    if route.method == "GET":
        return asked_of_get(route, path, request.query)
    if request.query:
        raise Problem(HTTPStatus.BAD_REQUEST, "what is asked belongs in the body")
    if request.content_type != "application/json":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body has to be application/json")
    return asked_of_post(route, path, await request.read())


def _response(answer: object) -> web.Response:
    if isinstance(answer, Text):
        response = web.Response(body=answer.text.encode())
        response.headers["Content-Type"] = answer.content_type
        return response
    text = json.dumps(to_json(answer), ensure_ascii=False)
    return web.json_response(text=text, headers={"Cache-Control": "no-store"})


def _problem_of_aiohttp(request: web.Request, error: web.HTTPException) -> Problem:
    status = HTTPStatus(error.status)
    if status is HTTPStatus.NOT_FOUND:
        text = f"there is nothing at {request.path}; /openapi.json says what there is"
        return Problem(status, text)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        return Problem(status, f"{request.path} is not asked with {request.method}")
    if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return Problem(status, f"more than {BODY_BYTES_MAX} bytes")
    return Problem(status, error.reason)

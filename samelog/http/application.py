"""Answers HTTP requests by a table of routes, whichever way connections come.

On loopback without TLS everybody is `samelog://user/anonymous`, and may read; with mutual TLS the
identity is that of the certificate, as everywhere. A client without a certificate gets no further
than the probes, which have none to show.

Connections are aiohttp's, but for the answer to what is no HTTP, and how long they wait.

Invariant: whoever asks whatever gets an answer that says what was wrong; what changes something is
written down with who asked; memory is bounded.
Also: bytes that are no request get a problem as an answer, and no line in the log: whoever
connects could fill it. A client that keeps a request waiting is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Self, cast

from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.admin.requests import AdminRequest
from samelog.admin.table import BY_PATH, CLUSTER_HEADER, FOR_CERTIFICATES, Operation, WhoMayAsk
from samelog.config.authorisation import ANONYMOUS
from samelog.format.errors import InvalidName, InvariantError
from samelog.http.console.assets import SERVER, Asset, secure
from samelog.http.origin import host_of, is_of_another_page, is_of_this_host
from samelog.http.routes import (
    EventStream,
    HttpApi,
    HttpProblem,
    PlainText,
    Route,
    problem_of,
    problem_response,
    request_of_get,
    request_of_post,
)
from samelog.runtime.audit import UNKNOWN, noting_change
from samelog.runtime.descriptors import REMEDY, descriptors
from samelog.runtime.errors import IdentityFault
from samelog.runtime.log import log_event
from samelog.runtime.loop import spawn
from samelog.runtime.network.byte_stream import ByteStream
from samelog.runtime.network.tls import identity_of_certificate
from samelog.runtime.slices import give_way, paced, work_for
from samelog.wire.errors import FaultCode
from samelog.wire.plain import encode_steps

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 16 << 10
"""The longest name of a group, percent-encoded, fits."""
WAIT_S = 60.0
"""For a whole request, from the connection or the answer before on."""


class HttpConnection(web.RequestHandler):
    """Answers one request after the other."""

    _deadline: asyncio.TimerHandle | None = None
    _client = ""

    @classmethod
    def of(cls, server: web.Server) -> Self:
        """A new connection's."""
        return cls(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=WAIT_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            auto_decompress=False,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the deadline for the first request, or close where no descriptor is left for it."""
        super().connection_made(transport)
        is_admitted = isinstance(transport, ByteStream)  # by the node's own port
        socket = None if is_admitted else transport.get_extra_info("socket")
        problem = None if socket is None else descriptors().refusal(socket.fileno())
        if problem is not None:
            log_event(log, logging.DEBUG, "HTTP client refused", reason=problem, remedy=REMEDY)
            self.force_close()
            return
        self.request_ends()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the deadline."""
        self.request_begins()
        super().connection_lost(exc)

    def client(self, request: web.BaseRequest) -> str:
        """Whose requests have turns together: those of an identity, else those of a host."""
        if not self._client:
            session = request.get_extra_info("ssl_object")
            certificate = None if session is None else session.getpeercert(binary_form=True)
            with suppress(IdentityFault):
                purpose = ExtendedKeyUsageOID.CLIENT_AUTH
                if certificate is not None:
                    self._client = str(identity_of_certificate(certificate, purpose=purpose))
            self._client = self._client or request.remote or "unknown"
        return self._client

    def request_begins(self) -> None:
        """A request is there: the server works on it."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def request_ends(self) -> None:
        """The next request has to come in time."""
        self.request_begins()
        if self.transport is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(WAIT_S, self.force_close)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What cannot be read as a request."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer was begun already") from exc
        text = "this is no HTTP request that can be read"
        response = problem_response(HttpProblem(HTTPStatus(status), text))
        response.headers["Server"] = SERVER
        response.force_close()
        return response


class ClosingConnection(asyncio.Protocol):
    """A connection above the limit: it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say nothing: there is no room for what would have to be read first."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()


CONNECTIONS_MAX = 256
EVENT_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
REQUESTS_MAX = 128
REQUEST_S = 240.0
"""Longer than the longest request takes: 10,000 partitions."""
CLOSE_S = 1.0
RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpApplication:
    """The routes of one process behind one port."""

    def __init__(self, api: HttpApi, *, is_local: bool) -> None:
        """`is_local`: without TLS, for this host only."""
        self._api = api
        self._is_local = is_local
        self._under_way = 0
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=CLOSE_S)

    def _application(self) -> web.Application:
        @web.middleware
        async def guard(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
            return await self._guard(request, handler)

        longest = max(route.operation.body_bytes_max for route in self._api.routes)
        application = web.Application(middlewares=[guard], client_max_size=longest)
        application.on_response_prepare.append(secure)
        for route in self._api.routes:
            operation, handler = route.operation, self._handler(route)
            application.router.add_route(operation.method, operation.path, handler)
            if operation.method == "GET":
                application.router.add_head(operation.path, handler)
        return application

    async def start(self) -> None:
        """Make it ready; called before the first connection."""
        await self._runner.setup()

    async def close(self) -> None:
        """End every connection."""
        await self._runner.cleanup()

    def open(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        server = self._runner.server
        if server is None or len(server.connections) >= CONNECTIONS_MAX:
            return ClosingConnection()
        return HttpConnection.of(server)

    # --- requests ---------------------------------------------------------------------------------

    async def _guard(self, request: web.Request, handler: RequestHandler) -> web.StreamResponse:
        """Answer a request; every error becomes an HTTP problem. Requests share the slices of long
        work: a client may send any number of them without waiting for answers (rule turns.12).
        """
        protocol = request.protocol
        await _turn_of(request)
        refusal = self._refusal(request)
        if refusal is not None:
            return problem_response(refusal)
        self._under_way += 1
        if isinstance(protocol, HttpConnection):
            protocol.request_begins()
        try:
            async with asyncio.timeout(REQUEST_S):
                return await handler(request)
        except HttpProblem as problem:
            return problem_response(problem)
        except web.HTTPException as error:
            response = problem_response(_problem_of_aiohttp(request, error))
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except InvalidName as error:
            return problem_response(problem_of(FaultCode.INVALID_NAME, str(error)))
        except TimeoutError:
            text = "the answer is not there in time; what was asked may be done all the same"
            return problem_response(HttpProblem(HTTPStatus.GATEWAY_TIMEOUT, text))
        except Exception as error:  # noqa: BLE001 - the seam: a defect is logged, the client told so
            return problem_response(_defect(request, error))
        finally:
            self._under_way -= 1
            if isinstance(protocol, HttpConnection):
                protocol.request_ends()

    @property
    def _is_crowded(self) -> bool:
        """Whether who keeps its connection would keep others out."""
        server = self._runner.server
        return server is not None and len(server.connections) > CONNECTIONS_MAX // 2

    def _refusal(self, request: web.Request) -> HttpProblem | None:
        """Why a request is refused before it is read; None if it is not."""
        host = host_of(request)
        if self._is_local and not is_of_this_host(host):
            text = f"this is not {host!r}: without TLS, ask by a name of this host, in Host"
            return HttpProblem(HTTPStatus.MISDIRECTED_REQUEST, text)
        if is_of_another_page(request):
            text = "this is a request of another site's page"
            return HttpProblem(HTTPStatus.FORBIDDEN, text)
        wanted, cluster = request.headers.get(CLUSTER_HEADER, ""), self._api.cluster
        if wanted and wanted != cluster:
            text = f"this is cluster {cluster!r}, not {wanted!r}"
            return problem_of(FaultCode.WRONG_CLUSTER, text)
        if self._under_way >= REQUESTS_MAX:
            text = f"{REQUESTS_MAX} requests are under way"
            return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return None

    def _handler(self, route: Route) -> RequestHandler:
        async def handle(request: web.Request) -> web.StreamResponse:
            note = _AuditNote(request)
            if not route.operation.is_change:
                return await self._answer(route, request, note)
            async with note:
                return await self._answer(route, request, note)

        return handle

    async def _answer(
        self, route: Route, request: web.Request, note: _AuditNote
    ) -> web.StreamResponse:
        """Raises HttpProblem, and what the route's handler raises."""
        identity = self._identity(request)
        note.who = identity or "nobody"
        self._check_access(route.operation, request.match_info, identity)
        note.asked = await _decoded(route.operation, request, self._api.values_max)
        answer = await route.handle(note.asked, identity or "")
        if isinstance(answer, EventStream):
            if request.method == "HEAD":
                return web.Response(headers=EVENT_HEADERS)
            return await _stream(request, answer)
        response = await _response(answer)
        if self._is_crowded:
            response.force_close()
        return response

    def _identity(self, request: web.Request) -> str | None:
        """Who asks; None: somebody without a certificate. Raises HttpProblem."""
        if self._is_local:
            return ANONYMOUS
        session = request.get_extra_info("ssl_object")
        certificate = None if session is None else session.getpeercert(binary_form=True)
        if certificate is None:
            return None
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        try:
            return str(identity_of_certificate(certificate, purpose=purpose))
        except IdentityFault as fault:
            raise HttpProblem(HTTPStatus.FORBIDDEN, str(fault)) from fault

    def _check_access(
        self, operation: Operation, path: Mapping[str, str], identity: str | None
    ) -> None:
        """Raises HttpProblem if the client may not make this request, before its body is read."""
        who_may = operation.who_may
        if who_may is WhoMayAsk.ANYBODY:
            return
        if identity is None:
            text = f"{operation.path} is answered to who shows a certificate"
            raise HttpProblem(HTTPStatus.FORBIDDEN, text)
        if who_may in BY_PATH:
            if not self._api.may_send(who_may, path, identity):
                text = f"{identity} may not ask this: it is for {who_may.value}"
                raise problem_of(FaultCode.NOT_AUTHORISED, text, "grant it in the configuration")
            return
        if who_may is WhoMayAsk.ADMIN:
            may = self._api.may_change(identity)
        else:
            may = self._is_local or who_may in FOR_CERTIFICATES or self._api.may_read(identity)
        if not may:
            text = f"{identity} is no administrator"
            remedy = "grant admin in the node's configuration"
            raise problem_of(FaultCode.NOT_AUTHORISED, text, remedy)


class _AuditNote:
    """A line in the audit log: what was asked by whom, and what came of it."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.who = "unknown"
        self.asked: AdminRequest[Any] | None = None
        """None: it was not looked at, or could not be taken."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        noting = noting_change(
            who=self.who,
            peer=self._request.remote,
            what=f"{self._request.method} {self._request.path}",
            asked=self.asked,
            error=None if error is None else _outcome(error),
        )
        await asyncio.shield(spawn(paced(noting), "audit"))


async def _turn_of(request: web.Request) -> None:
    """Wait for a slice of the request's client."""
    protocol = request.protocol
    if isinstance(protocol, HttpConnection):
        work_for(protocol.client(request))
    await give_way()


def _outcome(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.CancelledError):
        return UNKNOWN
    return str(error) or type(error).__name__


async def _decoded(operation: Operation, request: web.Request, values: int) -> AdminRequest[Any]:
    """Raises HttpProblem, HTTPRequestEntityTooLarge."""
    path = request.match_info
    if operation.method == "GET":
        return request_of_get(operation, path, request.query)
    if request.query:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "what is asked belongs in the body")
    if request.content_type != "application/json":
        text = "the body has to be application/json"
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    longest = operation.body_bytes_max
    body = await request.read() if (request.content_length or 0) <= longest else b""
    if max(len(body), request.content_length or 0) > longest:
        raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {longest} bytes")
    return await request_of_post(operation, path, body, values)


async def _response(answer: object) -> web.Response:
    """The HTTP response; long answers are encoded in slices (rule turns.8)."""
    if isinstance(answer, Asset):
        return answer.response()
    if isinstance(answer, PlainText):
        response = web.Response(body=answer.text.encode())
        response.headers["Content-Type"] = answer.content_type
        return response
    text = await paced(encode_steps(answer))
    return web.json_response(text=text, headers={"Cache-Control": "no-store"})


async def _stream(request: web.Request, answer: EventStream) -> web.StreamResponse:
    """Send events until there are no more, or the client is gone. Raises as the first one does."""
    response = web.StreamResponse(headers=EVENT_HEADERS)
    async with aclosing(cast(AsyncGenerator[bytes, None], answer.events)) as events:
        try:
            async for event in events:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(event)
        except (ConnectionError, HttpProblem):
            if not response.prepared:
                raise
    return response


def _defect(request: web.Request, error: Exception) -> HttpProblem:
    if isinstance(error, InvariantError):  # which ends the process
        context = {"message": "a request broke an invariant", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return problem_of(FaultCode.INTERNAL, "see the log of this process")


def _problem_of_aiohttp(request: web.Request, error: web.HTTPException) -> HttpProblem:
    status = HTTPStatus(error.status)
    if status is HTTPStatus.NOT_FOUND:
        text = f"there is nothing at {request.path}; /openapi.json says what there is"
        return HttpProblem(status, text)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        return HttpProblem(status, f"{request.path} is not asked with {request.method}")
    if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return HttpProblem(status, "the body is too long")
    return HttpProblem(status, error.reason)

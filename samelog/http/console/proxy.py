"""The console on this host, of a cluster that asks for certificates: `samelog ui`.

A browser on this host asks the proxy, and the proxy asks a node with the user's certificate. Every
user of this host can reach the port, so a browser has to show a cookie, which it gets for the token
in the link that the command prints.

Invariant: nothing is answered without the cookie, and nothing is said to a peer whose certificate
is not that of the node that is meant. What may have reached a node is not sent to another one.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus

from aiohttp import web

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address, parse_address
from samelog.http.console.assets import INDEX, PAGES, assets, secure
from samelog.http.console.gathering import body_of, is_of_all_nodes, joined
from samelog.http.console.upstream import NodeUnreachable, NodeUpstream, UpstreamAnswer
from samelog.http.origin import host_of, is_of_another_page, is_of_this_host
from samelog.http.routes import HttpProblem, problem_response

COOKIE = "samelog-console"
BODY_BYTES_MAX = 64 << 10
EVENTS = "text/event-stream"
CLOSE_S = 0.2
HOPS_MAX = 3
PageHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleProxy:
    """One listener on loopback."""

    def __init__(self, config: ClientConfig, address: Address) -> None:
        self._config = config
        self._wanted = address
        self._token, self._session = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._first = 0
        """The node that is asked first: the one that answered last."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        application.on_response_prepare.append(secure)
        application.router.add_get("/login", self._login)
        for place in PAGES:
            application.router.add_get(place, self._page)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_S)
        self.address = address
        """Where it listens."""

    @property
    def link(self) -> str:
        """What the user opens; it lets nobody in after the process has ended."""
        return f"http://{self.address}/login?token={self._token}"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._wanted.host, self._wanted.port)
        await site.start()
        self.address = Address(self._wanted.host, self._runner.addresses[0][1])

    async def close(self) -> None:
        """End every connection."""
        await self._runner.cleanup()

    # --- who asks ---------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: PageHandler) -> web.StreamResponse:
        try:
            self._check(request)
            answer = await handler(request)
        except HttpProblem as problem:
            return problem_response(problem)
        return answer

    def _check(self, request: web.Request) -> None:
        """Raises HttpProblem."""
        host = host_of(request)
        if not is_of_this_host(host):
            text = f"this is not {host!r}: ask by a name of this host"
            raise HttpProblem(HTTPStatus.MISDIRECTED_REQUEST, text)
        if request.path == "/login":
            return
        if is_of_another_page(request):
            raise HttpProblem(HTTPStatus.FORBIDDEN, "this is a request of another site's page")
        shown = request.cookies.get(COOKIE, "")
        if not secrets.compare_digest(shown.encode(), self._session.encode()):
            text = "open the link that `samelog ui` has printed"
            raise HttpProblem(HTTPStatus.FORBIDDEN, text)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        """Give whoever has the token the cookie."""
        shown = request.query.get("token", "")
        if not secrets.compare_digest(shown.encode(), self._token.encode()):
            text = "open the link that `samelog ui` has printed, whole"
            raise HttpProblem(HTTPStatus.FORBIDDEN, text)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/ui"})
        response.set_cookie(COOKIE, self._session, httponly=True, samesite="Strict", path="/")
        return response

    # --- answers ----------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return assets()[INDEX].response()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """A file of the pages, or what a node answers. Raises HttpProblem."""
        name = request.path.removeprefix("/ui/")
        method = "GET" if request.method == "HEAD" else request.method
        if method == "GET" and name in assets():
            return assets()[name].response()
        if method == "GET" and is_of_all_nodes(request.path, request.query):
            return await self._gather(request.raw_path)
        if method not in ("GET", "POST"):
            text = "only GET, HEAD and POST are forwarded"
            raise HttpProblem(HTTPStatus.METHOD_NOT_ALLOWED, text)
        body = await request.read() if method == "POST" else None
        answer = await self._ask(method, request.raw_path, body)
        try:
            return await _relayed(request, answer)
        finally:
            answer.close()

    async def _gather(self, target: str) -> web.StreamResponse:
        """What all nodes of the configuration answer, joined. Raises HttpProblem."""
        asked = (body_of(node, target) for _, node in self._nodes())
        bodies = [body for body in await asyncio.gather(*asked) if body is not None]
        if not bodies:
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "no node answers")
        headers = {"Cache-Control": "no-store"}
        return web.json_response(joined([*map(json.loads, bodies)]), headers=headers)

    async def _ask(self, method: str, target: str, body: bytes | None) -> UpstreamAnswer:
        """The answer of a node; the leader's where a node points to it. Raises HttpProblem."""
        failures = []
        for index, node in self._nodes():
            try:
                answer = await node.ask(method, target, body)
                self._first = index
                return await self._followed(answer, method, target, body)
            except NodeUnreachable as error:
                failures.append(str(error))
                if error.sent and method == "POST":
                    text = f"{error}; it may have been done all the same: look, then repeat"
                    raise HttpProblem(HTTPStatus.GATEWAY_TIMEOUT, text) from error
        text = "no node answers: " + "; ".join(failures)
        raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, text)

    async def _followed(
        self, answer: UpstreamAnswer, method: str, target: str, body: bytes | None
    ) -> UpstreamAnswer:
        """A refusal that names another node was not carried out: that one is asked, which may name
        the leader of a data group. Raises NodeUnreachable.
        """
        for _ in range(HOPS_MAX):
            if answer.status != HTTPStatus.MISDIRECTED_REQUEST:
                break
            named = self._named(answer.kept or await answer.whole())
            if named is None:
                break
            answer.close()
            answer = await named.ask(method, target, body)
        return answer

    def _named(self, refusal: bytes) -> NodeUpstream | None:
        """The node that a refusal names; a configured one is where its configuration says."""
        told = json.loads(refusal)
        name, address = told.get("leader", ""), parse_address(told.get("leader_address", ""))
        known = next((node for _, node in self._nodes() if node.name == name), None)
        if known is not None or not name or address is None:
            return known
        return NodeUpstream(self._config, address, name)

    def _nodes(self) -> Iterator[tuple[int, NodeUpstream]]:
        """The one that answered last, then the others."""
        nodes = self._config.nodes
        names = self._config.node_names or (None,) * len(nodes)
        for step in range(len(nodes)):
            index = (self._first + step) % len(nodes)
            yield index, NodeUpstream(self._config, nodes[index], names[index])


async def _relayed(request: web.Request, answer: UpstreamAnswer) -> web.StreamResponse:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-store"}
    if answer.content_type != EVENTS:
        body = answer.kept or await answer.whole()
        return web.Response(status=answer.status, body=body, headers=headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    try:
        while chunk := await answer.some():
            await response.write(chunk)
    except (OSError, asyncio.IncompleteReadError):
        pass  # one of the two is gone; the browser asks again
    return response

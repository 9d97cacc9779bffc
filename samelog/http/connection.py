"""One HTTP connection, by aiohttp, but for what it says of what is no HTTP, and how long it waits.

Invariant: bytes that are no request get a problem as an answer, and no line in the log: whoever
connects could fill it. Who keeps a request waiting is let go.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from aiohttp import web

from samelog.http.problem import Problem, problem_response

LINE_BYTES_MAX = 8 << 10
WAIT_S = 60.0
"""For a whole request, from the connection or the answer before on."""


class Conversation(web.RequestHandler):
    """Answers one request after the other."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self.wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait no more."""
        self.take()
        super().connection_lost(exc)

    def wait(self) -> None:
        """The next request has to come in time."""
        self.take()
        if self.transport is None:
            return
        self._waiting = asyncio.get_running_loop().call_later(WAIT_S, self.force_close)

    def take(self) -> None:
        """A request is there."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

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
        response = problem_response(Problem(HTTPStatus(status), text))
        response.force_close()
        return response


def conversation(server: web.Server) -> Conversation:
    """A new connection's."""
    return Conversation(
        server,
        loop=asyncio.get_running_loop(),
        keepalive_timeout=WAIT_S,
        max_line_size=LINE_BYTES_MAX,
        max_field_size=LINE_BYTES_MAX,
        auto_decompress=False,
    )


class Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say nothing: there is no room for what would have to be read first."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()

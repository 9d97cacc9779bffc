"""One HTTP connection, by aiohttp, but for the answer to what is no HTTP, and how long it waits.

Invariant: bytes that are no request get a problem as an answer, and no line in the log: whoever
connects could fill it. A client that keeps a request waiting is disconnected.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Self

from aiohttp import web

from samelog.http.problem import HttpProblem, problem_response

LINE_BYTES_MAX = 16 << 10
"""The longest name of a group, percent-encoded, fits."""
WAIT_S = 60.0
"""For a whole request, from the connection or the answer before on."""


class HttpConnection(web.RequestHandler):
    """Answers one request after the other."""

    _deadline: asyncio.TimerHandle | None = None

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
        """Start the deadline for the first request."""
        super().connection_made(transport)
        self.request_ends()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the deadline."""
        self.request_begins()
        super().connection_lost(exc)

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
        response.force_close()
        return response


class ClosingConnection(asyncio.Protocol):
    """A connection above the limit: it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say nothing: there is no room for what would have to be read first."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()

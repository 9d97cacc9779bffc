"""One HTTP connection, by aiohttp, but for what it says of what is no HTTP.

Invariant: bytes that are no request get a problem as an answer, and no line in the log: whoever
connects could fill it.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from aiohttp import web

from shiplog.http.problem import Problem, problem_response

LINE_BYTES_MAX = 8 << 10
KEEP_S = 60.0


class Conversation(web.RequestHandler):
    """Answers one request after the other."""

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
        keepalive_timeout=KEEP_S,
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

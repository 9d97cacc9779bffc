"""What went wrong with a request, as RFC 9457 has it: application/problem+json.

Invariant: what is told names the thing, the reason and, where there is one, the remedy; it never
holds a stack trace.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from aiohttp import web

from samelog.admin.table import STATUS_OF
from samelog.wire.errors import FaultCode

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 1


class HttpProblem(Exception):
    """A request that is not answered as it was meant; `members` say more of it."""

    def __init__(self, status: HTTPStatus, detail: str, **members: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.members = {key: value for key, value in members.items() if value}


def problem_of(code: FaultCode, message: str, remedy: str = "", **members: str) -> HttpProblem:
    """The problem document for a refusal of the cluster."""
    status = STATUS_OF.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return HttpProblem(status, message, code=code.name.lower(), remedy=remedy, **members)


def problem_response(problem: HttpProblem) -> web.Response:
    """The HTTP response for a problem."""
    status = problem.status
    body = {"type": "about:blank", "title": status.phrase, "status": int(status)}
    known = json.dumps({**body, "detail": problem.detail, **problem.members}, ensure_ascii=False)
    headers = {}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return web.Response(status=status, text=known, content_type=CONTENT_TYPE, headers=headers)

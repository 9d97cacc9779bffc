"""How a process serves a table of operations: the handler of each, and the decoding of requests.

What went wrong with a request is told as RFC 9457 has it: application/problem+json.

Invariant: whatever is not in an operation's request is refused; nothing reaches a handler
unchecked.
Also: what is told names the thing, the reason and, where there is one, the remedy; it never
holds a stack trace.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from aiohttp import web
from multidict import MultiMapping

from samelog.admin.requests import AdminRequest
from samelog.admin.table import STATUS_OF, Operation, WhoMayAsk
from samelog.runtime.slices import paced
from samelog.wire.conversion import convert_steps
from samelog.wire.errors import FaultCode
from samelog.wire.plain import TooManyValues, decode_steps

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
VALUES_FEW = 10_000
"""JSON values that the body of a request may always have."""


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


class EventStream(msgspec.Struct, frozen=True):
    """An answer of server-sent events, each as it is sent."""

    events: AsyncIterator[bytes]


class PlainText(msgspec.Struct, frozen=True):
    """An answer that is not JSON."""

    text: str
    content_type: str


@dataclass(frozen=True, slots=True)
class Route:
    """`handle(request, identity)` answers; `identity` is empty if nobody showed a certificate."""

    operation: Operation
    handle: Callable[[Any, str], Awaitable[object]]


class HttpApi(Protocol):
    """The routes of a process, and who may use them."""

    title: str
    cluster: str
    """Requests that mean another one are refused."""
    routes: tuple[Route, ...]

    @property
    def values_max(self) -> int:
        """How many JSON values the body of a request may have."""

    def may_read(self, identity: str) -> bool:
        """Whether an identity may see the state."""

    def may_change(self, identity: str) -> bool:
        """Whether it may change something."""

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        """Whether it has a right of `admin.table.BY_PATH` to what the path names."""


def request_of_get(
    operation: Operation, path: Mapping[str, str], query: MultiMapping[str]
) -> AdminRequest[Any]:
    """Raises HttpProblem."""
    values: dict[str, Any] = dict(path)
    for name in query:
        if name in values or len(query.getall(name)) > 1:
            raise HttpProblem(HTTPStatus.BAD_REQUEST, f"{name} is there twice")
        values[name] = query[name]
    try:
        found: AdminRequest[Any] = msgspec.convert(values, operation.request, strict=False)
    except msgspec.ValidationError as error:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, _with_field_first(str(error))) from error
    return found


async def request_of_post(
    operation: Operation, path: Mapping[str, str], body: bytes, values: int
) -> AdminRequest[Any]:
    """Decode a body of at most `values` JSON values, in slices of the loop. Raises HttpProblem."""
    try:
        fields = await paced(decode_steps(body or b"{}", values))
        if not isinstance(fields, dict):
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        for name in path:
            if name in fields:
                raise HttpProblem(HTTPStatus.BAD_REQUEST, f"{name} belongs in the path")
        asked = {**_whole_numbers(fields), **path}
        found: AdminRequest[Any] = await paced(convert_steps(asked, operation.request))
    except TooManyValues as error:
        raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {error}") from error
    except (msgspec.ValidationError, ValueError) as error:
        text = f"the body cannot be taken: {_with_field_first(str(error))}"
        raise HttpProblem(HTTPStatus.BAD_REQUEST, text) from error
    return found


def _with_field_first(problem: str) -> str:
    """Return an error of the decoder with the name of the field before the reason."""
    reason, at, place = problem.partition(" - at `$.")
    return f"{place.removesuffix('`')}: {reason}" if at else problem


def _whole_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Numbers such as 1.0 are integers to JSON Schema."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in fields.items()
    }

"""How a process serves a table of operations: the handler of each, and the decoding of requests.

Invariant: whatever is not in an operation's request is refused; nothing reaches a handler
unchecked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from multidict import MultiMapping

from samelog.admin.requests import AdminRequest
from samelog.admin.table import Operation
from samelog.http.problem import HttpProblem


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

    def may_read(self, identity: str) -> bool:
        """Whether an identity may see the state."""

    def may_change(self, identity: str) -> bool:
        """Whether it may change something."""


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
        raise HttpProblem(HTTPStatus.BAD_REQUEST, str(error)) from error
    return found


def request_of_post(
    operation: Operation, path: Mapping[str, str], body: bytes
) -> AdminRequest[Any]:
    """Raises HttpProblem."""
    try:
        fields = msgspec.json.decode(body or b"{}")
        if not isinstance(fields, dict):
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        for name in path:
            if name in fields:
                raise HttpProblem(HTTPStatus.BAD_REQUEST, f"{name} belongs in the path")
        found: AdminRequest[Any] = msgspec.convert(
            {**_whole_numbers(fields), **path}, operation.request
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"the body cannot be taken: {error}"
        raise HttpProblem(HTTPStatus.BAD_REQUEST, text) from error
    return found


def _whole_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Numbers such as 1.0 are integers to JSON Schema."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in fields.items()
    }

"""What one request is: the table that the server, /openapi.json and docs/rest.md are made from.

Invariant: whatever is not in a route's struct is refused; nothing reaches a handler unchecked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from string import Formatter
from typing import Any, Protocol

import msgspec
from multidict import MultiMapping

from samelog.http.problem import Problem


class Access(Enum):
    """Who may make a request; on loopback without TLS everybody is known, and may look."""

    ANYBODY = "anybody"
    KNOWN = "any certificate of the authority"
    LOOK = "admin, or loopback"
    CHANGE = "admin"


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request says, in path, query and body together."""


class Text(msgspec.Struct, frozen=True):
    """An answer that is not JSON."""

    text: str
    content_type: str


@dataclass(frozen=True, slots=True)
class Route:
    """`asked`: its fields are those of the path, and else of the query (GET) or the body (POST).
    `answer`: the type that is answered, Text for what is no JSON.
    """

    method: str
    path: str
    summary: str
    access: Access
    asked: type[Asked]
    answer: Any
    handle: Callable[[Any], Awaitable[object]]
    problems: tuple[HTTPStatus, ...] = ()
    """What else than success it may come to, beside what every request may."""

    @property
    def name(self) -> str:
        """An identifier: `get_topics_topic`."""
        words = [part.strip("{}").replace("-", "_") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *(word.replace(".", "_") for word in words)])

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of its path."""
        return tuple(name for _, name, _, _ in Formatter().parse(self.path) if name)

    @property
    def changes(self) -> bool:
        """Whether it is written down who asked."""
        return self.access is Access.CHANGE


class Api(Protocol):
    """What a process answers."""

    title: str
    routes: tuple[Route, ...]

    def may_look(self, identity: str) -> bool:
        """Whether an identity may see the state."""

    def may_change(self, identity: str) -> bool:
        """Whether it may change something."""


def asked_of_get(route: Route, path: Mapping[str, str], query: MultiMapping[str]) -> Asked:
    """Raises Problem."""
    values: dict[str, Any] = dict(path)
    for name in query:
        if name in values or len(query.getall(name)) > 1:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name} is there twice")
        values[name] = query[name]
    try:
        return msgspec.convert(values, route.asked, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error)) from error


def asked_of_post(route: Route, path: Mapping[str, str], body: bytes) -> Asked:
    """Raises Problem."""
    try:
        said = msgspec.json.decode(body or b"{}")
        if not isinstance(said, dict):
            raise Problem(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        for name in path:
            if name in said:
                raise Problem(HTTPStatus.BAD_REQUEST, f"{name} belongs in the path")
        return msgspec.convert({**_whole(said), **path}, route.asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"the body cannot be taken: {error}") from error


def _whole(said: dict[str, Any]) -> dict[str, Any]:
    """Numbers such as 1.0 are integers to JSON Schema."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in said.items()
    }

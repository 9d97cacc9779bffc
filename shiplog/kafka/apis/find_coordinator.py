"""FindCoordinator (10): which node coordinates a group: the Raft leader, whatever the group."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from shiplog.kafka.any_broker import Endpoint
from shiplog.kafka.api import Api, Call
from shiplog.kafka.codec.schemas import Tree
from shiplog.kafka.groups.answering import problem

GROUP = 0
"""The kind of key that is served; there are no transactions and no share groups."""
MANY_FROM = 4
"""From this version on a request may name many groups."""
NOBODY = Endpoint(-1, "", -1)


def _handle(call: Call, request: Any) -> Tree:
    kind = getattr(request, "key_type", GROUP)
    return answer(call.version, request, *_found(call, kind))


def _found(call: Call, kind: int) -> tuple[Endpoint, ErrorCode, str | None]:
    error, message = _problem(call, kind)
    if error is ErrorCode.none:
        for end in call.broker.endpoints(call.client.listener):
            if end.number == call.broker.leader:
                return end, error, None
        error, message = ErrorCode.coordinator_not_available, "there is no leader: ask again"
    return NOBODY, error, message


def answer(
    version: int, request: Any, end: Endpoint, error: ErrorCode, message: str | None
) -> Tree:
    """The same answer for every key."""
    tree = {
        "node_id": end.number,
        "host": end.host,
        "port": end.port,
        "error_code": error,
        "error_message": message,
    }
    if version < MANY_FROM:
        return tree
    return {"coordinators": [{**tree, "key": key} for key in request.coordinator_keys]}


def _problem(call: Call, kind: int) -> tuple[ErrorCode, str | None]:
    if kind != GROUP:
        return ErrorCode.invalid_request, "only groups have coordinators here"
    refusal = problem(call)
    return refusal, None if refusal is ErrorCode.none else "a grant to subscribe is missing"


API = Api(
    key=10,
    name="FindCoordinator",
    first=0,
    last=6,
    flexible_from=3,
    handle=_handle,
    notes="The Raft leader coordinates all groups. Groups only: there are no transactions.",
)

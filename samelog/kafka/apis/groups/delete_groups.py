"""DeleteGroups (42): groups without members, with their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree


def _handle(call: NodeCall, request: Any) -> Outcome:
    names = list(request.groups_names)

    def made(errors: tuple[ErrorCode, ...]) -> Tree:
        return _tree(zip(names, (error for error in errors), strict=True))

    def lost(error: ErrorCode) -> Tree:
        return _tree((name, error) for name in names)

    if not call.broker.may_administer(call.client):
        return lost(ErrorCode.group_authorization_failed)
    return answered(call, None, lambda c, waiter: c.delete(names, waiter), made, lost)


def _tree(results: Iterable[tuple[str, ErrorCode]]) -> Tree:
    trees = [{"group_id": name, "error_code": error} for name, error in results]
    return {"throttle_time": 0, "results": trees}


API = KafkaApi(
    key=42,
    name="DeleteGroups",
    first=0,
    last=2,
    flexible_from=2,
    handle=_handle,
    notes="For administrators.",
)

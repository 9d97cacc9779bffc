"""FindCoordinator (10): which node coordinates a group, or a transactional id: the Raft leader,
whichever it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samelog.kafka.any_broker import BrokerEndpoint
from samelog.kafka.api import AnyCall, NodeCall, kafka_api
from samelog.kafka.apis.group_answers import check_group
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts

GROUP = 0
TRANSACTION = 1
"""The kinds of keys that are served."""
MANY_FROM = 4
"""From this version on a request may name many groups."""
NOBODY = BrokerEndpoint(-1, "", -1)


class FindCoordinatorResponseCoordinator(Entity, frozen=True):
    """Who coordinates a key."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: ErrorCode
    error_message: str | None


class FindCoordinatorResponse(ResponseBody, frozen=True):
    """The list is of newer versions, the rest of older ones."""

    coordinators: Sequence[FindCoordinatorResponseCoordinator]
    node_id: int = NOBODY.number
    host: str = NOBODY.host
    port: int = NOBODY.port
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@kafka_api(
    10,
    "FindCoordinator",
    0,
    6,
    flexible_from=3,
    parts=Parts(("coordinator_keys",), ("coordinators",)),
    notes="The Raft leader coordinates all groups and transactions.",
)
def find_coordinator(call: NodeCall, request: Any) -> FindCoordinatorResponse:
    """Answer a request of this API."""
    kind = kind_of(request)
    return response_of([_find(call, kind, key) for key in keys_of(call, request)])


def keys_of(call: AnyCall, request: Any) -> Sequence[str]:
    """The group ids, or transactional ids, that a request asks about."""
    return request.coordinator_keys if call.version >= MANY_FROM else (request.key,)


def _find(call: NodeCall, kind: int, key: str) -> FindCoordinatorResponseCoordinator:
    if kind == GROUP and (error := check_group(call, key)):
        return nobody(key, error, "a grant to subscribe with this group is missing")
    if kind not in (GROUP, TRANSACTION):
        return no_group(kind, key)
    if kind == TRANSACTION and not call.broker.may_use_transactions(call.client, key):
        denied = ErrorCode.transactional_id_authorization_failed
        return nobody(key, denied, "a grant to publish as Kafka's producers do is missing")
    return _leader(call, key)


def _leader(call: NodeCall, key: str) -> FindCoordinatorResponseCoordinator:
    for end in call.broker.endpoints(call.client.listener):
        if end.number == call.broker.leader and call.broker.is_there(end.number):
            return coordinator(key, end)
    return nobody(key, ErrorCode.coordinator_not_available, "there is no leader: ask again")


def kind_of(request: Any) -> int:
    """Which kind of keys a request asks about."""
    return int(getattr(request, "key_type", GROUP))


def no_group(kind: int, key: str) -> FindCoordinatorResponseCoordinator:
    """Nobody coordinates these keys: a sidecar has no transactions, and nobody shares groups."""
    if kind == TRANSACTION:  # the one error at which every client gives up at once
        denied = ErrorCode.transactional_id_authorization_failed
        return nobody(key, denied, "there are no transactions here: docs/kafka.md")
    return nobody(key, ErrorCode.invalid_request, "only groups have coordinators here")


def coordinator(group: str, end: BrokerEndpoint) -> FindCoordinatorResponseCoordinator:
    """A key's coordinator."""
    address = end.number, end.host, end.port
    return FindCoordinatorResponseCoordinator(group, *address, ErrorCode.none, None)


def nobody(group: str, error: ErrorCode, message: str | None) -> FindCoordinatorResponseCoordinator:
    """Why a key has no coordinator."""
    address = NOBODY.number, NOBODY.host, NOBODY.port
    return FindCoordinatorResponseCoordinator(group, *address, error, message)


def response_of(found: Sequence[FindCoordinatorResponseCoordinator]) -> FindCoordinatorResponse:
    """The response in the form that every version of the API needs."""
    if not found:
        return FindCoordinatorResponse(found)
    first = found[0]
    return FindCoordinatorResponse(
        found, first.node_id, first.host, first.port, first.error_code, first.error_message
    )

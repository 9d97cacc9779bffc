"""What the sidecars serve: what a node serves of records and metadata, by the same handlers; and of
groups, what their coordinator answers.

Both list both directions, because clients take what is missing in the list for a broker of another
age (librdkafka writes old formats then); what a sidecar does not do it has no rights for.

Invariant: as for the registry: the set of versions is one that clients get along with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, CallTo, KafkaApi, Outcome
from samelog.kafka.apis.cluster import describe_cluster, metadata
from samelog.kafka.apis.groups import find_coordinator
from samelog.kafka.apis.records import (
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from samelog.kafka.apis.session import api_versions
from samelog.kafka.codec.errors import Unanswerable
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.registry import GROUPS
from samelog.kafka.sidecar.publisher_broker import PublisherBroker
from samelog.kafka.sidecar.subscriber_broker import SubscriberBroker

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_GROUPS = "no groups here: the publisher sidecar has none, the subscriber's needs kafka_bootstrap"
RECORDS: tuple[KafkaApi[AnyBroker], ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_cluster.API,
)


async def _find(call: CallTo[SubscriberBroker], request: Any) -> Tree:
    """FindCoordinator: the sidecar, when there is a coordinator behind it."""
    groups = call.broker.groups
    if groups is None:
        return _no_groups(call, request)
    kind = getattr(request, "key_type", find_coordinator.GROUP)
    found = []
    for key in find_coordinator.keys_of(call, request):
        error, message = await groups.find(kind, key)
        there = error is ErrorCode.none
        end = call.broker.endpoints("")[0] if there else find_coordinator.NOBODY
        found.append((key, end, error, message))
    return find_coordinator.answer(call.version, found)


def _no_groups(call: AnyCall, request: Any) -> Tree:
    denied = find_coordinator.NOBODY, ErrorCode.group_authorization_failed, NO_GROUPS
    keys = find_coordinator.keys_of(call, request)
    return find_coordinator.answer(call.version, [(key, *denied) for key in keys])


def _passed_on(api: KafkaApi[Any]) -> KafkaApi[Any]:
    """An API that the coordinator answers."""

    async def handle(call: CallTo[SubscriberBroker], body: bytes) -> Outcome:
        groups = call.broker.groups
        if groups is None:
            raise Unanswerable(NO_GROUPS)
        upstream = await groups.upstream_of(call.client)
        return upstream.ask(api, call.version, call.client_id, body)

    return replace(api, handle=handle, read=_as_it_is, write=_as_it_came)


def _as_it_is(api: KafkaApi[Any], version: int, body: memoryview) -> bytes:
    return bytes(body)


def _as_it_came(api: KafkaApi[Any], version: int, answer: bytes, throttle_ms: int) -> list[Buffer]:
    return [answer]


def _with_list(*apis: KafkaApi[Any]) -> Mapping[int, KafkaApi[Any]]:
    return {api.key: api for api in (*apis, api_versions.make(apis))}


COORDINATORS: KafkaApi[Any] = find_coordinator.API
PUBLISHER_APIS: Mapping[int, KafkaApi[PublisherBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_no_groups)
)
SUBSCRIBER_APIS: Mapping[int, KafkaApi[SubscriberBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_find), *map(_passed_on, GROUPS)
)

"""What the sidecars serve: what a node serves of records and metadata, by the same handlers; and of
groups, what their coordinator answers.

Both list both directions, because clients take what is missing in the list for a broker of another
age (librdkafka writes old formats then); what a sidecar does not do it has no rights for.

Invariant: as for the registry: the set of versions is one that clients get along with.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, CallTo, KafkaApi
from samelog.kafka.apis.cluster import describe_cluster, metadata
from samelog.kafka.apis.groups import find_coordinator
from samelog.kafka.apis.groups.find_coordinator import FindCoordinatorResponse
from samelog.kafka.apis.records import (
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from samelog.kafka.apis.session import api_versions
from samelog.kafka.codec.errors import Unanswerable
from samelog.kafka.registry import GROUPS
from samelog.kafka.sidecar.publisher_broker import PublisherBroker
from samelog.kafka.sidecar.subscriber_broker import SubscriberBroker

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


async def _find(call: CallTo[SubscriberBroker], request: Any) -> FindCoordinatorResponse:
    """FindCoordinator: the sidecar, when there is a coordinator behind it."""
    groups = call.broker.groups
    if groups is None:
        return _no_groups(call, request)
    kind = getattr(request, "key_type", find_coordinator.GROUP)
    found = []
    for key in find_coordinator.keys_of(call, request):
        error, message = await groups.find(kind, key)
        if error is ErrorCode.none:
            found.append(find_coordinator.coordinator(key, call.broker.endpoints("")[0]))
        else:
            found.append(find_coordinator.nobody(key, error, message))
    return find_coordinator.response_of(found)


def _no_groups(call: AnyCall, request: Any) -> FindCoordinatorResponse:
    keys = find_coordinator.keys_of(call, request)
    denied = ErrorCode.group_authorization_failed
    return find_coordinator.response_of(
        [find_coordinator.nobody(key, denied, NO_GROUPS) for key in keys]
    )


def _passed_on(api: KafkaApi[Any]) -> KafkaApi[Any]:
    """An API that the coordinator answers."""

    async def handle(call: CallTo[SubscriberBroker], body: bytes) -> Future[Any]:
        groups = call.broker.groups
        if groups is None:
            raise Unanswerable(NO_GROUPS)
        upstream = await groups.upstream_of(call.client)
        return upstream.ask(api, call.version, call.client_id, body)

    return replace(api, handle=handle, read=lambda version, body: bytes(body))


def _with_list(*apis: KafkaApi[Any]) -> Mapping[int, KafkaApi[Any]]:
    return {api.key: api for api in (*apis, api_versions.make(apis))}


COORDINATORS: KafkaApi[Any] = find_coordinator.API
PUBLISHER_APIS: Mapping[int, KafkaApi[PublisherBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_no_groups)
)
SUBSCRIBER_APIS: Mapping[int, KafkaApi[SubscriberBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_find), *map(_passed_on, GROUPS)
)

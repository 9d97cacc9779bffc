"""The Kafka listener of a sidecar, from its opening to its end.

Sidecars serve what a node serves of records and metadata, by the same handlers; and of groups, what
their coordinator answers. Both list both directions, because clients take what is missing in the
list for a broker of another age (librdkafka writes old formats then); what a sidecar does not do it
has no rights for.

Invariant: what was taken is answered before the session is let go.
Also: as for the registry: the set of versions is one that clients get along with.
"""

from __future__ import annotations

import os
from asyncio import Future
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from samelog.config.tables.client import (
    ClientConfig,
    PublisherKafka,
    SubscriberKafka,
)
from samelog.config.tables.kafka import KafkaConfig, KafkaListener
from samelog.config.values import Address
from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, CallTo, KafkaApi
from samelog.kafka.apis import (
    fetch,
    find_coordinator,
    leader_epochs,
    list_offsets,
    metadata,
    produce,
    producers,
    session,
)
from samelog.kafka.apis.find_coordinator import FindCoordinatorResponse
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import Unanswerable
from samelog.kafka.registry import GROUPS
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.kafka.server.listener import Listener
from samelog.kafka.sidecar.brokers import PublisherBroker, SidecarBroker, SubscriberBroker
from samelog.kafka.sidecar.groups import GroupForwarder
from samelog.kafka.sidecar.session_log import SidecarLog
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import Clock
from samelog.runtime.used_directory import UsedDirectory
from samelog.store.disk.files import FileSystem

NO_GROUPS = "no groups here: the publisher sidecar has none, the subscriber's needs kafka_bootstrap"
RECORDS: tuple[KafkaApi[AnyBroker], ...] = (
    produce.produce,
    fetch.fetch,
    list_offsets.list_offsets,
    metadata.metadata,
    producers.init_producer_id,
    leader_epochs.offset_for_leader_epoch,
    metadata.describe_cluster,
)


async def _find(call: CallTo[SubscriberBroker], request: Any) -> FindCoordinatorResponse:
    """FindCoordinator: the sidecar, when there is a coordinator behind it."""
    groups, kind = call.broker.groups, find_coordinator.kind_of(request)
    if groups is None or kind != find_coordinator.GROUP:
        return _no_groups(call, request)
    found = []
    for key in find_coordinator.keys_of(call, request):
        error, message = await groups.find(key)
        if error is ErrorCode.none:
            found.append(find_coordinator.coordinator(key, call.broker.endpoints("")[0]))
        else:
            found.append(find_coordinator.nobody(key, error, message))
    return find_coordinator.response_of(found)


def _no_groups(call: AnyCall, request: Any) -> FindCoordinatorResponse:
    keys, kind = find_coordinator.keys_of(call, request), find_coordinator.kind_of(request)
    if kind != find_coordinator.GROUP:
        return find_coordinator.response_of([find_coordinator.no_group(kind, key) for key in keys])
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
    return {api.key: api for api in (*apis, session.make(apis))}


COORDINATORS: KafkaApi[Any] = find_coordinator.find_coordinator
PUBLISHER_APIS: Mapping[int, KafkaApi[PublisherBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_no_groups)
)
SUBSCRIBER_APIS: Mapping[int, KafkaApi[SubscriberBroker]] = _with_list(
    *RECORDS, replace(COORDINATORS, handle=_find), *map(_passed_on, GROUPS)
)


def _listener(
    address: Address,
    broker: SidecarBroker,
    apis: Mapping[int, KafkaApi[Any]],
    config: ClientConfig,
) -> Listener:
    local = KafkaListener(name="local", listen=address, advertise=address)
    return Listener(local, KafkaConfig(), ApiDispatcher(broker, apis), node_tls=config.tls)


class PublisherListener:
    """Takes records into a session below `root`."""

    def __init__(
        self,
        root: UsedDirectory,
        config: ClientConfig,
        kafka: PublisherKafka,
        fs: FileSystem,
        clock: Clock,
    ) -> None:
        """To be made in the event loop. Raises DirectoryInUse, LogFormatError when the session
        cannot be written.
        """
        open_writer = partial(
            SessionWriter.open,
            fs,
            os.path.join(root.path, kafka.session),
            session=kafka.session,
            cluster=config.cluster,
            budget_bytes=config.publisher.budget_bytes,
            roll_bytes=config.publisher.roll_bytes,
        )
        self._log = SidecarLog(
            fs, open_writer, batch_bytes=kafka.message_max_bytes, may_open=lambda: root.is_there
        )
        broker = PublisherBroker(config.cluster, clock, kafka, self._log)
        self._listener = _listener(kafka.listen, broker, PUBLISHER_APIS, config)
        self.tally = self._listener.tally

    @property
    def fault(self) -> str:
        """Why nothing is taken from clients; empty: it is."""
        return self._log.fault

    async def start(self) -> None:
        """Listen. Raises ListenerFault."""
        await self._listener.start()

    async def close(self) -> None:
        """Take nothing more, and end the run."""
        await self._log.settle()
        await self._listener.close()
        await self._log.close()


class SubscriberListener:
    """Lets clients read copies."""

    def __init__(
        self,
        config: ClientConfig,
        kafka: SubscriberKafka,
        copies: Mapping[InputName, Copy],
        clock: Clock,
    ) -> None:
        self._groups = GroupForwarder.of(config)
        self._broker = SubscriberBroker(
            config.cluster, clock, kafka.listen, copies, groups=self._groups
        )
        self._listener = _listener(kafka.listen, self._broker, SUBSCRIBER_APIS, config)
        self.tally = self._listener.tally

    def changed(self, copy: Copy) -> None:
        """A copy has grown, or its state is another one."""
        self._broker.changed(copy)

    async def start(self) -> None:
        """Listen. Raises ListenerFault."""
        await self._listener.start()

    async def close(self) -> None:
        """End every connection."""
        await self._listener.close()
        if self._groups is not None:
            self._groups.close()

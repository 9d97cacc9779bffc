"""The Kafka listener of a sidecar, from its opening to its end.

Invariant: what was taken is answered before the session is let go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from samelog.config.tables.client import (
    ClientConfig,
    PublisherKafka,
    SubscriberKafka,
)
from samelog.config.tables.kafka import KafkaConfig, KafkaListener
from samelog.config.values import Address
from samelog.kafka.api import KafkaApi
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.kafka.server.listener import Listener
from samelog.kafka.sidecar.apis import PUBLISHER_APIS, SUBSCRIBER_APIS
from samelog.kafka.sidecar.broker import SidecarBroker
from samelog.kafka.sidecar.groups import GroupForwarder
from samelog.kafka.sidecar.publisher_broker import PublisherBroker
from samelog.kafka.sidecar.session_log import SidecarLog
from samelog.kafka.sidecar.subscriber_broker import SubscriberBroker
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import Clock
from samelog.runtime.used_directory import UsedDirectory
from samelog.store.disk.files import FileSystem


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

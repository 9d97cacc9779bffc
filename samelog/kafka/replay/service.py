"""The listener of a replay, from its opening to its end.

Invariant: it opens once the copies hold what the cluster has, so that all partitions begin
together; nobody writes through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from samelog.config.tables.client import ClientConfig
from samelog.config.tables.kafka import KafkaConfig, KafkaListener
from samelog.config.values import Address
from samelog.kafka.api import KafkaApi
from samelog.kafka.apis import find_coordinator, session
from samelog.kafka.registry import GROUPS
from samelog.kafka.replay.broker import ReplayBroker, ReplayStart
from samelog.kafka.replay.timeline import Timeline
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.kafka.server.listener import Listener
from samelog.kafka.sidecar.service import RECORDS
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import Clock
from samelog.subscriber.replay import Pace

SERVED: tuple[KafkaApi[Any], ...] = (*RECORDS, find_coordinator.find_coordinator, *GROUPS)
APIS: Mapping[int, KafkaApi[Any]] = {each.key: each for each in (*SERVED, session.make(SERVED))}


class ReplayListener:
    """Lets Kafka clients read copies in their own time."""

    def __init__(
        self,
        config: ClientConfig,
        topics: tuple[str, ...],
        copies: Mapping[InputName, Copy],
        clock: Clock,
        *,
        listen: Address,
        start: ReplayStart,
        pace: Pace,
    ) -> None:
        self._topics = frozenset(topics)
        self._copies = copies
        self._timeline = Timeline(pace, clock)
        self._broker = ReplayBroker(
            config.cluster, clock, listen, copies, start=start, timeline=self._timeline
        )
        local = KafkaListener(name="local", listen=listen, advertise=listen)
        dispatcher = ApiDispatcher(self._broker, APIS)
        self._listener = Listener(local, KafkaConfig(), dispatcher, node_tls=config.tls)
        self._grew = asyncio.Event()

    def changed(self, copy: Copy) -> None:
        """A copy has grown, or its state is another one."""
        self._grew.set()
        self._broker.changed(copy)

    async def start(self) -> None:
        """Listen, once the copies are complete. Raises ListenerFault."""
        while not self._is_complete():
            self._grew.clear()
            await self._grew.wait()
        self._broker.begin()
        self._broker.groups.start()
        await self._listener.start()

    def _is_complete(self) -> bool:
        copies = self._copies.values()
        are_there = {copy.name[0] for copy in copies} >= self._topics
        return are_there and all(each.caught_up and each.first_end is not None for each in copies)

    async def close(self) -> None:
        """End every connection."""
        self._timeline.close()
        self._broker.groups.close()
        await self._listener.close()

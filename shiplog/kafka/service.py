"""The Kafka listeners of one node. Implements sequencer.host.Service.

Invariant: nothing is answered before the node is as current as the cluster was when it started.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from shiplog.kafka.broker import Broker
from shiplog.kafka.dispatch import Dispatcher
from shiplog.kafka.listener import Listener, ListenerFault
from shiplog.kafka.registry import APIS
from shiplog.sequencer.setting_commands import Advertised, SetListeners

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node

ADVERTISE_AGAIN_S = 0.05

__all__ = ["KafkaService", "ListenerFault"]


class KafkaService:
    """Opened when the node becomes Live, closed when it stops."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._advertising: asyncio.Task[None] | None = None
        config = node.config.kafka
        self._broker = Broker(node)
        dispatcher = Dispatcher(self._broker, APIS)
        self.listeners = [Listener(each, config, dispatcher) for each in config.listeners]

    async def start(self) -> None:
        """Open every listener. Raises ListenerFault."""
        self._broker.groups.start()
        self._broker.producer_log.start()
        for listener in self.listeners:
            await listener.start()
        self._advertising = asyncio.create_task(self._advertise())

    async def _advertise(self) -> None:
        """Let the cluster know where clients find this node, however long there is no leader."""
        found = [
            Advertised(each.name, each.advertise.host, each.advertise.port)
            for each in self._node.config.kafka.listeners
        ]
        number = self._node.number
        while self._node.replica.machine.state.listeners.get(number) != found:
            with suppress(TimeoutError):
                await self._node.proposer.propose(SetListeners(number, found))
                await asyncio.sleep(ADVERTISE_AGAIN_S)

    async def close(self) -> None:
        """End every connection."""
        self._broker.groups.close()
        if self._advertising is not None:
            self._advertising.cancel()
        for listener in self.listeners:
            await listener.close()
        self._broker.producer_log.close()

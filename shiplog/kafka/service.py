"""The Kafka listeners of one node. Implements sequencer.host.Service.

Invariant: nothing is answered before the node is as current as the cluster was when it started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplog.kafka.broker import Broker
from shiplog.kafka.dispatch import Dispatcher
from shiplog.kafka.listener import Listener, ListenerFault
from shiplog.kafka.registry import APIS

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node

__all__ = ["KafkaService", "ListenerFault"]


class KafkaService:
    """Opened when the node becomes Live, closed when it stops."""

    def __init__(self, node: Node) -> None:
        config = node.config.kafka
        dispatcher = Dispatcher(Broker(node), APIS)
        self.listeners = [Listener(each, config, dispatcher) for each in config.listeners]

    async def start(self) -> None:
        """Open every listener. Raises ListenerFault."""
        for listener in self.listeners:
            await listener.start()

    async def close(self) -> None:
        """End every connection."""
        for listener in self.listeners:
            await listener.close()

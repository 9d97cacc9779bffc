"""What the two sidecars have in common for Kafka clients: a broker of their own, the only one there
is. It leads every partition, knows no leader epochs, and changes no topics.

Invariant: nothing here waits for the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from samelog.config.values import Address
from samelog.kafka.any_broker import AnyBroker, BrokerEndpoint
from samelog.kafka.client import KafkaClient
from samelog.kafka.codec.errors import ApiError
from samelog.runtime.clock import Clock

NUMBER = 0
NO_EPOCH = -1


class SidecarBroker(AnyBroker):
    """See the module. Whoever reaches the listener has the rights of the sidecar's certificate."""

    def __init__(self, cluster: str, clock: Clock, address: Address) -> None:
        super().__init__(NUMBER, cluster, clock)
        self._address = address

    @property
    def leader(self) -> int | None:
        """The sidecar leads every partition."""
        return NUMBER

    @property
    def epoch(self) -> int:
        """Sidecars know no leader epochs."""
        return NO_EPOCH

    def nodes(self) -> Sequence[int]:
        """The sidecar alone."""
        return (NUMBER,)

    def endpoints(self, listener: str) -> Sequence[BrokerEndpoint]:
        """The sidecar's only listener."""
        return (BrokerEndpoint(NUMBER, *self._address),)

    def is_there(self, number: int) -> bool:
        """The sidecar always is."""
        return number == NUMBER

    async def catch_up(self) -> None:
        """Do nothing: a sidecar never asks the cluster before it answers."""

    @property
    def auto_creates(self) -> bool:
        """Never: the cluster creates a topic when its first records arrive."""
        return False

    async def create_by_default(self, name: str) -> None:
        """A sidecar never creates topics. Raises ApiError."""
        raise ApiError(ErrorCode.policy_violation, "a sidecar makes no topics")

    def may_administer(self, client: KafkaClient) -> bool:
        """Nobody: topics are changed at the nodes."""
        return False

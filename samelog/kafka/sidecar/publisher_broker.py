"""The publisher sidecar, as Kafka clients see it: it takes records of any topic, and has none to
read.

How many partitions a topic has it cannot ask, because it never waits for the cluster: its
configuration says it, as the arguments of a native publisher do.

Invariant: a topic always has the same partitions, whether the cluster is there or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from uuid import UUID

from samelog.config.tables.client import PublisherKafka
from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name
from samelog.kafka.any_broker import WatchedLog
from samelog.kafka.client import KafkaClient
from samelog.kafka.sidecar.broker import SidecarBroker
from samelog.kafka.sidecar.session_log import SidecarLog
from samelog.runtime.clock import Clock
from samelog.sequencer.state.types import Topic

NO_ID = "0" * 32
"""Only the cluster knows the ids of topics."""
TOPICS_KEPT = 1000


class PublisherBroker(SidecarBroker):
    """What the Kafka APIs see of a publisher sidecar."""

    def __init__(
        self, cluster: str, clock: Clock, config: PublisherKafka, batches: SidecarLog
    ) -> None:
        super().__init__(cluster, clock, config.listen)
        self.batches = batches
        self._config = config
        self._topic = lru_cache(TOPICS_KEPT)(self._make_topic)

    def topics(self) -> Iterator[Topic]:
        """The topics that the configuration names."""
        return (self._topic(name) for name in self._config.partitions)

    def topic(self, key: str | UUID) -> Topic | None:
        """A topic of any valid name; no topic is known by its id."""
        try:
            return None if isinstance(key, UUID) else self._topic(check_topic_name(key))
        except InvalidName:
            return None

    def _make_topic(self, name: str) -> Topic:
        count = self._config.partitions.get(name, self._config.num_partitions)
        return Topic(NO_ID, name, {}, 0, list(range(count)))

    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        """None: a publisher sidecar has no merged logs."""
        return None

    def committed(self, topic: Topic, index: int) -> int:
        """0: only the cluster knows what is committed."""
        return 0

    def max_message_bytes(self, topic: Topic | None) -> int:
        """The configured limit, which should be what the nodes accept."""
        return self._config.message_max_bytes

    def may_read(self, client: KafkaClient, topic: str) -> bool:
        """Nobody: a publisher sidecar has no merged logs."""
        return False

    def may_write(self, client: KafkaClient, topic: str) -> bool:
        """Every client of this host; the cluster checks the sidecar's certificate."""
        return True

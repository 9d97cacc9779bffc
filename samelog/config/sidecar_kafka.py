"""The Kafka listeners of sidecars: [publisher.kafka] and [subscriber.kafka] in a client's file.

Invariant: they are on loopback, because whoever reaches them has the sidecar's rights.
"""

from __future__ import annotations

from samelog.config.table import Table
from samelog.config.tables.client import PublisherKafka, SubscriberKafka
from samelog.config.tables.kafka import MESSAGE_MAX_BYTES, NUM_PARTITIONS
from samelog.config.values import Address, is_loopback
from samelog.format.names import check_session_name, check_topic_name


def load_publisher_kafka(table: Table) -> PublisherKafka:
    """Raises ConfigError."""
    topics = table.table("partitions")
    for topic in topics.keys:
        table.checked("partitions", topic, check_topic_name)
    counts = {topic: topics.integer(topic) for topic in topics.keys}
    return PublisherKafka(
        listen=_listen(table),
        session=table.text("session", check_session_name),
        num_partitions=table.integer(NUM_PARTITIONS),
        partitions=counts,
        message_max_bytes=table.size(MESSAGE_MAX_BYTES),
    )


def load_subscriber_kafka(table: Table) -> SubscriberKafka:
    """Raises ConfigError."""
    return SubscriberKafka(listen=_listen(table))


def _listen(table: Table) -> Address:
    address = table.address("listen")
    if not is_loopback(address):
        reason = f"{address} is not a loopback address: any client there has the sidecar's rights"
        raise table.error("listen", reason)
    return address

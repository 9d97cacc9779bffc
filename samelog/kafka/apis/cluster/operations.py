"""Which operations a client may carry out, as Kafka's bit fields (AclOperation's codes).

Invariant: a bit is set only if the request that it stands for would not be denied.
"""

from __future__ import annotations

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import KafkaClient

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


def topic_operations(broker: AnyBroker, client: KafkaClient, topic: str) -> int:
    """What a client may do with a topic."""
    found = 0
    if broker.may_read(client, topic):
        found |= _bits(READ, DESCRIBE)
    if broker.may_write(client, topic):
        found |= _bits(WRITE, DESCRIBE)
    if broker.may_administer(client):
        found |= _bits(CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
    return found


def cluster_operations(broker: AnyBroker, client: KafkaClient) -> int:
    """What a client may do with the cluster."""
    found = _bits(DESCRIBE, IDEMPOTENT_WRITE)
    if broker.may_administer(client):
        found |= _bits(CREATE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
    return found

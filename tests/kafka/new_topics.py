"""Topics with settings, made over Kafka's protocol."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_S


def create(boot: str, name: str, settings: Mapping[str, str]) -> str:
    """Create a topic of one partition, and return its name. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": boot})
    options = {"operation_timeout": PATIENCE_S, "request_timeout": PATIENCE_S}
    made = admin.create_topics([NewTopic(name, 1, config=dict(settings))], **options)
    made[name].result(PATIENCE_S)
    return name

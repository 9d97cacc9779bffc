"""Topics with settings that a cluster takes only once all its nodes support them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_S


def create_at_level(boot: str, name: str, settings: Mapping[str, str]) -> str:
    """Create a topic of one partition, and return its name: a new cluster is at its feature level a
    moment after its start. Raises KafkaException.
    """
    admin, deadline = AdminClient({"bootstrap.servers": boot}), time.monotonic() + PATIENCE_S
    while True:
        made = admin.create_topics([NewTopic(name, 1, config=dict(settings))])
        try:
            made[name].result(10)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return name

"""librdkafka asks once whether anybody wants its metrics, and not again without a pause."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer

ASKED = "GetTelemetrySubscriptions"
SEEN_MS = 100
SEEN_AFTER = 5
"""So many times is counted after it has asked first: a client that does not pause asks thousands of
times meanwhile."""


def test_a_client_that_was_told_does_not_ask_again_at_once(boot: str, topic: str) -> None:
    seen: list[int] = []

    def note(statistics: str) -> None:
        brokers: dict[str, Any] = json.loads(statistics)["brokers"]
        asked = sum(each["req"].get(ASKED, 0) for each in brokers.values())
        if asked:
            seen.append(asked)

    told = {"bootstrap.servers": boot, "group.id": topic, "statistics.interval.ms": SEEN_MS}
    consumer = Consumer({**told, "stats_cb": note})
    try:
        consumer.subscribe([topic])
        while len(seen) < SEEN_AFTER:
            consumer.poll(1.0)
    finally:
        consumer.close()
    assert seen[-1] == 1

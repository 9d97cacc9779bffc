"""Consumers of real client libraries, each in a thread of its own, that count what they read."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S

POLL_S = 0.1
SESSION_MS = 30_000
"""No member is silent for longer, however busy the machine is."""
KILLED_SESSION_MS = 6_000
"""Of a member that is killed: the least that nodes allow. The test waits for it to expire."""


class Reader:
    """What all consumers have in common. `seen` counts the values that were read; `assignments` how
    often it was told what it has. A `topic` that begins with ^ is a regular expression.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.options = options
        self.seen: Counter[str] = Counter()
        self.assigned: set[int] = set()
        self.assignments = 0
        self.error: Exception | None = None
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - whoever looks at the reader raises it
            self.error = error

    def run(self) -> None:
        """Read and commit until told to leave."""
        raise NotImplementedError

    @property
    def is_pattern(self) -> bool:
        return self.topic.startswith("^")

    def goes_on(self) -> bool:
        return not self._leaves.is_set()

    def took(self, value: bytes | None) -> None:
        self.seen[(value or b"").decode()] += 1

    def got(self, partitions: set[int]) -> None:
        self.assigned = partitions
        self.assignments += 1

    def wait(self) -> None:
        """Until it ends."""
        self._thread.join()

    def leave(self) -> None:
        """Commit and leave the group."""
        self._leaves.set()
        self._thread.join(PATIENCE_S)
        assert self.error is None, self.error


class Confluent(Reader):
    """librdkafka."""

    def run(self) -> None:
        from confluent_kafka import Consumer

        is_new = self.options.get("group.protocol") == "consumer"
        classic = {} if is_new else {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        consumer = Consumer(
            {
                **classic,
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **self.options,
            }
        )
        strategy = self.options.get("partition.assignment.strategy", "")
        cooperative = is_new or "cooperative" in strategy

        def on_assign(client: Any, partitions: Any) -> None:
            new = {each.partition for each in partitions}
            self.got(self.assigned | new if cooperative else new)

        def on_lost(client: Any, partitions: Any) -> None:
            self.assigned = self.assigned - {each.partition for each in partitions}

        def on_revoke(client: Any, partitions: Any) -> None:
            _commit_all(client)
            on_lost(client, partitions)

        consumer.subscribe([self.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        while self.goes_on():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self.took(message.value())
                consumer.commit(message=message, asynchronous=True)
        _commit_all(consumer)
        consumer.close()


def _commit_all(consumer: Any) -> None:
    """Commit what was read, for good: an asynchronous commit may have met a dying coordinator."""
    wait_for(lambda: _is_committed(consumer), "it commits")


def _is_committed(consumer: Any) -> bool:
    """Whether there is nothing left to commit; not while the coordinator is looked for."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        committed = consumer.commit(asynchronous=False)
    except KafkaException as error:
        code = error.args[0].code()
        if code not in (KafkaError._NO_OFFSET, KafkaError._WAIT_COORD):
            raise
        return bool(code == KafkaError._NO_OFFSET)  # it has read nothing
    return all(each.error is None for each in committed)


class AioKafka(Reader):
    """aiokafka."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            **self.options,
        )
        if self.is_pattern:
            consumer.subscribe(pattern=self.topic)
        else:
            consumer.subscribe([self.topic])
        await consumer.start()
        while self.goes_on():
            batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            for batch in batches.values():
                for message in batch:
                    self.took(message.value)
            if batches:
                await consumer.commit()
            self._look(consumer)
        await consumer.stop()

    def _look(self, consumer: Any) -> None:
        partitions = {each.partition for each in consumer.assignment()}
        if partitions != self.assigned:
            self.got(partitions)


def kafka_python_member(**options: Any) -> Any:
    """A KafkaConsumer that can be in a group.

    3.0.12 forgets its assignment where the timeout of poll() ends before SyncGroup is answered,
    and stays without one: so its joining gets no timeout.
    """
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(auto_offset_reset="earliest", **options)
    join = consumer._coordinator.poll
    consumer._coordinator.poll = lambda timeout_ms: join()
    return consumer


class KafkaPython(Reader):
    """kafka-python."""

    def run(self) -> None:
        consumer = kafka_python_member(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            **self.options,
        )
        if self.is_pattern:
            consumer.subscribe(pattern=self.topic)
        else:
            consumer.subscribe([self.topic])
        while self.goes_on():
            for batch in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                for message in batch:
                    self.took(message.value)
                consumer.commit()
            partitions = {each.partition for each in consumer.assignment()}
            if partitions != self.assigned:
                self.got(partitions)
        consumer.close()


CLIENTS: dict[str, Callable[..., Reader]] = {
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}


def main() -> None:
    """One confluent consumer, until it is killed: bootstrap servers, group, topic."""
    bootstrap, group, topic = sys.argv[1:4]
    reader = Confluent(bootstrap, group, topic, **{"session.timeout.ms": KILLED_SESSION_MS})
    while reader.error is None:
        reader.wait()


if __name__ == "__main__":
    main()

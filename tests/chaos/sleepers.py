"""Clients that sleep while clocks are wrong: nothing of theirs may expire meanwhile.

A producer without and one with an open transaction, committed offsets of a group without members,
and a session whose publisher has gone.

Invariant: what `check` finds was there before any clock was wrong.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, DeleteTopic, ListSessions
from samelog.config.tables.node import NodeConfig
from samelog.publisher import Publisher
from tests.chaos.field import Field, NotInTime

TOPIC = "sleepers"
GROUP = "asleep"
SESSION = "asleep"
OFFSET = 2
PARTITION = 0
OPTIONS = {"enable.idempotence": True, "acks": "all", "log_level": 3}
PATIENCE_S = 60.0


class Asleep(NotInTime):
    """Something expired by a wrong clock."""


def look_often(field: Field) -> None:
    """Nodes look every second for offsets that are too old."""

    def edit(config: NodeConfig) -> NodeConfig:
        groups = replace(config.kafka.groups, offsets_retention_check_interval_ms=1000)
        return replace(config, kafka=replace(config.kafka, groups=groups))

    for node in field.nodes:
        node.change(edit)


class Sleepers:
    """They fall asleep when made."""

    def __init__(self, field: Field) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._field = field
        bootstrap = {"bootstrap.servers": field.client.kafka_bootstrap}
        ask(field.client, CreateTopic(TOPIC, 1, {}))
        self._producer = Producer({**bootstrap, **OPTIONS})
        for number in range(OFFSET + 1):
            self._produce(str(number))
        self._writer = Producer(
            {**bootstrap, "transactional.id": "asleep", "transaction.timeout.ms": 600_000}
        )
        self._writer.init_transactions(PATIENCE_S)
        self._writer.begin_transaction()
        self._writer.produce(TOPIC, b"open", partition=PARTITION)
        self._writer.flush(PATIENCE_S)
        self._reader = Consumer({**bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        self._place = TopicPartition(TOPIC, PARTITION, OFFSET)
        self._reader.commit(offsets=[self._place], asynchronous=False)
        directory = Path(field.directory, "asleep")
        with Publisher(
            TOPIC, session=SESSION, directory=directory, config=field.client_file
        ) as publisher:
            publisher.append(b"asleep")
            publisher.wait_merged(PATIENCE_S)

    def _produce(self, value: str) -> None:
        self._producer.produce(TOPIC, value, partition=PARTITION)
        if self._producer.flush(PATIENCE_S):
            raise Asleep(f"the producer that slept could not write {value!r}")

    def check(self) -> None:
        """Check that each client works after its sleep. Raises Asleep."""
        self._produce("awake")
        self._writer.commit_transaction(PATIENCE_S)
        [found] = self._reader.committed([self._place], PATIENCE_S)
        if found.offset != OFFSET:
            raise Asleep(f"offset {found.offset} is committed, and was {OFFSET}")
        self._reader.close()
        sessions = ask(self._field.client, ListSessions()).sessions
        if SESSION not in [each.session for each in sessions]:
            raise Asleep(f"session {SESSION!r} is gone")
        ask(self._field.client, DeleteTopic(TOPIC, confirm=TOPIC))  # copies of one are compared

"""Transactional clients of Kafka, and what has to come of them: python -m tests.chaos.transactions.

A *mover* writes a record into each partition with every transaction, and aborts one in four. It
notes what it was told, so that the check knows what was promised. A *copier* reads what is
committed, and writes it elsewhere, exactly once, with its offsets in the same transactions.

Invariant: a note is written after the client was told, never before; the check reads as any
consumer of committed records does.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from samelog.config.load import load_client

MOVES, COPIED, GROUP = "moves", "copied", "copier"
PARTITIONS = 3
ABORTED_SHARE = 0.25
COMMITTED, ABORTED = "committed", "aborted"
TRANSACTION_MS = 20_000
CALL_S = 30.0
DIED_CODE = 3
"""The client cannot go on: it is started again."""
Ask = Callable[[], Any]

stopped = False


def options(bootstrap: str) -> dict[str, Any]:
    """What all clients are told."""
    return {"bootstrap.servers": bootstrap, "log_level": 2}


def producer_of(bootstrap: str, name: str) -> Any:
    """A producer that has fenced all before it of that name."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            **options(bootstrap),
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_MS,
            "linger.ms": 2,
        }
    )
    until_done(lambda: producer.init_transactions(CALL_S))
    return producer


def until_done(ask: Ask) -> None:
    """Ask again for as long as that is what the client says. Raises KafkaException."""
    from confluent_kafka import KafkaException

    while True:
        try:
            ask()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def decide(producer: Any, *, commit: bool) -> bool:
    """End a transaction; whether it is committed. Raises KafkaException."""
    from confluent_kafka import KafkaException

    if commit:
        try:
            until_done(lambda: producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        else:
            return True
    until_done(lambda: producer.abort_transaction(CALL_S))
    return False


def move(bootstrap: str, name: str, life: int, notes: Path) -> None:
    """Write transactions until told to stop."""
    producer, chance = producer_of(bootstrap, name), random.Random(f"{name} {life}")
    number = 0
    with notes.open("a", buffering=1) as out:
        while not stopped:
            producer.begin_transaction()
            value = f"{name}:{life}:{number}"
            for partition in range(PARTITIONS):
                producer.produce(MOVES, value.encode(), partition=partition)
            is_committed = decide(producer, commit=chance.random() >= ABORTED_SHARE)
            out.write(f"{COMMITTED if is_committed else ABORTED} {value}\n")
            number += 1


def copy(bootstrap: str, name: str) -> None:
    """Write what is committed once more, exactly once, until told to stop."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    producer = producer_of(bootstrap, name)
    consumer = Consumer(
        {**options(bootstrap), "group.id": GROUP, "isolation.level": "read_committed"}
        | {"enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    asked = [TopicPartition(MOVES, index) for index in range(PARTITIONS)]
    known = consumer.committed(asked, timeout=CALL_S)
    for place in known:
        place.offset = OFFSET_BEGINNING if place.offset < 0 else place.offset
    consumer.assign(known)
    while not stopped:
        found: list[Any] = [each for each in consumer.consume(100, 0.2) if each.error() is None]
        if not found:
            continue
        producer.begin_transaction()
        for record in found:
            producer.produce(COPIED, record.value(), partition=record.partition())
        newest = {record.partition(): record.offset() + 1 for record in found}
        places = [TopicPartition(MOVES, index, offset) for index, offset in newest.items()]
        metadata = consumer.consumer_group_metadata()
        until_done(lambda: producer.send_offsets_to_transaction(places, metadata, CALL_S))  # noqa: B023
        if not decide(producer, commit=True):
            sys.exit(DIED_CODE)  # what it read is to be read again


# --- what came of it ------------------------------------------------------------------------------


def read_committed(bootstrap: str, topic: str) -> list[list[str]]:
    """The values of each partition, in order, up to its end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {**options(bootstrap), "group.id": "check", "isolation.level": "read_committed"}
        | {"enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 4 * CALL_S
    while len(at_end) < PARTITIONS and time.monotonic() < deadline:
        record: Any = consumer.poll(1.0)
        if record is not None and record.error() is None:
            found[record.partition()].append(record.value().decode())
        elif record is not None:
            at_end.add(record.partition())
    consumer.close()
    return found


def problems(moves: list[list[str]], notes: Iterable[str]) -> list[str]:
    """What is wrong with what is committed, given what clients were told."""
    wrong: list[str] = []
    sets: list[set[str]] = [set(values) for values in moves]
    told: dict[str, str] = {}
    for line in notes:
        what, value = line.split()
        told[value] = what
    torn = sets[0].union(*sets[1:]) - sets[0].intersection(*sets[1:])
    if torn:
        wrong.append(f"{len(torn)} transactions are there in part: {sorted(torn)[:3]}")
    for index, values in enumerate(moves):
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            wrong.append(f"partition {index}: {len(twice)} are there twice: {twice[:3]}")
        if _is_disordered(values):
            wrong.append(f"partition {index}: transactions of a producer are out of order")
        lost = [v for v, what in told.items() if what == COMMITTED and v not in sets[index]]
        shown = [v for v, what in told.items() if what == ABORTED and v in sets[index]]
        if lost:
            wrong.append(f"partition {index}: {len(lost)} committed are not there: {lost[:3]}")
        if shown:
            wrong.append(f"partition {index}: {len(shown)} aborted are there: {shown[:3]}")
    return wrong


def _is_disordered(values: Iterable[str]) -> bool:
    newest: dict[str, tuple[int, int]] = {}
    for value in values:
        name, life, number = value.split(":")
        place = int(life), int(number)
        if place <= newest.get(name, (-1, -1)):
            return True
        newest[name] = place
    return False


def _stop(*_: object) -> None:
    global stopped  # noqa: PLW0603
    stopped = True


def main() -> int:
    """A client, by role, configuration, name, life and notes."""
    from confluent_kafka import KafkaException

    role, config, name, life, notes = sys.argv[1:]
    signal.signal(signal.SIGTERM, _stop)
    bootstrap = load_client(config).kafka_bootstrap
    try:
        if role == "mover":
            move(bootstrap, name, int(life), Path(notes))
        else:
            copy(bootstrap, name)
    except KafkaException as error:
        sys.stderr.write(f"{name}: {error}\n")
        return DIED_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())

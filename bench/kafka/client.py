"""The client programs for every system that speaks Kafka's protocol: confluent-kafka (librdkafka),
the same for Apache Kafka and for our listener.

Producers are idempotent with acks=all; a consumer reads partition 0 from its beginning, without a
group. `--told` is librdkafka's configuration, as JSON.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.processes import Clock, ready, stand_by

Told = Mapping[str, str]

STAMP = struct.Struct(">q")
START = b"start of it"
POLL_EVERY = 1_000
FLUSH_S = 300
PAUSE_S = 0.005
SECOND = 1_000_000_000
POLL_NS = 1_000_000
LINGER_MS = 5
QUEUE_BACKOFF_MS = 10
"""For so long a consumer whose queue is full asks for nothing. By default it is a second: who sends
faster than the application takes, would be measured as slower than who does not.
"""


class NotDelivered(Exception):
    """A record was refused, or not acknowledged in time."""


def producer_of(told: Told, linger_ms: int) -> Producer:
    """A producer that waits for all replicas."""
    safe = {"acks": "all", "enable.idempotence": True, "linger.ms": linger_ms}
    return Producer({**told, **safe})


def consumer_of(told: Told, topic: str) -> Consumer:
    """A consumer that is connected and knows the topic, and has asked for nothing yet."""
    quick = {"fetch.queue.backoff.ms": QUEUE_BACKOFF_MS}
    consumer = Consumer({**told, "group.id": topic, "enable.auto.commit": False, **quick})
    consumer.list_topics(topic, timeout=FLUSH_S)
    return consumer


def begin(consumer: Consumer, topic: str) -> Consumer:
    """Have it ask for partition 0, from its beginning."""
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def refuse(error: object, _: Message) -> None:
    """What a producer is told of each record. Raises NotDelivered."""
    if error is not None:
        raise NotDelivered(str(error))


def finish(producer: Producer) -> None:
    """Wait until all is acknowledged. Raises NotDelivered."""
    if left := producer.flush(FLUSH_S):
        raise NotDelivered(f"{left} records were not acknowledged within {FLUSH_S} s")


def put(producer: Producer, topic: str, value: bytes) -> None:
    """Hand over one record, waiting while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, on_delivery=refuse)
            return
        except BufferError:
            producer.poll(0.05)


def started(told: Told, topic: str, linger_ms: int) -> Producer:
    """A producer whose first record is acknowledged."""
    producer = producer_of(told, linger_ms)
    put(producer, topic, START)
    finish(producer)
    return producer


def produce(told: Told, topic: str, given: argparse.Namespace) -> None:
    """As fast as it goes, until the last acknowledgement."""
    producer, value = started(told, topic, LINGER_MS), bytes(given.size)
    stand_by()
    clock = Clock()
    for number in range(given.records):
        put(producer, topic, value)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    finish(producer)
    clock.found()


def follow(told: Told, topic: str, given: argparse.Namespace) -> None:
    """Behind a producer: ready with its first record, done with its last one."""
    consumer = begin(consumer_of(told, topic), topic)
    while not consumer.consume(1, timeout=1.0):
        pass
    ready()
    clock, received = Clock(), 0
    while received < given.records:
        received += len(consumer.consume(10_000, timeout=0.05))
    clock.found()
    consumer.close()


def consume(told: Told, topic: str, given: argparse.Namespace) -> None:
    """What is there, `--times` over, each by a new consumer: from before the first byte is asked
    for until the last record is handed out.
    """
    consumers = [consumer_of(told, topic) for _ in range(given.times)]
    stand_by()
    clock = Clock()
    for consumer in consumers:
        begin(consumer, topic)
        received = 0
        while received < given.records:
            found = consumer.consume(min(10_000, given.records - received), timeout=1.0)
            received += len(found)
        consumer.unassign()
    clock.found()


def poll(told: Told, topic: str, given: argparse.Namespace) -> None:
    """What is there, a record at a time."""
    consumer, received = consumer_of(told, topic), 0
    stand_by()
    clock = Clock()
    begin(consumer, topic)
    while received < given.records:
        received += consumer.poll(1.0) is not None
    clock.found()


def paced(told: Told, topic: str, given: argparse.Namespace) -> None:
    """So many a second, open loop, each stamped with when it was due: by several producers in turn,
    to several partitions in turn. Milliseconds until each was handed over and, of one producer,
    acknowledged: of several, each is asked for its acknowledgements only in its turn.
    """
    producers = [started(told, topic, 0) for _ in range(given.producers)]
    padding, acks, late = bytes(given.size - STAMP.size), list[float](), list[float]()

    def acknowledged(error: object, message: Message) -> None:
        refuse(error, message)
        due = STAMP.unpack_from(message.value() or b"")[0]
        acks.append((time.monotonic_ns() - due) / 1e6)

    stand_by()
    clock, begun = Clock(), time.monotonic_ns()
    for number in range(given.records):
        producer, due = producers[number % len(producers)], begun + number * SECOND // given.rate
        while (wait := due - time.monotonic_ns()) > 0:
            if wait >= POLL_NS:
                producer.poll(POLL_NS / SECOND)
            else:  # librdkafka counts milliseconds: less is 0, and would keep a core busy
                time.sleep(wait / SECOND)
        late.append((time.monotonic_ns() - due) / 1e6)
        partition = number % given.partitions
        value = STAMP.pack(due) + padding
        producer.produce(topic, value, partition=partition, on_delivery=acknowledged)
        producer.poll(0)
    for producer in producers:
        finish(producer)
    clock.found(ack_ms=acks if len(producers) == 1 else [], late_ms=late)


def latencies(told: Told, topic: str, given: argparse.Namespace) -> None:
    """Of every record behind a paced producer: milliseconds since it was due."""
    consumer, found = consumer_of(told, topic), list[float]()
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(given.partitions)])
    while consumer.poll(1.0) is None:
        pass
    ready()
    clock = Clock()
    while len(found) < given.records:
        record = consumer.poll(1.0)
        if record is not None and (value := record.value()) not in (None, START):
            found.append((time.monotonic_ns() - STAMP.unpack_from(value)[0]) / 1e6)
    clock.found(ms=found)
    consumer.close()


def trips(told: Told, topic: str, given: argparse.Namespace) -> None:
    """Milliseconds from produce to acknowledgement, one record at a time."""
    producer, value, found = started(told, topic, 0), bytes(given.size), []
    stand_by()
    clock = Clock()
    for _ in range(given.records):
        at = time.perf_counter()
        put(producer, topic, value)
        finish(producer)
        found.append(1000 * (time.perf_counter() - at))
        time.sleep(PAUSE_S)
    clock.found(ms=found)


def calls(told: Told, topic: str, given: argparse.Namespace) -> None:
    """`produce` alone, into a queue that holds them all."""
    room = {"queue.buffering.max.messages": str(given.records + 1)}
    producer = started({**told, **room, "queue.buffering.max.kbytes": "2000000"}, topic, LINGER_MS)
    value = bytes(given.size)
    stand_by()
    clock = Clock()
    for _ in range(given.records):
        producer.produce(topic, value)
    clock.found()
    finish(producer)


def acknowledged(told: Told, topic: str, given: argparse.Namespace) -> None:
    """So many a second, for `--seconds`; the times of all acknowledgements, on this machine's
    monotonic clock, whatever happens to the leader meanwhile.
    """
    producer, value, times = started(told, topic, 0), bytes(given.size), []

    def note(error: object, _: Message) -> None:
        if error is None:
            times.append(time.monotonic())

    stand_by()
    clock, begun, number = Clock(), time.monotonic(), 0
    while (passed := time.monotonic() - begun) < given.seconds:
        while number < passed * given.rate:
            producer.produce(topic, value, on_delivery=note)
            number += 1
        producer.poll(0.001)
    finish(producer)
    clock.found(times=times, lost=number - len(times))


def first(told: Told, topic: str, given: argparse.Namespace) -> None:
    """Milliseconds from the request for a new topic until its first record is acknowledged."""
    producer, found = started(told, topic, 0), []
    admin = AdminClient({**told})
    config = json.loads(given.config)
    stand_by()
    clock = Clock()
    for number in range(given.records):
        at, name = time.perf_counter(), f"{topic}-{number}"
        admin.create_topics([NewTopic(name, 1, config=config)])[name].result(FLUSH_S)
        put(producer, name, bytes(given.size))
        finish(producer)
        found.append(1000 * (time.perf_counter() - at))
    clock.found(ms=found)


def transactions(told: Told, topic: str, given: argparse.Namespace) -> None:
    """Milliseconds of each transaction of `--times` records, from its begin to its commit."""
    producer = Producer({**told, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(FLUSH_S)
    found, value = [], bytes(given.size)
    stand_by()
    clock = Clock()
    for _ in range(given.records):
        at = time.perf_counter()
        producer.begin_transaction()
        for _ in range(given.times):
            put(producer, topic, value)
        producer.commit_transaction(FLUSH_S)
        found.append(1000 * (time.perf_counter() - at))
    clock.found(ms=found)


ROLES: dict[str, Callable[[Told, str, argparse.Namespace], None]] = {
    each.__name__: each
    for each in (
        produce,
        follow,
        consume,
        poll,
        paced,
        latencies,
        trips,
        calls,
        acknowledged,
        first,
        transactions,
    )
}


def main() -> None:
    """One role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--told", type=json.loads, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--config", default="{}", help="of new topics")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1)
    given = parser.parse_args()
    ROLES[given.role](given.told, given.topic, given)


if __name__ == "__main__":
    main()

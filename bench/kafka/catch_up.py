"""Row catch-up: a follower is killed, records are produced without it, it is started again, and has
to copy them while more come at a steady rate; by the same Kafka client for both.

The clock runs from when the node or broker takes connections until it has all that the others have:
what the process takes to start counts for neither.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

from bench.failover import leader_of
from bench.kafka.brokers import Brokers
from bench.kafka.clients import work
from bench.kafka.systems import KafkaSystem
from bench.machine import percentile
from samelog.admin.client import node_status
from samelog.admin.errors import AdminError
from samelog.cli.local_cluster import LocalCluster, LocalNode

SIZE = 1000
POLL_S = 0.01
TIMEOUT_S = 300.0


class Amounts(NamedTuple):
    """What the node lacks, and what comes meanwhile: a rate of records, for so long."""

    megabytes: int
    rate: int
    seconds: float


class TooSlow(Exception):
    """The node did not catch up in time."""


def of_samelog(cluster: LocalCluster, system: KafkaSystem, amounts: Amounts) -> dict[str, float]:
    """A follower of ours."""
    topic = system.create("catch-up")
    leader = leader_of(cluster)
    away = next(node for node in cluster.nodes if node is not leader)

    def answers() -> bool:
        return end_of(cluster, away, topic) >= 0

    def has_all() -> bool:
        wanted = end_of(cluster, leader, topic)
        return 0 <= wanted <= end_of(cluster, away, topic) + amounts.rate

    return _measured(system, topic, amounts, Steps(away.kill, away.start, answers, has_all))


def of_kafka(brokers: Brokers, system: KafkaSystem, amounts: Amounts) -> dict[str, float]:
    """A follower of Apache Kafka: it has all once it is in sync again."""
    topic = system.create("catch-up")
    away = brokers.nodes[(system.leader(topic) + 1) % len(brokers.nodes)]

    def answers() -> bool:
        away.wait_answers()
        return True

    def has_all() -> bool:
        return system.in_sync(topic) == len(brokers.nodes)

    return _measured(system, topic, amounts, Steps(away.kill, away.start, answers, has_all))


class Steps(NamedTuple):
    """What is done to the node, and how to see how far it is."""

    kill: Callable[[], None]
    start: Callable[[], None]
    answers: Callable[[], bool]
    has_all: Callable[[], bool]


def _measured(system: KafkaSystem, topic: str, amounts: Amounts, steps: Steps) -> dict[str, float]:
    records = amounts.megabytes * 1_000_000 // SIZE
    steps.kill()
    work(system, "produce", topic, size=SIZE, records=records)
    with system.program("acknowledged", topic, rate=amounts.rate, seconds=amounts.seconds) as load:
        load.wait_ready()
        load.go()
        steps.start()
        _wait(steps.answers)
        begin = time.monotonic()
        _wait(steps.has_all)
        seconds = time.monotonic() - begin
        times = load.result()["times"]
    waits = [after - before for before, after in itertools.pairwise(times)]
    return {
        "mb_per_s": amounts.megabytes / max(seconds, POLL_S),
        "seconds": seconds,
        "longest_ack_pause_ms": 1000 * max(waits, default=0.0),
        "ack_pause_p99_ms": 1000 * percentile(waits, 0.99) if waits else 0.0,
    }


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TooSlow(f"not within {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def end_of(cluster: LocalCluster, node: LocalNode, topic: str) -> int:
    """The offset behind a node's last record; -1 if it does not answer."""
    try:
        partitions = node_status(cluster.client_config(), node.address).partitions
    except AdminError:
        return -1
    return max((each.end_offset for each in partitions if each.topic == topic), default=-1)

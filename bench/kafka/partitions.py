"""Rows g: what partitions cost that do nothing, and such as hold one record, on both systems.

A topic of many partitions is made and left idle; before and after that, single records are produced
at a steady rate to another topic. Then a record goes into each partition of a third topic: what
that adds to a node's disk and descriptors. A cluster that was measured so is used for nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer

from bench.kafka.client import finish, producer_of
from bench.kafka.clients import work
from bench.kafka.systems import KafkaSystem
from bench.machine import percentile

SIZE = 100
SETTLE_S = 10.0
BLOCK = 512


class Amounts(NamedTuple):
    """Partitions that are idle, and that are written once; single records; seconds of idling."""

    idle: int
    written: int
    trips: int
    seconds: float


class Node(NamedTuple):
    """One of three: its process and where it stores."""

    pid: int
    directory: str


def run_partitions(
    system: KafkaSystem, nodes: Callable[[], Sequence[Node]], amounts: Amounts
) -> dict[str, float]:
    """All figures of one system."""
    before = _acknowledged(system, amounts.trips)
    begin = time.monotonic()
    system.create("idle", amounts.idle)
    created = time.monotonic() - begin
    time.sleep(SETTLE_S)
    after = _acknowledged(system, amounts.trips)
    with system.meter.window() as spent:
        time.sleep(amounts.seconds)
    idle = spent.cores / len(nodes())
    return {
        **{f"{name}.none": value for name, value in before.items()},
        **{f"{name}.idle": value for name, value in after.items()},
        "create_s": created,
        "idle_node_cpu_percent": 100 * idle,
        **_written(system, nodes()[0], amounts.written),
    }


def _acknowledged(system: KafkaSystem, trips: int) -> dict[str, float]:
    """Of single records: their times, and the nodes' processor time for each."""
    topic = system.create("active")
    found, spent = work(system, "trips", topic, size=SIZE, records=trips)
    return {
        "p50_ms": percentile(found["ms"], 0.5),
        "p99_ms": percentile(found["ms"], 0.99),
        "cpu_ms": 1000 * spent / trips,
    }


def _written(system: KafkaSystem, node: Node, partitions: int) -> dict[str, float]:
    topic = system.create("written", partitions)
    system.wait_in_sync(topic)
    before, begin = (disk_bytes(node.directory), descriptors(node.pid)), time.monotonic()
    _fill(producer_of(system.told, 0), topic, partitions)
    seconds = time.monotonic() - begin
    time.sleep(SETTLE_S)
    return {
        "written_s": seconds,
        "disk_mb": (disk_bytes(node.directory) - before[0]) / 1e6,
        "descriptors_more": float(descriptors(node.pid) - before[1]),
        "descriptors": float(descriptors(node.pid)),
        "node_rss_mb": psutil.Process(node.pid).memory_info().rss / 1e6,
    }


def _fill(producer: Producer, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        producer.produce(topic, bytes(SIZE), partition=partition)
        producer.poll(0)
    finish(producer)


def disk_bytes(directory: str) -> int:
    """What the files in a directory take, holes not counted."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(place, name).stat().st_blocks * BLOCK
            except FileNotFoundError:
                continue
    return total


def descriptors(pid: int) -> int:
    """Open files and sockets of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))

"""Row d: the same client program through our Kafka listener and to Apache Kafka: producing alone,
consuming what is there, and single round trips, each with the nodes' processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bench import machine
from bench.kafka.systems import KafkaSystem
from bench.machine import percentile

SIZES = (1000, 100)


class Amounts(NamedTuple):
    """How much of each."""

    megabytes: Mapping[str, int]
    """By the size of records."""
    times: int
    """So often is what was produced consumed."""
    trips: int


def run_clients(system: KafkaSystem, amounts: Amounts) -> dict[str, float]:
    """All figures of one system."""
    found: dict[str, float] = {}
    for size in SIZES:
        megabytes = amounts.megabytes[str(size)]
        found |= _bulk(system, size, megabytes * 1_000_000 // size, amounts.times)
    for size in SIZES:
        topic = system.create("trips")
        times = work(system, "trips", topic, size=size, records=amounts.trips)[0]["ms"]
        found |= {f"trip_p50_ms.{size}": percentile(times, 0.5)}
        found |= {f"trip_p99_ms.{size}": percentile(times, 0.99)}
    return found


def _bulk(system: KafkaSystem, size: int, records: int, times: int) -> dict[str, float]:
    topic = system.create("clients")
    gigabytes = size * records / 1e9
    produced, spent = work(system, "produce", topic, size=size, records=records)
    consumed, read = work(system, "consume", topic, records=records, times=times)
    return {
        f"produced_mb_per_s.{size}": gigabytes * 1000 / seconds(produced),
        f"produced_nodes_cpu_s_per_gb.{size}": spent / gigabytes,
        f"consumed_mb_per_s.{size}": gigabytes * 1000 * times / seconds(consumed),
        f"consumed_nodes_cpu_s_per_gb.{size}": read / gigabytes / times,
    }


def work(
    system: KafkaSystem, role: str, topic: str, **given: object
) -> tuple[Mapping[str, Any], float]:
    """What a client program found by itself, and the nodes' processor time meanwhile."""
    with system.program(role, topic, **given) as program:
        program.wait_ready()
        machine.settled()
        with system.meter.window() as spent:
            program.go()
            found = program.result()
    return found, spent.cpu_s


def seconds(found: Mapping[str, Any]) -> float:
    """How long a program worked."""
    return float(found["ended"] - found["began"])

"""Loads of Kafka clients that Apache Kafka and our listener get alike: many producers, many written
partitions, new topics, transactions; and any paced load beside a process that keeps the disk busy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from bench.kafka.clients import work
from bench.kafka.pairs import WARM_UP_S, Ran, run_programs
from bench.kafka.systems import KafkaSystem
from bench.latency import percentiles
from bench.machine import percentile
from bench.processes import Program, options

PARTITIONS_SIZE = 1000
DISK_SHARE = 0.4


def producers(system: KafkaSystem, *, count: int, rate: int, seconds: float) -> dict[str, float]:
    """Producers with a connection of their own each, in two processes: `rate` records a second of
    1 KB of each.
    """
    topic, total = system.create("producers"), int(count * rate * (seconds + WARM_UP_S))
    given = {"size": 1000, "records": total // 2}
    half = {**given, "producers": count // 2, "rate": count * rate // 2}
    writers = [system.program("paced", topic, **half) for _ in range(2)]
    reader = system.program("latencies", topic, **{**given, "records": total // 2 * 2})
    return of_many(run_programs(system.meter, system.directory, writers, reader), count * rate)


def partitions(system: KafkaSystem, *, count: int, rate: int, seconds: float) -> dict[str, float]:
    """One producer that writes to many partitions in turn, and a consumer of all of them."""
    topic = system.create("partitions", count)
    system.wait_in_sync(topic)
    records = int(rate * (seconds + WARM_UP_S))
    given = {"size": PARTITIONS_SIZE, "records": records, "rate": rate, "partitions": count}
    pair = [system.program(role, topic, **given) for role in ("paced", "latencies")]
    return of_many(run_programs(system.meter, system.directory, pair[:1], pair[1]), rate)


def of_many(ran: Ran, rate: int) -> dict[str, float]:
    """Figures of a load of so many records a second in all."""
    warm, clients = int(rate * WARM_UP_S), sum(each["cpu_s"] for each in ran.written)
    return {
        **percentiles(ran.read["ms"][warm:]),
        "nodes_cores": ran.nodes.cores,
        "publishers_cores": clients / ran.seconds,
    }


def first_records(system: KafkaSystem, *, topics: int) -> dict[str, float]:
    """The first record of a new topic: created, produced, acknowledged."""
    given = {"size": 100, "records": topics, "config": json.dumps(dict(system.config))}
    found, _ = work(system, "first", system.create("first"), **given)
    return {"p50_ms": percentile(found["ms"], 0.5), "p99_ms": percentile(found["ms"], 0.99)}


def transactions(system: KafkaSystem, *, times: int) -> dict[str, float]:
    """Transactions of one and of ten records."""
    figures = dict[str, float]()
    for records in (1, 10):
        topic = system.create("transactions")
        given = {"size": 100, "records": times, "times": records}
        taken = work(system, "transactions", topic, **given)[0]["ms"]
        figures |= {f"p50_ms.{records}": percentile(taken, 0.5)}
        figures |= {f"p99_ms.{records}": percentile(taken, 0.99)}
    return figures


@contextmanager
def disk_busy(directory: str, share: float = DISK_SHARE) -> Iterator[dict[str, float]]:
    """Another process writes with O_DIRECT at a share of the disk's rate, which it measures first.
    Both rates are in the value at the end of the block.
    """
    found = dict[str, float]()
    words = ["occupy", *options({"dir": directory, "share": share})]
    with Program("bench.many.client", words) as program:
        program.wait_ready()
        program.go()
        yield found
        program.go()
        rates = program.result()
    found["disk_mb_per_s"] = rates["mb_per_s"]
    found["disk_busy_mb_per_s"] = rates["written_mb_per_s"]

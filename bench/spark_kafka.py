"""Spark's own Kafka source and sink beside ours: the same values from and to three nodes and three
brokers, mutual TLS everywhere, `local[2]`, in turn. Before any is timed, each connector's code has
run equally often: Spark's own has several cases, which warm up Java's compiler for each other. Each
runs once more just before it is timed: Spark ends Python processes that nobody has used for a
minute, which others take.

*Tuned* is what helps Spark's own most: `kafka.max.poll.records` for its source, batches of 256 KiB
for its sink. Nothing of the product uses either; Maven fetches them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench import machine, maven
from bench.kafka.rig import Rig
from bench.kafka.systems import EACH_FLUSHED, FLUSH, LISTENER, OWN, KafkaSystem
from bench.spark import binary_values, start
from samelog import Publisher

RUNS = 2
WARM_UP = 8
"""How often each connector's source, and sink, has run before any is timed."""
SIZE = 100
POLL = {"kafka.max.poll.records": "50000"}
BATCH = {"kafka.batch.size": str(256 << 10), "kafka.linger.ms": "5"}
Told = Mapping[str, str]
Figures = dict[str, dict[str, float]]


class Place(NamedTuple):
    """Where nodes and brokers are. `told`: librdkafka's settings of our listener, and of Apache
    Kafka if there is one.
    """

    config: str
    directory: str
    told: Sequence[Told]

    def systems(self) -> list[KafkaSystem]:
        """Those that speak Kafka's protocol."""
        pairs = zip(((LISTENER, {}), (FLUSH, EACH_FLUSHED)), self.told, strict=False)
        return [
            KafkaSystem(name, told, list, self.directory, config) for (name, config), told in pairs
        ]


def place_of(rig: Rig) -> Place:
    """A rig's."""
    told = [system.told for system in rig.kafka_systems[:2]]
    return Place(rig.samelog.client_file, rig.directory, told)


class Case(NamedTuple):
    """Something to time."""

    system: str
    name: str
    run: Callable[[], None]


def of_java(told: Told) -> dict[str, str]:
    """What librdkafka is told, as Spark's source and sink take it; certificate and key are in one
    file, beside the key.
    """
    store = told["ssl.key.location"] + ".store"
    pair = (told["ssl.key.location"], told["ssl.certificate.location"])
    Path(store).write_text("".join(Path(each).read_text() for each in pair))
    os.chmod(store, 0o600)
    return {
        "kafka.bootstrap.servers": told["bootstrap.servers"],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": told["ssl.ca.location"],
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": store,
    }


def read(spark: SparkSession, format_: str, told: Told, topic: str) -> Callable[[], None]:
    """All of a topic, to nowhere."""

    def run() -> None:
        reader = spark.read.format(format_).options(**told)
        frame = reader.option("subscribe", topic).option("minPartitions", "2").load()
        frame.write.format("noop").mode("overwrite").save()

    return run


def write(frame: DataFrame, format_: str, told: Told, topic: str) -> Callable[[], None]:
    """A batch of two tasks, until it is published."""

    def run() -> None:
        writer = frame.write.format(format_).options(**told)
        writer.option("topic", topic).mode("append").save()

    return run


def fill(place: Place, rows: int) -> str:
    """A topic of our nodes that holds so many values."""
    topic = f"spark-{time.time_ns()}"
    with Publisher(
        topic, session=topic, directory=f"{place.directory}/{topic}", config=place.config
    ) as publisher:
        publisher.append_many(binary_values(rows))
        publisher.wait_merged(timeout=600)
    return topic


def sources(spark: SparkSession, place: Place, rows: int) -> list[Case]:
    """Ours, and Spark's own one from our listener and from Apache Kafka."""
    ours = fill(place, rows)
    found = [Case(OWN, "source", read(spark, "samelog", {"config": place.config}, ours))]
    for system in place.systems():
        told, topic = of_java(system.told), ours
        if system.name != LISTENER:
            topic = system.create("spark")
            with system.program("produce", topic, size=SIZE, records=rows) as program:
                program.wait_ready()
                program.go()
                program.result()
        found.append(Case(system.name, "source", read(spark, "kafka", told, topic)))
        found.append(Case(system.name, "source_tuned", read(spark, "kafka", told | POLL, topic)))
    return found


def sinks(spark: SparkSession, place: Place, rows: int) -> list[Case]:
    """Ours, and Spark's own one to Apache Kafka."""
    text = f"cast(rpad(cast(id as string), {SIZE}, 'x') as binary) as value"
    frame = spark.range(0, rows, 1, 2).selectExpr(text)
    topic = place.systems()[0].create("sunk", 2)
    found = [Case(OWN, "sink", write(frame, "samelog", {"config": place.config}, topic))]
    for system in place.systems()[1:]:
        told, there = of_java(system.told), system.create("sunk", 2)
        found.append(Case(system.name, "sink", write(frame, "kafka", told, there)))
        found.append(Case(system.name, "sink_tuned", write(frame, "kafka", told | BATCH, there)))
    return found


def measure(place: Place, rows: int) -> Figures:
    """Rows per second of each. Raises Unavailable."""
    spark = start(maven.jars(maven.SPARK_KAFKA))
    try:
        cases = sources(spark, place, rows) + sinks(spark, place, rows)
        taken: dict[Case, list[float]] = {case: [] for case in cases}
        warm_up(cases)
        for case in [case for _ in range(RUNS) for case in cases]:
            case.run()
            machine.settled()
            begin = time.monotonic()
            case.run()
            taken[case].append(time.monotonic() - begin)
    finally:
        spark.stop()
    found: Figures = {}
    for case, seconds in taken.items():
        at = found.setdefault(case.system, {})
        at[f"{case.name}_rows_per_s"] = round(rows / median(seconds))
    return found


def warm_up(cases: Sequence[Case]) -> None:
    """Run each connector's cases in turn, until its source and its sink have run WARM_UP times."""
    alike: dict[tuple[bool, str], list[Case]] = {}
    for case in cases:
        alike.setdefault((case.system == OWN, case.name.split("_")[0]), []).append(case)
    for same in alike.values():
        for case in islice(cycle(same), WARM_UP):
            case.run()


def ratios(found: Figures) -> dict[str, float]:
    """Ours over Spark's own, from and to Apache Kafka."""
    ours = found[OWN]
    return {
        f"ratio_{name}": round(ours[f"{name.split('_')[0]}_rows_per_s"] / rate, 2)
        for name, rate in found.get(FLUSH, {}).items()
    }


def main() -> None:
    """One round, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--place", help="nodes and brokers that are there, as JSON")
    given = parser.parse_args()
    if given.place:
        found = measure(Place(*json.loads(given.place)), given.rows)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as work, Rig(Path(work)) as rig:
        rig.of_round(0)
        found = measure(place_of(rig), given.rows)
    print(json.dumps({"rows": given.rows, **found, **ratios(found)}))


if __name__ == "__main__":
    main()

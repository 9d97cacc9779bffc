"""Row f: what handing out and taking in records costs an application, by processor time: iterating
over a finished copy and taking tables from it, beside poll and consume of a Kafka client; appends
beside a Kafka client's produce.

A copy is local and was made before; a Kafka client fetches from brokers. Both are what an
application that reads a topic again has.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bench.kafka.clients import work
from bench.kafka.systems import KafkaSystem, new_topic
from bench.processes import Clock, Program, options, stand_by
from samelog import Publisher, Subscriber

SIZES = (1000, 100)
MANY = 1000
TABLE = 100_000
"""Records of a table; as many are taken first, so that memory is there."""


def copy(given: argparse.Namespace) -> None:
    """Have a local copy of a topic."""
    with Subscriber(given.topic, directory=given.dir, config=given.config) as subscriber:
        stand_by()
        clock, received = Clock(), 0
        while received < given.records:
            received += len(subscriber.batch(max_records=50_000, timeout=1.0))
        clock.found()


def iterate(given: argparse.Namespace) -> None:
    """Every record of a copy."""
    with Subscriber(given.topic, directory=given.dir, follow=False) as warm:
        for _ in range(TABLE):
            next(iter(warm))
    with Subscriber(given.topic, directory=given.dir, follow=False) as subscriber:
        stand_by()
        clock, received = Clock(), 0
        for _ in subscriber:
            received += 1
        clock.found(records=received)


def arrow(given: argparse.Namespace) -> None:
    """The same as tables."""
    with Subscriber(given.topic, directory=given.dir, follow=False) as warm:
        warm.arrow_records(max_records=TABLE, timeout=1.0)  # what is loaded for it is not measured
    with Subscriber(given.topic, directory=given.dir, follow=False) as subscriber:
        stand_by()
        clock, received = Clock(), 0
        while received < given.records:
            received += subscriber.arrow_records(max_records=TABLE, timeout=1.0).num_rows
        clock.found(records=received)


def append(given: argparse.Namespace) -> None:
    """Record by record, a batch each."""
    _append(given, 0)


def append_linger(given: argparse.Namespace) -> None:
    """Record by record, sharing batches."""
    _append(given, 5)


def _append(given: argparse.Namespace, linger_ms: int) -> None:
    value = bytes(given.size)
    with Publisher("t", session="s", directory=given.dir, linger_ms=linger_ms) as publisher:
        publisher.append(value)
        stand_by()
        clock = Clock()
        for _ in range(given.records):
            publisher.append(value)
        clock.found()


def append_many(given: argparse.Namespace) -> None:
    """A thousand at once."""
    values = [bytes(given.size)] * MANY
    with Publisher("t", session="s", directory=given.dir) as publisher:
        publisher.append(values[0])
        stand_by()
        clock = Clock()
        for _ in range(given.records // MANY):
            publisher.append_many(values)
        clock.found()


ROLES: dict[str, Callable[[argparse.Namespace], None]] = {
    each.__name__: each for each in (copy, iterate, arrow, append, append_linger, append_many)
}


# --- beside the programs --------------------------------------------------------------------------


def run_own(config: str, directory: str, records: int) -> dict[str, float]:
    """Microseconds of processor time per record, and millions of records a second."""
    found: dict[str, float] = {}
    for size in SIZES:
        topic = new_topic("reading")
        given = {"topic": topic, "size": size, "records": records, "config": config}
        _fill(config, topic, f"{directory}/{topic}/p", size=size, records=records)
        local = options({**given, "dir": f"{directory}/{topic}/s"})
        _alone(["copy", *local])
        for role in ("iterate", "arrow"):
            found |= per_record(role, size, records, _alone([role, *local]))
        for role in ("append", "append_linger", "append_many"):
            place = options({**given, "dir": f"{directory}/{topic}/{role}"})
            found |= per_record(role, size, records, _alone([role, *place]))
    return found


def _fill(config: str, topic: str, directory: str, *, size: int, records: int) -> None:
    values = [bytes(size)] * MANY
    with Publisher(
        topic, session=topic, directory=directory, config=config, batch_bytes=64 << 10
    ) as publisher:
        for _ in range(records // MANY):
            publisher.append_many(values)
        publisher.wait_merged(timeout=600)


def _alone(words: list[str]) -> dict[str, float]:
    with Program("bench.kafka.reading", words) as program:
        program.wait_ready()
        program.go()
        return dict(program.result())


def run_kafka(system: KafkaSystem, records: int) -> dict[str, float]:
    """The same of a Kafka client."""
    found: dict[str, float] = {}
    for size in SIZES:
        topic = system.create("reading")
        work(system, "produce", topic, size=size, records=records)
        for role in ("poll", "consume", "calls"):
            at = topic if role != "calls" else system.create("calls")
            result, _ = work(system, role, at, size=size, records=records)
            found |= per_record(role, size, records, dict(result))
    return found


def per_record(role: str, size: int, records: int, found: dict[str, float]) -> dict[str, float]:
    """Named for the role and the size."""
    seconds = found["ended"] - found["began"]
    return {
        f"{role}_cpu_us.{size}": found["cpu_s"] / records * 1e6,
        f"{role}_m_per_s.{size}": records / seconds / 1e6,
    }


def main() -> None:
    """One role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--topic")
    parser.add_argument("--config")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--records", type=int, default=0)
    given = parser.parse_args()
    ROLES[given.role](given)


if __name__ == "__main__":
    main()

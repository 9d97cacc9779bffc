"""All measures of the table: what each runs of which systems, and in what amounts.

Systems take turns within a round, and another one begins in the next. Amounts are small enough for
five rounds of everything in an hour on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from bench import machine, maven, plain
from bench.kafka import catch_up, clients, failover, loads, partitions, reading, rows
from bench.kafka.pairs import run_bulk, run_paced
from bench.kafka.rig import Rig
from bench.kafka.systems import (
    DEFAULT,
    FLUSH,
    LISTENER,
    NATS,
    OWN,
    SINGLE,
    Bulk,
    KafkaSystem,
    Pace,
    System,
    create,
)
from bench.kafka_requests import ASKED, TOPIC, Load, leader_of
from bench.kafka_requests import measure as ask
from bench.many import measure as many
from bench.processes import Program, options
from bench.rounds.lines import Figures
from bench.rounds.run import Measure, Run
from tests.kafka.wire import Wire, metadata

Found = tuple[Figures, Mapping[str, str]]
Settings = Mapping[str, Any]
T = TypeVar("T")
SHARED = ("brokers", "client", "nodes", "pairs", "rig", "systems")
COMMON = ("bench/maven.py", "bench/meter.py", *(f"bench/kafka/{name}.py" for name in SHARED))
MANY = ("many/client", "many/measure", "many/metrics", "many/sidecar")
AMOUNTS: Mapping[str, Settings] = {
    rows.BULK: {"megabytes": {"1000": 200, "100": 80}, "nats_megabytes": {"1000": 25, "100": 4}},
    rows.LATENCY: {"rate": 1000, "size": 1000, "seconds": 8},
    rows.CLIENTS: {"megabytes": {"1000": 100, "100": 40}, "times": 5, "trips": 300},
    rows.PLAINTEXT: {"megabytes": {"1000": 100, "100": 40}, "times": 5, "trips": 300},
    rows.REQUESTS: {"seconds": 3, "connections": 32, "depth": 5},
    rows.READING: {"records": 300_000},
    rows.SESSIONS: {"sessions": 1000, "rate": 1, "seconds": 8, "patience": 120},
    rows.PRODUCERS: {"sessions": 100, "rate": 10, "seconds": 8, "processes": 2, "patience": 120},
    rows.SINGLE_REQUESTS: {"size": 1000, "seconds": 20},
    rows.BUSY_DISK: {"rate": 1000, "size": 1000, "seconds": 8},
    rows.WRITTEN: {"count": 1000, "rate": 1000, "seconds": 8},
    rows.NEW: {"topics": 20, "transactions": 100},
    rows.FAILOVER: {"kills": 4, "seconds": 7, "silent_seconds": 12, "kafka_seconds": 22},
    rows.CATCH_UP: {"megabytes": 300, "rate": 1000, "seconds": 20},
    rows.SPARK: {"rows": 1_000_000},
    rows.PARTITIONS: {"idle": 2000, "written": 1000, "trips": 300, "seconds": 5},
}


def fewer(amounts: Settings, share: float) -> Settings:
    """Amounts for a quick look: numbers of things, not rates, sizes or times."""
    kept = {"rate", "size", "connections", "depth", "times", "seconds", "silent_seconds"}
    kept |= {"kafka_seconds", "kills", "processes", "patience"}
    return {
        name: value
        if name in kept
        else fewer(value, share)
        if isinstance(value, dict)
        else max(1, int(value * share))
        for name, value in amounts.items()
    }


def in_turn(systems: Sequence[T], number: int) -> list[T]:
    """Beginning with another one each round."""
    at = number % len(systems)
    return [*systems[at:], *systems[:at]]


class Runner:
    """Runs measures on a rig. `amounts`: as AMOUNTS."""

    def __init__(self, rig: Rig, amounts: Mapping[str, Settings]) -> None:
        self._rig = rig
        self._amounts = amounts

    def bulk(self, number: int) -> Found:
        """Rows a, c, e."""
        wanted, found = self._amounts[rows.BULK], dict[str, dict[str, float]]()
        for size in (1000, 100):
            for system in in_turn(list(self._rig.systems.values()), number):
                megabytes = wanted["nats_megabytes" if system.name == NATS else "megabytes"]
                job = Bulk(size, megabytes[str(size)] * 1_000_000 // size)
                found.setdefault(system.name, {}).update(run_bulk(system, job))
        machine.settled()
        limit = plain.measure(wanted["megabytes"]["1000"]).mb_per_s
        return {**found, rows.PLAIN: {"mb_per_s.1000": limit}}, self._rig.skipped

    def latency(self, number: int) -> Found:
        """Rows b."""
        wanted = self._amounts[rows.LATENCY]
        records = int(wanted["rate"] * (wanted["seconds"] + 2))
        job = Pace(wanted["size"], records, wanted["rate"])
        return {each.name: run_paced(each, job) for each in self._turns(number)}, self._rig.skipped

    def clients(self, number: int) -> Found:
        """Rows d."""
        return self._clients(self._rig.kafka_systems, rows.CLIENTS, number)

    def plaintext(self, number: int) -> Found:
        """Rows d, without TLS between client and node."""
        return self._clients(self._rig.plaintext_systems, rows.PLAINTEXT, number)

    def _clients(self, systems: Sequence[KafkaSystem], name: str, number: int) -> Found:
        amounts = clients.Amounts(**self._amounts[name])
        turns = in_turn(systems, number)
        found = {each.name: clients.run_clients(each, amounts) for each in turns}
        return found, self._without_nats()

    def sessions(self, number: int) -> Found:
        """Sessions through a sidecar."""
        del number
        return {OWN: many.sidecar(self._rig.world(), self._amounts[rows.SESSIONS])}, {}

    def producers(self, number: int) -> Found:
        """Many publishers, and as many Kafka producers."""
        wanted = self._amounts[rows.PRODUCERS]
        alike = {"count": wanted["sessions"], "rate": wanted["rate"], "seconds": wanted["seconds"]}
        runs: dict[str, Callable[[], dict[str, float]]] = {
            OWN: lambda: many.publishers(self._rig.world(), wanted)
        }
        for system in self._rig.kafka_systems:
            runs[system.name] = partial(loads.producers, system, **alike)
        return {name: runs[name]() for name in in_turn(list(runs), number)}, self._without_nats()

    def single_requests(self, number: int) -> Found:
        """Records that come one by one."""
        wanted, found = self._amounts[rows.SINGLE_REQUESTS], dict[str, dict[str, float]]()
        for rate in (50, 200):
            job = Pace(wanted["size"], int(rate * (wanted["seconds"] + 2)), rate)
            for system in self._turns(number):
                figures = run_paced(system, job)
                named = {f"{name}.{rate}": figure for name, figure in figures.items()}
                found.setdefault(system.name, {}).update(named)
        return found, self._rig.skipped

    def busy_disk(self, number: int) -> Found:
        """A paced load beside a busy disk."""
        wanted = self._amounts[rows.BUSY_DISK]
        rate = wanted["rate"]
        job = Pace(wanted["size"], int(rate * (wanted["seconds"] + 2)), rate)
        with loads.disk_busy(self._rig.directory) as disk:
            found = {each.name: run_paced(each, job) for each in self._turns(number)}
        return {name: {**figures, **disk} for name, figures in found.items()}, self._rig.skipped

    def _turns(self, number: int) -> list[System]:
        """All systems, but one way only for each API."""
        systems = in_turn(list(self._rig.systems.values()), number)
        return [each for each in systems if each.name != SINGLE]

    def written(self, number: int) -> Found:
        """Many written partitions."""
        wanted, turns = self._amounts[rows.WRITTEN], in_turn(self._rig.kafka_systems, number)
        found = {each.name: loads.partitions(each, **wanted) for each in turns}
        return found, self._without_nats()

    def new_topics(self, number: int) -> Found:
        """First records and transactions."""
        wanted, found = self._amounts[rows.NEW], dict[str, dict[str, float]]()
        for system in in_turn(self._rig.kafka_systems, number):
            first = loads.first_records(system, topics=wanted["topics"])
            taken = loads.transactions(system, times=wanted["transactions"])
            found[system.name] = {
                **{f"first_{name}": figure for name, figure in first.items()},
                **{f"transaction_{name}": figure for name, figure in taken.items()},
            }
        return found, self._without_nats()

    def requests(self, number: int) -> Found:
        """Small requests."""
        load = Load(**self._amounts[rows.REQUESTS])
        found: dict[str, dict[str, float]] = {}
        for system in in_turn(self._rig.plaintext_systems[:2], number):
            create(system.told, TOPIC)
            address, pid = self._leader(system)
            at = found.setdefault(system.name, {})
            for name in ASKED:
                per_core = float(str(ask(address, pid, name, load)["per_s_of_node_cpu"]))
                at[f"{name.replace(' ', '_')}_per_core_s"] = per_core
                at[f"{name.replace(' ', '_')}_ms"] = 1000 / per_core
        return found, self._without_nats()

    def _leader(self, system: KafkaSystem) -> tuple[tuple[str, int], int]:
        if system.name == LISTENER:
            node = leader_of(self._rig.samelog)
            if node.kafka is None or node.pid is None:
                raise RuntimeError("the leader has no Kafka listener")
            return (node.kafka.host, node.kafka.port), node.pid
        brokers = self._rig.apache()
        first = brokers.nodes[0].ports[0]
        with Wire(("127.0.0.1", first)) as wire:
            leader = metadata(wire, TOPIC).topics[0].partitions[0].leader_id
        broker = brokers.nodes[leader]
        if broker.pid is None:
            raise RuntimeError("the leader does not run")
        return ("127.0.0.1", broker.ports[0]), broker.pid

    def reading(self, number: int) -> Found:
        """Rows f."""
        records, rig = self._amounts[rows.READING]["records"], self._rig
        runs: dict[str, Callable[[], dict[str, float]]] = {
            OWN: lambda: reading.run_own(rig.samelog.client_file, rig.directory, records)
        }
        for system in rig.kafka_systems[1:2]:
            runs[system.name] = lambda: reading.run_kafka(rig.kafka_systems[1], records)
        return {name: runs[name]() for name in in_turn(list(runs), number)}, self._without_nats()

    def failover(self, number: int) -> Found:
        """Rows i."""
        wanted, rig = self._amounts[rows.FAILOVER], self._rig
        ours = failover.SamelogFaults(
            rig.samelog, rig.nodes.own(), rig.kafka_systems[0], rig.directory
        )
        kills = [ours.kill(wanted["seconds"]) for _ in range(wanted["kills"])]
        silent = ours.silence(wanted["silent_seconds"])
        found: dict[str, dict[str, float | list[float]]] = {
            OWN: {
                "own_gap_s": [each[0] for each in kills],
                "client_gap_s": [each[1] for each in kills],
                "own_silent_gap_s": silent[0],
                "client_silent_gap_s": silent[1],
                "impatient_silent_gap_s": silent[2],
            }
        }
        if rig.brokers is not None:
            theirs = failover.KafkaFaults(rig.brokers, rig.kafka_systems[1])
            silent = theirs.silence(wanted["kafka_seconds"])
            found[FLUSH] = {
                "client_gap_s": [theirs.kill(wanted["kafka_seconds"])[0]],
                "client_silent_gap_s": silent[0],
                "impatient_silent_gap_s": silent[1],
            }
        return found, self._without_nats()

    def catch_up(self, number: int) -> Found:
        """A follower that comes back."""
        amounts, rig = catch_up.Amounts(**self._amounts[rows.CATCH_UP]), self._rig
        ours, theirs = rig.kafka_systems[0], rig.kafka_systems[1:2]
        found = {LISTENER: catch_up.of_samelog(rig.samelog, ours, amounts)}
        for system in theirs:
            found[system.name] = catch_up.of_kafka(rig.apache(), system, amounts)
        return found, self._without_nats()

    def spark(self, number: int) -> Found:
        """Spark's source and sink, in a process of their own."""
        try:
            maven.jars(maven.SPARK_KAFKA)
        except maven.Unavailable as error:
            return {}, {rows.SPARK: str(error)}
        rig = self._rig
        told = [system.told for system in rig.kafka_systems[:2]]
        place = json.dumps([rig.samelog.client_file, rig.directory, told])
        words = options({"rows": self._amounts[rows.SPARK]["rows"], "place": place})
        with Program("bench.spark_kafka", words) as program:
            return program.result(), self._without_nats()

    def partitions(self, number: int) -> Found:
        """Rows g; what was measured so is stopped."""
        amounts, rig = partitions.Amounts(**self._amounts[rows.PARTITIONS]), self._rig
        run = partitions.run_partitions
        places = {
            LISTENER: lambda: [
                partitions.Node(node.pid or 0, node.data) for node in rig.samelog.nodes
            ],
            FLUSH: lambda: [
                partitions.Node(node.pid or 0, str(node.directory)) for node in rig.apache().nodes
            ],
        }
        turns = in_turn(rig.kafka_systems[:2], number)
        try:
            found = {each.name: run(each, places[each.name], amounts) for each in turns}
        finally:
            rig.close()
        return found, self._without_nats()

    def _without_nats(self) -> dict[str, str]:
        return {name: why for name, why in self._rig.skipped.items() if name in {FLUSH, DEFAULT}}


def measures(rig: Rig, amounts: Mapping[str, Settings]) -> list[Measure]:
    """All, in the order of a round: what hurts a cluster comes last."""
    runner = Runner(rig, amounts)
    code = {
        rows.BULK: (runner.bulk, ("nats", "nats_client"), ("plain", "throughput")),
        rows.LATENCY: (runner.latency, ("nats", "nats_client"), ("latency",)),
        rows.CLIENTS: (runner.clients, ("clients",), ()),
        rows.PLAINTEXT: (runner.plaintext, ("clients",), ()),
        rows.REQUESTS: (runner.requests, (), ("kafka_requests",)),
        rows.READING: (runner.reading, ("reading", "clients"), ()),
        rows.SINGLE_REQUESTS: (runner.single_requests, ("nats", "nats_client"), ("latency",)),
        rows.PRODUCERS: (runner.producers, ("loads", "clients"), MANY),
        rows.NEW: (runner.new_topics, ("loads", "clients"), ()),
        rows.SESSIONS: (runner.sessions, (), MANY),
        rows.BUSY_DISK: (runner.busy_disk, ("loads", "nats", "nats_client"), MANY),
        rows.WRITTEN: (runner.written, ("loads", "clients"), ()),
        rows.SPARK: (runner.spark, (), ("spark", "spark_kafka")),
        rows.CATCH_UP: (runner.catch_up, ("catch_up", "clients"), ()),
        rows.FAILOVER: (runner.failover, ("failover",), ("failover",)),
        rows.PARTITIONS: (runner.partitions, ("partitions", "clients"), ()),
    }
    return [
        Measure(
            name,
            _on(rig, run),
            (
                *COMMON,
                *(f"bench/kafka/{each}.py" for each in own),
                *(f"bench/{each}.py" for each in others),
            ),
            amounts[name],
        )
        for name, (run, own, others) in code.items()
    ]


def _on(rig: Rig, run: Run) -> Run:
    def of_round(number: int) -> Found:
        rig.of_round(number)
        try:
            with rig.watched() as waited:
                figures, skipped = run(number)
            found = {name: {**waited.get(name, {}), **each} for name, each in figures.items()}
            return found, skipped
        except Exception:
            rig.close()  # nobody goes on with what may be broken
            raise

    return of_round

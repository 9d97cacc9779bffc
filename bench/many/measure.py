"""What each row of `python -m bench many` runs on three nodes that were just started.

Each function gets the nodes and the row's amounts, and returns figures by name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from bench import machine
from bench.failover import leader_of
from bench.kafka import clients, loads
from bench.kafka.nodes import Nodes
from bench.kafka.pairs import WARM_UP_S, Ran, run_bulk, run_paced, run_programs
from bench.kafka.systems import Bulk, KafkaSystem, OwnSystem, Pace, create, new_topic
from bench.kafka_requests import ASKED, TOPIC, Load
from bench.kafka_requests import measure as ask
from bench.machine import percentile
from bench.many.metrics import NodeMeter
from bench.many.sidecar import Sidecar
from bench.meter import WAITED, Meter
from bench.processes import Program, options

CLIENT = "bench.many.client"
NODES = 3
SIZE = 1000
Figures = dict[str, float]
Settings = Mapping[str, Any]


class World:
    """The nodes of a row, and what is watched of them."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.cluster = nodes.cluster
        self.directory = nodes.directory
        http = [str(node.http) for node in self.cluster.nodes]
        self.meter = NodeMeter(nodes.pids, http)

    def own(self) -> OwnSystem:
        """The own API."""
        system = self.nodes.own()
        system.meter = self.meter
        return system

    def listener(self) -> KafkaSystem:
        """The Kafka listener."""
        system = self.nodes.listener()
        system.meter = self.meter
        return system

    def program(self, role: str, topic: str, place: str, **given: object) -> Program:
        """A client program; `place`: of its files, below those of the topic."""
        told = {"config": self.cluster.client_file, "topic": topic}
        files = {"dir": f"{self.directory}/{topic}/{place}"}
        return Program(CLIENT, [role, *options({**told, **files, **given})])

    def counted(self, records: int) -> Figures:
        """What nodes counted in the last window, and their calls for a record."""
        spent = self.meter.last
        return {
            **self.meter.found,
            WAITED: spent.waited,
            "write_calls": spent.writes / max(1, records),
            "read_calls": spent.reads / max(1, records),
        }


# --- one publisher --------------------------------------------------------------------------------


def single(world: World, given: Settings) -> Figures:
    """One publisher and one subscriber at a rate."""
    return _paced(world, world.own(), given)


def listener(world: World, given: Settings) -> Figures:
    """A Kafka client at a rate, a request for each record unless one is under way."""
    return _paced(world, world.listener(), given)


def _paced(world: World, system: OwnSystem | KafkaSystem, given: Settings) -> Figures:
    records = int(given["rate"] * (given["seconds"] + WARM_UP_S))
    found = run_paced(system, Pace(SIZE, records, given["rate"]))
    return found | world.counted(records)


def busy_disk(world: World, given: Settings) -> Figures:
    """One publisher, then a Kafka client, beside a process that keeps the disk busy."""
    with loads.disk_busy(world.directory) as disk:
        found = single(world, given)
        theirs = listener(world, given)
    return {**found, **{f"listener_{name}": theirs[name] for name in ("p50_ms", "p99_ms")}, **disk}


def bulk(world: World, given: Settings) -> Figures:
    """As fast as it goes."""
    records = given["megabytes"] * 1_000_000 // given["size"]
    found = run_bulk(world.own(), Bulk(given["size"], records))
    return {name.partition(".")[0]: figure for name, figure in found.items()} | world.counted(
        records
    )


# --- many sessions --------------------------------------------------------------------------------


def publishers(world: World, given: Settings) -> Figures:
    """Publishers in a few processes."""
    count, processes = given["sessions"] // given["processes"], given["processes"]
    records = int(count * given["rate"] * (given["seconds"] + WARM_UP_S))
    load = {"sessions": count, "rate": given["rate"], "records": records}
    topic, begun = new_topic("many"), time.monotonic()
    writers = [
        world.program("publish", topic, f"p{number}", first=number * count, **load)
        for number in range(processes)
    ]
    reader = _reader(world, topic, count * processes, records * processes, given)
    ran = run_programs(world.meter, world.cluster.directory, writers, reader)
    return {
        "open_s": ran.read["opened_at"] - begun,
        **_latencies(ran, given, count * processes),
        "publishers_cores": sum(each["cpu_s"] for each in ran.written) / ran.seconds,
        **world.counted(records * processes),
    }


def _reader(world: World, topic: str, sessions: int, records: int, given: Settings) -> Program:
    told = {"sessions": sessions, "records": records, "open-s": given["patience"]}
    return world.program("subscribe", topic, "reader", **told)


def _latencies(ran: Ran, given: Settings, sessions: int) -> Figures:
    taken, rate = ran.read["ms"], given["rate"] * sessions
    warm = int(rate * WARM_UP_S)
    records = rate * (given["seconds"] + WARM_UP_S)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99}
    return {
        **({name: percentile(taken[warm:], at) for name, at in shares.items()} if taken else {}),
        "read_share": len(taken) / records,
        "opened_share": ran.read["opened"] / sessions,
        "late_p99_ms": max(each["late_ms"] for each in ran.written),
        "nodes_cores": ran.nodes.cores,
        **ran.disk_ratio(SIZE * len(taken)),
    }


def sidecar(world: World, given: Settings) -> Figures:
    """Sessions that one process writes and one sidecar ships; with `rate` 0 all of them are quiet.
    Then the sidecar restarts, and a node.
    """
    sessions, topic = given["sessions"], new_topic("many")
    place = f"{world.directory}/{topic}"
    records = int(sessions * given["rate"] * (given["seconds"] + WARM_UP_S))
    load = {"sessions": sessions, "rate": given["rate"], "records": records, "config": ""}
    writer = world.program("publish", topic, "sessions", **load)
    with writer, Sidecar(place, f"{place}/sessions", world.cluster.client_file) as shipping:
        writer.wait_ready()
        begun = time.monotonic()
        shipping.start()
        reader = _reader(world, topic, sessions, records, given)
        with reader:
            share = shipping.wait_connected(NODES * sessions, given["patience"])
            found = {"connected_s": time.monotonic() - begun, "connected_share": share}
            if records:
                ran = run_programs(
                    world.meter, world.cluster.directory, [writer], reader, [shipping.meter]
                )
                found |= _latencies(ran, given, sessions)
                found["writer_cores"] = sum(each["cpu_s"] for each in ran.written) / ran.seconds
            else:
                found |= _quiet(world, shipping, reader, given)
            found["open_s"] = reader.result()["opened_at"] - begun
        found |= {"sidecar_cores": shipping.meter.total.cores}
        found |= world.counted(records) | shipping.figures() | _held_by_nodes(world)
        return found | _restarts(world, shipping, sessions, given["patience"])


def _quiet(world: World, shipping: Sidecar, reader: Program, given: Settings) -> Figures:
    reader.wait_ready()
    opened = reader.result()["opened"]
    machine.settled()
    with world.meter.window() as spent, shipping.meter.window():
        time.sleep(given["seconds"])
    return {"opened_share": opened / given["sessions"], "nodes_cores": spent.cores}


def _held_by_nodes(world: World) -> Figures:
    """Of the node that holds most."""
    pids = world.nodes.pids()
    return {
        "node_descriptors": float(max(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)),
        "node_rss_mb": max(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6,
    }


def _restarts(world: World, shipping: Sidecar, sessions: int, patience: float) -> Figures:
    """Seconds from the start of the process until every session is connected to every node."""
    shipping.stop()
    begun = time.monotonic()
    shipping.start()
    share = shipping.wait_connected(NODES * sessions, patience)
    found = {"sidecar_restart_s": time.monotonic() - begun, "sidecar_restart_share": share}
    leader = leader_of(world.cluster)
    node = next(each for each in world.cluster.nodes if each is not leader)
    node.stop()
    shipping.wait_below(NODES * sessions)
    begun = time.monotonic()
    node.start()
    world.nodes.even()
    world.cluster.wait_live(patience)
    share = shipping.wait_connected(NODES * sessions, patience)
    restarted = {"node_restart_s": time.monotonic() - begun, "node_restart_share": share}
    return found | restarted


def quiet(world: World, given: Settings) -> Figures:
    """One publisher at a rate alone, then beside quiet sessions of another process."""
    alone_, begun = single(world, given), time.monotonic()
    load = {"sessions": given["sessions"]}
    with world.program("publish", new_topic("quiet"), "sessions", **load) as others:
        others.wait_ready()
        opened = time.monotonic() - begun
        others.go()
        meter = Meter(lambda: [others.pid])
        with meter.window() as idle:
            beside = single(world, given)
    return {
        **beside,
        **{f"{name}.none": alone_[name] for name in ("p50_ms", "p99_ms", "nodes_cores")},
        "more_cores": beside["nodes_cores"] - alone_["nodes_cores"],
        "p99_ratio": beside["p99_ms"] / alone_["p99_ms"],
        "open_s": opened,
        "quiet_cores": idle.cores,
    }


# --- Kafka clients --------------------------------------------------------------------------------


def requests(world: World, given: Settings) -> Figures:
    """Small requests of a node's core."""
    create(world.nodes.listener(tls=False).told, TOPIC)
    leader = leader_of(world.cluster)
    assert leader.kafka is not None
    assert leader.pid is not None
    address, load = (leader.kafka.host, leader.kafka.port), Load(**given)
    found = {}
    with world.meter.window():
        for name in ASKED:
            per_core = float(str(ask(address, leader.pid, name, load)["per_s_of_node_cpu"]))
            found[f"{name.replace(' ', '_')}_per_core_s"] = per_core
    return found | _waited(world)


def kafka_clients(world: World, given: Settings) -> Figures:
    """Producing, consuming, single round trips."""
    return clients.run_clients(world.listener(), clients.Amounts(**given)) | _waited(world)


def producers(world: World, given: Settings) -> Figures:
    """Many Kafka producers."""
    return loads.producers(world.listener(), **given) | _waited(world)


def partitions(world: World, given: Settings) -> Figures:
    """Many written partitions."""
    return loads.partitions(world.listener(), **given) | _waited(world)


def transactions(world: World, given: Settings) -> Figures:
    """Transactions of one and ten records."""
    return loads.transactions(world.listener(), **given) | _waited(world)


def first_records(world: World, given: Settings) -> Figures:
    """The first record of a new topic, by a Kafka client and by the own API."""
    found = loads.first_records(world.listener(), **given)
    with world.program(
        "first", new_topic("new"), "sessions", records=given["topics"], size=100
    ) as program:
        program.wait_ready()
        program.go()
        taken = program.result()["ms"]
    own = {"own_p50_ms": percentile(taken, 0.5), "own_p99_ms": percentile(taken, 0.99)}
    return {**{f"listener_{name}": figure for name, figure in found.items()}, **own} | _waited(
        world
    )


def _waited(world: World) -> Figures:
    return {WAITED: world.meter.total.waited}


KINDS: Mapping[str, Callable[[World, Settings], Figures]] = {
    each.__name__: each
    for each in (
        single,
        listener,
        busy_disk,
        bulk,
        publishers,
        sidecar,
        quiet,
        requests,
        kafka_clients,
        producers,
        partitions,
        transactions,
        first_records,
    )
}

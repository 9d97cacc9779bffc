"""Data groups of a running cluster: what bulk costs over several of them, and what they cost idle.

There are five nodes, or as many as are asked for, and three copies of every group: each topic is
made with a list of members, which gives it a group of its own. For `bench.groups`, whose part in
memory needs no nodes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import machine
from bench.kafka.systems import plaintext
from bench.processes import Program, options
from samelog.admin.client import ask, ask_node
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode

COPIES = 3
CREATE_S = 120.0
SETTLE_S = 30.0
"""Until what was made is at rest, and logs are cut behind snapshots."""
RECORD_BYTES = 1000


@contextmanager
def running(nodes: int) -> Iterator[tuple[str, LocalCluster]]:
    """A new cluster, and a directory."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions(nodes=nodes)) as cluster,
    ):
        cluster.start()
        yield directory, cluster


def make_groups(cluster: LocalCluster, names: list[str], partitions: int) -> None:
    """A topic in a group of its own for each name; the members lead by turns."""
    if len(cluster.nodes) == COPIES:
        _make_everywhere(cluster, names, partitions)
        return
    admin, nodes = AdminClient({**plaintext(cluster)}), len(cluster.nodes)
    known = len(leaders(cluster.nodes[0], cluster)) + len(names) - 1
    for number, name in enumerate(names):  # one after the other: each is planned from the table
        members = [(number + place) % nodes for place in range(COPIES)]
        _make(admin, NewTopic(name, partitions, replica_assignment=[members] * partitions))
    wait_until(lambda: len(leaders(cluster.nodes[0], cluster)) > known, "all led")


def _make_everywhere(cluster: LocalCluster, names: list[str], partitions: int) -> None:
    """The same on all nodes: who asks for more copies than that gets a data group, one for each
    number of copies.
    """
    config = cluster.client_config()
    for number, name in enumerate(names):
        ask(config, CreateTopic(name, partitions, {}, COPIES + 1 + number))
    wait_until(lambda: len(leaders(cluster.nodes[0], cluster)) >= len(names), "all led")


def _make(admin: AdminClient, topic: NewTopic) -> None:
    for future in admin.create_topics([topic], operation_timeout=CREATE_S).values():
        future.result(CREATE_S)


def leaders(node: LocalNode, cluster: LocalCluster) -> dict[int, str]:
    """Who leads each group of which a node knows that."""
    try:
        answer = ask_node(cluster.client_config(), node.address, GetPlacement())
    except AdminError:
        return {}
    return {each.group: each.leader for each in answer.groups if each.leader is not None}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + CREATE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in time: {what}")
        time.sleep(0.05)


# --- bulk -----------------------------------------------------------------------------------------


def throughput(counts: list[int], megabytes: int, rounds: int, nodes: int) -> dict[str, Any]:
    """MB/s until all is merged: a publisher and a topic of one partition for each group. A count of
    0: one topic in group 0, which has a copy on every node.
    """
    rates: dict[int, list[float]] = {count: [] for count in counts}
    with running(nodes) as (directory, cluster):
        for round_number in range(rounds):
            for count in counts:
                names = [f"t-{round_number}-{count}-{each}" for each in range(max(1, count))]
                if count:
                    make_groups(cluster, names, 1)
                else:
                    _make(AdminClient({**plaintext(cluster)}), NewTopic(names[0], 1))
                machine.settled()
                rates[count].append(_bulk(directory, cluster, names, megabytes))
    middle = {count: median(found) for count, found in rates.items()}
    return {
        "mb_per_s": {count: round(found, 1) for count, found in middle.items()},
        "of_one": {count: round(found / middle[counts[0]], 3) for count, found in middle.items()},
        "all": rates,
    }


def _bulk(directory: str, cluster: LocalCluster, names: list[str], megabytes: int) -> float:
    records = megabytes * 1_000_000 // RECORD_BYTES // len(names)
    told = {"config": cluster.client_file, "size": RECORD_BYTES, "records": records}
    with ExitStack() as stack:
        programs = [
            stack.enter_context(
                Program(
                    "bench.throughput",
                    ["publish", *options({**told, "topic": name, "dir": f"{directory}/{name}"})],
                )
            )
            for name in names
        ]
        for each in programs:
            each.wait_ready()
        for each in programs:
            each.go()
        results = [each.result() for each in programs]
    seconds = max(each["ended"] for each in results) - min(each["began"] for each in results)
    return float(records * RECORD_BYTES * len(names) / seconds / 1e6)


# --- idle -----------------------------------------------------------------------------------------


def idle(groups: int, partitions: int, seconds: float, nodes: int) -> dict[str, Any]:
    """What so many groups with so many partitions in all cost when nothing happens."""
    found: dict[str, Any] = {"groups": groups, "partitions": partitions}
    with running(nodes) as (_, cluster):
        time.sleep(SETTLE_S)
        empty_bytes, found["cpu_percent_of_none"] = _bytes(cluster), _cpu_percent(cluster, seconds)
        begun = time.monotonic()
        make_groups(cluster, [f"t-{number}" for number in range(groups)], partitions // groups)
        found["make_s"] = round(time.monotonic() - begun, 1)
        time.sleep(SETTLE_S)
        found["cpu_percent"] = _cpu_percent(cluster, seconds)
        more = (_bytes(cluster) - empty_bytes) / (groups + partitions)
        found["bytes_of_each"] = round(more)
        found["elections_s"] = round(_kill(cluster, cluster.nodes[1]), 2)
        begun = time.monotonic()
        cluster.nodes[1].start()
        cluster.wait_live()
        found["start_s"] = round(time.monotonic() - begun, 1)
    return found


def _bytes(cluster: LocalCluster) -> float:
    """Of a node, on average."""
    own = [psutil.Process(node.pid).memory_full_info().uss for node in cluster.nodes]
    return sum(map(float, own)) / len(own)


def _cpu_percent(cluster: LocalCluster, seconds: float) -> float:
    """Of a core, for a node."""

    def spent() -> float:
        return sum(sum(psutil.Process(node.pid).cpu_times()[:2]) for node in cluster.nodes)

    before, begun = spent(), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - begun
    return round(100 * (spent() - before) / took_s / len(cluster.nodes), 2)


def _kill(cluster: LocalCluster, victim: LocalNode) -> float:
    """Seconds until all groups of a node that is killed have a leader, as another one knows."""
    others = [node for node in cluster.nodes if node is not victim]
    known = len(leaders(others[0], cluster))
    victim.kill()
    killed = time.monotonic()

    def all_led() -> bool:
        found = leaders(others[0], cluster)
        return len(found) == known and victim.name not in found.values()

    wait_until(all_led, "other leaders")
    return time.monotonic() - killed


def show(found: dict[str, Any]) -> None:
    """One object."""
    print(json.dumps(found), flush=True)

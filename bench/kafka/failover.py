"""Rows i: the leader is killed, or stops without a word, under a load; the longest time without an
acknowledgement.

All kinds of clients of a system write at the same time, so one fault serves them all.
The gap is counted around the fault: the longest pause between two acknowledgements from just before
it on. A silent leader is a stopped process: its kernel still answers, as a hung host's does not.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import psutil

from bench import machine
from bench.failover import leader_of
from bench.kafka.brokers import Brokers
from bench.kafka.systems import KafkaSystem, OwnSystem
from bench.processes import Clock, Program, options, stand_by
from samelog import Publisher
from samelog.cli.local_cluster import LocalCluster

RATE = 200
SIZE = 1000
BEFORE_S = 2.0
POLL_S = 0.002
SILENT_SHARE = 0.6
"""Of the time that the load takes."""
IMPATIENT = {"socket.timeout.ms": "1000"}
"""A client of librdkafka hears of a silent leader by its own time limit alone, a minute by default.
This one waits for a second.
"""


def publish(given: argparse.Namespace) -> None:
    """So many a second, for `--seconds`; when acknowledgements moved, on the monotonic clock."""
    value, times = bytes(SIZE), list[float]()
    with Publisher(
        given.topic, session=given.topic, directory=given.dir, config=given.config
    ) as publisher:
        publisher.append(value)
        publisher.wait_merged(timeout=60)
        stand_by()
        clock, ends = Clock(), threading.Event()
        watcher = threading.Thread(target=_watch, args=(publisher, times, ends))
        watcher.start()
        begun, number = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < given.seconds:
            while number < passed * RATE:
                publisher.append(value)
                number += 1
            time.sleep(0.001)
        publisher.wait_merged(timeout=60)
        ends.set()
        watcher.join()
        clock.found(times=times, lost=0)


def _watch(publisher: Publisher, times: list[float], ends: threading.Event) -> None:
    last = publisher.positions.acknowledged
    while not ends.wait(POLL_S):
        now, found = time.monotonic(), publisher.positions.acknowledged
        if found != last:
            times.append(now)
            last = found


def gap(times: list[float], fault: float) -> float:
    """The longest pause from the last acknowledgement before a fault on."""
    near = [at for at in times if at <= fault][-1:] + [at for at in times if at > fault]
    return max((after - before for before, after in itertools.pairwise(near)), default=0.0)


# --- beside the programs --------------------------------------------------------------------------


class Lost(Exception):
    """Records were not acknowledged, or no acknowledgement came after the fault."""


def gaps(programs: list[Program], fault: Callable[[], None]) -> list[float]:
    """Of each program, around a fault that happens while they work. Raises Lost."""
    for program in programs:
        program.wait_ready()
    machine.rested()
    for program in programs:
        program.go()
    time.sleep(BEFORE_S)
    at = time.monotonic()
    fault()
    found = [program.result() for program in programs]
    if any(each["lost"] for each in found):
        raise Lost("records were not acknowledged")
    return [gap(each["times"], at) for each in found]


def be_silent(pid: int, seconds: float) -> None:
    """A process does nothing for so long."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


def clients_of(system: KafkaSystem, topic: str, seconds: float) -> list[Program]:
    """A Kafka client by default, and an impatient one."""
    given = {"rate": RATE, "seconds": seconds, "size": SIZE}
    return [
        each.program("acknowledged", topic, **given)
        for each in (system, system.told_also(IMPATIENT))
    ]


class SamelogFaults:
    """All kinds of clients of our nodes: an own publisher, a Kafka client, an impatient one."""

    def __init__(
        self, cluster: LocalCluster, own: OwnSystem, kafka: KafkaSystem, directory: str
    ) -> None:
        self._cluster, self._own, self._kafka = cluster, own, kafka
        self._directory = directory

    def kill(self, seconds: float) -> list[float]:
        """The gap of each kind of client."""
        leader = leader_of(self._cluster)
        found = self._with_load(seconds, leader.kill)
        leader.start()
        self._cluster.wait_live()
        return found

    def silence(self, seconds: float) -> list[float]:
        """The same when the leader stops."""
        leader = leader_of(self._cluster)

        def fault() -> None:
            if leader.pid is not None:
                be_silent(leader.pid, seconds * SILENT_SHARE)

        found = self._with_load(seconds, fault)
        self._cluster.wait_live()
        return found

    def _with_load(self, seconds: float, fault: Callable[[], None]) -> list[float]:
        topic = self._own.create("faults")
        given = {"seconds": seconds, "topic": topic, "config": self._cluster.client_file}
        words = ["publish", *options({**given, "dir": f"{self._directory}/{topic}"})]
        with ExitStack() as stack:
            own = stack.enter_context(Program("bench.kafka.failover", words))
            theirs = clients_of(self._kafka, self._kafka.create("faults"), seconds)
            return gaps([own, *map(stack.enter_context, theirs)], fault)


class KafkaFaults:
    """Both kinds of clients of Apache Kafka's brokers: by default, and impatient."""

    def __init__(self, brokers: Brokers, system: KafkaSystem) -> None:
        self._brokers, self._system = brokers, system

    def kill(self, seconds: float) -> list[float]:
        """The gap of each kind of client when the broker that leads the partition is killed."""
        topic = self._system.create("faults")
        leader = self._brokers.nodes[self._system.leader(topic)]
        found = self._with_load(topic, seconds, leader.kill)
        leader.start()
        leader.wait_answers()
        self._system.wait_in_sync(topic)
        return found

    def silence(self, seconds: float) -> list[float]:
        """The same when it stops."""
        topic = self._system.create("faults")
        leader = self._brokers.nodes[self._system.leader(topic)]

        def fault() -> None:
            if leader.pid is not None:
                be_silent(leader.pid, seconds * SILENT_SHARE)

        found = self._with_load(topic, seconds, fault)
        self._system.wait_in_sync(topic)
        return found

    def _with_load(self, topic: str, seconds: float, fault: Callable[[], None]) -> list[float]:
        with ExitStack() as stack:
            programs = clients_of(self._system, topic, seconds)
            return gaps(list(map(stack.enter_context, programs)), fault)


def main() -> None:
    """The own publisher's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["publish"])
    parser.add_argument("--topic", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    publish(parser.parse_args())


if __name__ == "__main__":
    main()

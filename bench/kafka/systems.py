"""What is compared, each with its client programs: samelog's own API, its Kafka listener, Apache
Kafka with and without `flush.messages=1`, NATS JetStream.

A system says how its programs are called; what they do is the same for all.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.meter import Meter
from bench.processes import Program, options
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import LocalCluster

OWN, LISTENER, FLUSH, DEFAULT, NATS = "samelog", "listener", "kafka-flush-1", "kafka", "nats"
SINGLE = "samelog-append"
"""Our own API as a Kafka producer is used: record by record, with linger."""
EACH_FLUSHED = {"flush.messages": "1"}
QUIET = {"log_level": "2"}
"""What goes wrong with a broker that was killed on purpose is no news."""
CREATE_S = 60
_numbers = itertools.count()


class Bulk(NamedTuple):
    """So many records of a size, as fast as they go."""

    size: int
    records: int


class Pace(NamedTuple):
    """So many records of a size, at a rate."""

    size: int
    records: int
    rate: int


class Pair(NamedTuple):
    """A program that writes, and one that reads behind it."""

    writer: Program
    reader: Program


class System(Protocol):
    """One of those that are compared."""

    name: str
    meter: Meter
    """Of its nodes, brokers or servers."""
    directory: str
    """Where they store."""

    def bulk(self, job: Bulk) -> Pair: ...
    def paced(self, job: Pace) -> Pair: ...


def new_topic(what: str) -> str:
    """A name that was never used in this run."""
    return f"{what}-{next(_numbers)}"


def plaintext(cluster: LocalCluster) -> dict[str, str]:
    """What librdkafka is told to reach the nodes of a cluster."""
    return {"bootstrap.servers": cluster.client_config().kafka_bootstrap}


def create(
    told: Mapping[str, str],
    topic: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """A topic, by Kafka's protocol."""
    admin = AdminClient({**told})
    made = admin.create_topics([NewTopic(topic, partitions, config=dict(config or {}))])
    for future in made.values():
        future.result(CREATE_S)


class KafkaSystem:
    """Whatever speaks Kafka's protocol."""

    def __init__(
        self,
        name: str,
        told: Mapping[str, str],
        pids: Callable[[], list[int]],
        directory: str,
        config: Mapping[str, str],
    ) -> None:
        """`pids` and `directory`: of its nodes or brokers; `config`: of its topics."""
        self.name = name
        self.told = {**told, **QUIET}
        self.meter = Meter(pids)
        self.directory = directory
        self._pids = pids
        self.config = config
        self._admin: Any = None

    def told_also(self, told: Mapping[str, str]) -> KafkaSystem:
        """The same system, whose clients are told more."""
        told = {**self.told, **told}
        return KafkaSystem(self.name, told, self._pids, self.directory, self.config)

    def create(self, what: str, partitions: int = 1) -> str:
        """A new topic's name."""
        topic = new_topic(what)
        create(self.told, topic, partitions, self.config)
        return topic

    def leader(self, topic: str) -> int:
        """The number of the node that leads partition 0."""
        return int(self._partition(topic).leader)

    def in_sync(self, topic: str) -> int:
        """How many have all of partition 0."""
        return len(self._partition(topic).isrs)

    def wait_in_sync(self, topic: str) -> None:
        """Until all replicas have all of it."""
        deadline = time.monotonic() + CREATE_S
        while self.in_sync(topic) < len(self._partition(topic).replicas):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {topic} has replicas that are behind")
            time.sleep(0.1)

    def _partition(self, topic: str) -> Any:
        if self._admin is None:
            self._admin = AdminClient({**self.told})
        deadline = time.monotonic() + CREATE_S
        while True:  # a broker may not have heard yet of a topic that was just created
            known = self._admin.list_topics(topic, timeout=CREATE_S).topics[topic].partitions
            if 0 in known or time.monotonic() > deadline:
                return known[0]
            time.sleep(0.1)

    def program(self, role: str, topic: str, **given: object) -> Program:
        """A client program."""
        words = options({"told": json.dumps(self.told), "topic": topic, **given})
        return Program("bench.kafka.client", [role, *words])

    def bulk(self, job: Bulk) -> Pair:
        """See Bulk."""
        return self._pair("produce", "follow", job)

    def paced(self, job: Pace) -> Pair:
        """See Pace."""
        return self._pair("paced", "latencies", job)

    def _pair(self, writer: str, reader: str, job: Bulk | Pace) -> Pair:
        topic, given = self.create(writer), job._asdict()
        return Pair(self.program(writer, topic, **given), self.program(reader, topic, **given))


class OwnSystem:
    """samelog by its own API. `single`: record by record."""

    def __init__(self, name: str, cluster: LocalCluster, directory: str, *, single: bool) -> None:
        """`directory`: of the clients' files."""
        self.name = name
        self.meter = Meter(lambda: [node.pid for node in cluster.nodes if node.pid is not None])
        self.directory = cluster.directory
        self._cluster = cluster
        self._clients = directory
        self._more = ["--single"] if single else []

    def create(self, what: str) -> str:
        """A new topic's name."""
        topic = new_topic(what)
        ask(self._cluster.client_config(), CreateTopic(topic, 1, {}))
        return topic

    def bulk(self, job: Bulk) -> Pair:
        """See Bulk."""
        return self._pair("bench.throughput", job._asdict(), self._more)

    def paced(self, job: Pace) -> Pair:
        """See Pace."""
        return self._pair("bench.latency", job._asdict())

    def _pair(self, module: str, given: Mapping[str, object], more: Sequence[str] = ()) -> Pair:
        topic = self.create(module.rpartition(".")[2])
        told = {"config": self._cluster.client_file, "topic": topic, **given}
        place = f"{self._clients}/{topic}"
        return Pair(
            Program(module, ["publish", *options({**told, "dir": f"{place}/p"}), *more]),
            Program(module, ["subscribe", *options({**told, "dir": f"{place}/s"})]),
        )

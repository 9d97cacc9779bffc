"""The ways that are counted, each on a real node over real TLS and real files, warm.

record      `append` until the subscriber has handed the record out: publisher, node, subscriber
produce     one Produce request with acks=all, of one record, until it is answered
fetch       one Fetch request that finds a record
append      one append of a publisher that has appended before, into its local files
crowded     as produce, to a node with 200 partitions that nobody writes to: they cost nothing
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from samelog import Publisher, Subscriber
from samelog.cli import local_cluster
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.hops.counting import CallCounter, Flag, disks_are_fast, timers_wait_for
from tests.kafka.batches import batch
from tests.kafka.wire import FETCH, Wire, fetch_tree, request, response
from tests.patience import PATIENCE_S

WAYS = ("record", "append", "produce", "fetch", "crowded")
PRODUCE = 0
VERSIONS = {PRODUCE: 9, FETCH: 12}
RECORD, KAFKA, FETCHED = "record", "kafka", "fetched"
WARM_UP = 30
RUNS = 5
SETTLE_S = 0.3
IDLE_PARTITIONS = 200
QUIET_S = 0.05


class Hops(NamedTuple):
    """What one way costs: calls of Python functions, calls from ours into compiled code, in how
    many modules, and the Python calls by "file:function".
    """

    python: int
    compiled: int
    modules: int
    by_function: dict[str, int]


class HopCounting:
    """One node in a process of its own, publisher and subscriber in this one; all are counted.

    A process can be made into one that counts only once, and before it has started threads.
    """

    def __init__(self, directory: str, *, runs: int) -> None:
        self._directory = directory
        self._runs = runs
        self._flag = Flag(os.path.join(directory, "flag"))
        self._socket = os.path.join(directory, "counts")
        timers_wait_for(self._flag)
        disks_are_fast()
        self._counter = CallCounter(self._flag)
        self._counter.install()
        local_cluster.start_process = self._start
        self._cluster = LocalCluster(os.path.join(directory, "cluster"), ClusterOptions(nodes=1))

    def __enter__(self) -> HopCounting:
        self._cluster.start()
        for topic in (RECORD, KAFKA, FETCHED):
            self._create(topic)
        return self

    def _create(self, topic: str, *options: str) -> None:
        create = [sys.executable, "-m", "samelog", "topic", "create", topic, *options]
        command = [*create, "--config", self._cluster.client_file]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def __exit__(self, *exc: object) -> None:
        self._cluster.stop()

    def count(self, way: str) -> Hops:
        """One of WAYS."""
        count: Callable[[], Hops] = getattr(self, way)
        return count()

    def record(self) -> Hops:
        """From `append` to the subscriber's hands."""
        config = self._cluster.client_config()
        path = self._directory
        with (
            Publisher(RECORD, session="hops", directory=f"{path}/pub", config=config) as publisher,
            Subscriber(RECORD, directory=f"{path}/sub", config=config, start="earliest") as records,
        ):
            handed = iter(records)

            def once() -> None:
                publisher.append(b"x" * 100)
                next(handed)

            return self._least(once)

    def append(self) -> Hops:
        """One warm append."""
        directory = f"{self._directory}/append"
        with Publisher("append", session="appends", directory=directory) as publisher:
            return self._least(lambda: publisher.append(b"x" * 100))

    def produce(self) -> Hops:
        """One acks=all Produce of one record."""
        with self._asking(PRODUCE, produce_tree(KAFKA)) as once:
            return self._least(once)

    def fetch(self) -> Hops:
        """One Fetch, from as many records whatever else was counted before."""
        with self._asking(PRODUCE, produce_tree(FETCHED)) as once:
            for _ in range(WARM_UP):
                once()
        with self._asking(FETCH, fetch_tree(FETCHED, 0, max_bytes=200)) as once:
            return self._least(once)

    def crowded(self) -> Hops:
        """As `produce`, beside idle partitions."""
        self._create("idle", "--partitions", str(IDLE_PARTITIONS))
        return self.produce()

    @contextmanager
    def _asking(self, key: int, tree: Mapping[str, Any]) -> Iterator[Callable[[], bytes]]:
        """What asks this of the node, and waits for the answer; the first one is checked."""
        kafka = self._cluster.nodes[0].kafka
        if kafka is None:
            raise RuntimeError("the node has no Kafka listener")
        frame = request(key, VERSIONS[key], tree)
        with Wire((kafka.host, kafka.port)) as wire:

            def once() -> bytes:
                wire.send(frame)
                return wire.receive()

            self._check(key, once())
            yield once

    def _check(self, key: int, payload: bytes) -> None:
        """That a request is answered with success, and with a record: else it would be cheap."""
        answer = response(key, VERSIONS[key], payload).responses[0]
        part = (answer.partition_responses if key == PRODUCE else answer.partitions)[0]
        if part.error_code:
            raise RuntimeError(f"request {key} was answered {part.error_code!r}")
        if key == FETCH and not part.records:
            raise RuntimeError("the Fetch has found nothing")

    def _least(self, once: Callable[[], object]) -> Hops:
        """The cheapest of all runs, after some that are not counted."""
        for _ in range(WARM_UP):
            once()
        return min((self._run(once) for _ in range(self._runs)), key=lambda hops: hops.python)

    def _run(self, once: Callable[[], object]) -> Hops:
        """Everything that it causes, also behind its end: until nothing is called any more."""
        self._pause(SETTLE_S)
        self._counts()
        named, compiled = Counter[str](), 0
        self._flag.up()
        once()
        profile = sys.getprofile()
        sys.setprofile(None)  # asking what was counted does not count
        while (told := self._counts())[0]:
            named.update(told[0])
            compiled += told[1]
            self._pause(QUIET_S)
        self._flag.down()
        sys.setprofile(profile)
        modules = {name.rpartition(":")[0] for name in named}
        return Hops(named.total(), compiled, len(modules), dict(named))

    def _pause(self, seconds: float) -> None:
        """Give both processes time to come to rest. Raises RuntimeError if the node has ended."""
        try:
            code = self._node.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise RuntimeError(f"the node ended with exit code {code}")

    def _counts(self) -> tuple[dict[str, int], int]:
        """What both processes have counted since the last time."""
        ours, compiled = self._counter.take()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(self._socket)
            told = b"".join(iter(lambda: client.recv(1 << 16), b""))
        theirs, more = json.loads(told)
        return dict(Counter(ours) + Counter(theirs)), compiled + more

    def _start(self, arguments: Sequence[str], log: BinaryIO) -> local_cluster.Process:
        command = (sys.executable, "-m", "tests.hops.node", self._flag.path, self._socket)
        self._node = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        return self._node


def produce_tree(topic: str) -> dict[str, Any]:
    """A Produce of one record with acks=all."""
    partition = {"index": 0, "records": batch(b"x" * 100)}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "topic_id": None, "partition_data": [partition]}],
    }

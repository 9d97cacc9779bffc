"""Kafka Connect, distributed, with a file's source and sink: two workers, one of which is killed in
its work. A part of `make interop`.

Its configurations, offsets and states live in compacted topics. With exactly-once sources each line
of the file is in the topic once, in order, whichever worker wrote it; the sink's file has all.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.maven import PLATFORM
from samelog.cli.local_cluster import HOST, free_ports
from tests.e2e.harness import World, wait_for
from tests.interop.program import Program, java, properties
from tests.patience import PATIENCE_S

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPIC = "lines"
NOT_YET = (404, 409, 500, 503)
"""What a worker answers while it rebalances, or has not read the newest configuration."""
LINES = 40
"""So many more at each look at what has come: the source always has something to do."""
TEXT = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "group.id": "connect",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": -1,
    "offset.storage.replication.factor": -1,
    "status.storage.replication.factor": -1,
    "offset.storage.partitions": 3,
    "exactly.once.source.support": "enabled",
    "key.converter": TEXT,
    "value.converter": TEXT,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
    "scheduled.rebalance.max.delay.ms": 0,
    "offset.flush.interval.ms": 500,
}

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


class Worker(Program):
    """One worker, and what its REST API says."""

    def __init__(self, directory: Path, boot: str, port: int) -> None:
        self.address = f"{HOST}:{port}"
        name = f"worker-{port}"
        told = {**WORKER, "bootstrap.servers": boot, "listeners": f"http://{self.address}"}
        file = properties(directory / f"{name}.properties", told)
        super().__init__(directory, name, java(PLATFORM, MAIN, str(file)))

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """None while there is no answer, or none yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            if error.code not in NOT_YET:
                raise
            return None
        except OSError:
            return None
        return json.loads(text) if text else {}

    def answers(self) -> bool:
        """Whether it works, and has no connectors yet."""
        return bool(self.ask("connectors") == [])

    def runs(self, connector: str) -> str:
        """Which worker runs its task, by its address; "" for none."""
        status = self.ask(f"connectors/{connector}/status") or {"tasks": []}
        for task in status["tasks"]:
            assert task["state"] != "FAILED", task["trace"]
        return "".join(t["worker_id"] for t in status["tasks"] if t["state"] == "RUNNING")


@pytest.fixture
def workers(world: World) -> Iterator[list[Worker]]:
    boot = world.cluster.client_config().kafka_bootstrap
    with ExitStack() as stack:
        found = [Worker(world.directory, boot, port) for port in free_ports(2)]
        for worker in found:
            stack.enter_context(worker)
        for worker in found:
            worker.wait(worker.answers, "answers")
        yield found


def source_of(path: Path) -> dict[str, object]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(path),
        "topic": TOPIC,
        "batch.size": 1_000_000,
        "exactly.once.support": "required",
        "topic.creation.default.partitions": 1,
        "topic.creation.default.replication.factor": -1,
    }


def sink_of(path: Path) -> dict[str, object]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(path),
        "topics": TOPIC,
        "consumer.override.isolation.level": "read_committed",
    }


class File:
    """The source's file, which grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def more(self) -> None:
        """Some lines at its end."""
        first = len(self.lines)
        new = [f"line {number}" for number in range(first, first + LINES)]
        with self.path.open("a", encoding="ascii") as file:
            file.write("\n".join([*new, ""]))
        self.lines += new

    def while_it_grows(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        """The condition, looked at behind more lines."""

        def look() -> bool:
            self.more()
            return condition()

        return look


def committed(boot: str, count: int) -> list[str]:
    """The topic, as who reads only what is committed sees it."""
    reader = Consumer(
        {"bootstrap.servers": boot, "group.id": "none", "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    wait_for(lambda: _more(reader, found) >= count, f"{count} lines in the topic")
    reader.close()
    return found


def _more(reader: Consumer, found: list[str]) -> int:
    messages = reader.consume(1000, 0.5)
    found += [value.decode() for m in messages if (value := m.value()) is not None]
    return len(found)


def test_a_worker_is_killed_and_each_line_is_there_once(
    world: World, workers: list[Worker]
) -> None:
    source, sink = File(world.directory / "source.txt"), world.directory / "sink.txt"
    source.more()
    one, _ = workers
    for name, wanted in (("source", source_of(source.path)), ("sink", sink_of(sink))):
        assert one.ask(f"connectors/{name}/config", "PUT", wanted) is not None
    flows = source.while_it_grows(lambda: sink.exists() and len(lines_of(sink)) > 20 * LINES)
    one.wait(flows, "lines reach the sink")
    busy = next(worker for worker in workers if worker.address == one.runs("source"))
    other = next(worker for worker in workers if worker is not busy)
    busy.kill()
    moved = source.while_it_grows(lambda: other.runs("source") == other.address)
    other.wait(moved, "it takes the task over")
    source.more()
    boot = world.cluster.client_config().kafka_bootstrap
    assert committed(boot, len(source.lines)) == source.lines
    other.wait(lambda: {*source.lines} <= {*lines_of(sink)}, "all lines in the sink")
    busy.start()
    busy.wait(lambda: sorted(busy.ask("connectors") or []) == ["sink", "source"], "it is back")
    assert_offsets(busy, source.path)


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="ascii").splitlines()


def assert_offsets(worker: Worker, source: Path) -> None:
    """What Connect keeps of the source is its whole file; a stopped sink's can be set back."""
    found = worker.ask("connectors/source/offsets")["offsets"]
    assert [each["offset"]["position"] for each in found] == [source.stat().st_size]
    assert worker.ask("connectors/sink/stop", "PUT") is not None
    worker.wait(lambda: worker.ask("connectors/sink/status")["tasks"] == [], "the sink stops")
    place = {"partition": {"kafka_topic": TOPIC, "kafka_partition": 0}}
    body = {"offsets": [{**place, "offset": {"kafka_offset": 7}}]}
    assert worker.ask("connectors/sink/offsets", "PATCH", body) is not None
    assert worker.ask("connectors/sink/offsets")["offsets"] == body["offsets"]

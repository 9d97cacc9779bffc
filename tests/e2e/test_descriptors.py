"""A node that has few descriptors refuses connections and continues with those it has."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S

LIMIT = 256
TOPIC = "t"
PARTITIONS = 100
"""With a log, its two indexes and a session file each, more files than the limit."""


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """Where the Kafka listener of such a node is."""
    up = f"ulimit -n {LIMIT}; exec {sys.executable} -m samelog up --hosts 1 --json --dir up"
    command = ["sh", "-c", f"{up} --kafka-set num.partitions={PARTITIONS}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            text = "".join(iter(process.stdout.readline, "}\n"))  # an object over several lines
            yield json.loads(text + "}")["kafka"]
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


def produce(producer: Producer, partitions: int) -> int:
    """How many of one record for each of these partitions are acknowledged."""
    failed: list[bool] = []

    def delivered(error: object, message: object) -> None:
        failed.append(error is not None)

    for partition in range(partitions):
        producer.produce(TOPIC, b"value", partition=partition, on_delivery=delivered)
    producer.flush(PATIENCE_S)
    return failed.count(False)


def test_more_connections_and_files_than_descriptors_end_no_node(bootstrap: str) -> None:
    config = {"bootstrap.servers": bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000)}
    producer = Producer(config)
    assert produce(producer, PARTITIONS) == PARTITIONS
    assert produce(producer, PARTITIONS) == PARTITIONS
    host, port = bootstrap.rsplit(":", 1)
    held = [socket.create_connection((host, int(port))) for _ in range(2 * LIMIT)]
    for one in held:
        one.setblocking(False)
    wait_for(lambda: sum(map(is_closed, held)) > LIMIT, "connections are refused")
    assert produce(producer, PARTITIONS) == PARTITIONS
    for one in held:
        one.close()
    assert produce(Producer(config), PARTITIONS) == PARTITIONS


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection over which nothing is sent."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True

"""`samelog up`, as somebody tries it out who has just installed samelog."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaError, Producer

from samelog.admin.answers import NodeState, Status
from samelog.admin.client import AdminError, all_statuses
from samelog.config.load import load_client
from tests.e2e.harness import wait_for


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The running command, and what it announced."""
    command = [sys.executable, "-m", "samelog", "up", "--dir", str(tmp_path / "up"), "--json"]
    command += ["--kafka-set", "num.partitions=3", "--kafka-set", "message.max.bytes=64Ki"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            text = "".join(iter(process.stdout.readline, "}\n"))  # an object over several lines
            yield process, json.loads(text + "}")
        finally:
            process.terminate()
            assert process.wait(30) == 0


def live_nodes(client: str) -> int:
    """How many nodes answer that they are Live."""
    answers: list[Status | AdminError] = list(all_statuses(load_client(client)))
    return sum(
        info.state is NodeState.LIVE
        for answer in answers
        if isinstance(answer, Status)
        for info in answer.nodes
        if info.name == answer.node
    )


def test_a_node_that_is_killed_starts_again_and_the_others_go_on(
    up: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    process, announced = up
    client = announced["client"]
    assert live_nodes(client) == len(announced["nodes"]) == 3
    for node in announced["nodes"]:
        with urlopen(f"http://{node['http']}/readyz", timeout=30) as answer:
            assert answer.status == 200
    victim = announced["nodes"][0]["pid"]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{victim}/cmdline").exists(), "it is gone and noticed")
    wait_for(lambda: live_nodes(client) == 3, "all three are Live again")
    assert process.poll() is None


def test_settings_under_kafkas_names_count(
    up: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    boot = load_client(up[1]["client"]).kafka_bootstrap
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": boot, "message.max.bytes": 200_000})
    for size in (1000, 100_000):
        producer.produce("made", bytes(size), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE]
    topics = producer.list_topics("made", timeout=20).topics
    assert sorted(topics["made"].partitions) == [0, 1, 2]

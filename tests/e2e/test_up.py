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
from samelog.admin.client import all_statuses, ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import RemoveNode
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_client
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S


@pytest.fixture
def up(
    tmp_path: Path, starts_nodes: None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
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
            assert process.wait(PATIENCE_S) == 0


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
    assert live_nodes(client) == len(announced["http"]) == 3
    for address in announced["http"]:
        with urlopen(f"http://{address}/readyz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
    victim = int(Path(client).with_name("rt-sequencer-0").joinpath("node.pid").read_text())
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: not is_running(victim), "it is gone")
    wait_for(lambda: live_nodes(client) == 3, "all three are Live again")
    assert process.poll() is None


def remove_the_last(client: str) -> None:
    """Remove a node, if it is still there, and wait until its process has ended."""
    if live_nodes(client) == 3:
        ask(load_client(client), RemoveNode("rt-sequencer-2", confirm="rt-sequencer-2"))
        pid = int(Path(client).with_name("rt-sequencer-2").joinpath("node.pid").read_text())
        wait_for(lambda: not is_running(pid), "it has ended")


@pytest.mark.usefixtures("starts_nodes")
def test_a_node_that_is_removed_stays_away_and_the_others_go_on(tmp_path: Path) -> None:
    options = [sys.executable, "-m", "samelog", "up", "--dir", str(tmp_path / "up")]
    client = str(tmp_path / "up" / "client.toml")
    for _ in range(2):  # it is remembered across restarts
        with subprocess.Popen([*options, "--json"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                for _ in iter(process.stdout.readline, "}\n"):  # until it is announced
                    pass
                remove_the_last(client)
                wait_for(lambda: live_nodes(client) == 2, "two are Live")
                assert process.poll() is None
            finally:
                process.terminate()
                assert process.wait(PATIENCE_S) == 0
    assert len(load_client(client).nodes) == 2


def test_settings_under_kafkas_names_count(
    up: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    boot = up[1]["kafka"]
    assert boot == load_client(up[1]["client"]).kafka_bootstrap
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": boot, "message.max.bytes": 200_000})
    for size in (1000, 100_000):
        producer.produce("made", bytes(size), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE]
    topics = producer.list_topics("made", timeout=PATIENCE_S).topics
    assert sorted(topics["made"].partitions) == [0, 1, 2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, as a shell starts it: it returns when nobody holds its output."""
    command = [sys.executable, "-m", "samelog", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def files(directory: Path) -> dict[Path, tuple[int, int]]:
    """What is written there, apart from what nodes write."""
    names = [*directory.glob("*"), *directory.glob("*/node.*"), *directory.glob("pki/*")]
    found = (path for path in names if path.is_file() and path.suffix != ".log")
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}


@pytest.mark.smoke
@pytest.mark.usefixtures("starts_nodes")
def test_detached_it_returns_when_all_is_live_and_down_ends_it(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    assert run("down", "--dir", str(directory)).returncode == 1
    first = run("up", "--detach", "--json", "--dir", str(directory))
    try:
        assert first.returncode == 0, first.stderr
        announced = json.loads(first.stdout)
        assert list(announced) == ["client", "kafka", "http"]
        assert live_nodes(announced["client"]) == 3
        before = files(directory)
        second = run("up", "--detach", "--dir", str(directory))
        assert (second.returncode, second.stdout) == (1, "")
        (said,) = second.stderr.splitlines()
        assert "already" in said
        assert "down" in said
        assert files(directory) == before
    finally:
        ended = run("down", "--dir", str(directory), "--json")
    assert ended.returncode == 0, ended.stderr
    assert not any(map(is_running, pids(directory)))
    assert run("down", "--dir", str(directory)).returncode == 1


@pytest.mark.usefixtures("starts_nodes")
def test_nodes_that_a_killed_up_left_are_ended_before_new_ones_start(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    one = ("up", "--hosts", "1", "--detach", "--dir", str(directory))
    assert run(*one).returncode == 0
    try:
        os.kill(int((directory / "up.lock").read_text()), signal.SIGKILL)
        left = pids(directory)
        again = run(*one)
        assert again.returncode == 0, again.stderr
        assert pids(directory) != left
        assert not any(map(is_running, left))
    finally:
        run("down", "--dir", str(directory))


@pytest.mark.usefixtures("starts_nodes")
def test_a_detached_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("up", "--detach", "--dir", str(tmp_path / "file"))
    assert ended.returncode == 1
    assert ended.stderr == f"samelog: {tmp_path}/file is a file, not a directory\n"


@pytest.mark.usefixtures("starts_nodes")
def test_a_directory_of_other_nodes_is_refused_and_a_copy_beside_them_is_none(
    tmp_path: Path,
) -> None:
    LocalCluster(str(tmp_path), ClusterOptions(nodes=3)).prepare()
    (tmp_path / "rt-sequencer-2.copy").mkdir()
    LocalCluster(str(tmp_path), ClusterOptions(nodes=3)).prepare()
    ended = run("up", "--hosts", "1", "--dir", str(tmp_path))
    assert ended.returncode == 1
    assert "3 nodes, rt-sequencer-0, rt-sequencer-1, rt-sequencer-2, not 1" in ended.stderr


def is_running(pid: int) -> bool:
    """A process that ended has no command line, even where nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def pids(directory: Path) -> list[int]:
    """The processes of the nodes."""
    return [int(path.read_text()) for path in sorted(directory.glob("*/node.pid"))]

"""Real processes: nodes are added, replaced, removed and restarted while records are published."""

from __future__ import annotations

import shlex
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from samelog import Publisher
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.cli.output import NoLongerAMember
from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from samelog.config.tables.node import NodePace, PeerConfig
from samelog.config.values import Address
from tests.e2e.commands import as_json
from tests.e2e.commands import samelog as run
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire, fetch, metadata
from tests.patience import PATIENCE_S

RATE_S = 0.004
WINDOW_BYTES = 16 << 20
"""So much is copied from a peer at once, whatever the rate."""
NOT_LEADER_OR_FOLLOWER = 6


def samelog(world: World, *arguments: str) -> Any:
    """What a command prints as JSON; it has to succeed."""
    return as_json(*arguments, "--config", world.cluster.client_file)


class Writer:
    """Appends numbered records all the time."""

    def __init__(self, publisher: Publisher) -> None:
        self.count = 0
        self._publisher = publisher
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(RATE_S):
            self._publisher.append(b"%07d" % self.count)
            self.count += 1


@contextmanager
def writing(world: World) -> Iterator[Writer]:
    """A publisher that writes until the end of the block; then everything is merged."""
    with world.publisher("a") as publisher:
        writer = Writer(publisher)
        writer.start()
        try:
            wait_for(lambda: writer.count > 50, "some records")
            yield writer
        finally:
            writer.stop()
        publisher.wait_merged(timeout=PATIENCE_S)


def members(world: World) -> set[str]:
    return {node["name"] for node in samelog(world, "node", "list")}


def assert_nothing_lost_doubled_or_reordered(world: World, count: int) -> None:
    """From the files of the nodes that are left, and a subscriber's copy of them."""
    world.wait_offset(count)
    wanted = [b"%07d" % number for number in range(count)]
    assert [record.value for record in world.read(count)] == wanted
    world.assert_identical()
    assert world.copied_bytes() == world.merged_bytes(world.cluster.nodes[0])


def test_nodes_are_added_replaced_and_removed_while_a_publisher_writes(world: World) -> None:
    cluster = world.cluster
    with writing(world) as writer:
        fourth = cluster.join()
        fourth.start()  # it waits until somebody adds it
        samelog(world, "node", "add", fourth.name, str(fourth.address), "--wait", "60")
        fifth = cluster.join()
        fifth.start()
        first = cluster.nodes[0]
        samelog(
            world, "node", "replace", first.name, fifth.name, str(fifth.address), "--wait", "60"
        )
        wait_for(lambda: first.pid is None, "the replaced node ends by itself")
        assert first.exit_code() == NoLongerAMember.exit_code
        assert "removed" in Path(first.log_file).read_text()
        second = cluster.nodes[1]
        samelog(world, "node", "remove", second.name, "--confirm", second.name)
        wait_for(lambda: second.pid is None, "the removed node ends by itself")
        before = writer.count
        wait_for(lambda: writer.count > before + 50, "more records")
    cluster.nodes = [node for node in cluster.nodes if node.pid is not None]
    assert members(world) == {node.name for node in cluster.nodes}
    assert_nothing_lost_doubled_or_reordered(world, writer.count)


def carry_out(world: World, command: str, step: Any) -> None:
    """One line of a step of a restart plan, as an operator would."""
    if command.startswith("systemctl restart samelog-node"):
        assert f"# on {step['host']}" in command
        nodes = nodes_of(world, step)
        for node in nodes:
            node.stop()
            assert node.exit_code() == 0
        for node in nodes:
            node.start()
    else:
        program, *arguments = shlex.split(command)
        assert program == "samelog"
        ended = run(*arguments, "--config", world.cluster.client_file)
        assert ended.returncode == 0, ended.stderr


def nodes_of(world: World, step: Any) -> list[LocalNode]:
    names = {each["node"] for each in step["nodes"]}
    return [node for node in world.cluster.nodes if node.name in names]


def restart_by_plan(world: World) -> Any:
    """Restart all nodes as the plan says; return its steps."""
    steps = samelog(world, "cluster", "restart-plan")["steps"]
    for step in steps:
        before = [node.pid for node in nodes_of(world, step)]
        for command in step["commands"]:
            carry_out(world, command, step)
        assert not {None, *before} & {node.pid for node in nodes_of(world, step)}
    plan = samelog(world, "cluster", "restart-plan")
    assert (plan["may_begin"], plan["waits_for"]) == (True, [])
    return steps


def test_hosts_of_several_nodes_are_restarted_one_host_at_a_time(
    tmp_path: Path, starts_nodes: None
) -> None:
    options = ClusterOptions(nodes=6, members=2)
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.start()
        world = World(cluster, tmp_path)
        samelog(world, "topic", "create", "t", "--replication-factor", "3")
        listed = samelog(world, "node", "list")
        assert [each["host"] for each in listed] == sorted(node.host for node in cluster.nodes)
        hosts = {node.name: node.host for node in cluster.nodes}
        (placed,) = samelog(world, "placement")["partitions"]
        assert len({hosts[each] for each in placed["replicas"]}) == 3
        with writing(world) as writer:
            steps = restart_by_plan(world)
        assert [len(step["nodes"]) for step in steps] == [2, 2, 2]
        wanted = [b"%07d" % number for number in range(writer.count)]
        assert [record.value for record in world.read(writer.count)] == wanted
        drain = run("node", "drain", "--host", "host-0", "--config", cluster.client_file)
        assert (drain.returncode, "would have too few members" in drain.stderr) == (1, True)


def test_a_rolling_restart_by_the_printed_plan_costs_no_write(world: World) -> None:
    """What it costs in time is measured by bench/rolling.py."""
    with writing(world) as writer:
        steps = restart_by_plan(world)
        assert sorted(step["host"] for step in steps) == sorted(n.name for n in world.cluster.nodes)
        assert steps[-1]["nodes"][0]["role"] == "leader"
    assert_nothing_lost_doubled_or_reordered(world, writer.count)


def test_a_node_that_joined_is_restarted_with_the_file_it_joined_with(world: World) -> None:
    cluster = world.cluster
    joined = cluster.join()
    joined.start()
    samelog(world, "node", "add", joined.name, str(joined.address), "--wait", "60")
    world.wait_live(joined)
    with world.publisher("a") as publisher:
        for number, end in enumerate((joined.stop, joined.kill), 1):
            end()
            publisher.append(b"%07d" % (number - 1))
            joined.start()
            world.wait_live(joined)
        publisher.wait_merged(timeout=PATIENCE_S)
    assert_nothing_lost_doubled_or_reordered(world, 2)


def ends_as_removed(node: LocalNode) -> None:
    wait_for(lambda: node.pid is None, f"{node.name} ends by itself")
    assert node.exit_code() == NoLongerAMember.exit_code
    assert "was removed" in node.last_log_line()


def test_a_node_that_was_removed_comes_back_with_its_old_directory(world: World) -> None:
    """Under another number; then it starts again wherever its configuration looks for peers."""
    node = world.followers()[0]
    config = load_node(node.config_file)
    nowhere = PeerConfig(name="gone", address=Address("127.0.0.1", 1))
    with world.publisher("a") as publisher:
        publisher.append(b"%07d" % 0)
        publisher.wait_merged(timeout=PATIENCE_S)
        samelog(world, "node", "remove", node.name, "--confirm", node.name)
        ends_as_removed(node)
        node.start()
        ends_as_removed(node)
        samelog(world, "node", "add", node.name, str(node.address))
        node.start()
        for number, peers in enumerate(((), (nowhere,), config.peers), 1):
            world.wait_live(node)
            publisher.append(b"%07d" % number)
            node.kill()
            Path(node.config_file).write_text(to_toml(replace(config, peers=peers)))
            node.start()
        world.wait_live(node)
        publisher.wait_merged(timeout=PATIENCE_S)
    wait_for(lambda: roles(world)[node.name] == "follower", "it votes again")
    assert_nothing_lost_doubled_or_reordered(world, 4)


def roles(world: World) -> dict[str, str]:
    return {each["name"]: each["role"] for each in samelog(world, "node", "list")}


@pytest.fixture
def syncing(world: World) -> LocalNode:
    """A node that is back, and copies for long what was published while it was away."""
    node = world.followers()[0]
    node.stop()
    config = replace(load_node(node.config_file), pace=NodePace(recovery_bytes_per_s=1000))
    Path(node.config_file).write_text(to_toml(config), encoding="utf-8")
    with world.publisher("a") as publisher:
        publisher.append_many([bytes(1000)] * (WINDOW_BYTES // 1000 * 3 // 2))
        publisher.wait_merged(timeout=PATIENCE_S)
    node.start()
    return node


def test_a_node_that_catches_up_says_so_and_sends_kafka_clients_on(
    world: World, syncing: LocalNode
) -> None:
    config, http, kafka = world.cluster.client_file, syncing.http, syncing.kafka
    assert http is not None
    assert kafka is not None

    def is_open() -> bool:
        try:
            Wire(kafka).socket.close()
        except ConnectionRefusedError:
            return False
        return True

    wait_for(is_open, "its Kafka listener is open")
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        urllib.request.urlopen(f"http://{http}/readyz")
    assert b"catches up" in refused.value.read()
    states = {node["name"]: node["state"] for node in as_json("node", "list", "--config", config)}
    assert states[syncing.name] == "syncing"
    with Wire(kafka) as wire:
        (partition,) = metadata(wire, "t").topics[0].partitions
        assert partition.leader_id == world.cluster.nodes.index(world.leader())
        assert fetch(wire, "t", 0).error_code == NOT_LEADER_OR_FOLLOWER
    with Consumer({"bootstrap.servers": str(kafka), "group.id": "g"}) as reader:
        reader.assign([TopicPartition("t", 0, 0)])
        assert reader.consume(1, PATIENCE_S)[0].value() == bytes(1000)

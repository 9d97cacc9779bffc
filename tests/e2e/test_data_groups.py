"""Topics with fewer copies than nodes, from end to end: clients that know one node only publish and
subscribe, natively, over Kafka and as Spark does, while members are killed and emptied.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from samelog import Publisher, Subscriber
from samelog.admin.answers import ArchivePlan
from samelog.admin.client import ask, ask_each, log_history
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import DrainNode, GetPlacement, ListTasks
from samelog.admin.requests import CreateTopic, PlanArchive
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.format._kernels import decode_records
from samelog.format.compression import decompress
from samelog.spark.logs.nodes import Nodes, RemoteLogs
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.wire.errors import FaultCode
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.http import asking
from tests.patience import PATIENCE_S

PARTITIONS = 6
RECORDS = 600


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    """Five nodes; clients are told of the first one only."""
    path = tmp_path_factory.mktemp("groups")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=5)) as cluster:
        cluster.prepare()
        cluster.start()
        yield World(cluster, path)


@pytest.fixture
def seeds(world: World, tmp_path: Path) -> str:
    config = world.cluster.client_config()
    known = replace(config, nodes=config.nodes[:1], node_names=config.node_names[:1])
    path = tmp_path / "client.toml"
    path.write_text(to_toml(known), encoding="utf-8")
    return str(path)


def make(world: World, topic: str, copies: int) -> None:
    ask(world.cluster.client_config(), CreateTopic(topic, PARTITIONS, {}, copies))


def publish(path: Path, config: str, topic: str, session: str, numbers: Sequence[int]) -> None:
    directory = str(path / "publishers")
    with Publisher(topic, session=session, config=config, directory=directory) as publisher:
        for number in numbers:
            publisher.append(b"%s %d" % (session.encode(), number), partition=number % PARTITIONS)
        publisher.wait_merged(PATIENCE_S)


def by_partition(found: Sequence[tuple[int, bytes]], session: str) -> dict[int, list[int]]:
    """What one session wrote, in the order in which it was read."""
    own: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for partition, value in found:
        name, _, number = value.decode().partition(" ")
        if name == session:
            own[partition].append(int(number))
    return own


def written(numbers: Sequence[int]) -> dict[int, list[int]]:
    return {p: [n for n in numbers if n % PARTITIONS == p] for p in range(PARTITIONS)}


def subscribed(path: Path, config: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    directory, found = str(path / "copies"), list[tuple[int, bytes]]()
    with Subscriber(topic, directory=directory, config=config, start="earliest") as subscriber:

        def is_there() -> bool:
            found.extend((r.partition, r.value or b"") for r in subscriber.batch(timeout=0.2))
            return len(found) >= count

        wait_for(is_there, f"{count} records")
    return found


def as_spark(config: str, topic: str) -> list[tuple[int, bytes]]:
    """What Spark's readers find."""
    found: list[tuple[int, bytes]] = []
    with closing(Nodes(config, timeout_s=PATIENCE_S)) as nodes:
        state = RemoteLogs(nodes).topic_states([topic])[topic]
        assert sorted(state.partitions) == list(range(PARTITIONS))
        for number, bounds in state.partitions.items():
            wanted = OffsetRange(
                PartitionName(topic, number), state.topic_id, bounds.start, bounds.end
            )
            for chunk in nodes.read(wanted):
                records = decode_records(chunk.data, 0, chunk.size, topic, number, decompress)
                found += ((number, each.value or b"") for each in records)
    return found


def over_kafka(world: World, topic: str, count: int) -> list[tuple[int, bytes]]:
    servers = world.cluster.client_config().kafka_bootstrap
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"g-{topic}"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: list[tuple[int, bytes]] = []
    with closing(consumer):
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None
            found.append((message.partition() or 0, message.value() or b""))
    return found


@pytest.mark.parametrize("copies", [1, 2])
def test_who_knows_one_node_reaches_all(
    world: World, seeds: str, tmp_path: Path, copies: int
) -> None:
    topic = f"seeds-{copies}"
    make(world, topic, copies)
    publish(tmp_path, seeds, topic, topic, range(RECORDS))
    wanted = written(range(RECORDS))
    assert by_partition(subscribed(tmp_path, seeds, topic, RECORDS), topic) == wanted
    assert by_partition(as_spark(seeds, topic), topic) == wanted
    assert by_partition(over_kafka(world, topic, RECORDS), topic) == wanted


def test_a_session_may_use_fewer_partitions_than_before(
    world: World, seeds: str, tmp_path: Path
) -> None:
    """Each run begins once the one before is closed, also where that used nothing of a group."""
    topic, session = "fewer", "s"
    make(world, topic, 2)
    publish(tmp_path, seeds, topic, session, range(PARTITIONS))
    rounds = [[0], [PARTITIONS], [2 * PARTITIONS + 1]]
    for numbers in rounds:
        publish(tmp_path, seeds, topic, session, numbers)
    numbers = [*range(PARTITIONS), *(each for one in rounds for each in one)]
    found = subscribed(tmp_path, seeds, topic, len(numbers))
    assert by_partition(found, session) == written(numbers)


def measured(node: LocalNode, name: str, label: str) -> dict[str, float]:
    """One metric of a node: the value of a label -> that of the sample."""
    found = {}
    for line in asking.get(node.http, "/metrics").splitlines():
        sample = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if sample is not None:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', sample[1]))
            if labels.get("topic", "measured") == "measured":
                found[labels[label]] = float(sample[2])
    return found


def test_what_is_measured_and_told_of_sessions_is_of_data_groups_too(
    world: World, tmp_path: Path
) -> None:
    make(world, "measured", 2)
    publish(tmp_path, world.cluster.client_file, "measured", "meter", range(RECORDS))
    placed = ask(world.cluster.client_config(), GetPlacement()).partitions
    each = RECORDS // PARTITIONS

    def is_told(node: LocalNode) -> bool:
        own = [p.partition for p in placed if p.topic == "measured" and node.name in p.replicas]
        committed = measured(node, "samelog_committed_records_total", "partition")
        merged = measured(node, "samelog_merged_records_total", "partition")
        taken = measured(node, "samelog_session_received_records_total", "session")
        rows = {row["session"]: row for row in asking.get(node.http, "/sessions")["sessions"]}
        parts = sorted(part["partition"] for part in rows.get("meter", {}).get("partitions", ()))
        ends = asking.get(node.http, "/latest-position?topic=measured")["positions"]
        here = sorted(end["partition"] for end in ends) == own
        wanted = {str(number): float(each) for number in own}
        is_counted = committed == merged == wanted and bool(own) == ("meter" in taken)
        return is_counted and here and parts == own

    for node in world.cluster.nodes:
        wait_for(lambda node=node: is_told(node), f"{node.name} tells of what it has")  # type: ignore[misc]

    body = {"topic": "measured", "to": "earliest"}
    refused = asking.ask(world.cluster.nodes[0].http, "POST", "/groups/g/reset", body)
    assert refused.status == 422
    assert "one partition after the other" in refused.body["remedy"]


def test_files_of_data_groups_are_told_by_who_has_them(
    world: World, seeds: str, tmp_path: Path
) -> None:
    make(world, "plain", 5)
    publish(tmp_path, seeds, "plain", "plain", range(PARTITIONS))
    for copies in (1, 2):
        make(world, f"files-{copies}", copies)
        publish(tmp_path, seeds, f"files-{copies}", f"files-{copies}", range(RECORDS))
    config = world.cluster.client_config()
    topics = ("plain", "files-1", "files-2")
    found = [each for each in log_history(config) if each.topic in topics]
    places = [(each.topic, each.partition, each.first_offset) for each in found]
    assert places == sorted(places)
    told = {(each.topic, each.partition): each.next_offset for each in found}
    for copies in (1, 2):
        for number in range(PARTITIONS):
            assert told.pop((f"files-{copies}", number)) == RECORDS // PARTITIONS
    assert told == {("plain", number): 1 for number in range(PARTITIONS)}, "of group 0, too"
    [one] = log_history(config, "files-1", partition=3)
    assert (one.partition, one.next_offset) == (3, RECORDS // PARTITIONS)
    plans = ask_each(config, PlanArchive(data_groups=True))
    assert all(isinstance(plan, ArchivePlan) for plan in plans), plans
    assert ask(config, PlanArchive()).data_groups == len(
        {each.group for each in ask(config, GetPlacement()).partitions} - {0}
    )


def test_commands_of_who_knows_one_node_are_answered_by_those_that_have_it(
    world: World, seeds: str, tmp_path: Path
) -> None:
    make(world, "asked", 1)
    publish(tmp_path, seeds, "asked", "asked", range(RECORDS))
    per_partition = RECORDS // PARTITIONS
    described = as_json("topic", "describe", "asked", "--config", seeds)["partitions"]
    assert [(each["end_offset"], each["elsewhere"]) for each in described] == [
        (per_partition, "")
    ] * PARTITIONS
    known = as_json("status", "--config", seeds)
    assert known["answers"] == 5
    ends = {
        each["partition"]: each["end_offset"]
        for each in known["partitions"]
        if each["topic"] == "asked"
    }
    assert ends == dict.fromkeys(range(PARTITIONS), per_partition)
    ended = samelog("log-history", "asked", "--json", "--config", seeds)
    files = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each["partition"] for each in files] == list(range(PARTITIONS)), ended.stderr
    for number in range(PARTITIONS):
        ended = samelog(
            *("peek", "asked", "--partition", str(number), "--last", "1", "--config", seeds)
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == f"asked {RECORDS - PARTITIONS + number}\n"
        assert ended.stderr == ""
    reset = ("group", "reset", "asked-group", "--topic", "asked", "--config", seeds)
    rows = as_json(*reset, "--to", "latest")["partitions"]
    assert [(each["committed"], each["lag"]) for each in rows] == [(per_partition, 0)] * PARTITIONS
    rows = as_json(*reset, "--shift-by", "-10")["partitions"]
    assert [each["lag"] for each in rows] == [10] * PARTITIONS
    listed = as_json("group", "list", "--config", seeds)
    assert [each["lag"] for each in listed if each["group"] == "asked-group"] == [10 * PARTITIONS]
    done = as_json("group", "processed", "asked", "asked-group", "--config", seeds)["partitions"]
    assert [each["lag"] for each in done] == [10] * PARTITIONS
    emptied = as_json("topic", "truncate", "asked", "--confirm", "asked", "--config", seeds)
    assert [each["log_start"] for each in emptied] == [per_partition] * PARTITIONS


def test_a_topic_is_not_deleted_while_another_node_serves_its_readers(
    world: World, seeds: str, tmp_path: Path
) -> None:
    config, first = world.cluster.client_config(), world.cluster.nodes[0].name
    topic = next(
        each for each in map(_one_partition(world), range(5)) if _is_away(config, each, first)
    )
    with Publisher(topic, session="read", config=seeds, directory=str(tmp_path / "p")) as publisher:
        publisher.append(b"1")
        publisher.wait_merged(PATIENCE_S)
    with Subscriber(
        topic, directory=str(tmp_path / "copies"), config=seeds, start="earliest"
    ) as subscriber:
        wait_for(lambda: bool(subscriber.batch(timeout=0.2)), "the record")
        ended = samelog("topic", "delete", topic, "--confirm", topic, "--config", seeds)
        assert ended.returncode == 1
        assert "is in use by subscriber samelog://" in ended.stderr


def _one_partition(world: World) -> Callable[[int], str]:
    def make_one(number: int) -> str:
        ask(world.cluster.client_config(), CreateTopic(f"read-{number}", 1, {}, 1))
        return f"read-{number}"

    return make_one


def _is_away(config: ClientConfig, topic: str, node: str) -> bool:
    """Whether a node has no copy of a topic."""
    partitions = ask(config, GetPlacement()).partitions
    return all(node not in each.replicas for each in partitions if each.topic == topic)


def drain(config: ClientConfig, request: DrainNode) -> None:
    """Ask again while no answer comes in time, as the message says."""
    while True:
        try:
            ask(config, request)
        except AdminError as error:
            if error.code is not FaultCode.TIMEOUT:
                raise
        else:
            return


def test_nothing_is_lost_doubled_or_reordered_while_members_die_and_move(
    world: World, seeds: str, tmp_path: Path
) -> None:
    topic, config = "moving", world.cluster.client_config()
    make(world, topic, 2)
    with Publisher(
        topic, session="mover", config=seeds, directory=str(tmp_path / "publishers")
    ) as publisher:
        stop, sent = threading.Event(), [0]

        def work() -> None:
            while not stop.wait(0.002):
                publisher.append(b"mover %d" % sent[0], partition=sent[0] % PARTITIONS)
                sent[0] += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for node in world.cluster.nodes[1:]:
                node.kill()
                node.start()
                world.wait_live(node)
            emptied = world.cluster.nodes[2].name
            drain(config, DrainNode(emptied))
            wait_for(lambda: not _held(world, emptied), "it is empty")
            publish(tmp_path, seeds, topic, "other", range(RECORDS))
            drain(config, DrainNode(emptied, ends=True))
            wait_for(lambda: _held(world, emptied) and not _at_work(world), "all is even")
        finally:
            stop.set()
            thread.join()
        publisher.wait_merged(PATIENCE_S)
    produced = _produce(world, topic)
    count = sent[0] + RECORDS + produced
    for found in (
        subscribed(tmp_path, seeds, topic, count),
        as_spark(seeds, topic),
        over_kafka(world, topic, count),
    ):
        assert by_partition(found, "mover") == written(range(sent[0]))
        assert by_partition(found, "other") == written(range(RECORDS))
        assert by_partition(found, "kafka") == written(range(produced))
        assert len(found) == count


def _produce(world: World, topic: str) -> int:
    servers = world.cluster.client_config().kafka_bootstrap
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, b"kafka %d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    return RECORDS


def _held(world: World, name: str) -> bool:
    found = ask(world.cluster.client_config(), GetPlacement())
    return any(name in each.members for each in found.groups if each.group)


def _at_work(world: World) -> bool:
    found = ask(world.cluster.client_config(), ListTasks())
    return bool(found.running) or any(each.state == "waiting" for each in found.waiting)

"""Reading from the nodes of a real cluster: what executors do that have no copy."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, DeleteTopic, DescribeGroup
from samelog.cli.local_cluster import LocalNode
from samelog.config.pki.authority import CertificateRole, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.shared import TlsFiles
from samelog.replicator.client_errors import TopicDeleted
from samelog.spark.errors import BadOption, DataLoss, NotReadable, SourceError, TopicNotFound
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.spark.cluster import config, publish
from tests.spark.local import Journal, batch_reader, rows, source, values
from tests.subscriber.merged import Growing, numbers


def read(world: World, topic: str, **options: object) -> list[bytes]:
    """The values of a batch query."""
    reader = batch_reader(config=config(world), subscribe=topic, **options)
    return values(rows(reader, reader.partitions()))


def test_ranges_come_from_the_nodes_whatever_their_segments(world: World) -> None:
    for start in range(0, 20_000, 4_000):
        publish(world, "ranges", start, start + 4_000)
    assert len(os.listdir(os.path.join(world.cluster.nodes[0].data, "merged", "ranges-0"))) > 12
    assert read(world, "ranges") == numbers(0, 20_000)
    some = {
        "startingOffsets": '{"ranges": {"0": 777}}',
        "endingOffsets": '{"ranges": {"0": 15555}}',
        "maxRecordsPerPartition": 4000,
    }
    assert read(world, "ranges", **some) == numbers(777, 15555)


def test_a_stream_follows_the_nodes(world: World) -> None:
    publish(world, "stream", 0, 10)
    journal = Journal(config=config(world), subscribe="stream", startingOffsets="earliest")
    assert journal.run() == [[], numbers(0, 10)]
    publish(world, "stream", 10, 30)
    journal.restart()
    assert journal.run() == [numbers(10, 30)]
    journal.reader.stop()


def test_a_dead_node_is_passed_over(world: World) -> None:
    publish(world, "dead", 0, 100)
    victim = world.followers()[0]
    victim.kill()
    try:
        for _ in range(3):  # whichever node a query begins with
            assert read(world, "dead") == numbers(0, 100)
    finally:
        victim.start()
        world.wait_live(victim)


def test_times_are_looked_up_by_the_nodes(world: World) -> None:
    with world.publisher("spark-times", "times") as publisher:
        publisher.append_many(numbers(0, 10), timestamps=list(range(1000, 1010)))
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(10, "times")
    assert read(world, "times", startingTimestamp=1004) == numbers(4, 10)
    with pytest.raises(SourceError, match="times-0 has no record at 5000 ms or later"):
        read(world, "times", startingTimestamp=5000)


def test_partitions_and_patterns(world: World) -> None:
    ask(world.cluster.client_config(), CreateTopic("many-1", 3, {}))
    for partition in range(3):
        publish(world, "many-1", 0, 5 + partition, partition=partition)
    reader = batch_reader(config=config(world), subscribePattern="many-.*")
    assert len(rows(reader, reader.partitions())) == 5 + 6 + 7


NARROW = """
[[grants]]
identity = "samelog://subscriber/narrow"
subscribe = { topics = ["shown-*"] }
"""


def test_a_pattern_finds_the_topics_that_the_certificate_may_read(
    world: World, tmp_path: Path
) -> None:
    for topic in ("shown-1", "shown-2", "hidden"):
        publish(world, topic, 0, 3)
    for node in world.cluster.nodes:
        with open(node.config_file, "a", encoding="utf-8") as file:
            file.write(NARROW)
    pki = os.path.join(world.cluster.directory, "pki")
    files = issue(pki, CertificateRole.SUBSCRIBER, "narrow")
    everything = world.cluster.client_config()
    tls = TlsFiles(ca=everything.tls.ca, cert=files.cert, key=files.key)
    (tmp_path / "client.toml").write_text(to_toml(replace(everything, tls=tls)))
    options = {"config": str(tmp_path / "client.toml"), "subscribePattern": ".*"}

    def found() -> list[str]:
        try:
            planned = batch_reader(**options).partitions()
        except (NotReadable, TopicNotFound):
            return []
        return sorted({part.name.topic for each in planned for part in each.task})

    wait_for(lambda: found() == ["shown-1", "shown-2"], "the grant counts")
    with pytest.raises(SourceError):
        batch_reader(config=options["config"], subscribe="hidden").partitions()


def test_a_copy_is_read_where_there_is_one(world: World, tmp_path: Path) -> None:
    """The copy has other values than the cluster, so that it shows which was read."""
    publish(world, "copy", 0, 10)
    reader = batch_reader(config=config(world), subscribe="copy", directory=tmp_path)
    planned = reader.partitions()
    topic_id = planned[0].task[0].topic_id
    copy = Growing(tmp_path, "copy", topic_id=topic_id)
    copy.count(500, 510)
    assert values(rows(reader, planned)) == numbers(500, 510)
    remote = batch_reader(
        config=config(world), subscribe="copy", directory=tmp_path, readMode="remote"
    )
    assert values(rows(remote, planned)) == numbers(0, 10)


def test_nodes_are_asked_where_the_copy_lags_or_is_another_topics(
    world: World, tmp_path: Path
) -> None:
    publish(world, "lag", 0, 10)
    for name, topic_id in (("none", None), ("other", "id-1"), ("behind", "")):
        directory = tmp_path / name
        directory.mkdir()
        options = {"config": config(world), "subscribe": "lag", "localWaitMs": 20}
        reader = batch_reader(**options, directory=directory)
        planned = reader.partitions()
        if topic_id is not None:
            copy = Growing(directory, "lag", topic_id=topic_id or planned[0].task[0].topic_id)
            copy.count(500, 505)
        assert values(rows(reader, planned)) == numbers(0, 10)
        local = batch_reader(**options, directory=directory, readMode="local")
        with pytest.raises(NotReadable, match=r"lag-0 \[0, 10\)"):
            rows(local, planned)


def test_a_recreated_topic_is_refused_by_driver_and_executors(world: World) -> None:
    publish(world, "recreated", 0, 10)
    journal = Journal(config=config(world), subscribe="recreated", startingOffsets="earliest")
    assert journal.run() == [[], numbers(0, 10)]
    admin = world.cluster.client_config()
    ask(admin, DeleteTopic("recreated", in_use=True, confirm="recreated"))
    ask(admin, CreateTopic("recreated", 1, {}))
    world.wait_offset(0, "recreated")
    with pytest.raises(TopicDeleted, match=r"the topic with id .* is gone"):
        journal.read(1)
    journal.restart()
    with pytest.raises(TopicDeleted, match="recreated-0: wanted is offset 10 of the topic with id"):
        journal.plan()


def test_archiving_overtakes_a_task_at_the_nodes(world: World) -> None:
    publish(world, "old", 0, 20_000)
    reader = batch_reader(config=config(world), subscribe="old")
    planned = reader.partitions()
    kafka = AdminClient({"bootstrap.servers": world.cluster.client_config().kafka_bootstrap})
    deleted = kafka.delete_records([TopicPartition("old", 0, 15_000)])
    for each in deleted.values():
        each.result(PATIENCE_S)
    nodes = world.cluster.nodes
    wait_for(lambda: [begin(world, node) for node in nodes] == [15_000] * len(nodes), "archived")
    with pytest.raises(DataLoss, match=r"old-0: wanted are \[0, 20000\), but the first .* 15000"):
        rows(reader, planned)
    lenient = batch_reader(config=config(world), subscribe="old", failOnDataLoss=False)
    assert values(rows(lenient, planned)) == numbers(15_000, 20_000)


def begin(world: World, node: LocalNode) -> int | None:
    """The first offset that a node has of the topic `old`."""
    status = world.status(node)
    found = () if status is None else status.partitions
    return next((info.start_offset for info in found if info.topic == "old"), None)


def test_positions_are_those_of_a_group(world: World) -> None:
    publish(world, "group", 0, 10)
    options = {"startingOffsets": "earliest", "positionGroup": "spark-etl"}
    journal = Journal(config=config(world), subscribe="group", **options)
    assert journal.run() == [[], numbers(0, 10)]
    publish(world, "group", 10, 14)
    journal.reader.commit(journal.last)
    journal.reader.stop()
    found = ask(world.cluster.client_config(), DescribeGroup("spark-etl")).partitions
    assert [(p.topic, p.partition, p.committed, p.lag) for p in found] == [("group", 0, 10, 4)]


# --- what goes wrong -------------------------------------------------------------------------


def test_an_unknown_topic(world: World) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic no-such"):
        read(world, "no-such")


def test_no_certificate_on_this_host(world: World, tmp_path: Path) -> None:
    text = Path(config(world)).read_text()
    moved = tmp_path / "client.toml"
    moved.write_text(text.replace("pki/", "nowhere/"))
    with pytest.raises(NotReadable, match=r"cannot reach the cluster: .*; the driver and every ex"):
        batch_reader(config=moved, subscribe="t").partitions()
    with pytest.raises(NotReadable, match=r"absent.toml: can't read the configuration"):
        batch_reader(config=tmp_path / "absent.toml", subscribe="t").partitions()
    with pytest.raises(BadOption, match="with readMode=remote a query needs the option config"):
        batch_reader(readMode="remote", directory=tmp_path, subscribe="t").partitions()


def test_no_certificate_on_an_executor(world: World, tmp_path: Path) -> None:
    publish(world, "bare", 0, 10)
    shutil.copytree(Path(config(world)).parent / "pki", tmp_path / "pki")
    text = Path(config(world)).read_text()
    there = tmp_path / "client.toml"
    there.write_text(text)
    reader = batch_reader(config=there, subscribe="bare")
    planned = reader.partitions()
    there.write_text(text.replace("pki/", "nowhere/"))
    said = r"bare-0 \[0, 10\): this host cannot reach .*; the driver and every executor need"
    with pytest.raises(NotReadable, match=said):
        rows(reader, planned)


def test_a_topics_own_schema_is_that_of_its_values(world: World) -> None:
    client = world.cluster.client_config()
    schema = {"value_schema": '{"name": "string", "size": "int32"}'}
    ask(client, CreateTopic("own", 1, schema))
    ask(client, CreateTopic("unsaid", 1, {}))
    typed = {"config": config(world), "valueFormat": "json"}
    assert str(source(**typed, subscribe="own").schema()).startswith(
        "`name` STRING, `size` INT, `k"
    )
    with pytest.raises(BadOption, match="the topics own and unsaid differ in their value_schema"):
        source(**typed, subscribe="own,unsaid").schema()
    for alone in ({"subscribe": "unsaid"}, {"subscribe": "own", "valueFormat": "csv"}):
        with pytest.raises(BadOption, match="needs the columns of the payload"):
            source(**{**typed, **alone}).schema()


def test_nobody_answers(world: World, tmp_path: Path) -> None:
    text = Path(config(world)).read_text()
    elsewhere = tmp_path / "client.toml"
    elsewhere.write_text(text.replace("127.0.0.1:", "127.0.0.9:"))
    with pytest.raises(NotReadable, match=r"no node answers within 0.3 s; 127.0.0.9:"):
        batch_reader(config=elsewhere, subscribe="t", fetchTimeoutMs=300).partitions()

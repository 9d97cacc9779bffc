"""Spark's source reads what is committed: from nodes, and from copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog import Subscriber
from samelog.format.transactions import Isolation
from samelog.spark.errors import BadOption
from samelog.spark.options import parse_options
from tests.e2e.harness import World
from tests.kafka.transactions import (
    PARTITIONS,
    Transactional,
    make_topic,
    seen_by_kafka,
    send_plain,
)
from tests.patience import PATIENCE_S
from tests.spark.cluster import config
from tests.spark.local import Journal, batch_reader, rows, values


def read(topic: str, **options: object) -> list[bytes]:
    reader = batch_reader(subscribe=topic, **options)
    return values(rows(reader, reader.partitions()))


def as_list(seen: dict[int, list[bytes]]) -> list[bytes]:
    return [value for number in range(PARTITIONS) for value in seen[number]]


@pytest.fixture
def boot(world: World) -> str:
    return world.cluster.client_config().kafka_bootstrap


def test_queries_see_what_kafka_consumers_see(
    world: World, boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samelog.replicator.pull.range_pull.ABORTED_TOLD", 1)
    topic, committed = make_topic(boot), {"isolation": "read_committed"}
    remote: dict[str, object] = {"config": config(world), **committed}
    with Transactional(boot, topic) as first, Transactional(boot, topic) as second:
        first.begin(b"gone")
        first.abort()
        second.begin(b"one")
        second.commit()
        first.begin(b"open")
        second.begin(b"gone too")
        second.abort()
        send_plain(boot, topic, b"plain", 0)
        assert sorted(read(topic, **remote)) == sorted(as_list(seen_by_kafka(boot, topic)))
        journal = Journal(subscribe=topic, startingOffsets="earliest", **remote)
        found = [value for batch in journal.run() for value in batch]
        first.send(b"more")
        first.commit()
        after = sorted(as_list(seen_by_kafka(boot, topic)))
        assert sorted(read(topic, **remote, minPartitions=9)) == after
        journal.restart()
        found += [value for batch in journal.run() for value in batch]
        assert sorted(found) == after
        journal.reader.stop()
        assert len(read(topic, config=config(world))) == len(after) + 18
    client = world.cluster.client_config()
    with Subscriber(topic, directory=tmp_path, config=client) as copying:
        copying.wait_caught_up(PATIENCE_S)
    local = {"directory": str(tmp_path), "readMode": "local", **committed}
    assert sorted(read(topic, **local)) == after
    journal = Journal(subscribe=topic, startingOffsets="earliest", **local)
    assert sorted(value for batch in journal.run() for value in batch) == after
    journal.reader.stop()


def test_the_option_is_that_of_the_kafka_source_too() -> None:
    found = parse_options({"subscribe": "t", "kafka.isolation.level": "read_committed"})
    assert found.access.isolation is Isolation.READ_COMMITTED
    with pytest.raises(BadOption, match="do not say what was aborted"):
        parse_options({"subscribe": "t", "isolation": "read_committed", "archive": "/a"})

"""Publishers of a topic that is deleted and created again under its name, one of each kind."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from samelog import Publisher, TopicDeleted
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.http.sidecar_api import shipping_view
from samelog.publisher import RowMisfit
from samelog.publisher.sidecar import PublisherSidecar
from samelog.replicator.push import recreation
from samelog.subscriber import Subscriber, TypedRow, UnreadableRecord
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.e2e.recreated import local_publisher, publisher_sidecar
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text

OLD, NEW = [b"old-%d" % n for n in range(20)], [b"new-%d" % n for n in range(5)]


def run(world: World, *arguments: str) -> Any:
    """A command's JSON."""
    ran = samelog(*arguments, "--config", world.cluster.client_file, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def recreate(world: World, topic: str = "t") -> None:
    run(world, "topic", "delete", topic, "--confirm", topic, "--in-use")
    run(world, "topic", "create", topic)


def values(world: World, count: int, name: str, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in world.read(count, name=name, topic=topic)]


def held(world: World) -> dict[str, int]:
    """Held bytes by session, as an operator sees them."""
    sessions = run(world, "session", "list")
    found = {each["session"]: sum(h["size_bytes"] for h in each["held"]) for each in sessions}
    return {session: size for session, size in found.items() if size}


def test_a_publisher_goes_on_in_the_new_topic(
    single: World, caplog: pytest.LogCaptureFixture
) -> None:
    with single.publisher("p") as publisher:
        publisher.append_many(OLD)
        publisher.wait_merged(timeout=PATIENCE_S)
        caplog.set_level(logging.WARNING, "samelog")
        recreate(single)
        wait_for(lambda: "was deleted" in caplog.text, "the publisher knows of it")
        publisher.append_many(NEW)
        publisher.wait_merged(timeout=PATIENCE_S)
        assert values(single, 5, "s") == NEW
    assert len([each for each in caplog.records if each.name.startswith("samelog")]) == 1


def test_what_a_sidecar_could_not_ship_in_time_is_held_and_continues(single: World) -> None:
    with local_publisher(single) as publisher:
        with publisher_sidecar(single) as made:
            publisher.append_many(OLD)
            publisher.append(b"other", topic="u")
            wait_for(lambda: _merged(made) == {"t", "u"}, "all is merged")
        publisher.append_many(NEW)
        recreate(single)
        with publisher_sidecar(single) as made:
            wait_for(lambda: list(held(single)) == ["p"], "the records are held")
            publisher.append(b"behind")
            publisher.append(b"more", topic="u")
            assert values(single, 2, "u", "u") == [b"other", b"more"]
            [session] = shipping_view(made, "", "").sessions
            assert "samelog session continue p" in session.held[0]
            ran = samelog("status", "--config", single.cluster.client_file)
            assert "HELD BYTES" in ran.stdout
            assert run(single, "session", "continue", "p")["held_bytes"] > 0
            assert values(single, 6, "s") == [*NEW, b"behind"]
            wait_for(lambda: not held(single), "nothing is held any more")


def _merged(made: PublisherSidecar) -> set[str]:
    return {
        topic
        for client in made.clients.values()
        for (topic, _), reached in tuple(client.progress.items())
        if reached.merged.byte > 0
    }


def test_held_records_are_discarded_and_a_publisher_is_told_of_them(single: World) -> None:
    with local_publisher(single) as publisher:
        with publisher_sidecar(single) as made:
            publisher.append_many(OLD)
            wait_for(lambda: _merged(made) == {"t"}, "all is merged")
        publisher.append_many(NEW)
    recreate(single)
    with single.publisher("p") as publisher:
        with pytest.raises(TopicDeleted, match="samelog session discard p --confirm p"):
            publisher.wait_merged(timeout=PATIENCE_S)
        publisher.flush(durable=True)
        wait_for(lambda: list(held(single)) == ["p"], "the records are held")
        run(single, "session", "discard", "p", "--confirm", "p")
        publisher.append(b"later")
        publisher.wait_merged(timeout=PATIENCE_S)
        assert values(single, 1, "s") == [b"later"]


def test_a_decision_needs_the_publisher(single: World) -> None:
    options = ("--config", single.cluster.client_file)
    ran = samelog("session", "continue", "p", *options)
    assert ran.returncode == 1
    assert "session 'p'" in ran.stderr


@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True}, {"transactional.id": "x"}])
def test_a_kafka_producer_goes_on_in_the_new_topic(
    single: World, settings: dict[str, object]
) -> None:
    run(single, "topic", "create", "t")
    bootstrap = single.cluster.client_config().kafka_bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    is_transactional = "transactional.id" in settings
    if is_transactional:
        producer.init_transactions(PATIENCE_S)

    def send(sent: list[bytes]) -> None:
        failed: list[object] = []
        if is_transactional:
            producer.begin_transaction()
        for value in sent:
            producer.produce("t", value, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert failed == [None] * len(sent)
        if is_transactional:
            producer.commit_transaction(PATIENCE_S)

    send(OLD)
    recreate(single)
    send(NEW)
    send([b"last"])
    found = [value for value in values(single, 6, "s") if value is not None]
    assert found == [*NEW, b"last"]


def test_nothing_of_a_deleted_topic_is_left_beside_the_sessions(
    single: World, tmp_path: Path
) -> None:
    with local_publisher(single) as publisher, publisher_sidecar(single) as made:
        publisher.append_many(OLD)
        wait_for(lambda: _merged(made) == {"t"}, "all is merged")
        recreate(single)
        publisher.append_many(NEW)
        assert values(single, 5, "s") == NEW
        publisher.close()
        files = single.directory / "publishers" / "p" / "t-0"
        wait_for(lambda: not list(files.glob("log.*")), "the files are released")


def set_schema(world: World, *columns: str, value_format: str = "json") -> None:
    file = world.directory / "schema.json"
    file.write_text(schema_text(*columns, value_format=value_format))
    run(world, "schema", "set", "t", str(file))


def test_held_rows_are_not_read_by_the_schema_of_the_new_topic(single: World) -> None:
    """Behind a sidecar: both schemas have one number, and each reads the other's values."""
    run(single, "topic", "create", "t")
    set_schema(single, "feet int32", value_format="csv")
    with local_publisher(single, is_typed=True) as publisher:
        with publisher_sidecar(single) as made:
            publisher.append_rows([{"feet": 1}])
            wait_for(lambda: _merged(made) == {"t"}, "all is merged")
        publisher.append_rows([{"feet": 2}])
        recreate(single)
        set_schema(single, "metres int32", value_format="csv")
        with publisher_sidecar(single):
            wait_for(lambda: list(held(single)) == ["p"], "the rows are held")
            run(single, "session", "continue", "p")
            with pytest.raises(RowMisfit, match="feet"):
                publisher.append_rows([{"feet": 3}])
            publisher.append_rows([{"metres": 4}])
            with single.subscriber("s") as reader, pytest.raises(UnreadableRecord) as found:
                _first_rows(reader)
            assert found.value.offset == 0
            assert "written with a schema that this topic does not have" in str(found.value)
            with single.subscriber("skips", corrupt="skip") as reader:
                rows = [row.values for row in _first_rows(reader)]
            assert rows == [{"metres": 4}]


def test_rows_go_by_the_schema_of_the_new_topic(
    single: World, caplog: pytest.LogCaptureFixture
) -> None:
    run(single, "topic", "create", "t")
    set_schema(single, "a int64")
    set_schema(single, "a int64", "c string")
    with single.publisher("p") as publisher, single.subscriber("s", "t*") as subscriber:
        publisher.append_rows([{"a": 1}])
        publisher.wait_merged(timeout=PATIENCE_S)
        wait_for(
            lambda: [r.values for r in subscriber.rows(timeout=0.2)] == [{"a": 1, "c": None}],
            "the row",
        )
        caplog.set_level(logging.WARNING, "samelog")
        recreate(single)
        set_schema(single, "b string")
        wait_for(lambda: "next topic of that name" in caplog.text, "the publisher knows of it")
        with pytest.raises(RowMisfit):
            publisher.append_rows([{"a": 1}])
        publisher.append_rows([{"b": "x"}])
        publisher.wait_merged(timeout=PATIENCE_S)
        assert [row.values for row in _first_rows(subscriber)] == [{"b": "x"}]


def _first_rows(reader: Subscriber) -> list[TypedRow]:
    found: list[TypedRow] = []

    def reads() -> bool:
        found.extend(reader.rows(timeout=0.2))
        return bool(found)

    wait_for(reads, "a row")
    return found


WAITING = [b"waiting-%d" % n for n in range(5)]


@pytest.fixture
def strict(tmp_path: Path, starts_nodes: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster of one node, where publishing creates no topics; a publisher waits shortly."""
    monkeypatch.setattr(recreation, "UNKNOWN_S", 0.2)
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        file = Path(cluster.nodes[0].config_file)
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("auto_create_topics = true", "auto_create_topics = false"))
        cluster.start()
        yield World(cluster, tmp_path)


@contextmanager
def records_that_no_topic_takes(world: World) -> Iterator[Publisher]:
    """A publisher whose records continue while no topic has their name."""
    create(world, 2)
    with local_publisher(world, partitions=2) as publisher:
        with publisher_sidecar(world) as made:
            publisher.append_many(OLD, partition=1)
            wait_for(lambda: _merged(made) == {"t"}, "all is merged")
        publisher.append_many(WAITING, partition=1)
        delete(world)
        with publisher_sidecar(world):
            wait_for(lambda: list(held(world)) == ["p"], "the records are held")
            before = held(world)["p"]
            assert run(world, "session", "continue", "p")["held_bytes"] == before
            publisher.append(b"behind", partition=1)
            wait_for(lambda: held(world).get("p", 0) > before, "all wait for their topic")
            yield publisher


def create(world: World, partitions: int) -> None:
    run(world, "topic", "create", "t", "--partitions", str(partitions))


def delete(world: World) -> None:
    run(world, "topic", "delete", "t", "--confirm", "t", "--in-use")


@pytest.mark.parametrize("partitions", [0, 1])
def test_records_that_no_topic_takes_are_listed_and_discarded(
    strict: World, partitions: int
) -> None:
    """There is no topic of the name, or it lacks their partition. Later records are shipped."""
    config = ("--config", strict.cluster.client_file)
    with records_that_no_topic_takes(strict) as publisher:
        if partitions:
            create(strict, partitions)
        size = held(strict)["p"]
        listed = samelog("session", "list", *config)
        assert listed.returncode == 0
        assert str(size) in listed.stdout.split()
        unconfirmed = samelog("session", "discard", "p", *config)
        assert unconfirmed.returncode != 0
        assert "--confirm p" in unconfirmed.stderr
        assert held(strict) == {"p": size}, "nothing was decided"
        assert run(strict, "session", "discard", "p", "--confirm", "p")["held_bytes"] == size
        wait_for(lambda: not held(strict), "nothing is held any more")
        if partitions:
            run(strict, "topic", "add-partitions", "t", "2")
        else:
            create(strict, 2)
        publisher.append_many(NEW, partition=1)
        publisher.append(b"elsewhere", partition=0)
        found = values(strict, 1 + len(NEW), "s")
        assert sorted(filter(None, found)) == sorted([b"elsewhere", *NEW])
        delete(strict)
        create(strict, 2)
        publisher.append(b"second life", partition=1)
        assert values(strict, 1, "again") == [b"second life"]
        assert not held(strict)


def test_records_continue_into_a_topic_that_is_created_before_they_are_discarded(
    strict: World,
) -> None:
    with records_that_no_topic_takes(strict) as publisher:
        create(strict, 2)
        assert values(strict, 6, "s") == [*WAITING, b"behind"]
        wait_for(lambda: not held(strict), "nothing is held any more")
        late = samelog(
            *("session", "discard", "p", "--confirm", "p"),
            *("--config", strict.cluster.client_file),
        )
        assert late.returncode == 1, "there is nothing to decide"
        publisher.append(b"later", partition=1)
        assert values(strict, 7, "all") == [*WAITING, b"behind", b"later"]

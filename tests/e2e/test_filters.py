"""Filters that nodes evaluate, and views, over a real cluster."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from samelog import Subscriber
from samelog.format.errors import UnsupportedFormat
from tests.e2e.commands import samelog
from tests.e2e.harness import World, not_merged, read_segments, wait_for
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text

TICKS = ("symbol string", "price float64", "venue string")


def ticks(world: World, count: int = 2000) -> None:
    """A topic with a schema, and rows."""
    file = world.directory / "schema.json"
    file.write_text(schema_text(*TICKS, value_format="json"))
    config = ("--config", world.cluster.client_file)
    wait_for(
        lambda: (
            samelog("topic", "create", "t", "--partitions", "1", *config).returncode == 0
            or samelog("topic", "describe", "t", *config).returncode == 0
        ),
        "there is a topic",
    )
    wait_for(
        lambda: samelog("schema", "set", "t", str(file), *config).returncode == 0,
        "schemas may be set",
    )
    append(world, range(count))


def append(world: World, numbers: range) -> None:
    with world.publisher("feed") as publisher:
        publisher.append_rows(
            [{"symbol": f"S{n % 100}", "price": float(n), "venue": "XNAS" * 10} for n in numbers]
        )
        publisher.wait_merged(timeout=PATIENCE_S)


def test_a_node_sends_what_passes_and_how_far_it_looked(single: World) -> None:
    ticks(single)
    wanted: dict[str, Any] = {"where": "symbol = 'S7' AND price >= 100", "columns": ["price"]}
    wanted |= {"name": "n", "config": single.cluster.client_file}
    wanted |= {"directory": single.directory / "subscribers" / "few"}
    with Subscriber("t", **wanted) as subscriber:
        found = subscriber.rows(timeout=PATIENCE_S)
        while len(found) < 19:
            found += subscriber.rows(timeout=PATIENCE_S)
        assert [row.offset for row in found] == [*range(107, 2000, 100)]
        assert [row.values for row in found] == [{"price": float(n)} for n in range(107, 2000, 100)]
        subscriber.wait_caught_up(PATIENCE_S)
        append(single, range(2000, 2101))
        found = subscriber.rows(timeout=PATIENCE_S)
        assert [row.offset for row in found] == [2007]
        wait_for(lambda: not subscriber.rows(timeout=0) and subscriber.position() == 2101, "all")
    place = single.directory / "subscribers" / "few" / "t-0"
    assert "rows.json" in os.listdir(place)
    assert "partition.json" not in os.listdir(place)
    whole = len(single.merged_bytes(single.cluster.nodes[0]))
    assert len(read_segments(str(place))) < whole / 20
    with Subscriber("t", **wanted) as subscriber:  # what was passed over counts
        assert subscriber.position() == 2101
        append(single, range(2101, 2110))
        assert [row.offset for row in subscriber.rows(timeout=PATIENCE_S)] == [2107]


def test_what_passed_a_filter_is_no_copy_of_the_log(single: World) -> None:
    ticks(single, 10)
    with single.subscriber("few", where="price > 5", follow=False) as subscriber:
        assert [row.offset for row in subscriber.rows(timeout=PATIENCE_S)] == [6, 7, 8, 9]
    others: list[dict[str, Any]] = [
        {},
        {"where": "price > 6"},
        {"where": "price > 5", "columns": ["price"]},
    ]
    for other in others:
        with pytest.raises(UnsupportedFormat, match="take another directory"):
            single.subscriber("few", **other)
    with pytest.raises(UnsupportedFormat, match="take another directory"):
        Subscriber("t", directory=str(single.directory / "subscribers" / "few"))
    with single.subscriber("all", follow=False) as subscriber:
        assert len(subscriber.rows(timeout=PATIENCE_S)) == 10
    with pytest.raises(UnsupportedFormat, match="has the log"):
        single.subscriber("all", where="price > 5")


def test_records_by_key_and_header_without_a_schema(single: World) -> None:
    with single.publisher("a") as publisher:
        for n in range(30):
            publisher.append(b"v%d" % n, key=b"k%d" % (n % 3), headers=[("h", b"%d" % (n % 5))])
        publisher.wait_merged(timeout=PATIENCE_S)
    where = "_key = 'k1' AND _header('h') IN ('0', '1')"
    with single.subscriber("few", where=where, follow=False) as subscriber:
        found = list(subscriber)
    assert [(each.offset, each.value) for each in found] == [
        (n, b"v%d" % n) for n in range(30) if n % 3 == 1 and n % 5 < 2
    ]
    assert found[0].headers == (("h", b"1"),)


def test_the_command_line_has_rows_that_pass(single: World) -> None:
    ticks(single, 200)
    place = str(single.directory / "subscribers" / "few")
    of_few = ("subscribe", "--topic", "t", "--dir", place, "--no-follow", "--columns", "price")
    config = ("--config", single.cluster.client_file)
    shown = samelog(*of_few, "--where", "symbol = 'S7'", *config)
    assert shown.stdout.splitlines() == ['{"price":7.0}', '{"price":107.0}']
    shown = samelog(*of_few, "--where", "symbol = 'S7'", "--max", "1", "--json", *config)
    row = json.loads(shown.stdout)
    assert row.pop("timestamp") > 0
    assert row == {"topic": "t", "partition": 0, "offset": 7, "key": None, "row": {"price": 7.0}}
    assert "rows.json" in os.listdir(os.path.join(place, "t-0"))
    wrong = samelog(*of_few, "--where", "nothing = 1", *config)
    assert wrong.returncode == 2
    assert "no column 'nothing'" in wrong.stderr


# --- views ----------------------------------------------------------------------------------------

BIG = "SELECT price, symbol FROM t WHERE symbol = 'S7' AND price >= 100"


def view(world: World, text: str = BIG, name: str = "big") -> None:
    made = samelog("topic", "create", name, "--as", text, "--config", world.cluster.client_file)
    assert made.returncode == 0, made.stderr


def test_a_view_is_a_topic_for_native_subscribers(single: World) -> None:
    ticks(single)
    view(single)
    with single.subscriber("views", topic="big") as subscriber:
        found = subscriber.rows(timeout=PATIENCE_S)
        while len(found) < 19:
            found += subscriber.rows(timeout=PATIENCE_S)
        assert [(row.offset, row.values) for row in found] == [
            (n, {"price": float(n), "symbol": "S7"}) for n in range(107, 2000, 100)
        ]
        append(single, range(2000, 2101))
        assert [row.offset for row in subscriber.rows(timeout=PATIENCE_S)] == [2007]
    where = {"where": "price < 300", "columns": ["symbol"], "follow": False}
    with single.subscriber("narrow", topic="big", **where) as subscriber:
        assert [row.offset for row in subscriber.rows(timeout=PATIENCE_S)] == [107, 207]
    with pytest.raises(ValueError, match="no column 'venue'"):
        single.subscriber("none", topic="big", where="venue = 'x'")


def test_a_view_is_a_topic_for_kafka_consumers(single: World) -> None:
    ticks(single)
    view(single)
    boot = single.cluster.client_config().kafka_bootstrap
    for isolation in ("read_uncommitted", "read_committed"):
        options = {
            "bootstrap.servers": boot,
            "group.id": isolation,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**options, "isolation.level": isolation, "enable.partition.eof": True})
        consumer.subscribe(["big"])
        found: list[Any] = []
        while not found or found[-1].error() is None:
            found += consumer.consume(100, 1.0)
        assert [(each.offset(), each.value()) for each in found[:-1]] == [
            (n, b'{"price":%d.0,"symbol":"S7"}' % n) for n in range(107, 2000, 100)
        ]
        assert found[-1].error().code() == KafkaError._PARTITION_EOF  # it advances to the end
        assert found[-1].offset() == 2000
        assert consumer.get_watermark_offsets(TopicPartition("big", 0)) == (0, 2000)
        consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition("big", 0)])[0].offset == 1908
        consumer.close()
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": boot, "message.timeout.ms": 20_000})
    producer.produce("big", b"{}", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [each.code() for each in errors if each] == [KafkaError.TOPIC_EXCEPTION]
    group = samelog("group", "describe", "read_committed", "--config", single.cluster.client_file)
    assert "big" in group.stdout


def test_a_base_stays_what_its_views_need(single: World) -> None:
    ticks(single, 10)
    view(single)
    config = ("--config", single.cluster.client_file)
    refused = samelog("topic", "delete", "t", "--confirm", "t", *config)
    assert refused.returncode == 1
    assert "has views: big; delete them before it" in refused.stderr
    file = single.directory / "schema.json"
    file.write_text(schema_text("symbol string", "venue string", value_format="json"))
    refused = samelog("schema", "set", "t", str(file), *config)
    assert refused.returncode == 1
    assert "view 'big' needs" in refused.stderr
    for text, why in (
        ("SELECT price FROM big", "no topic that views can stand on"),
        ("SELECT count(*) FROM t", "computes none"),
        ("SELECT a FROM t", "no column 'a'"),
        ("SELECT price FROM t ORDER BY price", "no more"),
        ("SELECT price FROM nothing", "no topic 'nothing'"),
    ):
        made = samelog("topic", "create", "other", "--as", text, *config)
        assert made.returncode == 1
        assert why in made.stderr
    with single.publisher("wrong", topic="big", ship=True) as publisher:
        publisher.append(b"x")
        wait_for(lambda: "a view" in not_merged(publisher), "the refusal")
        publisher.close(timeout=0)
    shown = samelog("topic", "list", *config).stdout
    assert re.search(r"view: SELECT .* FROM t WHERE ", shown), shown
    assert samelog("topic", "delete", "big", "--confirm", "big", *config).returncode == 0
    assert samelog("topic", "delete", "t", "--confirm", "t", *config).returncode == 0

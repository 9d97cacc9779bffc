"""Rows from a publisher to a subscriber, over a real cluster, while the schema moves on."""

from __future__ import annotations

import subprocess

import pytest

from samelog.publisher import RowMisfit
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text


def test_rows_keep_their_version_however_late_they_come(single: World) -> None:
    file = single.directory / "schema.json"

    def set_schema(*columns: str) -> subprocess.CompletedProcess[str]:
        file.write_text(schema_text(*columns, value_format="csv"))
        config = ("--config", single.cluster.client_file)
        return samelog("schema", "set", "t", str(file), *config)

    with single.publisher("a") as publisher:
        publisher.append(b"1,one")
        publisher.wait_merged(timeout=PATIENCE_S)
    wait_for(lambda: set_schema("a int64", "b string").returncode == 0, "schemas may be set")
    with single.publisher("late", ship=False) as publisher:
        publisher.append_rows([{"a": 3, "b": "three"}])
        assert set_schema("b string", "c string", "a int64").returncode == 0
        publisher.append_rows([{"a": 4, "b": "four"}])  # two texts: read otherwise they would fit
    with single.publisher("b") as publisher:
        publisher.append(b"two,c,2")
        publisher.wait_merged(timeout=PATIENCE_S)
    with single.publisher("late") as publisher:
        publisher.wait_merged(timeout=PATIENCE_S)
        publisher.append_rows([{"a": 5, "c": "new"}])
        publisher.wait_merged(timeout=PATIENCE_S)
    with single.subscriber(follow=False) as subscriber:
        found = subscriber.rows(timeout=PATIENCE_S)
    assert [row.values for row in found] == [
        {"b": "one", "c": None, "a": 1},
        {"b": "two", "c": "c", "a": 2},
        {"b": "three", "c": None, "a": 3},
        {"b": "four", "c": None, "a": 4},
        {"b": None, "c": "new", "a": 5},
    ]
    assert [row.offset for row in found] == list(range(5))
    with single.subscriber(follow=False, version=1) as subscriber:
        table = subscriber.arrow(timeout=PATIENCE_S)
    assert table is not None
    assert table["a"].to_pylist() == [1, 2, 3, 4, 5]


def test_publishers_check_where_the_topic_says_so(single: World) -> None:
    file, config = single.directory / "schema.json", ("--config", single.cluster.client_file)
    file.write_text(schema_text("a int64", value_format="json"))
    create = ("topic", "create", "t", "--set", "schema.enforce=publisher", *config)
    assert samelog(*create).returncode == 0
    assert samelog("schema", "set", "t", str(file), *config).returncode == 0
    with single.publisher("a") as publisher:
        with pytest.raises(RowMisfit, match="column 'a': not int64"):
            publisher.append(b'{"a":"x"}')
        publisher.append(b'{"a":1}')
        publisher.wait_merged(timeout=PATIENCE_S)
    alter = ("topic", "alter", "t", "--set", "schema.enforce=off", *config)
    assert samelog(*alter).returncode == 0
    with single.publisher("b") as publisher:
        publisher.append(b'{"a":"x"}')
        publisher.wait_merged(timeout=PATIENCE_S)
    assert len(single.read(2)) == 2


def test_peek_shows_rows_of_values_that_are_no_text(single: World) -> None:
    file, config = single.directory / "schema.json", ("--config", single.cluster.client_file)
    with single.publisher("a") as publisher:
        publisher.append(b"\x02\x00")  # before there was a schema
        publisher.wait_merged(timeout=PATIENCE_S)
    file.write_text(schema_text("a int64", "b string", value_format="avro"))
    set_schema = ("schema", "set", "t", str(file), *config)
    wait_for(lambda: samelog(*set_schema).returncode == 0, "schemas may be set")
    with single.publisher("b") as publisher:
        publisher.append_rows([{"a": 3, "b": "three"}])
        publisher.wait_merged(timeout=PATIENCE_S)
    assert samelog("peek", "t", "--last", "1", *config).stdout == '{"a":3,"b":"three"}\n'


def test_peek_shows_records_that_meet_a_condition(single: World) -> None:
    file, config = single.directory / "schema.json", ("--config", single.cluster.client_file)
    with single.publisher("a") as publisher:
        publisher.append(b'{"a":5}', key=b"k")  # before there was a schema
        publisher.wait_merged(timeout=PATIENCE_S)
    keyed = samelog("peek", "t", "--where", "_key IS NOT NULL", *config)
    assert keyed.stdout == '{"a":5}\n', keyed.stderr
    file.write_text(schema_text("a int64"))
    set_schema = ("schema", "set", "t", str(file), *config)
    wait_for(lambda: samelog(*set_schema).returncode == 0, "schemas may be set")
    with single.publisher("b") as publisher:
        publisher.append_rows([{"a": number} for number in range(10)])
        publisher.append(b"no row")
        publisher.wait_merged(timeout=PATIENCE_S)
    found = samelog("peek", "t", "--where", "a > 4 AND a < 7", "--max", "9", *config)
    assert found.stdout.splitlines() == ['{"a":5}', '{"a":5}', '{"a":6}']
    assert "offset 11" in found.stderr
    bad = samelog("peek", "t", "--where", "b > 4", *config)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "'b'" in bad.stderr

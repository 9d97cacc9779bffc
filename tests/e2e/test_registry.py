"""Rows in Confluent's wire format, over a real cluster, with a registry beside it: one that answers
as the API says, or the one whose URL TEST_REGISTRY_URL has, as docs/kafka-programs.md says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from samelog.admin.registry import SchemaRegistry
from samelog.typed.framing import framed_by
from samelog.typed.schema import NobodyAnswers
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text
from tests.typed.registries import running

ROWS = [{"a": 3, "b": "three"}, {"a": 4, "b": None}]


@pytest.fixture
def registry() -> Iterator[str]:
    """The URL of one."""
    known = os.environ.get("TEST_REGISTRY_URL")
    if known:
        yield known
        return
    with running() as started:
        yield started.url


@pytest.fixture
def typed(single: World) -> World:
    """A cluster whose topic has a schema of Avro."""
    file = single.directory / "schema.json"
    file.write_text(schema_text("a int64", "b string", value_format="avro"))
    config = ("--config", single.cluster.client_file)
    wait_for(lambda: samelog("topic", "create", "t", *config).returncode == 0, "it is made")
    command = ("schema", "set", "t", str(file), *config)
    wait_for(lambda: samelog(*command).returncode == 0, "schemas may be set")
    return single


def test_rows_are_written_and_read_by_ids_of_a_registry(typed: World, registry: str) -> None:
    with typed.publisher("a", registry=registry) as publisher:
        publisher.append_rows(ROWS)
        publisher.wait_merged(timeout=PATIENCE_S)
    numbers = {framed_by(record.value) for record in typed.read(2)}
    (number,) = [each for each in numbers if each is not None]
    known = SchemaRegistry(registry).schema(number)
    assert known.kind == "AVRO"
    assert [each["name"] for each in json.loads(known.text)["fields"]] == ["a", "b"]
    with typed.subscriber(follow=False, registry=registry) as subscriber:
        found = subscriber.rows(timeout=PATIENCE_S)
    assert [row.values for row in found] == ROWS
    with pytest.raises(ValueError, match="nodes evaluate where"):
        typed.subscriber(registry=registry, where="a > 1")


def test_a_registry_that_is_away_loses_no_row(typed: World, registry: str) -> None:
    with typed.publisher("a", registry=registry) as publisher:
        publisher.append_rows(ROWS)
        publisher.wait_merged(timeout=PATIENCE_S)
    with typed.subscriber(follow=False, registry="http://127.0.0.1:9") as subscriber:
        with pytest.raises(NobodyAnswers, match="does not answer"):
            subscriber.rows(timeout=PATIENCE_S)
        assert subscriber.position() == 0


def test_commands_show_such_rows(typed: World, registry: str) -> None:
    config = ("--config", typed.cluster.client_file)
    with typed.publisher("a", registry=registry) as publisher:
        publisher.append_rows(ROWS)
        publisher.append(b"\x00\x7f\xff\xff\xffno id of the registry")
        publisher.wait_merged(timeout=PATIENCE_S)
    lines = ['{"a":3,"b":"three"}', '{"a":4,"b":null}']
    asked = ("--registry", registry, *config)
    peeked = samelog("peek", "t", "--max", "2", *asked)
    assert peeked.stdout.splitlines() == lines, peeked.stderr
    shown = samelog("peek", "t", "--last", "1", "--json", *asked)
    assert "rows" not in json.loads(shown.stdout)
    rows = samelog("schema", "rows", "t", "--max", "2", *asked)
    assert rows.stdout.splitlines() == lines, rows.stderr
    copies = ("--topic", "t", "--dir", str(typed.directory / "copies"), "--max", "2")
    subscribed = samelog("subscribe", *copies, *asked)
    assert subscribed.stdout.splitlines() == lines, subscribed.stderr
    wrong = samelog("peek", "t", "--registry", "registry:8081", *config)
    assert (wrong.returncode, wrong.stdout) == (2, "")

"""`samelog schema`, against nodes that answer as they are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samelog.admin.answers import SchemaInfo, SchemaPage, SchemaSet
from samelog.admin.requests import AdminRequest, ListSchemas, SetSchema
from samelog.cli.main import main
from samelog.typed.schema import parse_schema
from tests.cli.fake_nodes import Answer, FakeCluster


def text(*columns: str) -> str:
    fields = [dict(zip(("name", "type"), column.split(" "), strict=True)) for column in columns]
    return json.dumps({"format": "json", "columns": fields})


KNOWN = [parse_schema(text("a int64")), parse_schema(text("a int64", "b string"))]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Nodes that have two versions, and answer one at a time."""
    with FakeCluster(tmp_path) as started:
        for node in started.nodes:
            node.answer = answer
        yield started


def answer(request: AdminRequest[Any]) -> Answer:
    match request:
        case SetSchema():
            fingerprint = parse_schema(request.schema).fingerprint
            return SchemaSet(request.topic, request.follows + 1, fingerprint)
        case ListSchemas(topic="ticks"):
            first = request.from_version
            found = tuple(
                SchemaInfo(number, 1_000, schema.fingerprint, schema.text)
                for number, schema in enumerate(KNOWN, 1)
            )[first - 1 : first]
            return SchemaPage("ticks", "backward", 2, found, first < 2)
        case ListSchemas():
            return SchemaPage(request.topic, "backward", 0, (), more=False)
    return None


def run(cluster: FakeCluster, *arguments: str, given: str | None = None) -> Result:
    command = ["schema", *arguments, "--config", cluster.client_file]
    return CliRunner().invoke(main, command, input=given)


def test_a_version_is_set_behind_the_newest_or_the_one_that_is_named(cluster: FakeCluster) -> None:
    schema = text("a int64")
    result = run(cluster, "set", "ticks", "-", given=schema)
    assert "topic ticks: version 3 of the schema" in result.stderr
    canonical = parse_schema(schema).text
    assert cluster.nodes[0].asked[-1] == SetSchema("ticks", canonical, 2)
    asked = len(cluster.nodes[0].asked)
    result = run(cluster, "set", "ticks", "-", "--follows", "1", "--json", given=schema)
    assert json.loads(result.stdout)["version"] == 2
    assert cluster.nodes[0].asked[asked:] == [SetSchema("ticks", canonical, 1)]


def test_what_is_no_schema_is_said_before_anybody_is_asked(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"format": "xml", "columns": [{"name": "a", "type": "bool"}]}')
    for command in ("set", "check"):
        result = run(cluster, command, "ticks", str(file))
        assert result.exit_code == 1
        assert "bad.json: format 'xml' is none of arrow" in result.stderr
    file.write_bytes(b"\xff")
    assert run(cluster, "set", "ticks", str(file)).exit_code == 1
    assert cluster.nodes[0].asked == []


def test_check_says_what_may_not_follow_and_what_cannot_be_read(cluster: FakeCluster) -> None:
    fits = run(cluster, "check", "ticks", "-", given=text("a int64", "b string", "c bool"))
    assert (fits.exit_code, fits.stdout.splitlines()) == (0, ["CANNOT  BECAUSE"])
    bad = run(cluster, "check", "ticks", "-", "--json", given=text("a string"))
    assert bad.exit_code == 1
    found = json.loads(bad.stdout)
    assert (found["follows"], found["compatibility"]) == (2, "backward")
    assert "a reader with the new version cannot read the old one" in found["problems"][0]
    assert list(found["unreadable"]) == ["1", "2"]
    shown = run(cluster, "check", "ticks", "-", given=text("a string")).stdout
    assert "read version 1" in shown
    assert run(cluster, "check", "other", "-", given=text("a string")).exit_code == 0


def test_a_version_is_shown_as_it_can_be_set(cluster: FakeCluster) -> None:
    newest = run(cluster, "show", "ticks")
    assert parse_schema(newest.stdout) == KNOWN[1]
    assert parse_schema(run(cluster, "show", "ticks", "--version", "1").stdout) == KNOWN[0]
    assert "has the versions 1 to 2" in run(cluster, "show", "ticks", "--version", "9").stderr
    without = run(cluster, "show", "other")
    assert (without.exit_code, "topic other has no schema" in without.stderr) == (1, True)


def test_history_has_all_pages(cluster: FakeCluster) -> None:
    shown = run(cluster, "history", "ticks").stdout.splitlines()
    assert shown[0] == "# ticks: schema.compatibility=backward, schema.enforce=off"
    assert [line.split()[0] for line in shown[2:]] == ["1", "2"]
    assert "1970-01-01 00:00:01  json    a int64, b string" in shown[3]
    found = json.loads(run(cluster, "history", "ticks", "--json").stdout)
    assert [each["version"] for each in found] == [1, 2]

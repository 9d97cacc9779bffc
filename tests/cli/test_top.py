"""`samelog top`: what it makes of two looks, and how it asks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from samelog.admin.answers import (
    AdminAnswer,
    GroupRow,
    GroupRows,
    NodeInfo,
    NodeState,
    PartitionInfo,
    SessionInfo,
    Status,
    TopicInfo,
)
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import MirrorInfo
from samelog.admin.requests import AdminRequest, ListGroups
from samelog.admin.site_answers import SiteInfo, SiteMember
from samelog.cli.commands.look.kinds import kinds_of
from samelog.cli.commands.look.top import Look, compare, show_tables
from samelog.cli.main import main
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from tests.cli.fake_nodes import FakeCluster
from tests.cli.test_terminal import at_terminal

CONFIG = ClientConfig(
    nodes=(Address("h", 1), Address("h", 2)),
    node_names=("n0", "n1"),
    cluster="c",
    tls=TlsFiles(ca="/ca", cert="/cert", key="/key"),
)


def partition(topic: str, number: int, end: int, **others: Any) -> PartitionInfo:
    sizes = {"segments": 1, "size_bytes": 10 * end, "checksum": 7, "committed_offset": end}
    return PartitionInfo(topic, number, 0, end, end, **{**sizes, **others})


def status(node: str, commit: int, *partitions: PartitionInfo) -> Status:
    nodes = tuple(
        NodeInfo(name, f"h:{name[1:]}", NodeState.LIVE, "", 1, commit) for name in ("n0", "n1")
    )
    sessions = (SessionInfo("s", "i", 0, is_open=True, unmerged_bytes=5),)
    return Status("c", node, "n0", 3, commit, nodes, partitions, sessions)


def group(name: str, lag: int) -> GroupRow:
    return GroupRow(name, "Stable", "consumer", "range", 2, 1, lag)


NODES = tuple(zip(CONFIG.nodes, CONFIG.node_names, strict=True))
BEFORE = Look(
    100.0,
    NODES,
    (
        status("n0", 10, partition("a", 0, 100), partition("a", 1, 50)),
        status("n1", 10, partition("a", 0, 100), partition("a", 1, 50)),
    ),
    (group("g", 40),),
)
NOW = Look(
    102.0,
    NODES,
    (
        status("n0", 20, partition("a", 0, 300), partition("a", 1, 50), partition("b", 0, 9)),
        status("n1", 19, partition("a", 0, 200), partition("a", 1, 50), partition("b", 0, 9)),
    ),
    (group("f", 10), group("g", 20)),
)


def by(rows: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_a_lag_without_some_partitions_is_a_lower_bound(capsys: pytest.CaptureFixture[str]) -> None:
    part = GroupRow("g", "Stable", "consumer", "range", 2, 1, 20, 3)
    found = compare(CONFIG, None, replace(NOW, groups=(part, group("f", 10))))
    assert [row["partitions_elsewhere"] for row in found["groups"]] == [3, 0]
    show_tables(found, 10)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(line for line in lines if line[:1] == ["g"])[4:6] == [">=", "20"]
    assert next(line for line in lines if line[:1] == ["f"])[4] == "10"


def test_rates_are_what_grew_in_the_time_between() -> None:
    found = compare(CONFIG, BEFORE, NOW)
    assert (found["leader"], found["seconds"], found["open_sessions"]) == ("n0", 2.0, 1)
    nodes, topics = by(found["nodes"], "name"), by(found["topics"], "topic")
    assert [nodes[name]["records_per_s"] for name in ("n0", "n1")] == [104.5, 54.5]
    assert (topics["a"]["records"], topics["a"]["partitions"]) == (350, 2)
    assert (topics["a"]["records_per_s"], topics["a"]["bytes_per_s"]) == (100.0, 1000.0)
    assert topics["b"]["records_per_s"] is None  # it was not there
    groups = found["groups"]
    assert [(row["group"], row["lag_per_s"]) for row in groups] == [("g", -10.0), ("f", None)]


def test_lag_is_what_a_copy_has_not_got_of_what_is_committed() -> None:
    found = compare(CONFIG, BEFORE, NOW)
    nodes, topics = by(found["nodes"], "name"), by(found["topics"], "topic")
    assert [nodes[name]["lag_records"] for name in ("n0", "n1")] == [0, 100]
    assert [topics[name]["lag_records"] for name in ("a", "b")] == [100, 0]
    committed = Look(1.0, NODES[:1], (status("n0", 20, partition("a", 0, 5, committed_offset=9)),))
    assert compare(CONFIG, None, committed)["topics"][0]["lag_records"] == 4


def test_the_first_look_has_no_rates_and_a_topic_that_began_anew_none() -> None:
    assert {row["records_per_s"] for row in compare(CONFIG, None, NOW)["topics"]} == {None}
    again = compare(CONFIG, NOW, Look(103.0, NODES, BEFORE.answers))
    assert again["topics"][0]["records_per_s"] is None


def test_a_node_that_does_not_answer_is_shown_with_why() -> None:
    now = Look(
        102.0, NODES, (NOW.answers[0], AdminError("n1: no answer")), groups_problem="not you"
    )
    found = compare(CONFIG, BEFORE, now)
    silent = by(found["nodes"], "name")["n1"]
    assert (silent["state"], silent["detail"]) == ("offline", "n1: no answer")
    assert silent["lag_records"] is None
    assert found["groups_problem"] == "not you"
    show_tables(found, limit=1)


def answer(request: AdminRequest[Any]) -> AdminAnswer:
    return GroupRows(NOW.groups) if isinstance(request, ListGroups) else status("n0", 1)


def test_once_looks_twice_and_prints_one_object(tmp_path: Path) -> None:
    with FakeCluster(tmp_path) as cluster:
        for node in cluster.nodes:
            node.answer = answer
        arguments = ["top", "--once", "--json", "--every", "0.1", "--config", cluster.client_file]
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["seconds"] > 0
    assert [row["group"] for row in found["groups"]] == ["g", "f"]


def mirror(topic: str, promoted_ms: int) -> MirrorInfo:
    names = topic, "id", "there", topic, "log", ("there",)
    return MirrorInfo(*names, True, 1, promoted_ms, (), {}, 0, (), 0)


TOPICS = (
    TopicInfo("a", "id", 2, {}),
    TopicInfo("b", "id", 1, {"dedup.key": "first"}),
    TopicInfo("big", "id", 2, {}, "a", "SELECT n WHERE n > 100"),
    TopicInfo("us", "id", 1, {}),
    TopicInfo("was", "id", 1, {}),
    TopicInfo("tables", "id", 1, {"cleanup.policy": "compact,delete"}),
    TopicInfo("__events", "id", 1, {}),
)
MIRRORS = (mirror("us", -1), mirror("was", 5))


def test_topics_are_called_what_they_are() -> None:
    assert kinds_of(TOPICS, MIRRORS) == {
        "a": "log",
        "b": "keys count once",
        "big": "view",
        "us": "mirror",
        "was": "promoted mirror",
        "tables": "compacted",
        "__events": "internal",
    }


def test_views_sites_and_groups_of_subscribers_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = SiteMember("n1", False, 1500, 7), SiteMember("n2", False, -1, -1)
    sites = SiteInfo("nyc", False, 1500, there), SiteInfo("lon", True, -1, ())
    groups = (*NOW.groups, GroupRow("native", "Stable", "native", "uniform", 2, 1, 3))
    now = replace(NOW, topics=TOPICS, mirrors=MIRRORS, sites=sites, groups=groups)
    found = compare(CONFIG, BEFORE, now)
    topics = by(found["topics"], "topic")
    assert {name: row["kind"] for name, row in topics.items()} == {
        "a": "log",
        "b": "keys count once",
        "big": "view",
    }
    assert (topics["big"]["base"], topics["big"]["records"]) == ("a", None)
    known = by(found["sites"], "site")
    assert (known["nyc"]["nodes"], known["nyc"]["lag_records"]) == (["n1", "n2"], 7)
    assert (known["lon"]["nodes"], known["lon"]["lag_ms"]) == ([], -1)
    at_terminal(monkeypatch, "dumb")
    show_tables(found, limit=9)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for words in ("subscribers", "1500 ms", "nyc", "lon"):
        assert words in text
    assert " ".join(text.split()).count("view") == 1

"""Every command and request that destroys data wants its object's name repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import structs

from samelog.admin.answers import HeldRecords, SessionRetired, Status, TopicDescription
from samelog.admin.mirror_answers import MirrorRows, MirrorsPromoted
from samelog.admin.mirror_requests import ListMirrors, PromoteTopics
from samelog.admin.requests import (
    AdminRequest,
    ConfirmedRequest,
    DeleteTopic,
    DiscardSession,
    GetStatus,
    RemoveNode,
    ResetCluster,
    RetireSession,
    TruncatePartition,
)
from samelog.admin.table import OPERATIONS
from samelog.cli.main import main
from tests.cli.fake_nodes import Answer, FakeCluster
from tests.cli.test_admin import FLIGHTS, PARTITION, run, status_of
from tests.cli.test_mirror_skip import mirror


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Three nodes; none answers until a test sets its answers."""
    with FakeCluster(tmp_path) as started:
        yield started


DESTRUCTIVE = {
    ("topic", "delete"),
    ("topic", "truncate"),
    ("session", "discard"),
    ("session", "retire"),
    ("node", "remove"),
    ("mirror", "promote"),
    ("site", "promote"),
    ("cluster", "reset"),
    ("recover", "node"),
    ("recover", "group"),
    ("recover", "void"),
    ("recover", "majority-lost"),
    ("recover", "soft-reset"),
    ("recover", "move-raft"),
}
REMOVED = (
    ("topic delete t --force", "--confirm NAME"),
    ("topic truncate t --force", "--confirm NAME"),
    ("cluster reset --hard --yes", "--confirm CLUSTER"),
    ("mirror promote m --yes", "--confirm"),
    ("topic create t --setting a=b", "--set KEY=VALUE"),
)


def commands(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))


def test_commands_that_destroy_data_are_confirmed_in_one_way() -> None:
    found = set()
    for path, command in commands():
        options = {option for each in command.params for option in each.opts}
        hidden = {option for each in command.params for option in each.opts if _hidden(each)}
        assert not {"--yes", "--force", "-y", "-f"} & (options - hidden), path
        if "--confirm" in options:
            found.add(path)
    assert found >= DESTRUCTIVE
    assert {path for path, _ in commands() if path[:1] == ("recover",) and path[1:]} <= found


def _hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


@pytest.mark.parametrize(("line", "instead"), REMOVED)
def test_a_removed_option_is_refused_with_the_new_one(line: str, instead: str) -> None:
    found = CliRunner().invoke(main, [*line.split(), "--config", ""])
    assert found.exit_code == 2, found.output
    assert "has been removed; use " in found.output
    assert instead in found.output
    listed = CliRunner().invoke(main, [*line.split()[:2], "--help"]).output
    assert "--force" not in listed
    assert "--yes" not in listed


@pytest.mark.parametrize(
    ("arguments", "request_type", "loss"),
    [
        ("topic delete flights", DeleteTopic, "flights with 120 records"),
        ("topic truncate flights", TruncatePartition, "120 records of flights"),
        ("session retire ewr", RetireSession, "Session ewr would be fenced"),
        ("session discard ewr", DiscardSession, "The held records of session ewr would be lost"),
        ("node remove n1", RemoveNode, "Node n1 would leave"),
        ("mirror promote eu.flights", PromoteTopics, "eu.flights would stop"),
        ("cluster reset --soft", ResetCluster, "new Raft log"),
    ],
)
def test_without_the_name_nothing_is_asked_for(
    cluster: FakeCluster, arguments: str, request_type: type, loss: str
) -> None:
    topic = TopicDescription(FLIGHTS, (PARTITION,))

    def answer(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, GetStatus):
            return holding(HeldRecords("t", 0, "id", 30))
        mirrors = MirrorRows("id", (mirror(40),))
        return mirrors if isinstance(request, ListMirrors) else topic

    for node in cluster.nodes:
        node.answer = answer
    words = arguments.split()
    for given in ((), ("--confirm", "other"), ("--confirm", "")):
        ended = run(cluster, *words, *given)
        assert ended.exit_code == 1, ended.output
        assert "Nothing was changed. To proceed, add: --confirm " in ended.stderr
        assert (loss in ended.stderr) == (not given)
    assert not [each for node in cluster.nodes for each in node.asked if type(each) is request_type]


def holding(*held: HeldRecords) -> Status:
    """What a node says whose session ewr has these held records."""
    status = status_of("n1")
    return structs.replace(status, sessions=(structs.replace(status.sessions[0], held=held),))


def test_a_discard_says_what_is_held(cluster: FakeCluster) -> None:
    """It said that records would be lost, whether any were held or not."""
    parts = HeldRecords("t", 0, "id", 30), HeldRecords("u", 4, "id", 12)
    for held, said in (
        (parts, "The held records of session ewr would be lost: 42 bytes of 2 partitions."),
        (parts[:1], "The held records of session ewr would be lost: 30 bytes of 1 partition."),
        ((), "no connected publisher holds records of session ewr"),
    ):
        for node in cluster.nodes:
            node.answer = lambda request, held=held: holding(*held)  # type: ignore[misc]
        refused = run(cluster, "session", "discard", "ewr")
        assert refused.exit_code == 1
        assert said in refused.stderr
        assert ("--confirm ewr" in refused.stderr) == bool(held)


def test_a_topic_that_is_no_mirror_would_not_stop_being_one(cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        node.answer = lambda request: MirrorRows("id", (mirror(40),))
    refused = run(cluster, "mirror", "promote", "eu.flights", "flights")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("samelog: flights: not a mirror.")
    assert "would stop" not in refused.stderr


def test_a_pattern_is_confirmed_as_it_is_typed(cluster: FakeCluster) -> None:
    promoted = MirrorsPromoted({"eu.a": (3,)})

    def answer(request: AdminRequest[Any]) -> Answer:
        return MirrorRows("id", ()) if isinstance(request, ListMirrors) else promoted

    for node in cluster.nodes:
        node.answer = answer
    several = ("mirror", "promote", "eu.a", "us.b")
    assert run(cluster, *several, "--confirm", "eu.a").exit_code == 1
    assert run(cluster, *several, "--confirm", "eu.a", "--confirm", "us.b").exit_code == 0
    assert cluster.nodes[0].asked[-1] == PromoteTopics(("eu.a", "us.b"), confirm="eu.a,us.b")


def _confirmed() -> list[type[ConfirmedRequest[Any]]]:
    kinds = [each.request for each in OPERATIONS]
    return [kind for kind in kinds if issubclass(kind, ConfirmedRequest)]


EXAMPLES: dict[str, object] = {
    "topics": ["eu.a", "eu.b"],
    "group": 3,
    "entry": 1,
    "term": 1,
    "partition": 0,
    "first_offset": 1,
    "next_offset": 2,
    "hard": True,
}


@pytest.mark.parametrize("kind", _confirmed(), ids=lambda kind: kind.__name__)
def test_a_request_over_http_has_to_repeat_the_name(kind: type[ConfirmedRequest[Any]]) -> None:
    needed = [
        each.name for each in structs.fields(kind) if each.required and each.name != "confirm"
    ]
    body = {name: EXAMPLES.get(name, "name") for name in needed}
    name = EXAMPLES.get(kind.CONFIRMS, "name")
    right = ",".join(name) if isinstance(name, list) else str(name)
    with pytest.raises(msgspec.ValidationError, match="confirm"):
        msgspec.convert(body, kind)
    for wrong in ("", "other", right.upper()):
        if wrong == right:
            continue
        with pytest.raises(ValueError, match="nothing was changed"):
            msgspec.convert({**body, "confirm": wrong}, kind).check_cluster("name")
    msgspec.convert({**body, "confirm": right}, kind).check_cluster("name")


def test_every_destructive_request_is_confirmed() -> None:
    destroying = {
        "topics_topic_delete",
        "topics_topic_truncate",
        "topics_topic_void",
        "sessions_session_retire",
        "nodes_node_remove",
        "nodes_node_readmit",
        "placement_recover",
        "sites_site_promote",
        "mirrors_promote",
        "reset",
    }
    names = {each.name.removeprefix("post_") for each in OPERATIONS if each.request in _confirmed()}
    assert names >= destroying


def test_a_confirmed_session_is_retired(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda body: SessionRetired("ewr")
    assert run(cluster, "session", "retire", "ewr", "--confirm", "ewr").exit_code == 0

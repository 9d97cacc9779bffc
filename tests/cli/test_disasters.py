"""Disaster commands over HTTP whose client.toml names one of the nodes that are left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from samelog.admin import client as admin_client
from samelog.admin.answers import AdminAnswer
from samelog.admin.mirror_answers import MirrorRows, MirrorsPromoted
from samelog.admin.mirror_requests import ListMirrors, PromoteTopics
from samelog.admin.requests import AdminRequest, GetRaftStatus
from samelog.admin.site_answers import PromotionBegun, Standing
from samelog.admin.site_requests import GetStanding, PromoteSite
from samelog.cli.main import main
from samelog.config.schema.render import to_toml
from tests.cli.fake_nodes import Answer, FakeCluster
from tests.cli.test_named_nodes import members_of

STANDS = Standing(
    node="n0",
    site="nyc",
    cluster_id="c.1",
    leads=False,
    silent_s=700.0,
    entry=40,
    term=3,
    committed=38,
    reached=(),
    mates=(),
    voters=("lost",),
    partitions=(),
    lost_groups=(),
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Five members: two of a site, and three of which nothing is left."""
    monkeypatch.setattr(admin_client, "RETRY_S", 0.01)
    with FakeCluster(tmp_path, 5) as started:
        for index in (2, 3, 4):
            started.stop(index)
        yield started


def only(cluster: FakeCluster, *indices: int) -> str:
    config, nodes = cluster.config, [cluster.nodes[index] for index in indices]
    names = tuple(node.name for node in nodes)
    addresses = tuple(node.address for node in nodes)
    path = Path(cluster.client_file).with_name("left.toml")
    path.write_text(to_toml(replace(config, nodes=addresses, node_names=names)))
    return str(path)


def answer_with(cluster: FakeCluster, answers: Mapping[type, Mapping[str, AdminAnswer]]) -> None:
    """Let each node answer as its name says; "" is every node's answer."""

    def answer_of(name: str, request: AdminRequest[Any]) -> Answer:
        if isinstance(request, GetRaftStatus):
            return members_of(cluster, name)
        given = answers[type(request)]
        return given.get(name, given.get(""))

    for node in cluster.nodes:
        node.answer = partial(answer_of, node.name)


def run(file: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", file], catch_exceptions=False)


@pytest.mark.parametrize("named", [(0,), (1,), (0, 1), (2, 0)])
def test_a_site_is_promoted_by_a_client_that_knows_only_its_nodes(
    cluster: FakeCluster, named: tuple[int, ...]
) -> None:
    """The newest node continues, also if client.toml does not name it."""
    newer = structs.replace(STANDS, node="n1", entry=41)
    after = structs.replace(newer, cluster_id="c.2", leads=True)
    told: dict[str, AdminAnswer] = {"n0": STANDS, "n1": newer}
    answer_with(cluster, {GetStanding: told, PromoteSite: {"n1": PromotionBegun("n1", "c.2")}})
    file = only(cluster, *named)
    looked = run(file, "site", "promote", "nyc")
    assert looked.exit_code == 1
    assert "n1 would go on" in looked.stderr
    told.update(n0=structs.replace(STANDS, cluster_id="c.2"), n1=after)
    done = run(file, "site", "promote", "nyc", "--confirm", "fake", "--wait", "5")
    assert done.exit_code == 0, done.output
    order = PromoteSite("nyc", 41, 3, confirm="fake")
    assert [each for each in cluster.nodes[1].asked if isinstance(each, PromoteSite)] == [order]


def test_a_site_none_of_whose_nodes_answers_is_not_promoted(cluster: FakeCluster) -> None:
    answer_with(cluster, {GetStanding: {"n0": STANDS, "n1": structs.replace(STANDS, node="n1")}})
    refused = run(only(cluster, 0), "site", "promote", "lon", "--confirm", "fake")
    assert refused.exit_code == 1
    there = "No node of site 'lon' answers. Answering: n0 of site nyc, n1 of site nyc. Name a node"
    assert there in refused.stderr
    without = {name: structs.replace(STANDS, node=name, site="") for name in ("n0", "n1")}
    answer_with(cluster, {GetStanding: without})
    refused = run(only(cluster, 0), "site", "promote", "lon", "--confirm", "fake")
    assert "No node of site 'lon' answers. No node that answers has a site." in refused.stderr


def test_mirrors_are_promoted_by_a_client_that_knows_one_node(cluster: FakeCluster) -> None:
    promoted = MirrorsPromoted({"eu.t": (7,)})
    none = MirrorRows("id", ())
    answer_with(cluster, {ListMirrors: {"": none}, PromoteTopics: {"": promoted}})
    done = run(only(cluster, 1), "mirror", "promote", "eu.t", "--confirm", "eu.t")
    assert done.exit_code == 0, done.output


def test_restoring_beside_a_lost_cluster_says_how(tmp_path: Path, cluster: FakeCluster) -> None:
    for index in (0, 1):
        cluster.stop(index)
    copies = tmp_path / "copies"
    copies.mkdir()
    arguments = ("restore", "t", "--from", str(copies), "--to", str(tmp_path / "back"))
    refused = run(only(cluster, 0), *arguments)
    assert refused.exit_code == 1
    assert "add: --config ''" in refused.stderr

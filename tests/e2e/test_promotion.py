"""Real processes: the first site is lost, another one is promoted, and the first one comes back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.admin.client import ask
from samelog.admin.site_answers import SiteRows
from samelog.admin.site_requests import ListSites
from samelog.cli.local_cluster import LocalCluster, LocalNode
from samelog.config.schema.render import to_toml
from tests.e2e.commands import as_json
from tests.e2e.commands import samelog as run
from tests.e2e.harness import World, not_merged, read_segments, wait_for
from tests.patience import PATIENCE_S

COUNT = 300


class Sites:
    """Three nodes that vote in lon, two that read in nyc."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lon = [*world.cluster.nodes]
        self.client = str(world.directory / "everywhere.toml")
        self.samelog("site", "add", "lon", config=world.cluster.client_file)
        self.samelog("site", "add", "nyc", "--reads-only", config=world.cluster.client_file)
        for node in self.lon:
            is_in(node, "lon")
            node.stop()
            node.start()
            world.wait_live(node)
        self.nyc = [self._join(), self._join()]
        Path(self.client).write_text(to_toml(world.cluster.client_config()))
        for node in self.nyc:
            world.wait_live(node)

    def _join(self) -> LocalNode:
        node = self.world.cluster.join()
        is_in(node, "nyc")
        node.start()
        added = "node", "add", node.name, str(node.address)
        self.samelog(*added, config=self.world.cluster.client_file)
        wait_for(lambda: node.name not in self._rows().elsewhere, "it is in its site")
        return node

    def _rows(self) -> SiteRows:
        return ask(self.world.cluster.client_config(), ListSites())

    def samelog(self, *arguments: str, config: str = "") -> object:
        """What a command prints as JSON; it has to succeed."""
        return as_json(*arguments, "--config", config or self.client)

    def promote(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The command as a user types it, who has one node of the site and a client.toml for it."""
        left = self.world.only(self.nyc[-1])
        return run("site", "promote", "nyc", "--config", left, *options)

    def confirmed(self, *options: str) -> subprocess.CompletedProcess[str]:
        """With the name of the cluster."""
        return self.promote("--confirm", self.world.cluster.options.cluster, *options)

    def has_all(self) -> bool:
        """The far site lacks nothing, and says so."""
        rows = self._rows().sites
        lags = [each.records for site in rows if site.name == "nyc" for each in site.members]
        newest = max(map(self._applied, self.lon))
        return lags == [0, 0] and all(self._applied(node) >= newest for node in self.nyc)

    def _applied(self, node: LocalNode) -> int:
        """Up to where it has the cluster's entries; a group's commit is one, and no record."""
        known = self.world.status(node)
        own = () if known is None else known.nodes
        return next((each.applied_index for each in own if each.name == node.name), -1)


def is_in(node: LocalNode, site: str) -> None:
    path = Path(node.config_file)
    path.write_text(path.read_text().replace("[node]\n", f'[node]\nsite = "{site}"\n', 1))


@pytest.fixture
def sites(tmp_path: Path, starts_nodes: None) -> Iterator[Sites]:
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        yield Sites(World(cluster, tmp_path))


def publish(sites: Sites, session: str, config: str) -> None:
    directory = str(sites.world.directory / "publishers")
    with Publisher("t", session=session, config=config, directory=directory) as publisher:
        publisher.append_many([b"%s %d" % (session.encode(), n) for n in range(COUNT)])
        publisher.wait_merged(PATIENCE_S)


def merged_at(node: LocalNode) -> bytes:
    return read_segments(f"{node.data}/merged/t-0")


def has_ended(node: LocalNode) -> bool:
    return node.exit_code() not in (None, 0)


def log_of(node: LocalNode) -> str:
    return Path(node.log_file).read_text()


def test_a_site_goes_on_alone_and_the_one_of_before_never_counts_again(sites: Sites) -> None:
    publish(sites, "before", sites.world.cluster.client_file)
    wait_for(sites.has_all, "the far site has everything")
    lives = sites.confirmed("--first-site-is-down")
    assert "hears a leader: the cluster lives" in lives.stderr
    for node in sites.lon:
        node.kill()
    looked = sites.promote()
    assert looked.returncode == 1
    assert f"t-0: next offset {COUNT}" in looked.stderr
    assert "WOULD BE LOST" in looked.stderr
    wait_for(
        lambda: "perhaps only the line is cut" in sites.confirmed().stderr, "no leader is heard"
    )
    done = sites.confirmed("--first-site-is-down")
    assert done.returncode == 0, done.stderr
    far = str(sites.world.directory / "far.toml")
    config = sites.world.cluster.client_config()
    near = {node.name for node in sites.nyc}
    Path(far).write_text(
        to_toml(
            type(config)(
                nodes=tuple(node.address for node in sites.nyc),
                node_names=tuple(sorted(near)),
                cluster=config.cluster,
                tls=config.tls,
            )
        )
    )
    wait_for(lambda: voters(sites, far) == near, "both vote")
    publish(sites, "after", far)
    status = sites.samelog("status", config=far)
    assert isinstance(status, dict)
    (event,) = [each for each in status["events"] if each["kind"] == "site-promoted"]
    assert "may be lost" in event["text"]
    first, second = sites.nyc
    wait_for(lambda: merged_at(first) == merged_at(second), "the follower has it, too")

    kept = [merged_at(node) for node in sites.lon]
    for node in sites.lon:
        node.start()
    wait_for(lambda: all(map(has_ended, sites.lon)), "the first site ends when it hears of it")
    for node, before in zip(sites.lon, kept, strict=True):
        assert "a site was promoted without" in log_of(node)
        assert merged_at(node) == before, "what it has is kept"
        node.start()
        wait_for(partial(has_ended, node), "it does not even begin again")
        refused = run("recover", "soft-reset", "--config", node.config_file, "--confirm", "x")
        assert refused.returncode == 1


def voters(sites: Sites, config: str) -> set[str]:
    ended = run("status", "--json", "--config", config)
    if ended.returncode:
        return set()
    nodes = json.loads(ended.stdout)["nodes"]
    return {each["name"] for each in nodes if each["role"] in ("leader", "voter", "follower")}


def test_a_publisher_goes_on_and_ships_to_nobody_of_before(sites: Sites) -> None:
    directory = str(sites.world.directory / "publishers")
    with Publisher("t", session="s", config=sites.client, directory=directory) as publisher:
        publisher.append_many([b"%d" % n for n in range(COUNT)])
        publisher.wait_merged(PATIENCE_S)
        wait_for(sites.has_all, "the far site has everything")
        for node in sites.lon:
            node.kill()
        wait_for(lambda: "perhaps only" in sites.confirmed().stderr, "no leader is heard")
        publisher.append(b"meanwhile")
        assert sites.confirmed("--first-site-is-down").returncode == 0
        publisher.wait_merged(PATIENCE_S)
        for node in sites.nyc:
            node.kill()
        # A majority of the old site that never hears of the promotion: the publisher tells.
        for node in sites.lon:
            node.start()
        publisher.append(b"behind")
        wait_for(lambda: "this node is of before" in not_merged(publisher), "the refusal")
        publisher.close(timeout=0)

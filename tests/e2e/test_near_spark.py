"""Real processes in two sites: Spark's readers ask nodes near them, others if these are gone, and
them again. A topic of group 0 is on every node; nobody but where nodes are says whom to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.cli.local_cluster import LocalCluster
from samelog.config.schema.render import to_toml
from samelog.replicator.pull.range_pull import Wanted
from samelog.spark.logs import homes
from samelog.spark.logs.nodes import Nodes
from samelog.wire.messages import Start
from tests.e2e.harness import World, wait_for
from tests.e2e.test_promotion import COUNT, Sites, publish
from tests.patience import PATIENCE_S

END = Wanted("t", None, 0, Start.LATEST)


@pytest.fixture
def sites(tmp_path: Path, starts_nodes: None) -> Iterator[Sites]:
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        yield Sites(World(cluster, tmp_path))


@pytest.fixture
def reader(sites: Sites) -> Iterator[Nodes]:
    """As an executor has it, in nyc."""
    path = sites.world.directory / "near.toml"
    path.write_text(to_toml(replace(sites.world.cluster.client_config(), rack="nyc")))
    nodes = Nodes(str(path), timeout_s=PATIENCE_S)
    yield nodes
    nodes.close()


def asked(nodes: Nodes) -> str:
    """Whom it asks, once it has asked."""
    assert nodes.locate([END])[0].end_offset == COUNT
    return str(nodes._homes.of(("t", 0)).address)


def test_sparks_readers_ask_near_nodes_fall_back_and_return(
    sites: Sites, reader: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "RETURN_S", 5.0)
    publish(sites, "s", sites.world.cluster.client_file)
    wait_for(sites.has_all, "the far site has everything")
    near = {str(node.address): node for node in sites.nyc}
    for _ in near:
        usual = asked(reader)
        assert usual in near
        near[usual].kill()
    assert asked(reader) not in near, "nobody is left there"
    for node in near.values():
        node.start()
    wait_for(lambda: asked(reader) in near, "it asks near ones again")

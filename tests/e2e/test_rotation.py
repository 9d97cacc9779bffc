"""Certificates, and the authority itself, change under load; a certificate that does not match its
key changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rolling import Pauses
from shiplog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from shiplog.config.pki import Role, describe
from shiplog.config.pki_rotation import (
    finish_authority,
    refresh_lists,
    revoke,
    rotate,
    rotate_authority,
)
from tests.e2e.harness import World, wait_for
from tests.http import asking

RELOADED = "certificates reloaded"
KEPT = "certificates unusable, kept the old"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with LocalCluster(str(tmp_path / "c")) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)


def count(node: LocalNode, line: str) -> int:
    return Path(node.log_file).read_text().count(line)


def is_unusable(node: LocalNode) -> bool:
    """What the node's metrics say of its own certificate files."""
    text: str = asking.get(node.http, "/metrics")
    [value] = re.findall(r'shiplog_tls_files_unusable{certificate="own"} (.*)', text)
    return float(value) == 1


def after(node: LocalNode, line: str, seen: int) -> None:
    wait_for(lambda: count(node, line) > seen, f"{node.name}: {line}")


def test_everything_rotates_under_load(world: World) -> None:
    cluster = world.cluster
    pki = f"{cluster.directory}/pki"
    with world.publisher("load") as publisher, Pauses(publisher) as pauses:
        for node in cluster.nodes:
            seen = count(node, RELOADED)
            rotate(pki, Role.NODE, node.name)
            after(node, RELOADED, seen)

        seen = count(cluster.nodes[0], RELOADED)
        rotate_authority(pki, "local")
        after(cluster.nodes[0], RELOADED, seen)
        for node in cluster.nodes:
            rotate(pki, Role.NODE, node.name)
        rotate(pki, Role.CLIENT, "local")
        finish_authority(pki)

        for node in cluster.nodes:  # connections that exist would hide what is wrong
            node.stop()
            node.start()
            world.wait_live(node)
    with world.publisher("after") as publisher:
        publisher.append(b"load")
        publisher.wait_merged(timeout=40)
    values = [bytes(record.value or b"") for record in world.read(pauses.appended + 1)]
    assert values == [b"load"] * (pauses.appended + 1)
    world.assert_identical()


def test_who_is_revoked_is_let_in_no_more(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "c"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        pki, [node] = f"{cluster.directory}/pki", cluster.nodes
        refresh_lists(pki)
        node.stop()
        file = Path(node.config_file)
        file.write_text(file.read_text().replace("[tls]", f'[tls]\ncrl = "{pki}/crl.pem"', 1))
        node.start()
        world = World(cluster, tmp_path)
        wait_for(lambda: world.status(node) is not None, "it is let in")
        revoke(pki, describe(f"{pki}/client-local.pem").serial)
        wait_for(lambda: world.status(node) is None, "it is refused")
        rotate(pki, Role.CLIENT, "local")
        wait_for(lambda: world.status(node) is not None, "the new certificate is not")


def test_a_certificate_that_does_not_match_its_key_changes_nothing(world: World) -> None:
    node, other = world.cluster.nodes[:2]
    own = Path(world.cluster.directory, "pki", f"node-{node.name}.pem")
    good, wrong = own.read_bytes(), own.with_name(f"node-{other.name}.pem").read_bytes()
    own.write_bytes(wrong)
    after(node, KEPT, 0)
    assert is_unusable(node)
    other.stop()
    other.start()
    world.wait_live(other)  # it meets the node by its old certificate
    seen = count(node, RELOADED)
    own.write_bytes(good + b"\n")
    after(node, RELOADED, seen)
    assert not is_unusable(node)

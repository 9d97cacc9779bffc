"""Certificates, and the authority itself, change under load; a certificate that does not match its
key changes nothing.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rolling import Pauses
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode, free_ports
from samelog.config.pki.authority import CertificateRole, describe
from samelog.config.pki.rotation import (
    finish_authority,
    refresh_lists,
    revoke,
    rotate,
    rotate_authority,
)
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.runtime.network.tls import open_client_context
from tests.e2e.harness import World, wait_for
from tests.http import asking
from tests.patience import PATIENCE_S

RELOADED = "certificates reloaded"
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
KEPT = "certificates unusable, kept the old"


@pytest.fixture
def world(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    with LocalCluster(str(tmp_path / "c")) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)


def count(node: LocalNode, line: str) -> int:
    return Path(node.log_file).read_text().count(line)


def is_unusable(node: LocalNode) -> bool:
    """What the node's metrics say of its own certificate files."""
    text: str = asking.get(node.http, "/metrics")
    [value] = re.findall(r'samelog_tls_files_unusable{certificate="own"} (.*)', text)
    return float(value) == 1


def after(node: LocalNode, line: str, seen: int) -> None:
    wait_for(lambda: count(node, line) > seen, f"{node.name}: {line}")


def test_everything_rotates_under_load(world: World) -> None:
    cluster = world.cluster
    pki = f"{cluster.directory}/pki"
    with world.publisher("load") as publisher, Pauses(publisher) as pauses:
        for node in cluster.nodes:
            seen = count(node, RELOADED)
            rotate(pki, CertificateRole.NODE, node.name)
            after(node, RELOADED, seen)

        seen = count(cluster.nodes[0], RELOADED)
        rotate_authority(pki, "local")
        after(cluster.nodes[0], RELOADED, seen)
        for node in cluster.nodes:
            rotate(pki, CertificateRole.NODE, node.name)
        rotate(pki, CertificateRole.CLIENT, "local")
        finish_authority(pki)

        for node in cluster.nodes:  # connections that exist would hide what is wrong
            node.stop()
            node.start()
            world.wait_live(node)
    with world.publisher("after") as publisher:
        publisher.append(b"load")
        publisher.wait_merged(timeout=PATIENCE_S)
    values = [bytes(record.value or b"") for record in world.read(pauses.appended + 1)]
    assert values == [b"load"] * (pauses.appended + 1)
    world.assert_identical()


def answers(address: Address, files: TlsFiles, request: bytes) -> bool:
    """Whether who shows these files is let in, and gets an answer."""
    context = open_client_context(files, show_certificate=True)
    try:
        with (
            socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as secured,
        ):
            secured.sendall(request)
            return bool(secured.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.usefixtures("starts_nodes")
def test_who_is_revoked_is_let_in_no_more(tmp_path: Path) -> None:
    """By replicators, HTTP and Kafka listeners alike."""
    with LocalCluster(str(tmp_path / "c"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        pki, [node] = f"{cluster.directory}/pki", cluster.nodes
        refresh_lists(pki)
        kafka = Address("127.0.0.1", free_ports(1)[0])
        file = Path(node.config_file)
        text = file.read_text().replace("[tls]", f'[tls]\ncrl = "{pki}/crl.pem"', 1)
        head, http = text.split("[http]\n")
        text = head + "[http]\n" + http.replace('"plaintext"', '"mtls"', 1)
        listener = f'[[kafka.listeners]]\nname = "mtls"\nlisten = "{kafka}"\nsecurity = "mtls"\n'
        file.write_text(f"{text}\n{listener}")
        cluster.start()
        world, own = World(cluster, tmp_path), cluster.client_config().tls
        assert node.http is not None
        http_address = node.http
        metrics = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

        def doors() -> set[bool]:
            return {
                world.status(node) is not None,
                answers(http_address, own, metrics),
                answers(kafka, own, API_VERSIONS),
            }

        wait_for(lambda: doors() == {True}, "it is let in")
        revoke(pki, describe(f"{pki}/client-local.pem").serial)
        wait_for(lambda: doors() == {False}, "it is refused")
        rotate(pki, CertificateRole.CLIENT, "local")
        wait_for(lambda: doors() == {True}, "the new certificate is not")


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

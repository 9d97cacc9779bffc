"""What strangers, careless operators and broken clients hand a node: an answer, never a crash."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.admin.client import node_status
from samelog.admin.errors import AdminError
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.load import load_node
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.replicator.client_errors import PublisherError
from tests import forking
from tests.e2e.commands import samelog
from tests.e2e.harness import World, not_merged, wait_for
from tests.patience import PATIENCE_S


def alive(world: World, node: LocalNode) -> None:
    """The node still runs and still takes records."""
    assert node.pid is not None
    with world.publisher("alive") as publisher:
        publisher.append(b"still here")
        publisher.wait_merged(timeout=PATIENCE_S)


def client_with(world: World, tls: TlsFiles) -> ClientConfig:
    known = world.cluster.client_config()
    return ClientConfig(nodes=known.nodes, cluster=known.cluster, tls=tls)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    """A cluster of one node for all tests that leave it as it was."""
    path = tmp_path_factory.mktemp("shared")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        yield World(cluster, path)


def test_plaintext_and_garbage_are_refused(shared: World) -> None:
    node = shared.cluster.nodes[0]
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(2000), b"\0" * 70_000):
        with socket.create_connection(
            (node.address.host, node.address.port), timeout=PATIENCE_S
        ) as raw:
            raw.sendall(data)
            raw.settimeout(PATIENCE_S)
            received = b""
            while block := raw.recv(4096):
                received += block
            assert b"samelog" not in received
    alive(shared, node)


def test_tls_1_2_is_refused(shared: World) -> None:
    node = shared.cluster.nodes[0]
    tls = shared.cluster.client_config().tls
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = False
    context.load_cert_chain(tls.cert, tls.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((node.address.host, node.address.port), timeout=PATIENCE_S) as raw,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(raw)
    alive(shared, node)


def test_a_certificate_of_another_authority_is_refused(shared: World, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    create_authority(other, "other")
    files = issue(other, CertificateRole.CLIENT, "local")
    ours = shared.cluster.client_config().tls
    config = client_with(shared, TlsFiles(ca=ours.ca, cert=files.cert, key=files.key))
    with pytest.raises(AdminError, match=r"(?i)certificate|unknown ca|refused"):
        node_status(config, shared.cluster.nodes[0].address)
    alive(shared, shared.cluster.nodes[0])


def test_an_identity_without_the_right_is_refused(shared: World) -> None:
    pki = str(Path(shared.cluster.directory) / "pki")
    files = issue(pki, CertificateRole.PUBLISHER, "nobody")
    ours = shared.cluster.client_config().tls
    tls = TlsFiles(ca=ours.ca, cert=files.cert, key=files.key)
    config = client_with(shared, tls)
    with pytest.raises(AdminError, match="no administrator"):
        node_status(config, shared.cluster.nodes[0].address)
    directory = str(shared.directory / "denied")
    with Publisher("t", session="x", directory=directory, config=config) as publisher:
        publisher.append(b"denied")
        wait_for(lambda: "may not" in not_merged(publisher), "the refusal")
        publisher.close(timeout=0)
    alive(shared, shared.cluster.nodes[0])


def test_a_publish_that_is_refused_ends_at_once_with_one_sentence(shared: World) -> None:
    pki = str(Path(shared.cluster.directory) / "pki")
    files = issue(pki, CertificateRole.PUBLISHER, "stranger")
    ours = shared.cluster.client_config().tls
    config = client_with(shared, TlsFiles(ca=ours.ca, cert=files.cert, key=files.key))
    client_file = shared.directory / "stranger.toml"
    client_file.write_text(to_toml(config))
    told = ("--topic", "t", "--session", "s", "--dir", str(shared.directory / "pub"))
    wait = ("--wait", "--timeout", "3600", "--config", str(client_file))
    ended = samelog("publish", *told, *wait, stdin="1\n2\n")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("samelog: appended 2 records, and not all of the session is merged: ")
    assert line.count("may not publish as session 's'") == 1
    alive(shared, shared.cluster.nodes[0])


def test_two_directories_cannot_claim_one_session(shared: World) -> None:
    with shared.publisher("a", "claimed", directory=str(shared.directory / "one")) as first:
        first.append(b"mine")
        first.wait_merged(timeout=PATIENCE_S)
        with shared.publisher("a", "claimed", directory=str(shared.directory / "two")) as second:
            second.append(b"also mine?")
            wait_for(lambda: "another directory" in not_merged(second).lower(), "the refusal")
            second.close(timeout=0)
        first.append(b"still mine")
        first.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in shared.read(2, topic="claimed")] == [b"mine", b"still mine"]


def test_one_directory_is_one_process(shared: World) -> None:
    with shared.publisher("b"), pytest.raises((PublisherError, Exception), match="held by"):
        shared.publisher("b")


@pytest.mark.parametrize("name", ["", "../x", "A", "a" * 200, "a\0b", ".a"])
def test_names_outside_the_grammar_are_refused(tmp_path: Path, name: str) -> None:
    from samelog import Publisher
    from samelog.format.errors import InvalidName

    with pytest.raises(InvalidName):
        Publisher("t", session=name, directory=str(tmp_path))


def start_node(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return samelog("node", "--config", str(config), *options)


def edited(world: World, change: dict[str, object]) -> Path:
    """The node's configuration with some values changed, in a file of its own."""
    node = world.cluster.nodes[0]
    text = to_toml(load_node(node.config_file))
    for old, new in change.items():
        assert old in text
        text = text.replace(old, str(new))
    path = world.directory / "edited.toml"
    path.write_text(text)
    return path


def test_a_data_directory_of_another_cluster_is_not_touched(single: World) -> None:
    single.cluster.stop()
    config = edited(single, {'cluster = "local"': 'cluster = "elsewhere"'})
    ended = start_node(config)
    assert ended.returncode == 1
    assert "belongs to cluster 'local'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, "another running node uses this directory"), ("none/there", "none/there")],
    ids=["in use", "nowhere"],
)
def test_what_is_wrong_with_a_directory_is_said_though_the_ports_are_taken(
    shared: World, data: str | None, said: str
) -> None:
    node = shared.cluster.nodes[0]
    change: dict[str, object] = (
        {} if data is None else {f'data = "{node.data}"': f'data = "{node.data}/{data}"'}
    )
    ended = start_node(edited(shared, change))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "already in use" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_newer_format_version_is_not_touched(single: World) -> None:
    single.cluster.stop()
    node = single.cluster.nodes[0]
    file = Path(node.data) / "node.json"
    record = json.loads(file.read_text()) | {"format_version": 99}
    file.write_text(json.dumps(record))
    ended = start_node(Path(node.config_file))
    assert ended.returncode == 1
    assert "format version 99" in ended.stderr
    assert json.loads(file.read_text()) == record


def test_a_contradictory_configuration_names_file_key_and_value(shared: World) -> None:
    config = edited(shared, {'fsync = "always"': 'fsync = "sometimes"'})
    ended = start_node(config)
    assert ended.returncode == 2
    for word in (str(config), "fsync", "sometimes", "always"):
        assert word in ended.stderr


def test_a_missing_configuration_is_one_message(tmp_path: Path) -> None:
    ended = start_node(tmp_path / "none.toml")
    assert ended.returncode == 2
    assert "none.toml" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_damaged_raft_log_stops_the_node_with_a_message(single: World) -> None:
    with single.publisher("a") as publisher:
        publisher.append_many([b"x"] * 100)
        publisher.wait_merged(timeout=PATIENCE_S)
    single.cluster.stop()
    node = single.cluster.nodes[0]
    (file,) = (Path(node.data) / "raft").glob("wal.*")
    data = bytearray(file.read_bytes())
    data[60] ^= 0xFF
    file.write_bytes(data)
    ended = start_node(Path(node.config_file))
    assert ended.returncode == 1
    assert str(file) in ended.stderr
    assert file.read_bytes() == data


def test_a_missing_raft_log_stops_the_node_with_a_message(single: World) -> None:
    with single.publisher("a") as publisher:
        publisher.append_many([b"x"] * 100)
        publisher.wait_merged(timeout=PATIENCE_S)
    single.cluster.stop()
    node = single.cluster.nodes[0]
    shutil.rmtree(Path(node.data) / "raft")
    ended = start_node(Path(node.config_file))
    assert ended.returncode == 1
    for word in (node.data, "no Raft log any more", "Remedy: put the directory raft back"):
        assert word in ended.stderr
    assert not (Path(node.data) / "raft").exists()


def test_a_wiped_node_catches_up_and_is_let_in_again(world: World) -> None:
    with world.publisher("a") as publisher:
        publisher.append_many([b"%d" % number for number in range(1_000)])
        publisher.wait_merged(timeout=PATIENCE_S)
        wiped = world.followers()[0]
        wiped.stop()
        shutil.rmtree(wiped.data)
        with open(wiped.log_file, "ab") as log:
            process = forking.fork(["node", "--config", wiped.config_file], log)
        try:
            publisher.append(b"after")
            publisher.wait_merged(timeout=PATIENCE_S)

            def is_ready() -> bool:
                status = world.status(wiped)
                if status is None:
                    return False
                not_ready = next(info.not_ready for info in status.nodes if info.name == wiped.name)
                offsets = [info.end_offset for info in status.partitions]
                return not not_ready and offsets == [1_001]

            wait_for(is_ready, "the wiped node has everything, and counts")
            assert "counts again reason=" in Path(wiped.log_file).read_text()
        finally:
            process.terminate()
            process.wait()
    world.assert_identical()

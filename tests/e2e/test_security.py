"""Hostile input to a running node: whom it lets in, what floods cost it, what lies planted."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.format import _kernels as kernels
from samelog.format.compression import LIMIT_BYTES_DEFAULT
from samelog.publisher.errors import ShippingStopped
from tests.e2e.harness import World, wait_for
from tests.format.bombs import BOMBS
from tests.patience import PATIENCE_S
from tests.replicator.session_files import SessionFiles
from tests.replicator.session_files import batch as good_batch

OLD_VERSIONS = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2)
TLS_1_3_CIPHERS = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
FLOOD = 400
MEMORY_MARGIN_BYTES = 96 << 20


def client_context(world: World) -> ssl.SSLContext:
    """As an ordinary client, which anything may be changed of."""
    tls = world.cluster.client_config().tls
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = False
    context.load_cert_chain(tls.cert, tls.key)
    return context


def shake_hands(node: LocalNode, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection that has passed the handshake, as far as this side can tell."""
    raw = socket.create_connection((node.address.host, node.address.port), timeout=PATIENCE_S)
    return context.wrap_socket(raw)


@pytest.mark.parametrize("version", OLD_VERSIONS, ids=lambda version: version.name)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_no_older_tls_with_any_cipher(single: World, version: ssl.TLSVersion) -> None:
    context = client_context(single)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(single.cluster.nodes[0], context)


def test_tls_1_3_without_compression_and_not_without_a_certificate(single: World) -> None:
    node = single.cluster.nodes[0]
    with shake_hands(node, client_context(single)) as connection:
        assert connection.version() == "TLSv1.3"
        assert connection.compression() is None
        cipher = connection.cipher()
        assert cipher is not None
        assert cipher[0] in TLS_1_3_CIPHERS
    nameless = ssl.create_default_context(cafile=single.cluster.client_config().tls.ca)
    nameless.check_hostname = False
    refusal = pytest.raises(ssl.SSLError, match=r"(?i)certificate.required")
    with shake_hands(node, nameless) as connection, refusal:
        connection.recv(1)


def memory_bytes(node: LocalNode) -> int:
    """What a node's process holds now."""
    assert node.pid is not None
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_flood_of_silent_connections_stops_nobody(single: World) -> None:
    node = single.cluster.nodes[0]
    before = memory_bytes(node)
    with ExitStack() as stack, single.publisher("a") as publisher:
        for number in range(FLOOD):
            flooder = stack.enter_context(socket.socket())
            flooder.setblocking(False)
            flooder.connect_ex((node.address.host, node.address.port))
            if number % 10 == 0:
                publisher.append(b"%d" % number)
        publisher.wait_merged(timeout=PATIENCE_S)
        assert memory_bytes(node) < before + MEMORY_MARGIN_BYTES
    assert len(single.read(FLOOD // 10)) == FLOOD // 10


def bomb_batch(name: str) -> bytes:
    """A batch with the right CRC, whose records unpack to a gigabyte, or claim to."""
    codec, make = BOMBS[name]
    batch = bytearray(good_batch(b"x")[:61] + make())
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = int(codec).to_bytes(2, "big")
    batch[17:21] = kernels.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def peak_bytes(node: LocalNode) -> int:
    """The most that a node's process ever held."""
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def test_bombs_cost_a_node_no_memory_and_hold_up_no_later_run(single: World) -> None:
    node = single.cluster.nodes[0]
    names = ("zstd", "lz4-lie", "snappy-lie")
    for name in names:
        (single.directory / "publishers").mkdir(exist_ok=True)
        files = SessionFiles(single.directory / "publishers" / name, name)
        files.begin()
        files.append(bomb_batch(name), ("t", 0))
        files.die()
    before = memory_bytes(node)
    with ExitStack() as stack:
        publishers = [stack.enter_context(single.publisher(name)) for name in names]
        for publisher in publishers:
            publisher.append(b"good")
        for publisher in publishers:
            with pytest.raises(ShippingStopped, match="closed run 0 of t-0 at 0:0"):
                publisher.wait_merged(timeout=PATIENCE_S)
            assert publisher.positions.merged == publisher.positions.appended
    at_once = len(names) * LIMIT_BYTES_DEFAULT  # of at most so much each, in threads
    assert peak_bytes(node) < before + at_once + MEMORY_MARGIN_BYTES
    assert [record.value for record in single.read(3)] == [b"good"] * 3


def fifo(path: Path) -> None:
    """Whoever opens it for reading waits for a writer."""
    os.mkfifo(path)


def endless_link(path: Path) -> None:
    """A link to a device that never ends."""
    path.symlink_to("/dev/zero")


def device(path: Path) -> None:
    """The device itself."""
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


def directory(path: Path) -> None:
    """A directory where a file should be."""
    path.mkdir()


PLANTED = (fifo, endless_link, directory, *((device,) if os.geteuid() == 0 else ()))
PLACES = (
    "node.json",
    "raft/wal.*",
    "merged/t-0/*.log",
    "merged/t-0/marks",
    "sessions/*/t-0/log.0.0",
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    """A cluster of one node, which is killed; `data.kept` is what it leaves behind."""
    path = tmp_path_factory.mktemp("killed")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        world, node = World(cluster, path), cluster.nodes[0]
        with world.publisher("a") as publisher:
            publisher.append(b"x")
            publisher.wait_merged(timeout=PATIENCE_S)
            node.kill()
        shutil.copytree(node.data, f"{node.data}.kept")
        yield world


def put_back(node: LocalNode) -> None:
    """What was kept, beside the very file that tells the directory from copies of it."""
    mark = Path(node.data, "node.id")
    for path in Path(node.data).iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    ignore = shutil.ignore_patterns(mark.name)
    shutil.copytree(f"{node.data}.kept", node.data, dirs_exist_ok=True, ignore=ignore)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_planted_in_a_data_directory_is_neither_followed_nor_waited_for(
    killed: World, plant: Callable[[Path], None], place: str
) -> None:
    node = killed.cluster.nodes[0]
    put_back(node)
    [victim] = Path(node.data).glob(place)
    victim.unlink()
    plant(victim)
    node.start()
    try:
        wait_for(lambda: node.exit_code() is not None or is_up(killed), "it ends, or goes on")
        if node.exit_code() is None:
            assert peak_bytes(node) < 256 << 20
        else:
            assert victim.name in node.last_log_line()
    finally:
        node.kill()


def is_up(world: World) -> bool:
    """Whether the one node answers that it is Live, and has its record or says what is wrong."""
    status = world.status(world.cluster.nodes[0])
    return status is not None and status.nodes[0].state is NodeState.LIVE

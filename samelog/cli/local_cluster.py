"""A cluster of real node processes on this machine, with a PKI of its own: what `up`, `demo`, tests
and benchmarks start.

Everything lies in one directory: `pki/`, `<node>/node.toml`, `<node>/data/`, `<node>/node.log`,
`<node>/node.pid`, `client.toml`. Starting on a directory that exists continues that cluster.

Invariant: `client.toml` is written only when every node is Live; `stop` leaves no process behind.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Protocol

from samelog.cli.output import EXIT_REMOVED
from samelog.config.authorisation import ANONYMOUS
from samelog.config.load import load_node
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.kafka import GroupLimits, KafkaConfig, KafkaListener
from samelog.config.tables.node import (
    VOTER_COUNTS,
    Fsync,
    Grant,
    NodeConfig,
    NodePlaces,
    PeerConfig,
)
from samelog.config.tables.shared import HttpConfig, TlsFiles
from samelog.config.values import Address
from samelog.format.nouns import counted

HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
"""A busy machine may need more than a minute; a node that ends is noticed at once."""
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
_NODE_NAME = re.compile(r"rt-sequencer-\d+")
PORTS = range(12_000, 32_000)
"""Below those that Linux gives to outgoing connections: a node that starts again finds its own."""
HELD_PORTS = 256
"""So many of those that were found last are held for whom they were found."""
LOCAL_KAFKA = KafkaConfig(groups=GroupLimits(initial_rebalance_delay_ms=0))
"""As Kafka's own quickstart."""
_held: deque[socket.socket] = deque()


class ClusterError(Exception):
    """A local cluster cannot be made, started or kept running; the message says which node and
    where its log is.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How a new local cluster is made."""

    nodes: int = 3
    members: int = 1
    """How many of the nodes share a host, one host after the other."""
    cluster: str = "local"
    fsync: Fsync = Fsync.ALWAYS
    segment_bytes: int = 1 << 30
    kafka: KafkaConfig = LOCAL_KAFKA
    """But for its listeners."""
    base_port: int | None = None
    """The first node's port; None: free ones."""

    def host_of(self, number: int) -> str:
        """The host of a node, by its number; empty: one of its own, under its own name."""
        return f"host-{number // self.members}" if self.members > 1 else ""

    def votes(self, number: int) -> bool:
        """Return whether a node is a voter of the new cluster: the first one of each host is, on as
        many hosts as a new cluster can have voters.
        """
        host, place = divmod(number, self.members)
        hosts = self.nodes // self.members
        return place == 0 and host < max(each for each in VOTER_COUNTS if each <= hosts)


class Process(Protocol):
    """What is asked of a process: as subprocess.Popen has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start_process(arguments: Sequence[str], log: BinaryIO) -> Process:
    """Run `samelog` with these arguments, in a session of its own; it writes to `log`."""
    return subprocess.Popen(
        [sys.executable, "-m", "samelog", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


class LocalNode:
    """One node process."""

    def __init__(
        self,
        directory: str,
        name: str,
        address: Address,
        *,
        kafka: Address | None = None,
        http: Address | None = None,
        host: str = "",
        joins: bool = False,
    ) -> None:
        """`kafka`: where Kafka clients connect; `http`: where it answers HTTP; `host`: its host,
        empty: one of its own; `joins`: it belongs to the cluster only once somebody has added it.
        """
        self.host = host
        self.kafka = kafka
        self.http = http
        self.joins = joins
        self.name = name
        self.address = address
        self.config_file = os.path.join(directory, name, "node.toml")
        self.data = os.path.join(directory, name, "data")
        self.log_file = os.path.join(directory, name, "node.log")
        self.pid_file = os.path.join(directory, name, "node.pid")
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        return (
            None if self._process is None or self._process.poll() is not None else self._process.pid
        )

    @property
    def has_place(self) -> bool:
        """Whether it is a member of the cluster, or was one."""
        return os.path.exists(os.path.join(self.data, "node.json"))

    def start(self) -> None:
        """Start the process; the first start of an empty directory is its bootstrap."""
        bootstrap = [] if self.joins or self.has_place else ["--bootstrap"]
        with open(self.log_file, "ab") as log:
            self._process = start_process(["node", "--config", self.config_file, *bootstrap], log)
        _write(self.pid_file, f"{self._process.pid}\n")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the process cleanly; by force when it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def exit_code(self) -> int | None:
        """The exit code of a process that ended."""
        return None if self._process is None else self._process.poll()

    def last_log_line(self) -> str:
        """The last thing the node logged, for error messages."""
        try:
            with open(self.log_file, encoding="utf-8", errors="replace") as log:
                lines = log.read()[-4096:].splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else "it has said nothing yet"


class LocalCluster:
    """Node processes of one cluster. A context manager that stops them."""

    def __init__(self, directory: str, options: ClusterOptions | None = None) -> None:
        self.directory = os.path.abspath(directory)
        self.options = options or ClusterOptions()
        self.client_file = os.path.join(self.directory, "client.toml")
        self.nodes: list[LocalNode] = []

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- making -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make directories, certificates and configuration, unless there. Raises ClusterError."""
        make_directory(self.directory)
        names = [f"rt-sequencer-{number}" for number in range(self.options.nodes)]
        existing = _nodes_in(self.directory)
        if existing and existing != names:
            raise ClusterError(
                f"{self.directory} holds {counted(len(existing), 'node')}, {', '.join(existing)}, "
                f"not {len(names)}: choose another directory, or the same --hosts and --members"
            )
        if existing:
            self._load(names)
            self._check_hosts()
        else:
            self._make(names)

    def _load(self, names: Sequence[str]) -> None:
        for name in names:
            config = load_node(os.path.join(self.directory, name, "node.toml"))
            listeners = config.kafka.listeners
            kafka = listeners[0].advertise if listeners else None
            http = None if config.http is None else config.http.listen
            node = LocalNode(
                self.directory,
                name,
                config.listen,
                kafka=kafka,
                http=http,
                host=config.place.host,
                joins=name not in {peer.name for peer in config.peers},
            )
            self.nodes.append(node)

    def _check_hosts(self) -> None:
        hosts = list(map(self.options.host_of, range(len(self.nodes))))
        if [node.host for node in self.nodes] != hosts:
            there = ", ".join(f"{node.name} on {node.host or node.name}" for node in self.nodes)
            raise ClusterError(
                f"{self.directory} holds a cluster with {there}: choose another directory, or the "
                "same --hosts and --members"
            )

    def _make(self, names: Sequence[str]) -> None:
        pki = os.path.join(self.directory, "pki")
        authority = create_authority(pki, self.options.cluster)
        ports = self._ports(3 * len(names))
        nodes = [
            PeerConfig(name=name, address=Address(HOST, port))
            for name, port in zip(names, ports, strict=False)
        ]
        voters = tuple(each for number, each in enumerate(nodes) if self.options.votes(number))
        others = zip(ports[len(names) :], ports[2 * len(names) :], strict=False)
        for number, (own, listeners) in enumerate(zip(nodes, others, strict=True)):
            files = issue(pki, CertificateRole.NODE, own.name, hosts=(HOST, "localhost"))
            tls = TlsFiles(ca=authority.cert, cert=files.cert, key=files.key)
            host = self.options.host_of(number)
            self.nodes.append(self._write_node(own, voters, tls, listeners, host))
        issue(pki, CertificateRole.CLIENT, "local")

    def join(self) -> LocalNode:
        """Make one more node, which is neither started nor added to the cluster yet."""
        pki = os.path.join(self.directory, "pki")
        number = 1 + max(int(node.name.rpartition("-")[2]) for node in self.nodes)
        port, kafka_port, http_port = free_ports(3)
        peer = PeerConfig(name=f"rt-sequencer-{number}", address=Address(HOST, port))
        files = issue(pki, CertificateRole.NODE, peer.name, hosts=(HOST, "localhost"))
        tls = TlsFiles(ca=os.path.join(pki, "ca.pem"), cert=files.cert, key=files.key)
        peers = tuple(PeerConfig(name=node.name, address=node.address) for node in self.nodes)
        node = self._write_node(peer, peers, tls, (kafka_port, http_port))
        self.nodes.append(node)
        return node

    def _ports(self, count: int) -> list[int]:
        if self.options.base_port is not None:
            return [self.options.base_port + number for number in range(count)]
        return free_ports(count)

    def _write_node(
        self,
        peer: PeerConfig,
        peers: tuple[PeerConfig, ...],
        tls: TlsFiles,
        listeners: tuple[int, int],
        host: str = "",
    ) -> LocalNode:
        """`peers`: the voters; `listeners`: the ports of Kafka and HTTP."""
        kafka, http = (Address(HOST, port) for port in listeners)
        directory = os.path.join(self.directory, peer.name)
        os.makedirs(directory, mode=0o700)
        config = NodeConfig(
            name=peer.name,
            cluster=self.options.cluster,
            data=os.path.join(directory, "data"),
            listen=peer.address,
            advertise=peer.address,
            tls=tls,
            peers=peers,
            place=NodePlaces(host=host, members_on_host=self.options.members),
            fsync=self.options.fsync,
            segment_bytes=self.options.segment_bytes,
            grants=(everything("samelog://client/*"), everything(ANONYMOUS)),
            kafka=replace(
                self.options.kafka,
                listeners=(KafkaListener(name="local", listen=kafka, advertise=kafka),),
            ),
            http=HttpConfig(listen=http),
        )
        _write(os.path.join(directory, "node.toml"), to_toml(config))
        return LocalNode(
            self.directory,
            peer.name,
            peer.address,
            kafka=kafka,
            http=http,
            host=host,
            joins=peer not in peers,
        )

    # --- running ----------------------------------------------------------------------------------

    def start(self, on_wait: Callable[[str], None] = lambda text: None) -> None:
        """Start every node, wait until all are Live, and write client.toml. Raises ClusterError."""
        if not self.nodes:
            self.prepare()
        for node in self.nodes:
            node.start()
        self._wait_live([node for node in self.nodes if not node.joins], START_TIMEOUT_S, on_wait)
        self._add_others()
        self.wait_live(on_wait=on_wait)
        _write(self.client_file, to_toml(self.client_config()))

    def _add_others(self) -> None:
        """Add the nodes that are no voters of the new cluster, and have never been members."""
        from samelog.admin.client import ask
        from samelog.admin.errors import AdminError
        from samelog.admin.requests import AddNode, GetStatus

        joining = {node.name: node for node in self.nodes if node.joins and not node.has_place}
        config, deadline = self.client_config(), time.monotonic() + START_TIMEOUT_S
        while joining:
            try:
                for member in ask(config, GetStatus()).nodes:
                    joining.pop(member.name, None)
                for node in joining.values():
                    ask(config, AddNode(node.name, str(node.address), promote=False))
            except AdminError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the nodes that join cannot be added: {error}") from error
                time.sleep(POLL_S)

    def wait_live(
        self,
        timeout_s: float = START_TIMEOUT_S,
        on_wait: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Wait until every node is Live that was not removed. Raises ClusterError."""
        self._wait_live(tuple(self.nodes), timeout_s, on_wait)

    def _wait_live(
        self, nodes: Sequence[LocalNode], timeout_s: float, on_wait: Callable[[str], None]
    ) -> None:
        deadline = time.monotonic() + timeout_s
        for node in nodes:
            on_wait(f"waiting for {node.name}")
            while not self._is_live(node):
                if node.pid is None:
                    if self.has_left(node):
                        break
                    raise ended(node)
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{node.name} is not Live after {timeout_s:.0f} s: "
                        f"{node.last_log_line()} (log: {node.log_file})"
                    )
                time.sleep(POLL_S)

    def has_left(self, node: LocalNode) -> bool:
        """Whether a node ended as it was removed from the cluster: it is forgotten then."""
        if node.exit_code() != EXIT_REMOVED or len(self.nodes) == 1:
            return False
        self.nodes.remove(node)
        return True

    def _is_live(self, node: LocalNode) -> bool:
        from samelog.admin.answers import NodeState
        from samelog.admin.client import node_status
        from samelog.admin.errors import AdminError

        if node.pid is None:
            return False
        try:
            status = node_status(self.client_config(), node.address)
        except AdminError:
            return False
        return any(info.name == node.name and info.state is NodeState.LIVE for info in status.nodes)

    def client_config(self) -> ClientConfig:
        """How a client reaches this cluster."""
        pki = os.path.join(self.directory, "pki")
        return ClientConfig(
            nodes=tuple(node.address for node in self.nodes),
            node_names=tuple(node.name for node in self.nodes),
            cluster=self.options.cluster,
            kafka_bootstrap=",".join(str(node.kafka) for node in self.nodes if node.kafka),
            tls=TlsFiles(
                ca=os.path.join(pki, "ca.pem"),
                cert=os.path.join(pki, "client-local.pem"),
                key=os.path.join(pki, "client-local.key"),
            ),
        )

    def stop(self) -> None:
        """Stop every node cleanly."""
        for node in self.nodes:
            if node.pid is not None:
                node.signal(signal.SIGTERM)
        for node in self.nodes:
            node.stop()


def ended(node: LocalNode) -> ClusterError:
    """That a node ended, and its last words."""
    return ClusterError(
        f"{node.name} ended with exit code {node.exit_code()}: "
        f"{node.last_log_line()} (log: {node.log_file})"
    )


def _nodes_in(directory: str) -> list[str]:
    """The nodes that were made here. What else lies beside them, such as a copy of one, is none."""
    names = [name for name in os.listdir(directory) if _NODE_NAME.fullmatch(name)]
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]))


def make_directory(directory: str) -> None:
    """A cluster's directory, for its owner alone, unless there. Raises ClusterError."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except FileExistsError:
        raise ClusterError(f"{directory} is a file, not a directory") from None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that the system gives to nobody who lets it choose.

    They are held for the program that is to listen there, which sets SO_REUSEADDR as all do: others
    who look for free ports at the same time find them taken (socket(7), ip(7)).
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        holder = socket.socket()
        try:
            holder.bind((HOST, port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.append(holder)
        found.append(port)
    for _ in range(len(_held) - HELD_PORTS):
        _held.popleft().close()
    return found


@atexit.register
def _let_go() -> None:
    """Give up the ports that are still held."""
    while _held:
        _held.popleft().close()


def everything(identity: str) -> Grant:
    """A grant of every right, for a machine of one's own."""
    return Grant(
        identity=identity,
        publish_sessions=("*",),
        publish_topics=("*",),
        publish_dedup_ids=("*",),
        subscribe_topics=("*",),
        mirror=("*",),
        admin=True,
    )


def _write(path: str, text: str) -> None:
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)

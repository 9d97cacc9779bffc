"""The three nodes of samelog that are measured: mutual TLS everywhere, a Kafka listener with mutual
TLS beside the plaintext one, each process in a scheduling group of its own.

Invariant: started nodes are stopped at the end of the block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench.kafka.brokers import secure
from bench.kafka.systems import LISTENER, OWN, SINGLE, KafkaSystem, OwnSystem
from bench.meter import own_group
from samelog.cli.local_cluster import HOST, LocalCluster, free_ports

LISTENER_TEXT = """
[[kafka.listeners]]
name = "mutual"
listen = "{address}"
advertise = "{address}"
security = "mtls"
"""


class Nodes:
    """A running cluster with its systems; a context manager that stops it."""

    def __init__(self, directory: str, settings: Mapping[str, int] | None = None) -> None:
        """`directory`: of the cluster and of clients' files; `settings`: numbers of node.toml that
        differ from those as shipped, by key.
        """
        self.directory = directory
        self.cluster = LocalCluster(f"{directory}/samelog")
        self._settings = settings or {}
        self._ports: list[int] = []

    def __enter__(self) -> Nodes:
        self.cluster.prepare()
        self._ports = free_ports(len(self.cluster.nodes))
        for node, port in zip(self.cluster.nodes, self._ports, strict=True):
            file = Path(node.config_file)
            text = changed(file.read_text(encoding="utf-8"), self._settings)
            file.write_text(text + LISTENER_TEXT.format(address=f"{HOST}:{port}"), encoding="utf-8")
        try:
            self.cluster.start()
        except BaseException:
            self.cluster.stop()
            raise
        self.even()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()

    def pids(self) -> list[int]:
        """Of the nodes that run."""
        return [node.pid for node in self.cluster.nodes if node.pid is not None]

    def even(self) -> None:
        """Give every node the share of processors that all programs have."""
        for pid in self.pids():
            own_group(pid)

    def own(self, *, single: bool = False) -> OwnSystem:
        """The own API; `single`: record by record."""
        name = SINGLE if single else OWN
        return OwnSystem(name, self.cluster, self.directory, single=single)

    def listener(self, *, tls: bool = True) -> KafkaSystem:
        """The Kafka listener."""
        if tls:
            servers = ",".join(f"{HOST}:{port}" for port in self._ports)
            told = {"bootstrap.servers": servers, **secure(f"{self.cluster.directory}/pki")}
        else:
            told = {"bootstrap.servers": self.cluster.client_config().kafka_bootstrap}
        return KafkaSystem(LISTENER, told, self.pids, self.cluster.directory, {})


def changed(text: str, settings: Mapping[str, int]) -> str:
    """Replace numbers in a node's configuration. Raises KeyError if it has no such key."""
    for name, value in settings.items():
        text, count = re.subn(rf"^{name} = \d+$", f"{name} = {value}", text, flags=re.MULTILINE)
        if not count:
            raise KeyError(name)
    return text

"""Apache Kafka on this machine: three KRaft brokers that are controllers too, mutual TLS 1.3
between brokers and for clients, and a plaintext listener beside it.

Settings are Kafka's defaults but for three replicas, two of which must have a record. Controllers
talk in plaintext, in Kafka's favour. Invariant: what was started is stopped.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from bench import maven
from bench.maven import NotStarted
from bench.meter import own_group
from samelog.cli.local_cluster import free_ports
from samelog.config.pki.authority import CertificateRole, create_authority, issue

HOST = "127.0.0.1"
BROKERS = 3
START_S = 240.0
CLUSTER_ID = "bench-AAAAAAAAAAAAAAAAAA"
HEAP = ("-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
"""As Kafka's own script starts it, but that memory is not taken at once."""
SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "SSL",
    "controller.listener.names": "CONTROLLER",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.protocol": "TLSv1.3",
}


class Broker:
    """One process. `ports`: of plaintext, TLS and the controller."""

    def __init__(self, directory: Path, number: int, ports: tuple[int, int, int]) -> None:
        self.ports = ports
        self.directory = directory / f"broker-{number}"
        self.directory.mkdir(parents=True)
        self.settings = self.directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    def start(self) -> None:
        """Start the process."""
        with (self.directory / "log").open("ab") as log:
            command = [*java(*HEAP), "kafka.Kafka", str(self.settings)]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        own_group(self._process.pid)

    def wait_answers(self) -> None:
        """Until it takes connections. Raises NotStarted."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.pid is not None:
            try:
                for port in self.ports[:2]:
                    socket.create_connection((HOST, port), 2).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise NotStarted(f"{maven.KAFKA}: no answer at {self.ports[:2]}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        text = (self.directory / "log").read_text(encoding="utf-8", errors="replace")
        return " / ".join(text.splitlines()[-3:])[-600:]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Brokers:
    """All three; a context manager that stops them."""

    def __init__(self, directory: str) -> None:
        """Raises Unavailable."""
        maven.jars(maven.KAFKA)
        self.directory = directory
        self._pki = Path(directory, "pki")
        self.nodes: list[Broker] = []
        ports = free_ports(3 * BROKERS)
        for number in range(BROKERS):
            own = (ports[number], ports[BROKERS + number], ports[2 * BROKERS + number])
            self.nodes.append(Broker(Path(directory), number, own))
        authority = create_authority(str(self._pki), "kafka")
        for number, node in enumerate(self.nodes):
            told = self._settings(number, node, authority.cert)
            lines = [f"{name}={value}" for name, value in told.items()]
            node.settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        issue(str(self._pki), CertificateRole.CLIENT, "local")

    def _settings(self, number: int, node: Broker, authority: str) -> dict[str, str]:
        files = issue(str(self._pki), CertificateRole.NODE, f"broker-{number}", hosts=(HOST,))
        store = node.directory / "keystore.pem"
        store.write_text(Path(files.key).read_text() + Path(files.cert).read_text())
        plain, tls, controller = node.ports
        public = f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls}"
        voters = [f"{at}@{HOST}:{each.ports[2]}" for at, each in enumerate(self.nodes)]
        return {
            **SETTINGS,
            "node.id": str(number),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{public},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": public,
            "log.dirs": str(node.directory / "logs"),
            "ssl.keystore.location": str(store),
            "ssl.truststore.location": authority,
        }

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all. Raises NotStarted."""
        making = [_format(node) for node in self.nodes]
        if any(each.wait(START_S) for each in making):
            raise NotStarted(f"{maven.KAFKA}: its storage cannot be formatted")
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_answers()

    def stop(self) -> None:
        """Stop all, at once: controllers that go one by one wait for each other."""
        for node in self.nodes:
            node.kill()

    def pids(self) -> list[int]:
        """Of those that run."""
        return [node.pid for node in self.nodes if node.pid is not None]

    def told(self, *, tls: bool) -> dict[str, str]:
        """What librdkafka is told to reach them."""
        servers = ",".join(f"{HOST}:{node.ports[1 if tls else 0]}" for node in self.nodes)
        return {"bootstrap.servers": servers} | (secure(str(self._pki)) if tls else {})


def secure(pki: str) -> dict[str, str]:
    """Mutual TLS for librdkafka, with the client certificate of a directory."""
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": os.path.join(pki, "ca.pem"),
        "ssl.certificate.location": os.path.join(pki, "client-local.pem"),
        "ssl.key.location": os.path.join(pki, "client-local.key"),
    }


def java(*options: str) -> list[str]:
    """The beginning of a command."""
    return ["java", *options, "-cp", os.pathsep.join(maven.jars(maven.KAFKA))]


def _format(node: Broker) -> subprocess.Popen[bytes]:
    command = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(node.settings)]
    with (node.directory / "log").open("ab") as log:
        return subprocess.Popen([*java(), *command], stdout=log, stderr=log)

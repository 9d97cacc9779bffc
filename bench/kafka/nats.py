"""NATS JetStream on this machine: three servers (Debian's nats-server), mutual TLS between them and
for clients, streams of three replicas in files.

Its defaults: as Apache Kafka's, a record that is acknowledged is in memory of three servers, and is
synced later. Invariant: what was started is stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from bench.kafka.nats_client import Connection, Refused
from bench.kafka.systems import NATS, Bulk, Pace, Pair, new_topic
from bench.maven import NotStarted, Unavailable
from bench.meter import Meter, own_group
from bench.processes import Program, options
from samelog.cli.local_cluster import free_ports
from samelog.config.pki.authority import CertificateRole, create_authority, issue

HOST = "127.0.0.1"
SERVERS = 3
START_S = 120.0
PROGRAM = "nats-server"
SETTINGS = """\
listen: "{host}:{port}"
server_name: n{number}
max_pending: 256MB
jetstream {{ store_dir: "{store}", max_mem: 1G, max_file: 20G }}
tls {{ {tls}, verify: true }}
cluster {{
  name: bench, listen: "{host}:{route}", routes: [{routes}]
  tls {{ {tls}, verify: true }}
}}
"""


class Servers:
    """All three; a context manager that stops them."""

    def __init__(self, directory: str) -> None:
        """Raises Unavailable."""
        if shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            raise Unavailable(f"there is no {PROGRAM} (as root: apt-get install nats-server)")
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = free_ports(2 * SERVERS)
        self.ports, self._routes = ports[:SERVERS], ports[SERVERS:]
        authority = create_authority(f"{directory}/pki", "nats")
        client = issue(f"{directory}/pki", CertificateRole.CLIENT, "local")
        self.told = {
            "port": self.ports[0],
            "ca": authority.cert,
            "cert": client.cert,
            "key": client.key,
        }

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self) -> None:
        """Start all, and wait until they store. Raises NotStarted."""
        for number in range(SERVERS):
            settings = self._settings(number)
            with Path(self.directory, f"n{number}.log").open("ab") as log:
                path = f"{os.environ.get('PATH', '')}:/usr/sbin"
                self._processes.append(
                    subprocess.Popen(
                        [str(shutil.which(PROGRAM, path=path)), "-c", str(settings)],
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
                own_group(self._processes[-1].pid)
        self._wait_stores()

    def _settings(self, number: int) -> Path:
        pki = f"{self.directory}/pki"
        files = issue(pki, CertificateRole.NODE, f"n{number}", hosts=(HOST,))
        pairs = {"cert_file": files.cert, "key_file": files.key, "ca_file": self.told["ca"]}
        path = Path(self.directory, f"n{number}.conf")
        path.write_text(
            SETTINGS.format(
                host=HOST,
                number=number,
                port=self.ports[number],
                route=self._routes[number],
                routes=", ".join(f'"nats://{HOST}:{port}"' for port in self._routes),
                store=f"{self.directory}/store{number}",
                tls=", ".join(f'{name}: "{value}"' for name, value in pairs.items()),
            ),
            encoding="utf-8",
        )
        return path

    def _wait_stores(self) -> None:
        deadline, said = time.monotonic() + START_S, ""
        while time.monotonic() < deadline:
            try:
                self.create("first")
            except (OSError, Refused) as error:
                said = str(error)
                time.sleep(0.2)
            else:
                return
        raise NotStarted(f"{PROGRAM} does not store: {said}")

    def create(self, what: str) -> str:
        """A new stream's name. Raises Refused."""
        stream = new_topic(what)
        made = {"name": stream, "subjects": [stream], "num_replicas": 3, "storage": "file"}
        Connection(self.told).ask(f"STREAM.CREATE.{stream}", made)
        return stream

    def pids(self) -> list[int]:
        """Of all."""
        return [process.pid for process in self._processes]


class NatsSystem:
    """NATS JetStream with its client programs."""

    name = NATS

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.meter = Meter(servers.pids)
        self.directory = servers.directory

    def bulk(self, job: Bulk) -> Pair:
        """See Bulk."""
        return self._pair("produce", "follow", job)

    def paced(self, job: Pace) -> Pair:
        """See Pace."""
        return self._pair("paced", "latencies", job)

    def _pair(self, writer: str, reader: str, job: Bulk | Pace) -> Pair:
        told = {"told": json.dumps(self._servers.told), "topic": self._servers.create(writer)}
        words = options({**told, **job._asdict()})
        module = "bench.kafka.nats_client"
        return Pair(Program(module, [writer, *words]), Program(module, [reader, *words]))

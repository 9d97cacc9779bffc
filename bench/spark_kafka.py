"""What bench/spark.py compares with: Spark's own Kafka source, and Apache Kafka. Nothing of the
product uses either; Maven fetches them, and where it cannot, the benchmark says so and goes on.

Invariant: what was started is stopped, and its files are gone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench.kafka import create
from samelog.cli.local_cluster import free_ports

JARS = Path("build", "bench")
MAVEN_S = 600
START_S = 60.0
CONNECTOR = "spark-sql-kafka-0-10_2.13"
CONNECTOR_VERSIONS = ("4.3.0", "4.2.0")
"""Spark's own first; an older one may still fit."""
KAFKA_VERSION = "4.3.1"
HOST = "127.0.0.1"
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
log.dirs={directory}
"""

Artifact = tuple[str, str, str]
"""Group, name and version in Maven's repositories."""


class Unavailable(Exception):
    """Something to compare with cannot be had; the message says what and why."""


def connector() -> list[str]:
    """The jars of Spark's Kafka source. Raises Unavailable."""
    said = ""
    for version in CONNECTOR_VERSIONS:
        ours = [(CONNECTOR, version), (CONNECTOR.replace("sql", "token-provider"), version)]
        artifacts = [("org.apache.spark", *each) for each in ours]
        artifacts += [("org.apache.kafka", "kafka-clients", "3.9.2")]
        artifacts += [("org.apache.commons", "commons-pool2", "2.12.1")]
        try:
            return fetch(f"connector-{version}", artifacts, alone=True)
        except Unavailable as error:
            said = str(error)
    raise Unavailable(said)


def fetch(name: str, artifacts: Sequence[Artifact], *, alone: bool = False) -> list[str]:
    """Jars from Maven, kept below build/; `alone`: without what they need. Raises Unavailable."""
    target = JARS / name
    if not (target / "complete").exists():
        _fetch(target, artifacts, alone=alone)
    return sorted(str(path.absolute()) for path in target.glob("*.jar"))


def _fetch(target: Path, artifacts: Sequence[Artifact], *, alone: bool) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable(f"{target.name}: there is no mvn (as root: apt-get install maven)")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    pom = target / "pom.xml"
    pom.write_text(_pom(artifacts, alone=alone))
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={target.absolute()}")
    command = ("mvn", "-q", "-B", "-f", str(pom), *goal, "-DincludeScope=runtime")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, check=False)
    if ended.returncode:
        lines = [line for line in ended.stdout.splitlines() if "ERROR" in line] or [ended.stderr]
        raise Unavailable(f"{target.name}: {lines[0][:300]}")
    (target / "complete").touch()


def _pom(artifacts: Sequence[Artifact], *, alone: bool) -> str:
    all_of_it = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{all_of_it}</exclusions>" if alone else ""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{without}</dependency>"
        for group, name, version in artifacts
    )
    head = "<modelVersion>4.0.0</modelVersion><groupId>samelog</groupId>"
    head += "<artifactId>bench</artifactId><version>1</version>"
    return f"<project>{head}<dependencies>{wanted}</dependencies></project>\n"


@contextmanager
def apache_kafka() -> Iterator[str]:
    """A broker on this machine: its bootstrap servers. Raises Unavailable."""
    name = f"kafka-{KAFKA_VERSION}"
    jars = fetch(name, [("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)])
    with tempfile.TemporaryDirectory() as directory:
        broker, controller = free_ports(2)
        settings = os.path.join(directory, "server.properties")
        places = {"broker": broker, "controller": controller, "directory": f"{directory}/logs"}
        Path(settings).write_text(SETTINGS.format(**places))
        java = ("java", "-Xmx512m", "-cp", os.pathsep.join(jars))
        made = ("kafka.tools.StorageTool", "format", "-t", "bench-AAAAAAAAAAAAAAAAAA", "-c")
        ended = subprocess.run([*java, *made, settings], capture_output=True, check=False)
        if ended.returncode:
            raise Unavailable(f"{name}: {ended.stderr.decode(errors='replace')[:300]}")
        log = open(os.path.join(directory, "log"), "wb")  # noqa: SIM115 - the broker's
        process = subprocess.Popen([*java, "kafka.Kafka", settings], stdout=log, stderr=log)
        try:
            _wait_for(broker, process)
            yield f"{HOST}:{broker}"
        finally:
            process.terminate()
            process.wait()
            log.close()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((HOST, port), 2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Unavailable(f"Apache Kafka {KAFKA_VERSION} does not answer at port {port}")


def produce(servers: str, topic: str, values: Sequence[bytes]) -> None:
    """A topic of one partition that holds these values."""
    create(servers, topic)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20})
    for value in values:
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(300):
        raise Unavailable(f"{left} records were not taken by {servers}")

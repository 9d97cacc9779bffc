"""Clients that get all their settings from an HTTPS server, and updates while they run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import LocalCluster, free_ports
from samelog.config.client_state import STATE_VARIABLE
from samelog.config.pki.authority import CertificateRole
from samelog.config.pki.rotation import rotate
from samelog.config.remote import CA_VARIABLE
from samelog.config.values import Address
from samelog.runtime import reload
from tests.config.serving import Answer, ConfigServer
from tests.e2e.commands import samelog
from tests.e2e.harness import World, read_segments, wait_for
from tests.http import asking
from tests.patience import PATIENCE_S

FOLLOW_S = 0.2
OFTEN = f"""
from samelog.cli.main import main
from samelog.runtime import reload
reload.FOLLOW_S = {FOLLOW_S}
main()
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    path = tmp_path_factory.mktemp("enrolment")
    with LocalCluster(str(path / "cluster")) as cluster:
        cluster.start()
        yield World(cluster, path)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigServer]:
    made = ConfigServer(tmp_path)
    monkeypatch.setenv(CA_VARIABLE, made.ca)
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(reload, "FOLLOW_S", FOLLOW_S)
    yield made
    made.stop()


def enrolled(
    world: World, *, role: str = "client", nodes: int = 3, topics: tuple[str, ...] = ()
) -> Answer:
    """What the server is to say. The cluster lets in any client, and no publisher."""
    cluster, out = world.cluster, str(world.directory / "enrolled.toml")
    options = [f"--node={node.name}={node.address}" for node in cluster.nodes[:nodes]]
    options += [f"--topic={topic}" for topic in topics]
    options += ["--cluster", cluster.client_config().cluster, "--out", out]
    ended = samelog("pki", "enrol", role, "told", "--dir", f"{cluster.directory}/pki", *options)
    assert ended.returncode == 0, ended.stderr
    return Answer(Path(out).read_bytes())


class Sidecar:
    """A sidecar process that looks often, and where it answers HTTP."""

    def __init__(self, url: str, directory: Path, kind: str, *more: str) -> None:
        self.address = Address("127.0.0.1", *free_ports(1))
        self.log = directory.with_suffix(".log")
        arguments = ["sidecar", kind, "--config", url, "--dir", str(directory), *more]
        command = [sys.executable, "-c", OFTEN, *arguments, "--http", str(self.address)]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(command, stderr=out)
        wait_for(self._answers, f"it answers; see {self.log}")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            return asking.ask(self.address, "GET", "/healthz").status == 200
        except OSError:
            return False

    def status(self) -> Any:
        return asking.get(self.address, "/status")

    def is_refused(self) -> bool:
        """Whether its metrics say that its configuration is."""
        return "samelog_config_refused 1.0" in asking.get(self.address, "/metrics")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0, self.log.read_text()
        assert "Traceback" not in self.log.read_text()


@contextmanager
def sidecar(url: str, directory: Path, kind: str, *more: str) -> Iterator[Sidecar]:
    made = Sidecar(url, directory, kind, *more)
    try:
        yield made
    finally:
        made.stop()


def shipped_to(sidecar: Sidecar) -> set[str]:
    """The nodes that take what it ships."""
    sessions = sidecar.status()["sessions"]
    nodes = sessions[0]["nodes"] if sessions else []
    return {node["node"] for node in nodes if node["phase"] in ("idle", "shipping", "ending")}


def topics_of(sidecar: Sidecar) -> set[str]:
    return {copy["topic"] for copy in sidecar.status()["copies"]}


def served(local: str) -> set[str]:
    """The topics that Kafka clients of a sidecar see; none before it listens."""
    try:
        return set(AdminClient({"bootstrap.servers": local}).list_topics(timeout=2).topics)
    except KafkaException:
        return set()


def append(path: Path, topic: str, value: bytes) -> None:
    with Publisher(topic, session="local", directory=path, ship=False) as publisher:
        publisher.append(value)


def test_a_url_is_all_that_a_program_needs(
    world: World, server: ConfigServer, tmp_path: Path
) -> None:
    server.answer = enrolled(world, nodes=1, topics=("program",))
    with (
        Publisher("program", session="p", directory=tmp_path / "p", config=server.url) as publisher,
        Subscriber(directory=tmp_path / "s", config=server.url) as subscriber,
    ):
        publisher.append(b"one")
        publisher.wait_merged(PATIENCE_S)
        assert [record.value for record in subscriber.batch(1, timeout=PATIENCE_S)] == [b"one"]
        shipper = publisher._shipper
        assert shipper is not None
        rotate(f"{world.cluster.directory}/pki", CertificateRole.CLIENT, "told")
        server.answer = enrolled(world, topics=("program",))
        client = shipper._client
        wait_for(
            lambda: (
                [node.phase for node in client.status.nodes].count(None) == 0
                and len(client.status.nodes) == 3
            ),
            "it ships to all nodes",
        )
        server.answer = Answer(status=503)
        wait_for(lambda: bool(shipper._follower.problem), "a problem")
        publisher.append(b"two")
        publisher.wait_merged(PATIENCE_S)
        assert [record.value for record in subscriber.batch(1, timeout=PATIENCE_S)] == [b"two"]

    told = ("subscribe", "--config", server.url, "--dir", str(tmp_path / "t"), "--max", "2")
    server.answer = enrolled(world, topics=("program",))
    assert samelog(*told).stdout.split() == ["one", "two"]
    server.answer = enrolled(world)
    assert "there are no topics in [subscriber]" in samelog(*told).stderr


def test_sidecars_follow_it_and_go_on_without_it(
    world: World, server: ConfigServer, tmp_path: Path
) -> None:
    sessions, copies = tmp_path / "sessions", tmp_path / "copies"
    append(sessions, "first", b"one")
    server.answer = enrolled(world, role="publisher", nodes=1)
    with sidecar(server.url, sessions, "publisher") as publisher:
        wait_for(lambda: bool(publisher.status()["sessions"]), "there is a session")
        assert shipped_to(publisher) == set()  # with this certificate it may not
        server.answer = enrolled(world, topics=("first",))
        names = {node.name for node in world.cluster.nodes}
        wait_for(lambda: shipped_to(publisher) == names, "another certificate, and more nodes")
        local = str(Address("127.0.0.1", *free_ports(1)))
        with sidecar(server.url, copies, "subscriber", "--kafka", local) as subscriber:
            wait_for(lambda: topics_of(subscriber) == {"first"}, "the topic is copied")
            wait_for(lambda: served(local) == {"first"}, "its Kafka clients see it")
            append(sessions, "second", b"two")
            server.answer = enrolled(world, topics=("second",))
            wait_for(lambda: topics_of(subscriber) == {"second"}, "the other topic is copied")
            wait_for(lambda: served(local) == {"second"}, "its Kafka clients see that")
            wait_for(lambda: b"two" in read_segments(str(copies / "second-0")), "its record")
            assert b"one" in read_segments(str(copies / "first-0"))

            for answer, why in (
                (Answer(status=503), "answered 503"),
                (Answer(b"nodes = []"), "must name at least one node"),
            ):
                server.answer = answer
                for each in (publisher, subscriber):
                    wait_for(
                        lambda: why in each.status()["config_problem"],  # noqa: B023
                        f"it says: {why}",
                    )
                    assert each.is_refused()
            assert "refused, kept the old" in publisher.log.read_text()
            append(sessions, "second", b"three")
            wait_for(lambda: b"three" in read_segments(str(copies / "second-0")), "it goes on")

    server.stop()
    try:
        append(sessions, "second", b"four")
        with (
            sidecar(server.url, sessions, "publisher") as publisher,
            sidecar(server.url, copies, "subscriber") as subscriber,
        ):
            wait_for(lambda: b"four" in read_segments(str(copies / "second-0")), "without it")
            warned = r"^\S+ \S+ WARNING samelog\.config\.load .* used last is used again$"
            assert re.search(warned, subscriber.log.read_text(), re.MULTILINE)
            assert "cannot be reached" in publisher.status()["config_problem"]
    finally:
        server.start()

"""What deploy/k8s starts, run as processes: rolled one by one under load, and scaled by the steps
of docs/kubernetes.md.
"""

from __future__ import annotations

import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from confluent_kafka import KafkaError, Message, Producer

from bench.rolling import Pauses
from samelog import Publisher, Subscriber
from samelog.cli.output import NoLongerAMember
from samelog.config.pki.authority import CertificateRole, issue
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from tests.e2e.harness import read_segments, wait_for
from tests.k8s.kubelet import Pod, Secrets
from tests.k8s.render import DEPLOY, Resource, find, render
from tests.patience import PATIENCE_S

PAGE = DEPLOY.parent.parent / "docs" / "kubernetes.md"
LIST = ("samelog", "node", "list", "--config", "/etc/samelog/client.toml")
RELOADED = "certificates reloaded"
KAFKA_PAUSE_S = 0.05
PEER = re.compile(r"\[\[peers\]\]\n(?:\w+ = .*\n)+\n?")


class Stateful:
    """The StatefulSet's pods, and clients of the cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pki = directory / "pki"
        self.secrets = Secrets(self.pki)
        self.pods: list[Pod] = []
        self.others: list[Pod] = []
        self.config: ClientConfig | None = None

    def apply(self, overlay: str, *, peers: int | None = None) -> None:
        """`kubectl apply -k`: pods that run are rolled, highest first; missing ones are started,
        those above the number end, and their volume claims are deleted. `peers`: the configuration
        names so many of the nodes, and not those of the overlay.
        """
        resources = render(f"overlays/{overlay}")
        if peers is not None:
            name_peers(resources, peers)
        wanted = find(resources, "StatefulSet", "rt-sequencer")["spec"]["replicas"]
        for pod in self.pods[wanted:]:
            pod.kill()
            shutil.rmtree(pod.path("/var/lib/samelog"))
        del self.pods[wanted:]
        running = list(self.pods)
        for number in range(len(running), wanted):
            pod = Pod(f"rt-sequencer-{number}", self.directory, self.secrets)
            self.pods.append(pod)
            pod.start(resources)
        for pod in reversed(running):
            pod.stop()
            pod.start(resources)
            pod.wait_ready()

    def wait_ready(self) -> None:
        for pod in self.pods:
            pod.wait_ready()

    def client(self) -> ClientConfig:
        """An administrator, publisher and subscriber in one: as the examples, all on this host."""
        found = []
        for role in (CertificateRole.PUBLISHER, CertificateRole.SUBSCRIBER):
            if not (self.pki / f"{role.value}-test.pem").exists():
                issue(str(self.pki), role, "test")
            stem = str(self.pki / f"{role.value}-test")
            found.append(
                TlsFiles(ca=str(self.pki / "ca.pem"), cert=f"{stem}.pem", key=f"{stem}.key")
            )
        self.publisher_tls, self.subscriber_tls = found
        nodes = tuple(Address(pod.ip, 7000) for pod in self.pods)
        return ClientConfig(nodes=nodes, cluster="rt", tls=self.publisher_tls)

    def publisher(self) -> Publisher:
        directory = str(self.directory / "publisher")
        return Publisher("ticks", session="load", directory=directory, config=self.client())

    def read(self, count: int, *, topic: str = "ticks") -> list[bytes]:
        """The records of a topic, of which there are so many."""
        config = self.client()
        config = ClientConfig(nodes=config.nodes, cluster="rt", tls=self.subscriber_tls)
        found: list[bytes] = []
        directory = str(self.directory / "copies")
        with Subscriber(topic, directory=directory, config=config, start="earliest") as copies:

            def more() -> bool:
                found.extend(bytes(x.value or b"") for x in copies.batch(timeout=0.5))
                return len(found) >= count

            wait_for(more, f"{count} records")
        return found

    def is_equal(self, topic: str) -> bool:
        """Whether every node's merged log is the same."""
        directories = (
            pod.path("/var/lib/samelog/data") / "merged" / f"{topic}-0" for pod in self.pods
        )
        return len({read_segments(str(directory)) for directory in directories}) == 1

    def beside(self, name: str, what: tuple[str, str, str], number: int) -> Pod:
        """A container that is none of the cluster's."""
        pod = Pod(name, self.directory, self.secrets, what=what, number=number)
        self.others.append(pod)
        return pod

    def topics(self) -> set[str]:
        """Those that have a merged log."""
        merged = self.pods[0].path("/var/lib/samelog/data") / "merged"
        return {path.name.rpartition("-")[0] for path in merged.iterdir()}

    def renew_certificates(self) -> None:
        """Until every node has taken over another certificate."""
        for pod in self.pods:
            seen = pod.log.read_text().count(RELOADED)
            self.secrets.renew(pod.name)
            pod.refresh()
            wait_for(lambda: pod.log.read_text().count(RELOADED) > seen, f"{pod.name}: {RELOADED}")  # noqa: B023

    def swap_volumes(self, one: int, other: int) -> None:
        """Let each of two pods have the other's volume."""
        first, second = (self.pods[x].path("/var/lib/samelog") for x in (one, other))
        beside = first.with_name("beside")
        first.rename(beside)
        second.rename(first)
        beside.rename(second)

    def follow(self, title: str) -> None:
        """Do what a part of the documentation says."""
        part = PAGE.read_text(encoding="utf-8").split(f"\n{title}:\n", 1)[1].split("```")[1]
        for line in part.strip().replace("\\\n", "").splitlines():
            words = shlex.split(line)
            if words[:2] == ["kubectl", "apply"]:
                self.apply(Path(words[-1]).name)
                continue
            assert words[:5] == ["kubectl", "exec", "-n", "samelog", "rt-sequencer-0"]
            command = words[words.index("--") + 1 :]
            if "--confirm" in command:  # the page has a placeholder, against pasting
                command[command.index("--confirm") + 1] = command[3]
            done = self.pods[0].execute(command)
            assert done.returncode == 0, f"{line}: {done.stderr}"


def name_peers(resources: list[Resource], count: int) -> None:
    """Let the nodes' configuration name so many of them."""
    files = find(resources, "ConfigMap", "rt-sequencer")["data"]
    files["node.toml"] = PEER.sub("", files["node.toml"]) + "".join(
        f'[[peers]]\nname = "rt-sequencer-{n}"\n'
        f'address = "rt-sequencer-{n}.rt-sequencer.samelog.svc:7000"\n'
        for n in range(count)
    )


@pytest.fixture
def cluster(tmp_path: Path, starts_nodes: None) -> Iterator[Stateful]:
    made = Stateful(tmp_path)
    yield made
    for pod in (*made.others, *made.pods):
        pod.kill()


class KafkaLoad:
    """A Kafka client that produces with acks=all, and counts what failed."""

    def __init__(self, cluster: Stateful) -> None:
        tls = cluster.client().tls
        servers = ",".join(f"{pod.ip}:9093" for pod in cluster.pods)
        self.delivered, self.failed = 0, list[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "security.protocol": "ssl",
                "ssl.ca.location": tls.ca,
                "ssl.certificate.location": tls.cert,
                "ssl.key.location": tls.key,
                "enable.idempotence": True,
            }
        )

    def __enter__(self) -> KafkaLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)
        del self._producer  # its threads end with it

    def _run(self) -> None:
        while not self._stop.wait(KAFKA_PAUSE_S):
            self._producer.produce("orders", b"order", on_delivery=self._done)
            self._producer.poll(0)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(str(error))


def test_rolling_fails_no_write_and_loses_no_record(
    cluster: Stateful, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.apply("prod-bootstrap")
    cluster.wait_ready()
    with cluster.publisher() as publisher, KafkaLoad(cluster) as kafka:
        wait_for(lambda: kafka.delivered > 0, "the first order is acknowledged")
        with Pauses(publisher) as pauses:
            cluster.renew_certificates()
            cluster.apply("prod")  # takes --bootstrap away: all pods roll
            longest = pauses.take()
        assert all(pod.probe("livenessProbe") for pod in cluster.pods)
        publisher.wait_merged(timeout=PATIENCE_S)
    with capsys.disabled():
        click.echo(
            f"\nrolling three pods: longest wait for an acknowledgement {longest * 1000:.0f} ms"
        )
    assert kafka.failed == []
    assert cluster.read(pauses.appended) == [b"load"] * pauses.appended
    assert cluster.read(kafka.delivered, topic="orders") == [b"order"] * kafka.delivered
    wait_for(lambda: cluster.is_equal("ticks") and cluster.is_equal("orders"), "equal logs")
    assert all("archiving policy file" in pod.log.read_text() for pod in cluster.pods)
    done = cluster.pods[0].execute([*LIST, "--json"])
    assert done.stdout.count('"live"') == 3, done.stdout + done.stderr


def test_scaling_by_the_documented_steps(cluster: Stateful) -> None:
    cluster.apply("dev")
    cluster.wait_ready()
    with cluster.publisher() as publisher:
        publisher.append_many([b"%d" % n for n in range(100)])
        publisher.wait_merged(timeout=PATIENCE_S)
    cluster.follow("From `dev` to `prod`")
    cluster.wait_ready()
    cluster.follow("From `prod` to `five`")
    cluster.wait_ready()
    assert cluster.read(100) == [b"%d" % n for n in range(100)]
    wait_for(lambda: cluster.is_equal("ticks"), "five equal logs")
    cluster.pods[1].stop()
    cluster.pods[2].stop()
    wait_for(lambda: cluster.pods[0].probe("readinessProbe"), "three of five are a majority")
    cluster.swap_volumes(1, 2)
    cluster.pods[1].start(render("overlays/five"))
    refusal = "belongs to node 'rt-sequencer-2'"
    wait_for(lambda: refusal in cluster.pods[1].log.read_text(), "whose the volume is")
    assert cluster.pods[1].wait() == 1
    cluster.swap_volumes(1, 2)
    for pod in cluster.pods[1:3]:
        pod.start(render("overlays/five"))
        pod.wait_ready()
    cluster.follow("To go back")
    for pod in cluster.pods[3:]:
        assert pod.wait() == NoLongerAMember.exit_code
        assert "was removed" in pod.log.read_text().splitlines()[-1]
    done = cluster.pods[0].execute([*LIST, "--json"])
    assert done.stdout.count('"live"') == 3, done.stdout + done.stderr


@pytest.mark.campaign
def test_nodes_that_joined_roll_and_go_and_join_again(cluster: Stateful) -> None:
    """From 3 to 5 to 3, twice, all of them rolled in between. The configuration names the first
    three, as the overlays do, or all, also when two were removed; who joins again has a new volume.
    """
    cluster.apply("prod-bootstrap")
    cluster.wait_ready()
    sent: list[bytes] = []
    with cluster.publisher() as publisher:

        def write() -> None:
            more = [b"%d" % (len(sent) + n) for n in range(100)]
            sent.extend(more)
            publisher.append_many(more)
            publisher.wait_merged(timeout=PATIENCE_S)

        for peers in ((None, 5), (None,)):
            write()
            cluster.follow("From `prod` to `five`")
            cluster.wait_ready()
            write()
            for named in peers:
                cluster.apply("five", peers=named)
                write()
            wait_for(lambda: cluster.is_equal("ticks"), "five equal logs")
            cluster.follow("To go back")
            assert {pod.wait() for pod in cluster.pods[3:]} == {NoLongerAMember.exit_code}
            cluster.apply("prod", peers=peers[-1])
        write()
    assert cluster.read(len(sent)) == sent
    wait_for(lambda: cluster.is_equal("ticks"), "three equal logs")
    assert cluster.pods[0].execute([*LIST, "--json"]).stdout.count('"live"') == 3


def test_the_examples_publish_and_copy(cluster: Stateful) -> None:
    """The program and its sidecar, and the copy of what they publish."""
    cluster.apply("dev")
    cluster.wait_ready()
    publisher, subscriber = render("examples/publisher"), render("examples/subscriber")
    kind, name = "Deployment", "example-publisher"
    program = cluster.beside(name, (kind, name, "program"), 10)
    sidecar = cluster.beside(name, (kind, name, "sidecar"), 10)
    for container in (sidecar, program):
        container.start(publisher)
    sidecar.wait_ready()
    name = "example-subscriber"
    copies = cluster.beside(name, ("DaemonSet", name, "sidecar"), 11)
    copies.start(subscriber)
    wait_for(lambda: cluster.topics() == {"ticks"}, "the topic is there")
    copies.wait_ready()
    directory = copies.path("/var/lib/samelog-copies") / "ticks-0"
    wait_for(lambda: b"tick 3" in read_segments(str(directory)), "records are copied")
    copies.stop()
    sidecar.stop()

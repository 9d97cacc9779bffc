"""Pods that were given what is not theirs say so, and end: Kubernetes then shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.k8s.kubelet import Pod, Secrets
from tests.k8s.render import Resource, containers, find, render

Change = Callable[[list[Resource]], None]


def no_change(resources: list[Resource]) -> None:
    """As it stands in deploy/."""


def in_config(old: str, new: str) -> Change:
    """The node configuration says something else."""

    def change(resources: list[Resource]) -> None:
        data = find(resources, "ConfigMap", "rt-sequencer")["data"]
        assert old in data["node.toml"]
        data["node.toml"] = data["node.toml"].replace(old, new)

    return change


def in_environment(name: str, value: str) -> Change:
    """A variable of the StatefulSet has another value."""

    def change(resources: list[Resource]) -> None:
        [container] = containers(find(resources, "StatefulSet", "rt-sequencer"))
        [variable] = [each for each in container["env"] if each["name"] == name]
        variable.update(value=value)

    return change


def both(one: Change, other: Change) -> Change:
    """Two things at once."""

    def change(resources: list[Resource]) -> None:
        one(resources)
        other(resources)

    return change


PEER_2 = '[[peers]]\nname = "rt-sequencer-2"'
CASES = {
    "an ordinal that the first voters do not have": (
        "rt-sequencer-3",
        no_change,
        "rt-sequencer-2: it can join their cluster, but not begin one",
    ),
    "an even number of voters": (
        "rt-sequencer-0",
        in_config(PEER_2, PEER_2.replace("-2", "-4") + '\naddress = "a:1"\n\n' + PEER_2),
        "4 peers: a new cluster has 1, 3, 5 or 7 voters",
    ),
    "a voter twice": (
        "rt-sequencer-0",
        in_config(PEER_2, PEER_2.replace("-2", "-1")),
        "peers: 'rt-sequencer-1' is there twice",
    ),
    "another pod's certificate": (
        "rt-sequencer-0",
        in_environment("SAMELOG_TLS_CERT", "/etc/samelog-tls/rt-sequencer-1/tls.crt"),
        "with key",
    ),
    "another pod's certificate and key": (
        "rt-sequencer-0",
        both(
            in_environment("SAMELOG_TLS_CERT", "/etc/samelog-tls/rt-sequencer-1/tls.crt"),
            in_environment("SAMELOG_TLS_KEY", "/etc/samelog-tls/rt-sequencer-1/tls.key"),
        ),
        "is of samelog://node/rt-sequencer-1, not of samelog://node/rt-sequencer-0",
    ),
    "no certificate": (
        "rt-sequencer-5",
        no_change,
        "tls.ca (from SAMELOG_TLS_CA): ",
    ),
    "a typing error": (
        "rt-sequencer-0",
        in_config('listen = "0.0.0.0:7000"', 'lisen = "0.0.0.0:7000"'),
        "node.lisen: unknown key; did you mean 'listen'?",
    ),
}


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path / "pki")


def refusal(pod: Pod, resources: list[Resource]) -> str:
    """What the pod says last, when it has ended with an error."""
    pod.start(resources)
    assert pod.wait() in {1, 2}
    said = pod.log.read_text()
    assert "Traceback" not in said
    return said.splitlines()[-1]


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.parametrize("case", CASES)
def test_impossible_values_end_the_pod(case: str, tmp_path: Path, secrets: Secrets) -> None:
    name, change, message = CASES[case]
    resources = render("overlays/prod-bootstrap")
    change(resources)
    pod = Pod(name, tmp_path, secrets)
    assert message in refusal(pod, resources)
    assert not (pod.path("/var/lib/samelog/data") / "node.json").exists()


@pytest.fixture
def used(tmp_path: Path, secrets: Secrets, starts_nodes: None) -> Iterator[Pod]:
    """A pod whose volume has been used."""
    pod = Pod("rt-sequencer-0", tmp_path, secrets)
    pod.start(render("overlays/dev"))
    pod.wait_ready()
    pod.stop()
    yield pod
    pod.kill()


def test_a_volume_of_another_pod_or_cluster_ends_it(
    used: Pod, tmp_path: Path, secrets: Secrets
) -> None:
    data = used.path("/var/lib/samelog/data")
    kept = (data / "node.json").read_bytes()
    resources = render("overlays/dev")
    in_config('cluster = "rt"', 'cluster = "eu"')(resources)
    assert refusal(used, resources).endswith("belongs to cluster 'rt', the configuration says 'eu'")
    other = Pod("rt-sequencer-1", tmp_path, secrets)
    other_volume = tmp_path / "rt-sequencer-1" / "var" / "lib"
    other_volume.mkdir(parents=True)
    data.parent.rename(other_volume / "samelog")
    assert refusal(other, render("overlays/prod")).endswith(
        "belongs to node 'rt-sequencer-0', the configuration says 'rt-sequencer-1'"
    )
    assert (other_volume / "samelog" / "data" / "node.json").read_bytes() == kept

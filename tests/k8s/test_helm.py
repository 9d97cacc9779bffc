"""The Helm chart says what deploy/k8s says: a cluster may be installed either way.

Rendered by Helm itself (`scripts/clients.sh helm` builds it); left out without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from samelog.config.schema.environment import variable_names
from samelog.config.tables.node import NODE_FILE
from tests.k8s.render import DEPLOY, Resource, find, render
from tests.k8s.test_manifests import check, with_component

ROOT = DEPLOY.parent.parent
CHART = DEPLOY.parent / "helm" / "samelog"
TOOLS = ROOT / "build" / "tools"
HELM = shutil.which("helm", path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
DEV_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
DEV = {"replicas": 1, "voters": 1, "bootstrap": True, "monitoring": False, "image": "samelog"}
OVERLAYS: dict[str, dict[str, Any]] = {
    "prod": {},
    "prod-bootstrap": {"bootstrap": True},
    "five": {"replicas": 5},
    "dev": DEV | {"resources": DEV_RESOURCES},
}
"""The values that make what an overlay makes."""

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm")


def helm(
    directory: Path, *arguments: str, values: dict[str, Any], namespace: str = "samelog"
) -> subprocess.CompletedProcess[str]:
    """Run a command of Helm on the chart."""
    given = directory / "values.yaml"
    given.write_text(json.dumps(values))
    command = [str(HELM), *arguments, str(CHART), "--namespace", namespace, "--values", str(given)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def template(directory: Path, values: dict[str, Any], namespace: str = "samelog") -> list[Resource]:
    done = helm(directory, "template", "name", values=values, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def compared(resources: list[Resource]) -> dict[tuple[str, str], Resource]:
    """By kind and name. Files are compared by what they say; the namespace is Helm's to make."""
    for data in (each["data"] for each in resources if each["kind"] == "ConfigMap"):
        data["node.toml"] = tomllib.loads(data["node.toml"])
        data["client.toml"] = tomllib.loads(data["client.toml"])
        data["archive.json"] = json.loads(data["archive.json"])
    named = {(each["kind"], each["metadata"]["name"]): each for each in resources}
    assert len(named) == len(resources)
    named.pop(("Namespace", "samelog"), None)
    return named


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_makes_what_the_overlay_makes(overlay: str, tmp_path: Path) -> None:
    made = compared(template(tmp_path, OVERLAYS[overlay]))
    expected = compared(render(f"overlays/{overlay}"))
    if overlay == "dev":  # its certificates are those of three nodes
        del expected["Certificate", "rt-sequencer-1"], expected["Certificate", "rt-sequencer-2"]
    assert made == expected


def test_kubernetes_takes_a_cluster_in_another_namespace(tmp_path: Path) -> None:
    resources = template(tmp_path, {"storage": {"class": "fast"}}, "logs")
    for resource in resources:
        check(resource)
        assert resource["metadata"]["namespace"] == "logs"
    assert "samelog.svc" not in json.dumps(resources)
    [claim] = find(resources, "StatefulSet", "rt-sequencer")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"


def test_rafts_files_get_a_volume_of_their_own(tmp_path: Path) -> None:
    storage = {"raftSize": "4Gi", "raftClass": "fast"}
    resources = template(tmp_path, {"storage": storage})
    nodes = find(resources, "StatefulSet", "rt-sequencer")["spec"]
    data, raft = nodes["volumeClaimTemplates"]
    assert "storageClassName" not in data["spec"]
    assert raft["spec"]["storageClassName"] == "fast"
    mounts = nodes["template"]["spec"]["containers"][0]["volumeMounts"]
    where = {each["name"]: each["mountPath"] for each in mounts}[raft["metadata"]["name"]]
    text = find(resources, "ConfigMap", "rt-sequencer")["data"]["node.toml"]
    assert tomllib.loads(text)["node"]["raft_dir"] == where
    for resource in resources:
        check(resource)


def test_several_pods_on_a_machine_are_spread_evenly(tmp_path: Path) -> None:
    """As by the component for kustomize."""
    made = template(tmp_path, {"podsPerMachine": 2, "replicas": 6})
    pods = find(made, "StatefulSet", "rt-sequencer")["spec"]["template"]["spec"]
    patched = find(
        render(with_component(tmp_path, "shared-machines")), "StatefulSet", "rt-sequencer"
    )
    expected = patched["spec"]["template"]["spec"]
    assert "affinity" not in pods
    shares = [
        {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
        for spec in (pods, expected)
    ]
    name = variable_names(NODE_FILE)["node.members_on_host"]
    assert [each[name] for each in shares] == ["2", "2"]
    assert pods["topologySpreadConstraints"] == expected["topologySpreadConstraints"]
    machines = pods["topologySpreadConstraints"][1]
    assert (machines["topologyKey"], machines["maxSkew"]) == ("kubernetes.io/hostname", 1)
    for resource in made:
        check(resource)


def test_alerts_link_to_where_the_documentation_is(tmp_path: Path) -> None:
    resources = template(tmp_path, {"documentation": "https://docs.of.mine"})
    rule = json.dumps(find(resources, "PrometheusRule", "rt-sequencer"))
    assert "https://docs.of.mine/docs/operations.html#samelogdown" in rule
    assert "docs.example" not in rule


def test_the_chart_has_nothing_that_helm_minds(tmp_path: Path) -> None:
    done = helm(tmp_path, "lint", "--strict", values={})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 5}, "replica"),
        ({"voters": 4}, "voters"),
        ({"replicas": 1}, "voters: 3 of only 1 replicas"),
        ({"clients": [{"name": "x", "role": "boss", "identity": "y"}]}, "role"),
    ],
)
def test_impossible_values_are_refused(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    done = helm(tmp_path, "template", "name", values=values)
    assert done.returncode != 0
    assert message in done.stderr

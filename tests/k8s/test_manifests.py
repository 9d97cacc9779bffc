"""deploy/k8s renders, is what Kubernetes takes, and keeps its promises about security."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from samelog.config.load import client_config, node_config, read_client, read_node
from samelog.config.schema.environment import variable_names
from samelog.config.tables.node import NODE_FILE
from samelog.config.values import ConfigError
from tests.k8s.operator_schemas import SCHEMAS
from tests.k8s.render import DEPLOY, Resource, containers, find, pod_of, render

OVERLAYS = ("dev", "prod", "prod-bootstrap", "five")
DIRECTORIES = (
    *(f"overlays/{name}" for name in OVERLAYS),
    *(f"examples/{name}" for name in ("publisher", "subscriber", "spark", "spark-nodes")),
)
TOOLS = DEPLOY.parent.parent / "build" / "tools"
KUSTOMIZE = next(
    (
        (found, command)
        for name, command in (("kubectl", "kustomize"), ("kustomize", "build"))
        if (found := shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}"))
    ),
    None,
)
ALERTS = DEPLOY.parent / "prometheus" / "alerts.yaml"
OPERATORS_ALERTS = DEPLOY / "components" / "monitoring" / "alerts.yaml"
CHARTS_ALERTS = DEPLOY.parent / "helm" / "samelog" / "alerts.yaml"
RULE = """\
# Written by `make docs` from deploy/prometheus/alerts.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: rt-sequencer
spec:
"""


@pytest.fixture(scope="module", params=DIRECTORIES)
def rendered(request: pytest.FixtureRequest) -> list[Resource]:
    return render(request.param)


def test_kubernetes_takes_them(rendered: list[Resource]) -> None:
    for resource in rendered:
        assert resource["metadata"]["name"]
        check(resource)


def check(resource: Resource) -> None:
    """Raises ValidationError, of either kind, for what would be refused, or dropped in silence."""
    of_operator = SCHEMAS.get((resource["apiVersion"], resource["kind"]))
    if of_operator is None:
        version = kubernetes_validate.latest_version()
        kubernetes_validate.validate(resource, version, strict=True)
    else:
        jsonschema.validate(resource, of_operator)


WRONG = (
    ("overlays/prod", "Certificate", "rt-sequencer-0", "dnsName"),
    ("overlays/prod", "Certificate", "rt-sequencer-0", "renewBefor"),
    ("overlays/prod", "Issuer", "samelog", "vault"),
    ("overlays/prod", "ServiceMonitor", "rt-sequencer", "endpoint"),
    ("overlays/prod", "PodMonitor", "samelog-sidecars", "endpoints"),
    ("overlays/prod", "PrometheusRule", "rt-sequencer", "rules"),
    ("examples/spark", "SparkApplication", "ticks", "volume"),
    ("overlays/prod", "StatefulSet", "rt-sequencer", "replica"),
)


@pytest.mark.parametrize(("directory", "kind", "name", "field"), WRONG)
def test_a_field_that_is_mistyped_is_noticed(
    directory: str, kind: str, name: str, field: str
) -> None:
    resource = find(render(directory), kind, name)
    resource["spec"][field] = {}
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check(resource)


@pytest.mark.skipif(KUSTOMIZE is None, reason="there is neither kustomize nor kubectl")
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_kustomize_renders_the_same(directory: str) -> None:
    command = [*(KUSTOMIZE or ()), str(DEPLOY / directory)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert _sorted(list(yaml.safe_load_all(output))) == _sorted(render(directory))


def _sorted(resources: list[Resource]) -> list[Resource]:
    return sorted(resources, key=lambda each: (each["kind"], each["metadata"]["name"]))


def test_containers_may_do_as_little_as_possible(rendered: list[Resource]) -> None:
    for resource in rendered:
        pod = pod_of(resource)
        if pod is None:
            continue
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"]  # they would look like variables of ours
        for container in containers(resource):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"]
            assert not own["allowPrivilegeEscalation"]
            assert own["capabilities"]["drop"] == ["ALL"]
            assert own.get("runAsNonRoot", True) or own["capabilities"]["add"] == ["CHOWN"]
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_what_is_referred_to_is_there(rendered: list[Resource]) -> None:
    named = {(x["kind"], x["metadata"]["name"]) for x in rendered}
    for resource in rendered:
        for volume in (pod_of(resource) or {}).get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
            if "persistentVolumeClaim" in volume:
                assert (
                    "PersistentVolumeClaim",
                    volume["persistentVolumeClaim"]["claimName"],
                ) in named
        for container in containers(resource):
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert probe not in container or container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_node_has_a_certificate_of_its_identity(overlay: str) -> None:
    resources = render(f"overlays/{overlay}")
    spec = find(resources, "StatefulSet", "rt-sequencer")["spec"]
    for number in range(spec["replicas"]):
        name = f"rt-sequencer-{number}"
        certificate = find(resources, "Certificate", name)["spec"]
        assert certificate["uris"] == [f"samelog://node/{name}"]
        assert f"{name}.rt-sequencer.samelog.svc" in certificate["dnsNames"]
        assert {"server auth", "client auth"} <= set(certificate["usages"])
        assert certificate["secretName"] in _secrets(spec)


def _secrets(spec: dict[str, Any]) -> list[str]:
    [tls] = [x for x in spec["template"]["spec"]["volumes"] if x["name"] == "tls"]
    return [source["secret"]["name"] for source in tls["projected"]["sources"]]


def test_dev_differs_from_prod_by_its_peers_only() -> None:
    dev, prod = (
        find(render(f"overlays/{name}"), "ConfigMap", "rt-sequencer")["data"]["node.toml"]
        for name in ("dev", "prod")
    )
    others = r'\[\[peers\]\]\nname = "rt-sequencer-[12]"\naddress = ".*"\n\n'
    assert re.sub(others, "", prod) == dev


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_any_overlay_may_follow_any_other(overlay: str) -> None:
    """Kubernetes refuses changes of everything else of a StatefulSet."""
    may_change = {"replicas", "template", "updateStrategy", "minReadySeconds"}
    specs = [
        find(render(directory), "StatefulSet", "rt-sequencer")["spec"]
        for directory in ("base", f"overlays/{overlay}")
    ]
    one, other = ({k: v for k, v in spec.items() if k not in may_change} for spec in specs)
    assert one == other


def test_only_a_new_cluster_is_bootstrapped() -> None:
    flags = {
        name: "--bootstrap"
        in containers(find(render(f"overlays/{name}"), "StatefulSet", "rt-sequencer"))[0]["args"]
        for name in OVERLAYS
    }
    assert flags == {"dev": True, "prod": False, "prod-bootstrap": True, "five": False}


def alerts() -> str:
    """The PrometheusRule of deploy/prometheus/alerts.yaml."""
    text = ALERTS.read_text(encoding="utf-8")
    body = text[text.index("groups:") :]
    return RULE + textwrap.indent(body, "  ")


def test_the_alerts_are_those_of_prometheus() -> None:
    """`make docs` rewrites them."""
    assert OPERATORS_ALERTS.read_text(encoding="utf-8") == alerts()
    assert CHARTS_ALERTS.read_bytes() == ALERTS.read_bytes()
    rule = find(render("overlays/prod"), "PrometheusRule", "rt-sequencer")
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("example", ["publisher", "subscriber"])
def test_the_examples_configurations_are_valid(example: str, tmp_path: Path) -> None:
    data = find(render(f"examples/{example}"), "ConfigMap", f"example-{example}")["data"]
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("pem")
        (tmp_path / name).chmod(0o600)
    text = data["client.toml"].replace("/etc/samelog-tls", str(tmp_path))
    (tmp_path / "client.toml").write_text(text)
    config = client_config(read_client(str(tmp_path / "client.toml"), {}))
    assert (config.publisher if example == "publisher" else config.subscriber).http is not None


@pytest.mark.parametrize(
    ("example", "kind"), [("publisher", "Deployment"), ("subscriber", "DaemonSet")]
)
def test_sidecars_are_monitored(example: str, kind: str) -> None:
    monitor = find(render("overlays/prod"), "PodMonitor", "samelog-sidecars")["spec"]
    [endpoint] = monitor["podMetricsEndpoints"]
    template = find(render(f"examples/{example}"), kind, f"example-{example}")["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for x in template["spec"]["containers"] for port in x.get("ports", ())}
    assert endpoint["port"] in ports


def test_spark_may_read_what_the_subscriber_writes() -> None:
    """Copies are for their owner alone."""
    daemons = find(render("examples/subscriber"), "DaemonSet", "example-subscriber")
    owner = daemons["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    spec = find(render("examples/spark"), "SparkApplication", "ticks")["spec"]
    template = yaml.safe_load((DEPLOY / "examples/spark/pod.yaml").read_text())
    check(template)
    contexts = [spec[each]["podSecurityContext"] for each in ("driver", "executor")]
    for context in (*contexts, template["spec"]["securityContext"]):
        assert context["runAsUser"] == owner
        assert 0 in context["supplementalGroups"]


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_spark_reaches_the_nodes_with_a_secret_that_only_its_pods_may_read(role: str) -> None:
    spec = find(render("examples/spark-nodes"), "SparkApplication", "minutes")["spec"]
    own, volumes = spec[role], {each["name"]: each for each in spec["volumes"]}
    places = {each["mountPath"]: volumes[each["name"]] for each in own["volumeMounts"]}
    env = {each["name"]: each["value"] for each in own["env"]}
    directory, name = os.path.split(env["SAMELOG_CONFIG"])
    assert name == "client.toml"
    assert places[directory]["secret"]["defaultMode"] == 0o440
    assert own["podSecurityContext"]["fsGroup"]
    assert "emptyDir" in places[env["SAMELOG_STATE_DIR"]]
    policy = find(render("overlays/prod"), "NetworkPolicy", "rt-sequencer")["spec"]
    asked = [each for rule in policy["ingress"] for each in rule.get("from", ())]
    assert own["labels"] in [each.get("podSelector", {}).get("matchLabels") for each in asked]


def test_the_image_runs_as_the_pods_user() -> None:
    """And what is copied into it is not what .dockerignore leaves out."""
    text = (DEPLOY.parent / "Dockerfile").read_text()
    pod = find(render("base"), "StatefulSet", "rt-sequencer")["spec"]["template"]["spec"]
    user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert f"USER {user}:{group}\n" in text
    assert f"useradd --uid {user} " in text
    top = DEPLOY.parent.parent
    ignored = set((top / ".dockerignore").read_text().split())
    needed = {"samelog", "pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"}
    assert not ignored & needed
    assert {".git", ".venv", "tests"} <= ignored


def test_nodes_of_the_image_can_copy_archives_and_evaluate_views() -> None:
    text = (DEPLOY.parent / "Dockerfile").read_text()
    assert re.findall(r"/src\[([a-z,]+)\]", text) == ["archive,typed"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"SAMELOG_NODE_NAME": "Rt/0"}, "is not a valid name"),
        ({"SAMELOG_NODE_ADVERTISE": "$(POD_NAME)"}, 'is not "host:port"'),
        ({"SAMELOG_TLS_CA": "/nowhere"}, "is not an existing file"),
        ({"SAMELOG_NODE_NAME": ""}, "node.name (from SAMELOG_NODE_NAME): '' is not a text"),
    ],
)
def test_impossible_values_are_told(tmp_path: Path, value: dict[str, str], message: str) -> None:
    data = find(render("overlays/prod"), "ConfigMap", "rt-sequencer")["data"]
    (tmp_path / "node.toml").write_text(data["node.toml"])
    path = str(tmp_path / "node.toml")
    with pytest.raises(ConfigError, match=re.escape(message)):
        node_config(read_node(path, {"SAMELOG_NODE_NAME": "rt-sequencer-0", **value}))


def test_the_manifests_variables_are_ours() -> None:
    [container] = containers(find(render("overlays/prod"), "StatefulSet", "rt-sequencer"))
    known = {name.replace("_N_", "_0_") for name in variable_names(NODE_FILE).values()}
    names = {each["name"] for each in container["env"] if each["name"].startswith("SAMELOG_")}
    assert names - known == {"SAMELOG_CA", "SAMELOG_CERT", "SAMELOG_KEY"}  # a client's


def test_a_pod_names_its_machine_as_its_host() -> None:
    for overlay in OVERLAYS:
        [container] = containers(find(render(f"overlays/{overlay}"), "StatefulSet", "rt-sequencer"))
        sources = {each["name"]: each.get("valueFrom") for each in container["env"]}
        host = sources[variable_names(NODE_FILE)["node.host"]]
        assert host == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_pods_share_machines_only_with_the_component(tmp_path: Path) -> None:
    for directory, may_share in (("overlays/prod", False), (_shared(tmp_path), True)):
        nodes = find(render(directory), "StatefulSet", "rt-sequencer")
        check(nodes)
        pods = nodes["spec"]["template"]["spec"]
        assert ("affinity" not in pods) == may_share
        spread = [each["topologyKey"] for each in pods["topologySpreadConstraints"]]
        assert ("kubernetes.io/hostname" in spread) == may_share


def _shared(directory: Path) -> Path:
    return with_component(directory, "shared-machines")


# --- Raft's files on a volume of their own --------------------------------------------------------


def with_component(directory: Path, name: str) -> Path:
    """An overlay of an operator's own."""
    said = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(DEPLOY / "overlays" / "prod-bootstrap", directory)],
        "components": [os.path.relpath(DEPLOY / "components" / name, directory)],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return directory


@pytest.fixture
def with_raft_volume(tmp_path: Path) -> Path:
    return with_component(tmp_path, "raft-volume")


def test_rafts_files_get_a_volume_of_their_own(with_raft_volume: Path) -> None:
    nodes = find(render(with_raft_volume), "StatefulSet", "rt-sequencer")
    check(nodes)
    claims = [each["metadata"]["name"] for each in nodes["spec"]["volumeClaimTemplates"]]
    assert claims == ["data", "raft"]
    [container] = containers(nodes)
    where = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}["raft"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment[variable_names(NODE_FILE)["node.raft_dir"]] == where


@pytest.mark.skipif(KUSTOMIZE is None, reason="there is neither kustomize nor kubectl")
def test_kustomize_gives_rafts_files_a_volume(with_raft_volume: Path) -> None:
    command = [*(KUSTOMIZE or ()), str(with_raft_volume)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert _sorted(list(yaml.safe_load_all(output))) == _sorted(render(with_raft_volume))


if __name__ == "__main__":
    OPERATORS_ALERTS.write_text(alerts(), encoding="utf-8")
    CHARTS_ALERTS.write_bytes(ALERTS.read_bytes())

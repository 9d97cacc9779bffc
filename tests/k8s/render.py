"""Kustomize's rendering, as far as deploy/k8s uses it: the tests run without kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy" / "k8s"
CLUSTER_WIDE = {"Namespace"}
KNOWN = {
    *("apiVersion", "kind", "namespace", "resources", "components", "patches"),
    *("configMapGenerator", "generatorOptions", "replicas", "images"),
}

Resource = dict[str, Any]


def render(directory: str | Path) -> list[Resource]:
    """What `kubectl kustomize` prints for a directory below deploy/k8s."""
    return _build(DEPLOY / directory, [])


def find(resources: list[Resource], kind: str, name: str) -> Resource:
    """The resource of this kind and name."""
    [found] = [x for x in resources if x["kind"] == kind and x["metadata"]["name"] == name]
    return found


def _build(directory: Path, found: list[Resource]) -> list[Resource]:
    """What a directory adds to, and changes of, what there is."""
    said = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert said.keys() <= KNOWN, f"{directory}: this renderer does not know all of {list(said)}"
    own = [each for name in said.get("resources", []) for each in _load(directory / name)]
    found = [*found, *own]
    for generator in said.get("configMapGenerator", []):
        _generate(directory, generator, said, found)
    for component in said.get("components", []):
        found = _build((directory / component).resolve(), found)
    for patch in said.get("patches", []):
        _patch(patch, found)
    _transform(said, found)
    return found


def _load(path: Path) -> Iterator[Resource]:
    if path.is_dir():
        yield from _build(path.resolve(), [])
    else:
        yield from yaml.safe_load_all(path.read_text())


def _generate(directory: Path, generator: Resource, said: Resource, found: list[Resource]) -> None:
    assert said["generatorOptions"] == {"disableNameSuffixHash": True}
    data = {name: (directory / name).read_text() for name in generator["files"]}
    if generator.get("behavior") == "merge":
        find(found, "ConfigMap", generator["name"])["data"].update(data)
        return
    meta = {key: generator[key] for key in ("name", "namespace") if key in generator}
    found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def _patch(patch: Resource, found: list[Resource]) -> None:
    """A JSON patch (RFC 6902): add, remove and replace."""
    target = find(found, patch["target"]["kind"], patch["target"]["name"])
    for step in yaml.safe_load(patch["patch"]):
        *parents, last = step["path"].lstrip("/").split("/")
        place: Any = target
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        if step["op"] == "add" and last == "-":
            place.append(step["value"])
        elif step["op"] == "remove":
            del place[last]
        else:
            assert step["op"] == "replace"
            assert last in place
            place[last] = step["value"]


def _transform(said: Resource, found: list[Resource]) -> None:
    for resource in found:
        if "namespace" in said and resource["kind"] not in CLUSTER_WIDE:
            resource["metadata"]["namespace"] = said["namespace"]
        for each in said.get("replicas", []):
            if (
                "replicas" in resource.get("spec", {})
                and resource["metadata"]["name"] == each["name"]
            ):
                resource["spec"]["replicas"] = each["count"]
        for container in containers(resource):
            for image in said.get("images", []):
                if container["image"] == image["name"]:
                    container["image"] = f"{image['newName']}:{image['newTag']}"


def pod_of(resource: Resource) -> Resource | None:
    """The pod template's spec, if it has one."""
    found: Resource | None = resource.get("spec", {}).get("template", {}).get("spec")
    return found


def containers(resource: Resource) -> list[Resource]:
    """All containers of a resource's pods."""
    pod = pod_of(resource) or {}
    return [*pod.get("initContainers", []), *pod.get("containers", [])]

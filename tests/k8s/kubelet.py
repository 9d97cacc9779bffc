"""Runs the containers of rendered manifests as processes of this host: exactly their command,
arguments, environment, mounted files, probes and preStop.

What a host has only one of is translated, in the texts of environment and configuration: a mount's
path becomes a directory of the pod; `0.0.0.0`, `127.0.0.1` and the DNS names of nodes addresses in
127.0.0.0/8; the image's programs those that run the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from samelog.cli import local_cluster
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.pki.rotation import rotate
from tests import forking
from tests.e2e.harness import wait_for
from tests.k8s.render import Resource, find
from tests.patience import PATIENCE_S

VARIABLE = re.compile(r"\$\(([A-Z0-9_]+)\)")
POD_DNS = re.compile(r"[a-z-]+-(\d+)\.rt-sequencer\.samelog\.svc(\.cluster\.local)?")
SUCCESS = range(200, 400)
IMAGE_PROGRAMS = "/opt/samelog/bin"
SEQUENCER = ("StatefulSet", "rt-sequencer", "node")
EXAMPLES = {
    "samelog-publisher-tls": (CertificateRole.PUBLISHER, "example"),
    "samelog-subscriber-tls": (CertificateRole.SUBSCRIBER, "example"),
}
"""Who the Secrets of the examples are for."""


def address(number: int) -> str:
    """The address of the pod of this number; test processes beside this one have others."""
    own = os.getpid()
    return f"127.{1 + own % 250}.{1 + own // 250 % 250}.{1 + number}"


class Secrets:
    """The Secrets that cert-manager makes, or `samelog pki` and `kubectl create secret`."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        create_authority(self._directory, "test")

    def files(self, name: str) -> dict[str, bytes]:
        """The contents of a Secret, made when first asked for."""
        role, identity = EXAMPLES.get(name, (CertificateRole.NODE, name.removesuffix("-tls")))
        stem = os.path.join(self._directory, f"{role.value}-{identity}")
        if not os.path.exists(f"{stem}.pem"):
            number = identity.rpartition("-")[2]
            hosts = (address(int(number)),) if role is CertificateRole.NODE else ()
            issue(self._directory, role, identity, hosts=hosts)
        found = {"ca.crt": f"{self._directory}/ca.pem", "tls.crt": f"{stem}.pem"}
        found["tls.key"] = f"{stem}.key"
        return {key: Path(path).read_bytes() for key, path in found.items()}

    def renew(self, node: str) -> None:
        """As cert-manager does before a certificate ends."""
        rotate(self._directory, CertificateRole.NODE, node)


class Pod:
    """One container of a pod. Its volumes outlive its processes."""

    def __init__(
        self,
        name: str,
        directory: Path,
        secrets: Secrets,
        *,
        what: tuple[str, str, str] = SEQUENCER,
        number: int | None = None,
    ) -> None:
        """`what`: kind and name of the resource, and the container's; `number`: for its address,
        without it that in its name.
        """
        self.name = name
        self.ip = address(int(name.rpartition("-")[2]) if number is None else number)
        self.log = directory / f"{name}-{what[2]}.log"
        self._what = what
        self._directory = directory / name
        self._secrets = secrets
        self._process: local_cluster.Process | None = None
        self._resources: list[Resource] = []
        self._spec: Resource = {}
        self._container: Resource = {}
        self._env: dict[str, str] = {}

    def start(self, resources: list[Resource]) -> None:
        """Start it as these manifests say."""
        self._resources = resources
        kind, name, container = self._what
        self._spec = find(resources, kind, name)["spec"]
        [self._container] = [
            each
            for each in self._spec["template"]["spec"]["containers"]
            if each["name"] == container
        ]
        self._mount()
        self._set_environment()
        command = [
            self._expanded(x)
            for x in (*self._container["command"], *self._container.get("args", []))
        ]
        program, *arguments = (self._here(part) for part in command)
        with open(self.log, "ab") as log:
            if program == "samelog":
                self._process = forking.fork(arguments, log, self._environment())
                return
            self._process = subprocess.Popen(
                [program, *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def refresh(self) -> None:
        """Mount what ConfigMaps and Secrets hold now, as a kubelet does every minute."""
        self._mount()

    def wait_ready(self) -> None:
        """Until the startup probe has succeeded, and then the readiness probe."""
        wait_for(lambda: self.probe("startupProbe"), f"{self.name} has started ({self.log})")
        wait_for(lambda: self.probe("readinessProbe"), f"{self.name} is ready ({self.log})")

    def probe(self, which: str) -> bool:
        """What the kubelet would find; like it, without looking at the certificate."""
        probe = self._container[which]
        asked = probe["httpGet"]
        [port] = [
            x["containerPort"] for x in self._container["ports"] if x["name"] == asked["port"]
        ]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"{asked['scheme'].lower()}://{self.ip}:{port}{asked['path']}"
        timeout = probe.get("timeoutSeconds", 1)
        try:
            with urllib.request.urlopen(url, timeout=timeout, context=context) as answer:
                return answer.status in SUCCESS
        except (OSError, urllib.error.HTTPError):
            return False

    def stop(self) -> None:
        """As a kubelet does: preStop, SIGTERM, and no more time than the grace period."""
        assert self._process is not None
        if "lifecycle" in self._container:
            done = self.execute(self._container["lifecycle"]["preStop"]["exec"]["command"])
            # A kubelet continues after a failed hook. During an election there is no leadership to
            # transfer, and on a loaded machine an election can outlast the hook's request.
            assert done.returncode == 0 or "knows no leader" in done.stderr, done.stderr
        self._process.terminate()
        grace_s = self._spec["template"]["spec"].get("terminationGracePeriodSeconds", 30)
        assert self._process.wait(grace_s) == 0, self.log.read_text()

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """`kubectl exec` in its container."""
        program, *arguments = (self._here(part) for part in command)
        env = self._environment()
        if program == "samelog":
            return forking.run(arguments, timeout=PATIENCE_S, env=env)
        told = [program, *arguments]
        return subprocess.run(
            told, env=env, check=False, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def path(self, mounted: str) -> Path:
        """Where a path of the container is on this host."""
        return Path(self._here(mounted))

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
        return {**{name: self._here(value) for name, value in self._env.items()}, "PATH": path}

    # --- what the kubelet makes -------------------------------------------------------------------

    def _set_environment(self) -> None:
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": "samelog",
            "spec.nodeName": f"machine-of-{self.name}",
        }
        self._env = {}
        for each in self._container.get("env", []):
            if "valueFrom" in each:
                value = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                value = self._expanded(each["value"])
            self._env[each["name"]] = value

    def _expanded(self, text: str) -> str:
        """`$(NAME)` is a variable that was defined before; else it stays."""
        return VARIABLE.sub(lambda match: self._env.get(match[1], match[0]), text)

    def _here(self, text: str) -> str:
        """What means in the pod what `text` means there, on this host."""
        containers = self._spec["template"]["spec"]["containers"]
        mounts = sorted({x["mountPath"] for y in containers for x in y["volumeMounts"]}, key=len)
        anyone = "|".join(re.escape(mount) for mount in reversed(mounts))
        text = re.sub(rf"(?<![\w/])({anyone})(?![\w-])", rf"{self._directory}\1", text)
        text = POD_DNS.sub(lambda match: address(int(match[1])), text)
        text = text.replace(IMAGE_PROGRAMS, os.path.dirname(sys.executable))
        return text.replace("0.0.0.0", self.ip).replace("127.0.0.1", self.ip)

    def _mount(self) -> None:
        volumes = {x["name"]: x for x in self._spec["template"]["spec"]["volumes"]}
        for mount in self._container["volumeMounts"]:
            directory = Path(f"{self._directory}{mount['mountPath']}")
            directory.mkdir(parents=True, exist_ok=True)
            self._fill(directory, volumes.get(mount["name"], {}))

    def _fill(self, directory: Path, volume: Resource) -> None:
        """Of a volume claim or an empty directory nothing changes."""
        found: dict[str, bytes] = {}
        if "configMap" in volume:
            data = find(self._resources, "ConfigMap", volume["configMap"]["name"])["data"]
            found = {name: self._here(text).encode() for name, text in data.items()}
        for source in volume.get("projected", {}).get("sources", []):
            files = self._secrets.files(source["secret"]["name"])
            for item in source["secret"]["items"]:
                found[item["path"]] = files[item["key"]]
        if "secret" in volume:
            found = self._secrets.files(volume["secret"]["secretName"])
        if found:
            _put(directory, found)


def _put(directory: Path, files: dict[str, bytes]) -> None:
    """Replace all files of a volume at once, as Kubernetes does: they are links through `..data`,
    which swings to a new directory.
    """
    data = directory / "..data"
    old = data.resolve() if data.exists() else None
    new = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    for name, content in files.items():
        path = new / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
        top = name.split("/", maxsplit=1)[0]
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(Path("..data") / top)
    beside = directory / "..data_tmp"
    beside.symlink_to(new.name)
    beside.replace(data)
    if old is not None:
        shutil.rmtree(old)

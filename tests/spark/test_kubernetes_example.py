"""deploy/k8s/examples/spark: what it hands to an API server, and its job, run on a copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.k8s.render import DEPLOY, Resource, find, render
from tests.subscriber.merged import Growing

SCRIPT = DEPLOY / "examples" / "spark" / "spark-submit.sh"
COPIES = "/var/lib/samelog-copies"
RECORDS = 7
TIMEOUT_S = 150
"""Starting a JVM on a busy machine takes its time."""

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2 * TIMEOUT_S)]


class ApiServer(BaseHTTPRequestHandler):
    """Kubernetes' API, as far as spark-submit asks for it: it takes everything, and has nothing."""

    protocol_version = "HTTP/1.1"
    taken: list[Resource] = []  # noqa: RUF012

    def do_GET(self) -> None:
        """There is no such thing."""
        self._answer(404, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404})

    def do_POST(self) -> None:
        """A new resource, of the copies' namespace."""
        if "/namespaces/samelog-copies/" not in self.path:
            self.do_GET()
            return
        made = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.taken.append(json.loads(json.dumps(made)))
        made["metadata"] |= {"uid": "1", "resourceVersion": "1"}
        self._answer(201, made)

    do_PATCH = do_POST  # noqa: N815

    def _answer(self, status: int, body: Resource) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


@pytest.fixture
def api_server() -> Iterator[str]:
    """Its address."""
    ApiServer.taken.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A directory with a copy of the topic."""
    directory = tmp_path / "copies"
    directory.mkdir()
    Growing(directory, topic="ticks").count(0, RECORDS)
    return directory


def run(command: list[str], env: dict[str, str]) -> str:
    """What a command with Spark's programs on its path says."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    own = {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, **own, **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_job(job: Path, env: dict[str, str], directory: Path) -> str:
    """What the job prints as a driver that is its own executor."""
    here = {name: value.replace(COPIES, str(directory)) for name, value in env.items()}
    quick = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1"]
    return run(["spark-submit", *quick, str(job)], here)


def test_what_spark_submit_starts_reads_the_copy(
    api_server: str, copies: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.kubernetes.submission.waitAppCompletion false\n"
    )
    where = {"KUBERNETES": api_server, "UPLOADS": f"file://{tmp_path}", "KUBECONFIG": os.devnull}
    run(["sh", str(SCRIPT)], {**where, "SPARK_CONF_DIR": str(conf)})
    for resource in ApiServer.taken:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version())
    [pod] = [each for each in ApiServer.taken if each["kind"] == "Pod"]
    daemons = find(render("examples/subscriber"), "DaemonSet", "example-subscriber")
    owner = daemons["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert pod["spec"]["securityContext"]["runAsUser"] == owner
    assert pod["spec"]["serviceAccountName"] == "spark"
    assert [x["hostPath"]["path"] for x in pod["spec"]["volumes"] if "hostPath" in x] == [COPIES]
    [driver] = pod["spec"]["containers"]
    assert driver["securityContext"]["capabilities"]["drop"] == ["ALL"]
    env = {each["name"]: each["value"] for each in driver["env"] if each["name"][:7] == "SAMELOG"}
    said = run_job(Path(driver["args"][-1].removeprefix("file://")), env, copies)
    assert f"|{RECORDS}    |" in said


def test_the_operators_application_reads_the_copy(copies: Path, tmp_path: Path) -> None:
    resources = render("examples/spark")
    spec = find(resources, "SparkApplication", "ticks")["spec"]
    [name] = find(resources, "ConfigMap", "ticks-job")["data"]
    [job] = [x for x in spec["driver"]["volumeMounts"] if x["name"] == "job"]
    assert spec["mainApplicationFile"] == f"local://{job['mountPath']}/{name}"
    (tmp_path / name).write_text(find(resources, "ConfigMap", "ticks-job")["data"][name])
    env = {each["name"]: each["value"] for each in spec["driver"]["env"]}
    assert f"|{RECORDS}    |" in run_job(tmp_path / name, env, copies)

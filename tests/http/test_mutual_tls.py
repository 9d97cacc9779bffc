"""A node that answers HTTP over mutual TLS: its cluster's certificates, rights by its grants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.pki.authority import CertificateRole, issue
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.network.tls import open_client_context
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S

NAME = "rt-sequencer-0"


def ask(cluster: LocalCluster, path: str, files: TlsFiles | None, body: Any = None) -> Any:
    """The answer, or the status of a refusal."""
    shown = files or cluster.client_config().tls
    context = open_client_context(shown, show_certificate=files is not None)
    address = cluster.nodes[0].http
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"https://{address}{path}", data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=PATIENCE_S, context=context) as response:
            return response.read().decode()
    except HTTPError as error:
        return error.code


@pytest.mark.usefixtures("starts_nodes")
def test_identities_and_grants_count(tmp_path: Path) -> None:
    cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=1))
    with cluster:
        cluster.prepare()
        path = Path(cluster.nodes[0].config_file)
        text = path.read_text()
        head, http = text.split("[http]")
        http = http.replace('security = "plaintext"', 'security = "mtls"', 1)
        text = f"{head}[http]{http}".replace("samelog://client/*", "samelog://client/local")
        path.write_text(text)
        cluster.start()
        admin = cluster.client_config().tls
        assert json.loads(ask(cluster, "/status", admin))["node"] == NAME
        body = {"node": NAME, "seconds": 0}
        assert json.loads(ask(cluster, "/maintenance", admin, body))["nodes"] == [NAME]
        made = issue(str(tmp_path / "pki"), CertificateRole.CLIENT, "other")
        other = TlsFiles(ca=admin.ca, cert=made.cert, key=made.key)
        assert ask(cluster, "/status", other) == ask(cluster, "/maintenance", other, body) == 403
        assert "samelog_ready 1.0" in ask(cluster, "/metrics", other)
        assert json.loads(ask(cluster, "/readyz", None)) == {"status": "ready"}
        assert ask(cluster, "/metrics", None) == 403
        log = Path(cluster.nodes[0].log_file)
        assert 'who="samelog://client/other"' in log.read_text()
        Path(tmp_path, "pki", f"node-{NAME}.pem").write_bytes(Path(made.cert).read_bytes())
        wait_for(lambda: "HTTP keeps its old certificate" in log.read_text(), "it is told")
        assert json.loads(ask(cluster, "/readyz", None)) == {"status": "ready"}

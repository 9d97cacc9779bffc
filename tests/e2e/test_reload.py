"""A node takes over what changes in its configuration file while it runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import GetStatus
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.harness import wait_for


def is_allowed(cluster: LocalCluster) -> bool:
    try:
        ask(cluster.client_config(), GetStatus())
    except AdminError:
        return False
    return True


def detail(cluster: LocalCluster) -> str:
    """What the node says is wrong with it."""
    [node] = ask(cluster.client_config(), GetStatus()).nodes
    return node.detail


@pytest.mark.usefixtures("starts_nodes")
def test_grants_change_and_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "c"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        [node] = cluster.nodes
        file, log = Path(node.config_file), Path(node.log_file)
        text = file.read_text()
        assert is_allowed(cluster)

        file.write_text(text.replace("admin = true", "admin = false"))
        wait_for(lambda: not is_allowed(cluster), "the right is gone")

        file.write_text(text)
        wait_for(lambda: is_allowed(cluster), "the right is back")
        file.write_text(text.replace("[quotas]", "[qoutas]").replace("admin = true", ""))
        wait_for(lambda: "configuration refused, kept the old" in log.read_text(), "an error")
        assert "did you mean 'quotas'" in log.read_text()
        told = "configuration refused: "
        wait_for(lambda: told in detail(cluster), "its status says so")
        assert "did you mean 'quotas'" in detail(cluster)

        file.write_text(text.replace("snapshot_interval_s = 5.0", "snapshot_interval_s = 6.0"))
        node.signal(signal.SIGHUP)
        wait_for(lambda: told not in detail(cluster), "all is well")
        wait_for(lambda: "counts from the next start" in log.read_text(), "a warning")
        assert 'keys="node.snapshot_interval_s"' in log.read_text()
        node.stop()
        assert node.exit_code() == 0

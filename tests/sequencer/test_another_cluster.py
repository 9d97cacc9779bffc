"""A cluster is wiped and recreated under its old name and addresses, and a client comes back."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.connections import PushConnections
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.node import Node
from samelog.store.disk.files import OsFileSystem
from tests.replicator.session_files import SessionFiles
from tests.replicator.session_files import batch as records
from tests.sequencer.cluster import RunWith, offset, until


def test_a_session_of_the_old_cluster_is_not_shipped_to_the_new_one(
    tmp_path: Path, run_with: RunWith
) -> None:
    files = SessionFiles(tmp_path / "s", session_id=str(uuid.uuid4()))
    files.begin(uuid.uuid4().hex)
    files.append(records(b"1"))
    refused: list[str] = []

    def shipping() -> PushClient:
        cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=1))
        cluster.prepare()
        config = cluster.client_config()
        return PushClient(
            str(files.path),
            config,
            connections=PushConnections(SystemClock(), random.Random(1)),
            tls=ReloadingContext(config.tls),
            fs=OsFileSystem(),
        )

    async def old(nodes: list[Node]) -> None:
        client = shipping()
        client.start()
        await until(lambda: offset(nodes[0], "flights") == 1, "it is merged")
        await client.stop()

    async def new(nodes: list[Node]) -> None:
        files.append(records(b"2"))
        client = shipping()
        client.start()
        await until(lambda: "WRONG_CLUSTER" in str(client.status.nodes[0].last_error), "refused")
        refused.append(str(client.status.nodes[0].last_error))
        await client.stop()
        assert not nodes[0].logs.machine.state.sessions.by_name

    run_with(tmp_path, 1, old)
    shutil.rmtree(tmp_path / "rt-sequencer-0" / "data")
    run_with(tmp_path, 1, new)
    assert "belongs to the cluster of this name with the id" in refused[0]

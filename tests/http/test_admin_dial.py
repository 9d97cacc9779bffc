"""How the administrative client dials."""

from __future__ import annotations

import gc
import socket
import struct
import threading
from pathlib import Path

import pytest

from samelog.admin.client import node_status
from samelog.admin.errors import AdminError
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.values import Address

TRIES = 400
RESET_AT_ONCE = struct.pack("ii", 1, 0)


def test_a_peer_that_hangs_up_before_the_handshake_costs_no_socket(tmp_path: Path) -> None:
    """One that nobody closes is a ResourceWarning, and so a failure."""
    cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=1))
    cluster.prepare()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            for _ in range(TRIES):
                taken, _ = server.accept()
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
                taken.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        address = Address(*server.getsockname())
        for _ in range(TRIES):
            with pytest.raises(AdminError):
                node_status(cluster.client_config(), address)
        thread.join()
    gc.collect()

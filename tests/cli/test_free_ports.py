"""Ports for local clusters, of which several may be made at the same time on one machine."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from samelog.cli.local_cluster import HELD_PORTS, HOST, free_ports

TRY = "import socket, sys; socket.socket().bind((sys.argv[1], int(sys.argv[2])))"


def test_a_port_that_was_found_is_nobody_elses() -> None:
    [port] = free_ports(1)
    tried = subprocess.run(
        [sys.executable, "-c", TRY, HOST, str(port)], capture_output=True, check=False
    )
    assert b"Address already in use" in tried.stderr


def test_whom_it_was_found_for_can_listen_there() -> None:
    [port] = free_ports(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    with socket.create_server((HOST, port)) as server, socket.create_connection((HOST, port)):
        assert server.getsockname() == (HOST, port)
    socket.create_server((HOST, port)).close()  # as after a restart


def test_only_the_newest_are_held() -> None:
    first, *_ = free_ports(HELD_PORTS + 1)
    with socket.socket() as anybody:
        anybody.bind((HOST, first))

"""A local S3 server of its own process, behind a line that can be cut and held."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from samelog.cli.local_cluster import free_ports
from tests.e2e.harness import wait_for

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PIECE_BYTES = 16 << 10


class Line:
    """Forwards TCP connections to a port of this host. Up to `allowed` bytes pass towards the
    server; then connections are cut, or, while it is `held`, nothing moves.
    """

    def __init__(self, port: int) -> None:
        self.allowed = 1 << 62
        self._flows = threading.Event()
        self._flows.set()
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Nothing moves until `heal`."""
        self._flows.clear()

    def heal(self) -> None:
        """Everything passes again."""
        self.allowed = 1 << 62
        self._flows.set()

    def close(self) -> None:
        """Let nobody in any more."""
        self.heal()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for ends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._flows.wait()
                if is_up:
                    self.allowed -= len(data)
                if self.allowed < 0:
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def object_store() -> Iterator[Line]:
    """A server, and the line to it."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(port), "the object store answers")
        line = Line(port)
        yield line
        line.close()
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def url_of(line: Line, bucket: str) -> str:
    """Where a bucket is; it is made."""
    from pyarrow.fs import S3FileSystem

    where = f"127.0.0.1:{line.port}"
    S3FileSystem(
        endpoint_override=where, scheme="http", region="us-east-1", allow_bucket_creation=True
    ).create_dir(bucket)
    return f"s3://{bucket}/archive?endpoint_override={where}&scheme=http&region=us-east-1"

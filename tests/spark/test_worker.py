"""Spark's workers of tests connect first, so that Spark waits for them on a busy machine, too."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.spark.conftest import workers_python

SLOW_START = "import os\nwith open(os.environ['GATE'], 'rb') as gate: gate.read()\n"
WORKER = """
import os, sys
from pyspark.util import local_connect_and_auth
port, secret = (os.environ["PYTHON_WORKER_FACTORY_" + name] for name in ("PORT", "SECRET"))
file, _ = local_connect_and_auth(int(port), secret)
file.write(f"{sys.argv[1:]} {sys.prefix} {__name__}".encode())
file.close()
"""


def text(file: io.BufferedRWPair, wanted: bytes) -> None:
    """Read a text behind its length, and compare."""
    length = int.from_bytes(file.read(4), "big")
    assert file.read(length) == wanted


def test_a_worker_connects_before_it_imports_anything(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    (tmp_path / "a_worker.py").write_text(WORKER)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        own = {
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
            "PYTHONPATH": str(tmp_path),
            "GATE": str(gate),
        }
        command = [workers_python(), "-m", "a_worker", "word"]
        process = subprocess.Popen(command, env=os.environ | own, cwd=tmp_path)
        connection, _ = server.accept()  # while the worker waits in its first import
        with open(gate, "wb"):
            pass
        with connection, connection.makefile("rwb") as file:
            connection.settimeout(PATIENCE_S)
            text(file, b"secret")
            file.write((2).to_bytes(4, "big") + b"ok")
            file.flush()
            assert file.read() == f"['word'] {sys.prefix} __main__".encode()
        assert process.wait(PATIENCE_S) == 0

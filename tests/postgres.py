"""A PostgreSQL server of a test's own, where it is installed (Debian's package `postgresql`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

INSTALLED = Path("/usr/lib/postgresql")
USER = "postgres"


@contextmanager
def running() -> Iterator[str]:
    """What a connection is opened with: it is reached by a socket in its own directory. The test is
    skipped where it is not installed.
    """
    found = sorted(INSTALLED.glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not here: apt-get install postgresql")
    binaries, user = found[-1].parent, USER if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as directory:
        if user is not None:  # it refuses to be run by root
            shutil.chown(directory, USER)

        def run(program: str, *arguments: str) -> None:
            command = [f"{binaries}/{program}", "-D", f"{directory}/files", *arguments]
            output = subprocess.DEVNULL
            subprocess.run(command, cwd=directory, user=user, stdout=output, check=True)

        run("initdb", "-U", USER, "-A", "trust")
        options = f"-k {directory} -c listen_addresses=''"
        run("pg_ctl", "start", "-w", "-l", f"{directory}/server.log", "-o", options)
        try:
            yield f"host={directory} user={USER} dbname={USER}"
        finally:
            run("pg_ctl", "stop", "-m", "immediate")

"""Executors of their own, in another environment: where they read, and what users are told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import World
from tests.spark.cluster import config, publish


@pytest.mark.usefixtures("starts_java")
@pytest.mark.campaign  # what is said is tested without executors, too
@pytest.mark.timeout(400)
def test_executors_that_see_neither_directory_nor_certificate(world: World, tmp_path: Path) -> None:
    """And a broken package beside ours, on the driver."""
    publish(world, "far-away", 0, 1000)
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('injected')\n")
    copy = tmp_path / "copy"
    shutil.copytree(Path(world.cluster.nodes[0].data, "merged"), copy)
    client = shutil.copy(config(world), tmp_path)
    shutil.copytree(Path(config(world)).parent / "pki", tmp_path / "pki")
    command = (sys.executable, "-m", "tests.spark.far_driver", client, "far-away")
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    ended = subprocess.run(
        [*command, str(copy)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        timeout=380,
    )
    told = json.loads(ended.stdout.splitlines()[-1])
    assert "DATA_SOURCE_NOT_FOUND" in told["broken sibling"]
    assert told["from nodes"] == 1000
    assert f"there is no copy at {copy}/far-away-0 on host" in told["no directory"]
    assert "or give the option config, to read from nodes" in told["no directory"]
    assert "far-away-0 [" in told["no directory"]
    assert f"this host cannot reach the cluster: {client}" in told["no certificate"]
    assert "the driver and every executor need the client.toml" in told["no certificate"]

"""A node whose wall clock is wrong, with real processes: nothing expires by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from samelog.cli import local_cluster
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.kafka import GroupLimits, KafkaConfig
from tests.chaos.faults.shim import Shim, build, environment, need_compiler
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

DAY_S = 86_400
MUST_NOT_S = 3.0
"""Many times the interval at which nodes look for what expires."""


@pytest.fixture
def shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Shim]:
    """The clocks of nodes that start from now on, by the nodes' names."""
    if (why := need_compiler()) is not None:
        pytest.skip(why)
    library, made = build(tmp_path), dict[str, Shim]()

    def start(arguments: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        place = Path(arguments[arguments.index("--config") + 1]).parent
        if place.name not in made:
            made[place.name] = Shim(tmp_path / f"shim-{place.name}")
        own = environment(library, made[place.name], str(place / "nothing"))
        command = [sys.executable, "-m", "samelog", *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | own
        )

    monkeypatch.setattr(local_cluster, "start_process", start)
    return made


@pytest.fixture
def world(tmp_path: Path, shims: dict[str, Shim], starts_nodes: None) -> Iterator[World]:
    """Three nodes that look often for what expires."""
    limits = GroupLimits(offsets_retention_check_interval_ms=100)
    options = ClusterOptions(kafka=KafkaConfig(groups=limits))
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)


def committed(world: World) -> int:
    """The offset of the group, as the command shows it."""
    shown = as_json("group", "describe", "g", "--config", world.cluster.client_file)
    [offset] = [each["committed"] for each in shown["partitions"]]
    return int(offset)


def test_the_leaders_clock_ten_days_ahead_expires_no_offset(
    world: World, shims: dict[str, Shim]
) -> None:
    to_config = ("--config", world.cluster.client_file)
    with world.publisher("s") as publisher:
        publisher.append_many([b"%d" % number for number in range(100)])
        publisher.wait_merged(timeout=PATIENCE_S)
    ran = samelog("group", "reset", "g", "--topic", "t", "--to", "42", *to_config)
    assert ran.returncode == 0, ran.stderr
    assert committed(world) == 42
    leader = world.leader().name
    shims[leader].set("clock_offset_ns", 10 * DAY_S * 10**9)

    def is_seen() -> bool:
        found = json.loads(samelog("doctor", "--json", *to_config).stdout)["findings"]
        return any(leader in str(each) and "s from this host's" in str(each) for each in found)

    wait_for(is_seen, "doctor reports the clock")
    end = time.monotonic() + MUST_NOT_S
    while time.monotonic() < end:
        assert committed(world) == 42
    shims[leader].clear()
    assert committed(world) == 42

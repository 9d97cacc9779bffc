"""From the first version to this one, under load, as docs/upgrades.md says.

`scripts/first_version.sh` installs the first version: a wheel of its commit, in a directory of its
own, from where `python -m samelog` is that version. It makes the configurations, the certificates
and the data directories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.chaos.field import HEAL_S, MERGE_S, SEGMENT_BYTES, START_S, Field, NotInTime
from tests.chaos.nodes import ChaosNode
from tests.chaos.registry import scenario

BUILD = Path(__file__).resolve().parent.parent.parent.parent / "build"
FIRST_VERSION = BUILD / "first-version" / "installed"
MAKE = f"""
import sys
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.schema.render import to_toml
cluster = LocalCluster(sys.argv[1], ClusterOptions(segment_bytes={SEGMENT_BYTES}))
cluster.prepare()
with open(sys.argv[2], "w", encoding="utf-8") as client_file:
    client_file.write(to_toml(cluster.client_config()))
"""
"""Also what clients are told: later versions write what this one does not know."""


def is_missing() -> str | None:
    """Why the first version cannot be run."""
    if (FIRST_VERSION.parent / "commit").exists():
        return None
    return "samelog 0.1 is not here: scripts/first_version.sh installs it"


def begin_with_first_version(field: Field) -> None:
    """Nodes, publishers and subscriber. The first replaces what this version has prepared."""
    directory = field.cluster.directory
    shutil.rmtree(directory)
    made = [directory, str(field.client_file)]
    subprocess.run([sys.executable, "-c", MAKE, *made], cwd=FIRST_VERSION, check=True)
    field.cluster.nodes.clear()
    field.prepare()
    for node in field.nodes:
        node.code = FIRST_VERSION
    for load in field.loads:
        load.code = FIRST_VERSION


def upgrade_node(field: Field, node: ChaosNode) -> None:
    """This version on a node's host."""
    node.stop()
    node.code = None
    node.start()
    field.wait_live(START_S)


def go_back(field: Field, node: ChaosNode) -> None:
    """The first version on a node's host again: it refuses this version's Raft log, so it begins
    with an empty directory and is filled from the other nodes.
    """
    node.stop()
    os.rename(node.data, f"{node.data}-set-aside")
    node.code = FIRST_VERSION
    node.start()
    field.wait_live(START_S)


def finalize(field: Field) -> None:
    """Use what this version brings, from here on; it is refused for as long as a member that has
    just started has not said what it supports. Raises NotInTime with what is said instead.
    """
    said = ""

    def is_done() -> bool:
        nonlocal said
        command = [sys.executable, "-m", "samelog", "cluster", "upgrade", "--finalize", "--config"]
        done = subprocess.run(
            [*command, str(field.client_file)],
            env=os.environ | {"NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr.strip()
        return done.returncode == 0

    try:
        field.wait_for(is_done, "the upgrade is finalized")
    except NotInTime as error:
        raise NotInTime(f"{error}: {said}") from None


@scenario("upgrade", prepare=begin_with_first_version, needs=(is_missing,))
def upgrade(field: Field) -> None:
    """From 0.1 to this version, node by node, the first of them back and forth; then it is
    finalized, and publishers and subscriber restart with this version.
    """
    leader = field.leader()
    nodes = [*(node for node in field.nodes if node is not leader), leader]
    upgrade_node(field, nodes[0])
    go_back(field, nodes[0])
    for node in nodes:
        upgrade_node(field, node)
    finalize(field)
    for load in field.loads:
        load.finish()
        if load.wait_end(HEAL_S + MERGE_S) != 0:
            raise NotInTime(f"{load.name} has not ended well")
        load.code = None
        field.begin(load)
    field.wait_for(lambda: all(load.has_notes() for load in field.loads), "records flow again")

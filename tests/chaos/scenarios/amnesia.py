"""Nodes that lose their memory as operators make them: wiped and bootstrapped again because the
unit file still says so, or put back from a copy that was taken while they ran.

Invariant: at any time a minority has forgotten something; the others hold what was acknowledged.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.chaos.field import Field, NotInTime
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario

GATHER_S = 2.0
TEMPT_S = 6.0
"""For so long those who forgot, and those who do not know it, are among themselves."""


def _bootstrap_again(node: ChaosNode) -> None:
    """With an empty directory, and the flag of its first start."""
    shutil.rmtree(node.data)
    os.mkdir(node.data, 0o700)
    node.start(bootstrap=True)


def _copy_of(field: Field, node: ChaosNode) -> Path:
    """What a snapshot of the running node's directory is."""
    copy = field.directory / f"copy-{node.name}-{node.starts}"
    node.pause()
    shutil.copytree(node.data, copy, symlinks=True)
    node.resume()
    return copy


def _put_back(node: ChaosNode, copy: Path) -> None:
    shutil.rmtree(node.data)
    shutil.copytree(copy, node.data, symlinks=True)


def _is_leaderless(field: Field, nodes: list[ChaosNode]) -> bool:
    statuses = [field.status(node) for node in nodes]
    return all(status is None or status.leader is None for status in statuses)


def _tempt(field: Field, forgetful: ChaosNode, behind: ChaosNode) -> None:
    """The two that lack what was acknowledged are alone: they must not go on."""
    wait(TEMPT_S)
    if not _is_leaderless(field, [forgetful, behind]):
        raise NotInTime(f"{forgetful.name}, which forgot, and {behind.name} have a leader")


@scenario("amnesia", seconds=0)
def amnesia(field: Field) -> None:
    """A node that lags is stopped, the others acknowledge; one of them is wiped and bootstrapped
    again, or put back from an old copy, and starts with the one that lags, without the third.
    """
    for what in ("bootstrapped", "put back"):
        field.wait_live()
        behind = field.follower()
        others = [node for node in field.nodes if node is not behind]
        forgetful, right = field.random.sample(others, 2)
        copy = _copy_of(field, forgetful)
        behind.kill()
        wait(GATHER_S)
        forgetful.kill()
        right.kill()
        if what == "bootstrapped":
            _bootstrap_again(forgetful)
            made = os.path.join(forgetful.data, "node.json")  # nobody who knows it was there to ask
            field.wait_for(lambda made=made: os.path.exists(made), "a bootstrap")  # type: ignore[misc]
        else:
            _put_back(forgetful, copy)
            forgetful.start()
        behind.start()
        _tempt(field, forgetful, behind)
        right.start()
        field.wait_live()
        wait(GATHER_S)
        _refuse_bootstrap(field)


def _refuse_bootstrap(field: Field) -> None:
    """Beside members that know the node, `--bootstrap` of an empty directory ends at once."""
    node = field.follower()
    node.kill()
    _bootstrap_again(node)
    field.wait_for(lambda: node.pid is None, f"{node.name} is refused its bootstrap")
    if "without --bootstrap" not in node.last_log_line():
        field.remarks.append(f"bootstrap of {node.name}: {node.last_log_line()}")
    node.start()
    field.wait_live()

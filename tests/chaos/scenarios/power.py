"""Power loss: what was not on the device is gone.

Invariant: a node whose disk lost its power is killed before the disk is mounted again.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos.faults.disks import Disks, LoopDisk, loop_disks, need_loop
from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario

PUBLISHERS = "publishers"


def _lose_power(field: Field, nodes: list[ChaosNode], *, off_s: float) -> None:
    """First all disks, then the processes, as near to each other as can be."""
    disks = field.tool(Disks)
    for node in nodes:
        disks.loop(node.name).lose_power()
    for node in nodes:
        node.kill()
    wait(off_s)
    for node in nodes:
        disks.loop(node.name).power_on()
        node.start()
    field.wait_live()


def _again_and_again(field: Field, count: int) -> None:
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        wait(field.random.uniform(0.5, 3))
        leader = field.leader()
        others = [node for node in field.nodes if node is not leader]
        _lose_power(field, [leader, *others][:count], off_s=field.random.uniform(0, 2))
        field.power_losses += 1


@scenario("power-follower", prepare=loop_disks, needs=(need_loop,))
def power_follower(field: Field) -> None:
    """A follower loses its power, again and again."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        wait(field.random.uniform(0.5, 3))
        _lose_power(field, [field.follower()], off_s=field.random.uniform(0, 2))


@scenario("power-leader", prepare=loop_disks, needs=(need_loop,))
def power_leader(field: Field) -> None:
    """The leader loses its power, again and again."""
    _again_and_again(field, 1)


@scenario("power-majority", prepare=loop_disks, needs=(need_loop,))
def power_majority(field: Field) -> None:
    """The leader and a follower lose their power at once, again and again."""
    _again_and_again(field, 2)


@scenario("power-all", prepare=loop_disks, needs=(need_loop,), seconds=40.0)
def power_all(field: Field) -> None:
    """All nodes lose their power at once, again and again."""
    _again_and_again(field, 3)


def _with_publishers(field: Field) -> None:
    loop_disks(field)
    disk = LoopDisk(field.directory / "disk-publishers", 256)
    field.on_leave(disk.unmount)
    disk.mount()
    field.tool(Disks)[PUBLISHERS] = disk
    for publisher in field.publishers:
        publisher.directory = Path(disk.path, "publishers")
        field.lost_disks.add(publisher.name)


@scenario("power-everything", prepare=_with_publishers, needs=(need_loop,), seconds=40.0)
def power_everything(field: Field) -> None:
    """All nodes and all publishers lose their power at once, again and again.

    What publishers had not synced themselves may be gone, but nothing that was acknowledged.
    """
    disk = field.tool(Disks).loop(PUBLISHERS)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        wait(field.random.uniform(0.5, 3))
        disk.lose_power()
        for node in field.nodes:
            field.tool(Disks).loop(node.name).lose_power()
        for publisher in field.publishers:
            publisher.kill()
        disk.power_on()
        _power_on(field)


def _power_on(field: Field) -> None:
    for node in field.nodes:
        node.kill()
        field.tool(Disks).loop(node.name).power_on()
        node.start()
    for publisher in field.publishers:
        field.begin(publisher)
    field.wait_live()
    for publisher in field.publishers:
        field.wait_for(publisher.is_acknowledged, f"{publisher.name} is acknowledged")

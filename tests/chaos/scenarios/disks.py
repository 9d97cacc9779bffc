"""Disks that are full, read-only, slow, or fail.

Invariant: after `Field.heal` every disk works again, and a node that ended because of its disk is
started once more.
"""

from __future__ import annotations

import errno
import time

from tests.chaos.faults.disks import (
    Disks,
    loop_disks,
    need_loop,
    need_mount,
    small_disks,
)
from tests.chaos.faults.shim import (
    FOR_EVER,
    Crash,
    Operation,
    Shims,
    need_compiler,
    preload,
)
from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario

ENDS_S = 5.0
CALLS_MAX = 400
SLOW_US = 200_000
RESERVE_BYTES = 3 << 20


def _fill(field: Field, nodes: list[ChaosNode], leave_bytes: int) -> None:
    disks = field.tool(Disks)
    for node in nodes:
        field.on_heal(disks[node.name].free)
        disks[node.name].fill(leave_bytes)
    wait(field.seconds)


@scenario("full-disk-follower", prepare=small_disks, needs=(need_mount,))
def full_follower(field: Field) -> None:
    """A follower's disk is filled by somebody else, to the last byte."""
    _fill(field, [field.follower()], 0)


@scenario("full-disk-leader", prepare=small_disks, needs=(need_mount,))
def full_leader(field: Field) -> None:
    """The leader's disk is filled by somebody else, to the last byte."""
    _fill(field, [field.leader()], 0)


@scenario("full-disk-leader-slowly", prepare=small_disks, needs=(need_mount,))
def full_leader_slowly(field: Field) -> None:
    """The leader's disk has 3 MiB left, and fills up with records."""
    _fill(field, [field.leader()], RESERVE_BYTES)


@scenario("full-disk-all", prepare=small_disks, needs=(need_mount,))
def full_all(field: Field) -> None:
    """All disks are filled to the last byte: nothing can be taken in until there is room."""
    _fill(field, field.nodes, 0)


@scenario("read-only", prepare=loop_disks, needs=(need_loop,))
def read_only(field: Field) -> None:
    """ext4 finds an error and turns read-only: first under a follower, then under the leader."""
    for node in (field.follower(), field.leader()):
        disk = field.tool(Disks).loop(node.name)
        disk.turn_read_only()
        wait(field.seconds / 2)
        node.kill()
        disk.power_on()
        node.start()
        field.wait_live()


def _restart_if_ended(field: Field, node: ChaosNode) -> str:
    """What a node made of its failing disk; an init system starts it again."""
    word = "ends" if node.wait_end(ENDS_S) else "goes on"
    field.tool(Shims)[node.name].clear()
    node.kill()
    node.start()
    field.wait_live()
    return word


def _fail_in_turn(field: Field, operations: Operation, error: int, times: int) -> None:
    shims = field.tool(Shims)
    end = time.monotonic() + field.seconds
    turn = 0
    while time.monotonic() < end:
        node = field.leader() if turn % 2 else field.follower()
        shims[node.name].set("skip", field.random.randrange(50))
        shims[node.name].fail(operations, error=error, times=times)
        word = _restart_if_ended(field, node)
        role = "leader" if turn % 2 else "follower"
        field.remarks.append(f"{role}: {operations.name} {errno.errorcode[error]}: {word}")
        turn += 1


@scenario("sync-fails", prepare=preload, needs=(need_compiler,))
def sync_fails(field: Field) -> None:
    """One sync fails with EIO and the next ones succeed, on a follower, on the leader, in turn."""
    _fail_in_turn(field, Operation.SYNC, errno.EIO, 1)


@scenario("write-fails", prepare=preload, needs=(need_compiler,))
def write_fails(field: Field) -> None:
    """One write fails with EIO, on a follower, on the leader, in turn."""
    _fail_in_turn(field, Operation.WRITE, errno.EIO, 1)


@scenario("all-writes-fail", prepare=preload, needs=(need_compiler,))
def all_writes_fail(field: Field) -> None:
    """From some call on every write, sync and rename fails, on a follower, the leader, in turn."""
    every = Operation.WRITE | Operation.SYNC | Operation.NAMES
    _fail_in_turn(field, every, errno.EIO, FOR_EVER)


@scenario("write-no-space", prepare=preload, needs=(need_compiler,))
def write_no_space(field: Field) -> None:
    """Twenty writes say ENOSPC though there is room, on a follower, on the leader, in turn."""
    _fail_in_turn(field, Operation.WRITE, errno.ENOSPC, 20)


@scenario("short-writes", prepare=preload, needs=(need_compiler,))
def short_writes(field: Field) -> None:
    """Every write of all nodes writes only half of what it was given."""
    for shim in field.tool(Shims).values():
        shim.shorten()
    wait(field.seconds)


def _slow(field: Field, nodes: list[ChaosNode]) -> None:
    for node in nodes:
        field.tool(Shims)[node.name].set("sync_delay_us", SLOW_US)
    wait(field.seconds)


@scenario("slow-sync-follower", prepare=preload, needs=(need_compiler,))
def slow_sync_follower(field: Field) -> None:
    """Every sync of a follower takes 200 ms more: nobody else is to notice."""
    _slow(field, [field.follower()])


@scenario("slow-sync-leader", prepare=preload, needs=(need_compiler,))
def slow_sync_leader(field: Field) -> None:
    """Every sync of the leader takes 200 ms more."""
    _slow(field, [field.leader()])


@scenario("slow-sync-all", prepare=preload, needs=(need_compiler,))
def slow_sync_all(field: Field) -> None:
    """Every sync of every node takes 200 ms more."""
    _slow(field, field.nodes)


@scenario("crash-points", prepare=preload, needs=(need_compiler,), seconds=60.0)
def crash_points(field: Field) -> None:
    """SIGKILL before, after or within a chosen write, sync, rename or unlink: also while starting.

    A node that crashed is started again with the next crash already chosen, every other time.
    """
    end = time.monotonic() + field.seconds
    crashes = 0
    while time.monotonic() < end:
        node = field.random.choice(field.nodes)
        _crash(field, node)
        crashes += 1
        if field.random.random() < 0.5:
            _choose_crash(field, node, 60)
            node.start()
            crashes += node.wait_end(ENDS_S)
            node.kill()
        field.tool(Shims)[node.name].clear()
        node.start()
        field.wait_live()
    field.remarks.append(f"{crashes} crashes")


def _crash(field: Field, node: ChaosNode) -> None:
    _choose_crash(field, node, CALLS_MAX)
    field.wait_for(lambda: node.pid is None, f"{node.name} crashes")


def _choose_crash(field: Field, node: ChaosNode, within: int) -> None:
    when = field.random.choice(list(Crash))
    field.tool(Shims)[node.name].crash(field.random.randint(1, within), when)

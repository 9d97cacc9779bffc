"""Processes that die or stand still.

Invariant: every process that is killed or paused here is started or resumed again, here or by
`Field.heal`.
"""

from __future__ import annotations

import shutil
import time

from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario

PAUSES_S = (0.1, 0.3, 0.6, 1.0, 2.0, 5.0)
LONG_PAUSE_S = 60.0


def _until(field: Field) -> float:
    return time.monotonic() + field.seconds


def kill_and_restart(field: Field, nodes: list[ChaosNode]) -> None:
    """SIGKILL, at a moment of its own, and back after a while."""
    wait(field.random.uniform(0, 2))
    for node in nodes:
        node.kill()
    wait(field.random.uniform(0, 3))
    for node in nodes:
        node.start()
    field.wait_live()


@scenario("kill-leader")
def kill_leader(field: Field) -> None:
    """SIGKILL of the leader at random moments, again and again."""
    end = _until(field)
    while time.monotonic() < end:
        kill_and_restart(field, [field.leader()])


@scenario("kill-follower")
def kill_follower(field: Field) -> None:
    """SIGKILL of a follower at random moments, again and again."""
    end = _until(field)
    while time.monotonic() < end:
        kill_and_restart(field, [field.follower()])


@scenario("kill-all")
def kill_all(field: Field) -> None:
    """SIGKILL of all nodes at once, again and again."""
    end = _until(field)
    while time.monotonic() < end:
        kill_and_restart(field, field.nodes)


@scenario("kill-publisher")
def kill_publisher(field: Field) -> None:
    """SIGKILL of publishers at random moments; each begins a new run at once."""
    end = _until(field)
    while time.monotonic() < end:
        victim = field.random.choice(field.publishers)
        wait(field.random.uniform(0, 1))
        victim.kill()
        field.begin(victim)
        field.wait_for(victim.has_notes, f"{victim.name} appends")


@scenario("kill-anything", seconds=30.0)
def kill_anything(field: Field) -> None:
    """SIGKILL of any node, publisher or subscriber, up to all of them at once, for a while."""
    end = _until(field)
    while time.monotonic() < end:
        wait(field.random.uniform(0, 1))
        for node in field.random.sample(field.nodes, field.random.randint(1, 3)):
            node.kill()
        load = field.random.choice(field.loads)
        load.kill()
        wait(field.random.uniform(0, 2))
        for node in field.nodes:
            if node.pid is None:
                node.start()
        field.begin(load)
        if field.random.random() < 0.5:
            field.wait_live()


def _pause(field: Field, node: ChaosNode, seconds: float) -> None:
    node.pause()
    wait(seconds)
    node.resume()
    field.wait_live()


@scenario("pause-leader")
def pause_leader(field: Field) -> None:
    """SIGSTOP of the leader for 0.1 to 5 s, again and again."""
    end = _until(field)
    while time.monotonic() < end:
        _pause(field, field.leader(), field.random.choice(PAUSES_S))
        wait(1.0)


@scenario("pause-follower")
def pause_follower(field: Field) -> None:
    """SIGSTOP of a follower for 0.1 to 5 s, again and again."""
    end = _until(field)
    while time.monotonic() < end:
        _pause(field, field.follower(), field.random.choice(PAUSES_S))
        wait(1.0)


@scenario("pause-leader-long", seconds=LONG_PAUSE_S)
def pause_leader_long(field: Field) -> None:
    """SIGSTOP of the leader for 60 s: it wakes up in another term, with old sockets and timers."""
    _pause(field, field.leader(), field.seconds)


@scenario("pause-majority")
def pause_majority(field: Field) -> None:
    """SIGSTOP of two nodes for half of the time: nothing can be acknowledged meanwhile."""
    pair = field.random.sample(field.nodes, 2)
    for node in pair:
        node.pause()
    wait(field.seconds / 2)
    for node in pair:
        node.resume()
    field.wait_live()


@scenario("lost-directory", seconds=60.0)
def lost_directory(field: Field) -> None:
    """A follower's data directory is gone: it comes back without a vote, and gets everything."""
    wait(field.seconds)
    node = field.follower()
    node.kill()
    shutil.move(node.data, f"{node.data}.aside")
    node.start()
    field.wait_live()

"""Partitions of network namespaces: packets vanish, no connection is told.

Invariant: no packet is dropped after `Field.heal`.
"""

from __future__ import annotations

import time

from tests.chaos.faults.namespaces import PORT, Namespaces, need_namespaces, separate
from tests.chaos.field import Field
from tests.chaos.nodes import wait
from tests.chaos.registry import scenario

LOSS = "0.2"


def _again_and_again(field: Field, name: str, *match: str) -> None:
    """Drop packets at a node for 1 to 6 s, then none until all are Live."""
    spaces = field.tool(Namespaces)
    spaces.drop(name, *match)
    wait(field.random.uniform(1, 6))
    spaces.clear()
    field.wait_live()


@scenario("partition-leader", prepare=separate, needs=(need_namespaces,))
def partition_leader(field: Field) -> None:
    """Every packet to the leader is dropped, for 1 to 6 s, again and again."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        _again_and_again(field, field.leader().name)


@scenario("partition-one-way", prepare=separate, needs=(need_namespaces,))
def partition_one_way(field: Field) -> None:
    """Packets of one node to another are dropped, those the other way are not; for 1 to 6 s."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        source, target = field.random.sample(field.nodes, 2)
        _again_and_again(field, target.name, "-s", field.tool(Namespaces).host(source.name))


@scenario("partition-half-connected", prepare=separate, needs=(need_namespaces,))
def partition_half_connected(field: Field) -> None:
    """One node cannot connect to the leader, though the leader can connect to it."""
    spaces = field.tool(Namespaces)
    leader, follower = field.leader().name, field.follower().name
    spaces.drop(leader, "-s", spaces.host(follower), "-p", "tcp", "--dport", str(PORT))
    wait(field.seconds)


@scenario("partition-ring", prepare=separate, needs=(need_namespaces,))
def partition_ring(field: Field) -> None:
    """Leader and one follower do not see each other, the third sees both."""
    spaces = field.tool(Namespaces)
    pair = [field.leader().name, field.follower().name]
    for name, other in (pair, pair[::-1]):
        spaces.drop(name, "-s", spaces.host(other))
    wait(field.seconds)


@scenario("packet-loss", prepare=separate, needs=(need_namespaces,))
def packet_loss(field: Field) -> None:
    """One of five packets to every node is lost."""
    spaces = field.tool(Namespaces)
    for node in field.nodes:
        spaces.drop(node.name, "-m", "statistic", "--mode", "random", "--probability", LOSS)
    wait(field.seconds)

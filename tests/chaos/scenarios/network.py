"""Links that are slow, cut, reset, corrupt, or open in one direction only.

Invariant: every link is clear again after `Field.heal`.
"""

from __future__ import annotations

import time

from tests.chaos.faults.proxy import CLIENT, HELD, Network, Weather, put_between
from tests.chaos.field import Field
from tests.chaos.nodes import wait
from tests.chaos.registry import scenario


def _weather(field: Field, weather: Weather) -> None:
    field.tool(Network).set(weather)
    wait(field.seconds)


@scenario("link-delay", prepare=put_between)
def delay(field: Field) -> None:
    """20 to 70 ms more on every link, each way, with jitter."""
    _weather(field, Weather(delay_s=0.02, jitter_s=0.05))


@scenario("link-trickle", prepare=put_between)
def trickle(field: Field) -> None:
    """All links of one node carry 2 KB/s, a few bytes at a time."""
    victim = field.follower().name
    slow = Weather(bytes_per_s=2_000)
    field.tool(Network).set(slow, lambda source, target: victim in (source, target))
    wait(field.seconds)


@scenario("link-corrupt", prepare=put_between)
def corrupt(field: Field) -> None:
    """One bit turned in one of 200 chunks, on every link."""
    _weather(field, Weather(corrupt_share=0.005))


@scenario("link-cut", prepare=put_between)
def cut(field: Field) -> None:
    """Connections cut in the middle of a frame, behind one of 200 chunks, on every link."""
    _weather(field, Weather(cut_share=0.005))


@scenario("link-reset", prepare=put_between)
def reset(field: Field) -> None:
    """RST on a third of the links, every 0.1 to 1 s."""
    network = field.tool(Network)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        network.reset(lambda *_: field.random.random() < 0.3)
        wait(field.random.uniform(0.1, 1))


def _isolate(field: Field, name: str, seconds: float) -> None:
    network = field.tool(Network)
    network.set(HELD, lambda source, target: name in (source, target))
    wait(seconds)
    network.clear()


@scenario("cut-leader", prepare=put_between)
def cut_leader(field: Field) -> None:
    """The leader cut off from everybody for 1 to 6 s, without a word, again and again."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        _isolate(field, field.leader().name, field.random.uniform(1, 6))
        field.wait_live()


def _hold_between_nodes(network: Network, name: str) -> None:
    network.set(HELD, lambda source, target: name in (source, target) and source != CLIENT)


@scenario("cut-leader-from-nodes", prepare=put_between)
def cut_leader_from_nodes(field: Field) -> None:
    """The leader cut off from the nodes, but not from clients, for 1 to 6 s."""
    network = field.tool(Network)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        _hold_between_nodes(network, field.leader().name)
        wait(field.random.uniform(1, 6))
        network.clear()
        field.wait_live()


@scenario("one-way", prepare=put_between)
def one_way(field: Field) -> None:
    """Nothing gets from one node to another, though everything gets back; for 1 to 6 s."""
    network = field.tool(Network)
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        source, target = field.random.sample(field.nodes, 2)
        network.stop_bytes(source.name, target.name)
        wait(field.random.uniform(1, 6))
        network.clear()
        field.wait_live()


@scenario("one-way-from-leader", prepare=put_between)
def one_way_from_leader(field: Field) -> None:
    """The leader hears everybody, nobody hears the leader; for half of the time."""
    network = field.tool(Network)
    leader = field.leader().name
    for name in (node.name for node in field.nodes):
        network.stop_bytes(leader, name)
    wait(field.seconds / 2)


@scenario("bridge", prepare=put_between)
def bridge(field: Field) -> None:
    """Leader and one follower do not see each other, the third sees both."""
    leader, follower = field.leader().name, field.follower().name
    field.tool(Network).set(HELD, lambda *pair: set(pair) == {leader, follower})
    wait(field.seconds)


@scenario("publishers-cut", prepare=put_between)
def publishers_cut(field: Field) -> None:
    """Clients cut off from all nodes for half of the time: publishers go on appending."""
    field.tool(Network).set(HELD, lambda source, _: source == CLIENT)
    wait(field.seconds / 2)


@scenario("storm", prepare=put_between, seconds=30.0)
def storm(field: Field) -> None:
    """Every second another weather on every link: delay, trickle, corruption, cuts, silence."""
    network = field.tool(Network)
    chance = field.random
    kinds = (
        Weather(),
        Weather(delay_s=0.1, jitter_s=0.3),
        Weather(bytes_per_s=5_000),
        Weather(corrupt_share=0.05),
        Weather(cut_share=0.05),
        Weather(hold_forth=True),
        Weather(hold_back=True),
        HELD,
    )
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        for link in network.links.values():
            link.weather = chance.choice(kinds)
        wait(1.0)

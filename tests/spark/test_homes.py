"""Which node Spark's readers ask: one that is near, another one if it fails, and it again."""

from __future__ import annotations

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.replicator.known_nodes import KnownNodes
from samelog.spark.logs.homes import RETURN_S, Homes
from samelog.wire.bounds import Holder
from tests.replicator.test_known_nodes import CONFIG

PLACE = ("t", 0)
SITES = [
    Holder("n0", "a:1", "lon/r1"),
    Holder("n1", "b:1", "lon/r2"),
    Holder("n2", "c:1", "nyc"),
    Holder("n3", "d:1", "nyc/r9"),
]


class World:
    def __init__(self, rack: str) -> None:
        self.now = 100.0
        nodes = tuple(Address(host, 1) for host in "abcd")
        config = replaced(rack, nodes, ("n0", "n1", "n2", "n3"))
        self.homes = Homes(KnownNodes(config), lambda: self.now)

    @property
    def asked(self) -> str | None:
        return self.homes.of(PLACE).node

    def fails(self) -> None:
        self.homes.failed(self.homes.of(PLACE))


def replaced(rack: str, nodes: tuple[Address, ...], names: tuple[str, ...]) -> ClientConfig:
    from dataclasses import replace

    return replace(CONFIG, rack=rack, nodes=nodes, node_names=names)


def test_a_near_node_is_asked_as_soon_as_it_is_known_where_nodes_are() -> None:
    world = World("nyc")
    world.homes.learn(SITES)
    assert world.asked in ("n2", "n3")
    elsewhere = World("lon/r2")
    elsewhere.homes.learn(SITES)
    assert elsewhere.asked == "n1"


def test_another_near_one_comes_next_then_any_and_a_near_one_again() -> None:
    world = World("nyc")
    world.homes.learn(SITES)
    first = world.asked
    world.fails()
    assert {first, world.asked} == {"n2", "n3"}
    world.fails()
    assert world.asked in ("n0", "n1")
    world.now += RETURN_S / 2
    assert world.asked in ("n0", "n1")
    world.now += RETURN_S / 2
    assert world.asked in ("n2", "n3")


def test_who_says_no_rack_stays_with_whoever_was_asked_first() -> None:
    world = World("")
    first = world.asked
    world.homes.learn(SITES)
    assert world.asked == first

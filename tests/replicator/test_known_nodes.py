"""Which nodes a client goes to: those of its configuration, and those that it was told of."""

from __future__ import annotations

from dataclasses import replace

from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.replicator.known_nodes import TOLD_MOST, KnownNodes
from samelog.runtime.network.link import NodeAddress
from samelog.wire.bounds import Holder

SEED = Address("seed", 7000)
TLS = TlsFiles(ca="ca", cert="cert", key="key")
CONFIG = ClientConfig(nodes=(SEED,), node_names=("n0",), cluster="c", tls=TLS)


def holder(name: str, address: str) -> Holder:
    return Holder(name, address, "")


def test_a_node_is_learnt_and_follows_what_is_told_last() -> None:
    known = KnownNodes(CONFIG)
    assert known.learn([holder("n1", "b:7001")])
    assert not known.learn([holder("n1", "b:7001")])
    assert known.learn([holder("n1", "c:7001")])
    assert known.all == [NodeAddress(SEED, "n0"), NodeAddress(Address("c", 7001), "n1")]


def test_a_configured_node_goes_by_its_configuration() -> None:
    known = KnownNodes(CONFIG)
    assert not known.learn([holder("n0", "evil:1"), holder("x", "seed:7000")])
    unnamed = KnownNodes(replace(CONFIG, node_names=()))
    assert not unnamed.learn([holder("n0", "inside:7000")], {"n0"})
    assert [each.address for each in unnamed.all] == [SEED]


def test_what_is_no_address_and_what_is_too_much_is_left_out() -> None:
    known = KnownNodes(CONFIG)
    assert not known.learn([holder("n1", "nowhere")])
    known.learn(holder(f"m{number}", f"h:{number + 1}") for number in range(TOLD_MOST + 5))
    assert len(known.all) == TOLD_MOST + 1


def test_a_new_configuration_keeps_what_was_told() -> None:
    known = KnownNodes(CONFIG)
    known.learn([holder("n1", "b:7001")])
    known.follow(replace(CONFIG, nodes=(Address("other", 1),), node_names=("n9",)))
    assert [each.node for each in known.all] == ["n9", "n1"]


def test_who_is_near_and_who_is_far() -> None:
    known = KnownNodes(replace(CONFIG, rack="r1"))
    seed, near, far = (
        NodeAddress(SEED, "n0"),
        NodeAddress(Address("b", 1), "n1"),
        NodeAddress(Address("c", 1), "n2"),
    )
    assert not known.is_far(seed), "nothing is known"
    known.learn([Holder("n0", "inside:1", "r2"), Holder("n2", "c:1", "")])
    assert not known.is_far(seed), "nobody is near"
    known.learn([Holder("n1", "b:1", "r1")])
    assert known.is_near(near)
    assert known.is_near(NodeAddress(near.address, None))
    assert known.is_far(seed)
    assert known.is_far(far)
    in_site = KnownNodes(replace(CONFIG, rack="lon"))
    in_site.learn([Holder("n1", "b:1", "lon/r1"), Holder("n2", "c:1", "london/r1")])
    assert in_site.is_near(near)
    assert in_site.is_far(far)
    anywhere = KnownNodes(CONFIG)
    anywhere.learn([Holder("n1", "b:1", "r1")])
    assert not anywhere.is_far(seed)

"""A client that asks who leads right behind the leader's end: on a real cluster."""

from __future__ import annotations

import time

from samelog.kafka.any_broker import LEADER_WAIT_S
from tests.e2e.harness import World
from tests.kafka.wire import Wire, metadata


def test_the_first_answer_behind_a_leaders_end_names_a_leader_that_lives(
    world: World, topic: str
) -> None:
    """Told of a dead one, or of none, most clients ask again only a second later."""
    leader = world.leader()
    address = world.followers()[0].kafka
    assert address is not None
    with Wire(address) as wire:
        before = metadata(wire, topic)
        leads = before.topics[0].partitions[0].leader_id
        leader.kill()
        asked_at = time.monotonic()
        found = metadata(wire, topic)
        waited_s = time.monotonic() - asked_at
    leader.start()
    world.wait_live(leader)
    told = found.topics[0].partitions[0].leader_id
    assert told != leads
    assert told != -1 or waited_s >= LEADER_WAIT_S
    assert {each.node_id for each in found.brokers} == {each.node_id for each in before.brokers}

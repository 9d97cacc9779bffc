"""The member list of one node: which one counts, and where to dial."""

from __future__ import annotations

import pytest

from samelog.config.tables.node import PeerConfig
from samelog.config.values import Address
from samelog.runtime.network.link import PeerPlace
from samelog.sequencer.cluster.members import Members, NotAMember, members_of
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, SetMembers

PEERS = [PeerConfig(name=f"n{i}", address=Address("127.0.0.1", 7000 + i)) for i in range(3)]
FIRST = members_of(PEERS)


def member(number: int, name: str, port: int = 9000) -> Member:
    return Member(number, name, f"127.0.0.1:{port}", f"samelog://node/{name}", voter=True)


def test_the_configuration_stands_in_until_a_list_is_written_down() -> None:
    machine = StateMachine()
    members = Members(machine, FIRST, configured=())
    assert list(members.all.values()) == FIRST
    machine.apply(SetMembers([FIRST[0]]))
    assert list(members.all.values()) == [FIRST[0]]


def test_a_newer_list_of_a_peer_counts_until_the_state_has_caught_up() -> None:
    ahead, behind = StateMachine(), StateMachine()
    for machine in (ahead, behind):
        machine.apply(SetMembers(FIRST))
    ahead.apply(SetMembers([*FIRST, member(3, "n3")]))
    told = Members(ahead, (), configured=()).told()
    members = Members(behind, (), configured=())
    assert members.hear(told)
    assert not members.hear(told)
    assert members.named("n3") == member(3, "n3")
    behind.apply(SetMembers([*FIRST, member(3, "n3")]))
    behind.apply(SetMembers(FIRST))
    assert members.named("n3") is None


def test_a_newcomer_goes_by_the_list_that_it_was_added_by_until_it_hears_a_newer_one() -> None:
    lags, ahead = StateMachine(), StateMachine()
    for machine in (lags, ahead):
        machine.apply(SetMembers(FIRST))
    ahead.apply(SetMembers([*FIRST, member(3, "n3")]))
    added_by = Members(ahead, (), configured=()).told()
    first = [Member(*item) for item in added_by.members]
    newcomer = Members(StateMachine(), first, added_by.version, configured=())
    assert not newcomer.hear(Members(lags, (), configured=()).told())
    assert list(newcomer.all.values()) == first
    assert newcomer.told() == added_by
    ahead.apply(SetMembers([member(3, "n3")]))
    assert newcomer.hear(Members(ahead, (), configured=()).told())
    assert list(newcomer.all) == [3]


def test_peers_are_looked_for_where_the_configuration_says_then_where_the_list_says() -> None:
    machine = StateMachine()
    machine.apply(SetMembers([member(0, "n0"), member(1, "n1", 1), member(3, "n3", 9003)]))
    members = Members(machine, (), configured=PEERS)
    listed, third = Address("127.0.0.1", 1), Address("127.0.0.1", 9003)
    found = members.peers(0)
    assert found == {
        1: PeerPlace("n1", (PEERS[1].address, listed)),
        3: PeerPlace("n3", (third,)),
    }
    for where in (listed, PEERS[1].address):
        found[1].failed()
        assert members.peers(0)[1].address == where


def test_who_is_missing_or_has_another_number_hears_of_it_but_not_from_older_lists() -> None:
    machine = StateMachine()
    members = Members(machine, FIRST, configured=())
    machine.apply(SetMembers([FIRST[0], member(3, "n1")]))
    members.check("n0", 0, 0)
    members.check("n2", 2, 1)
    with pytest.raises(NotAMember) as removed:
        members.check("n2", 2, 0)
    assert removed.value.number is None
    with pytest.raises(NotAMember) as moved:
        members.check("n1", 1, 0)
    assert moved.value.number == 3


def test_numbers_are_never_used_again() -> None:
    machine = StateMachine()
    machine.apply(SetMembers([*FIRST, member(3, "n3")]))
    machine.apply(SetMembers(FIRST))
    assert machine.state.members.next_number == 4

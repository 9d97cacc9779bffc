"""When a leader lets another node lead."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from samelog.consensus import Entry
from samelog.consensus.log import RaftLog
from samelog.placement.changes import PlaceGroups, apply_change
from samelog.placement.values import NewGroup
from samelog.sequencer.cluster.changes import ChangeRefused, Changes
from samelog.sequencer.node import Node
from samelog.sequencer.sites import leading
from samelog.sequencer.state.commands import encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import Member, MemberLives, MembersTable
from samelog.sequencer.state.tables.placement import ChangePlacement, MakeGroups
from samelog.sequencer.state.tables.sites import AddSite, SetSiteLeads
from tests.sequencer.cluster import RunWith, leader_of, until


@pytest.mark.parametrize(
    ("voters", "suspects", "is_refused"),
    [(3, [2], True), (3, [1], False), (3, [], False), (4, [2], False), (5, [2, 3], True)],
)
def test_who_is_needed_to_let_suspects_in_is_not_removed(
    voters: int, suspects: list[int], is_refused: bool
) -> None:
    raft = SimpleNamespace(voters=range(voters), counts=lambda number: number not in suspects)
    names = SimpleNamespace(name=lambda number: f"n{number}")
    changes = Changes(
        0,
        group=cast(Any, SimpleNamespace(raft=raft)),
        machine=cast(Any, None),
        members=cast(Any, names),
        coordinator=cast(Any, None),
        clock=cast(Any, None),
        connected=list,
        lives=cast(Any, None),
    )
    leaving = Member(1, "n1", "n1:1", "samelog://node/n1", voter=True)
    with pytest.raises(ChangeRefused, match="too few") if is_refused else nullcontext():
        changes._check_rest(leaving)


@pytest.mark.parametrize("command", [MakeGroups(0, []), ChangePlacement(-1, []), None])
def test_a_member_that_may_just_get_a_replica_is_not_removed(command: Any) -> None:
    """What places replicas may be in the log, and not applied, when the removal is asked for."""
    machine, log = StateMachine(), RaftLog(0, 0, [])
    noise = RecordEvent(0, "kind", "text")
    log.append([Entry(1, 1, encode_commands([noise]))])
    if command is not None:
        log.append([Entry(2, 1, encode_commands([noise, command]))])
    group = SimpleNamespace(raft=SimpleNamespace(log=log), applied_index=1)
    changes = Changes(
        0,
        group=cast(Any, group),
        machine=machine,
        members=cast(Any, None),
        coordinator=cast(Any, None),
        clock=cast(Any, None),
        connected=list,
        lives=cast(Any, None),
    )
    assert changes._is_empty(1) == (command is None)
    group.applied_index = log.last_index
    assert changes._is_empty(1)
    apply_change(machine.state.placement, PlaceGroups(1, (NewGroup(1, (1,), 1),)))
    assert not changes._is_empty(1)
    assert changes._is_empty(2)


def test_leadership_goes_back_to_the_site_that_should_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    monkeypatch.setattr(leading, "WELL_S", 0.2)

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        wanted = next(node for node in nodes if node is not leader)
        for node in nodes:
            node.peers.whereabouts._site = "lon" if node is wanted else "par"
        for command in (AddSite("lon", True, 1), AddSite("par", True, 1)):
            await leader.raft.proposer.propose(command)
        await until(
            lambda: len(leader.cluster.placement.sites.members) == len(nodes), "all are in sites"
        )
        await leader.raft.proposer.propose(SetSiteLeads("lon", True, 2))
        await until(lambda: wanted.raft.group.is_leader, "it leads")
        await until(lambda: leader.raft.group.raft.patience.weight > 1, "others wait longer")

    run_with(tmp_path, 3, body)


def test_a_leader_that_takes_nothing_in_lets_another_lead(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        leader.logs.intake.room.stop("the disk fails", for_good=True)
        others = [node for node in nodes if node is not leader]
        await until(lambda: any(node.raft.group.is_leader for node in others), "another leader")

    run_with(tmp_path, 3, body)


def members_of(voters: int, hosts: Sequence[str]) -> tuple[Changes, MembersTable]:
    """A member for each host, of which the first ones vote."""
    machine = StateMachine()
    table = machine.state.members
    table.by_number = {
        n: Member(n, f"n{n}", f"n{n}:1", "", voter=n < voters) for n in range(len(hosts))
    }
    table.started = {n: MemberLives(host=host) for n, host in enumerate(hosts)}
    changes = Changes(
        0,
        group=cast(Any, SimpleNamespace(raft=SimpleNamespace(voters=(), progress=None))),
        machine=machine,
        members=cast(Any, None),
        coordinator=cast(Any, None),
        clock=cast(Any, None),
        connected=list,
        lives=cast(Any, None),
    )
    return changes, table


@pytest.mark.parametrize("voters", [6, 7])
def test_members_beyond_seven_are_learners(voters: int) -> None:
    """A learner has no vote in group 0; of data groups it may have what any member has."""
    changes, table = members_of(voters, [f"h{n}" for n in range(voters + 1)])
    assert changes._promoted() == ({voters} if voters < 7 else set())
    assert changes.stands_by(voters) == (voters == 7)
    table.by_number = {
        n: msgspec.structs.replace(e, voter=True) for n, e in table.by_number.items()
    }
    changes._check_new("another", "n9:1")


def test_a_second_member_of_a_host_stands_by_and_the_next_may_join() -> None:
    changes, table = members_of(3, ("a", "b", "c", "a"))
    assert changes.stands_by(3)
    assert not changes.stands_by(0)
    changes._check_new("another", "n9:1")
    table.by_number[4] = Member(4, "n4", "n4:1", "", voter=False)
    with pytest.raises(ChangeRefused, match="n4 is being added"):
        changes._check_new("another", "n9:1")
    table.started[4] = MemberLives(host="d")
    assert changes._promoted() == {4}, "n3 waits: host d has no voter yet"
    with pytest.raises(ChangeRefused, match="n4 is being added"):
        changes._check_new("another", "n9:1")


def test_a_member_votes_that_stood_by_once_its_host_has_no_voter() -> None:
    changes, table = members_of(3, ("a", "b", "c", "a"))
    del table.by_number[0]
    assert changes._promoted() == {3}


def test_what_replaces_a_voter_of_the_same_host_does_not_stand_by() -> None:
    changes, table = members_of(3, ("a", "b", "c", "a", "a"))
    table.by_number[4] = msgspec.structs.replace(table.by_number[4], replaces=0)
    assert changes._promoted() == {4}
    assert [changes.stands_by(n) for n in (3, 4)] == [True, False]

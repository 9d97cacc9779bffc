"""When a leader lets another node lead."""

from __future__ import annotations

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
from samelog.sequencer.cluster.changes import VOTERS_LIMIT, ChangeRefused, Changes
from samelog.sequencer.node import Node
from samelog.sequencer.sites import leading
from samelog.sequencer.state.commands import encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import Member
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


@pytest.mark.parametrize(
    ("voters", "joining", "is_full"), [(7, 0, True), (6, 1, True), (6, 0, False), (3, 0, False)]
)
def test_members_beyond_seven_are_learners(voters: int, joining: int, is_full: bool) -> None:
    """A learner has no vote in group 0; of data groups it may have what any member has."""
    machine, count = StateMachine(), voters + joining
    machine.state.members.by_number = {
        n: Member(n, f"n{n}", f"n{n}:1", "", voter=n < voters, promote=True) for n in range(count)
    }
    changes = Changes(
        0,
        group=cast(Any, None),
        machine=machine,
        members=cast(Any, None),
        coordinator=cast(Any, None),
        clock=cast(Any, None),
        connected=list,
        lives=cast(Any, None),
    )
    assert (changes._count_voters() >= VOTERS_LIMIT) == is_full
    machine.state.members.by_number = {
        n: msgspec.structs.replace(each, voter=True)
        for n, each in machine.state.members.by_number.items()
    }
    changes._check_new("learner", "n9:1", is_one_more_voter=False)
    with pytest.raises(ChangeRefused, match="at most 7 voters") if is_full else nullcontext():
        changes._check_new("voter", "n9:1", is_one_more_voter=True)

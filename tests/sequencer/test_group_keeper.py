"""Both kinds of group are kept alike: suspects come back, and leadership leaves a member in
maintenance, with damage or without intake, and comes to who should have it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from samelog.consensus import Raft
from samelog.runtime.clock import ManualClock
from samelog.sequencer.cluster.group_keeper import HOLD_S, GroupKeeper
from samelog.sequencer.cluster.keeper_steps import (
    CLOSE_ENTRIES,
    KeeperStep,
    Observed,
    Peer,
    StepKind,
    WantedGroup,
    next_step,
)
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import SetMaintenanceCommand
from samelog.sequencer.state.tables.sessions import (
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.wire.peer_messages import MemberState
from tests.sequencer.cluster import RunWith, leader_of, until
from tests.sequencer.test_data_groups import led, make_groups, place

WELL = Peer(
    1,
    votes=True,
    counts=True,
    is_sure=True,
    is_there=True,
    takes_in=True,
    is_resting=False,
    is_cut_off=False,
    match=1000,
)
SEEN = Observed(
    0,
    (WELL, replace(WELL, number=2, match=900)),
    1000,
    is_to_yield=False,
    is_cut_off=False,
    is_transferring=False,
    may_change=True,
    may_prefer=True,
)


def peers(**second: Any) -> Observed:
    """The second peer is as named."""
    return replace(SEEN, peers=(WELL, replace(SEEN.peers[1], **second)))


def to(member: int) -> KeeperStep:
    return KeeperStep(StepKind.TRANSFER, member)


def test_a_leader_that_is_well_stays() -> None:
    assert next_step(WantedGroup(), SEEN) is None
    assert next_step(WantedGroup(leaders=(0, 1)), SEEN) is None


def test_who_is_to_yield_gives_leadership_to_whoever_has_most_and_should_lead() -> None:
    yields = replace(SEEN, is_to_yield=True)
    assert next_step(WantedGroup(), yields) == to(1)
    assert next_step(WantedGroup(leaders=(2,)), yields) == to(2)
    assert next_step(WantedGroup(), replace(yields, is_transferring=True)) is None
    assert next_step(WantedGroup(), yields, [to(1)]) is None, "once a round"


@pytest.mark.parametrize(
    "ill",
    [
        {"votes": False},
        {"counts": False},
        {"is_there": False},
        {"takes_in": False},
        {"is_resting": True},
    ],
)
def test_leadership_goes_to_nobody_who_would_give_it_away_at_once(ill: dict[str, bool]) -> None:
    alone = replace(SEEN, peers=(replace(SEEN.peers[1], **ill),))
    assert next_step(WantedGroup(leaders=(2,)), alone) is None
    assert next_step(WantedGroup(leaders=(2,)), replace(alone, is_to_yield=True)) is None


def test_who_should_lead_does_once_it_is_near_and_this_one_has_led_for_a_while() -> None:
    wanted = WantedGroup(leaders=(2,))
    assert next_step(wanted, SEEN) == to(2)
    assert next_step(wanted, replace(SEEN, may_prefer=False)) is None
    assert next_step(wanted, peers(match=1000 - CLOSE_ENTRIES - 1)) is None
    assert next_step(replace(wanted, going=frozenset({2})), SEEN) is None


def test_who_is_cut_off_from_group_0_gives_leadership_to_one_that_is_not() -> None:
    """If all voters are cut off, it stays where it should be."""
    cut_off = replace(SEEN, is_cut_off=True)
    assert next_step(WantedGroup(leaders=(0,)), cut_off) == to(1)
    one = replace(cut_off, peers=(replace(WELL, is_cut_off=True), SEEN.peers[1]))
    assert next_step(WantedGroup(leaders=(1,)), one) == to(2)
    alone = replace(cut_off, peers=tuple(replace(each, is_cut_off=True) for each in SEEN.peers))
    assert next_step(WantedGroup(leaders=(0,)), alone) is None
    assert next_step(WantedGroup(leaders=(2,)), alone) == to(2)
    assert next_step(WantedGroup(), replace(alone, is_to_yield=True)) == to(1)


def test_leadership_does_not_go_back_to_a_member_that_is_cut_off() -> None:
    preferred = peers(is_cut_off=True)
    assert next_step(WantedGroup(leaders=(2,)), preferred) is None
    assert next_step(WantedGroup(leaders=(2,)), replace(preferred, is_to_yield=True)) == to(1)


def test_suspects_come_first_then_one_change_of_members() -> None:
    suspect = peers(counts=False, is_close=True)
    assert next_step(WantedGroup(), suspect) == KeeperStep(StepKind.READMIT, 2)
    assert next_step(WantedGroup(), replace(suspect, asked={2})) is None
    assert next_step(WantedGroup(), peers(is_sure=False, is_close=True)) == KeeperStep(
        StepKind.READMIT, 2
    )
    assert next_step(WantedGroup(), peers(counts=False)) is None, "not before it has everything"
    learner = peers(votes=False, is_close=True)
    promotes = WantedGroup(promoted=frozenset({2}))
    assert next_step(promotes, learner) == KeeperStep(StepKind.PROMOTE, 2)
    assert next_step(promotes, replace(learner, may_change=False)) is None
    assert next_step(promotes, peers(votes=False)) is None
    goes = replace(promotes, replaced=((1, 2),))
    assert next_step(goes, learner) == KeeperStep(StepKind.REMOVE, 1)
    assert next_step(goes, learner, [KeeperStep(StepKind.REMOVE, 1)]) is None
    assert next_step(WantedGroup(replaced=((0, 1),)), SEEN) == to(1)


class Group:
    """A data group of three that member 0 leads, and what its keeper asks for."""

    def __init__(self) -> None:
        self.clock, self.damaged = ManualClock(now=100.0), dict[int, str]()
        self.machine, self.asked = StateMachine(), list[int]()
        for command in (
            CreateTopicCommand("a" * 32, "t", 1, {}, 0),
            OpenRunCommand("s", "b" * 32, "i", 0, "c" * 32, None, None),
            OpenInputCommand("s", "a" * 32, 0),
        ):
            self.machine.apply(command)
        self.progress = SimpleNamespace(match=10)
        raft: Any = SimpleNamespace(
            term=1,
            peers=[1, 2],
            voters={0, 1, 2},
            counts=lambda number: True,
            progress=lambda number: self.progress,
            last_index=10,
            leadership=SimpleNamespace(transfer_to=None),
            transfer_leadership=lambda to, now: self.asked.append(to),
        )
        self.round_s = 1.0
        self.wanted, self.may_change = WantedGroup, False
        self.presence = Presence(0)
        for number in (1, 2):
            self.presence.heard(number, None)
        group: Any = SimpleNamespace(raft=raft, is_leader=True, pump=lambda: None)
        coordinator: Any = SimpleNamespace(damaged_inputs=lambda: self.damaged)
        kept: Any = self
        self.keeper = GroupKeeper(
            kept,
            group=group,
            machine=self.machine,
            coordinator=coordinator,
            presence=self.presence,
            clock=self.clock,
            cluster=lambda: self.machine.state,
            takes_in=lambda: True,
        )

    def life(self, number: int) -> None:
        """Do nothing: no member is suspect."""


def test_damage_is_left_to_another_leader_once() -> None:
    """Where all have the same bytes, none of them can do better; elsewhere it is asked again."""
    group = Group()
    group.damaged[7] = "of an input that is gone"
    group.keeper.tick()
    assert group.asked == []
    group.damaged[1] = "a batch with another checksum"
    for number in (1, 2):
        group.presence.dialled(number)
        group.presence.broke(number, 0.0)
    group.keeper.tick()
    assert group.asked == [], "no member is connected"
    group.presence.heard(1, None)
    for _ in range(3):
        group.keeper.tick()
    assert group.asked == [1]
    group.machine.state.sessions.inputs[1].byte = 100
    group.keeper.tick()
    assert group.asked == [1, 1]


def test_a_preferred_leader_that_says_it_is_cut_off_does_not_get_leadership() -> None:
    group = Group()
    group.wanted = lambda: WantedGroup(leaders=(2,))  # type: ignore[assignment, misc]
    group.keeper.tick()
    group.clock.advance(HOLD_S)
    for is_cut_off in (True, False):
        assert group.asked == []
        said = MemberState("live", "", "", "follower", 1, 1, 1, is_cut_off)
        group.presence.say(2, said, group.clock.now())
        group.keeper.tick()
    assert group.asked == [2]


def test_leadership_is_held_for_a_moment() -> None:
    """Else who gave it away, and is preferred, would have it back before anything was done."""
    group = Group()
    group.wanted = lambda: WantedGroup(leaders=(2,))  # type: ignore[assignment, misc]
    group.keeper.tick()
    group.keeper.hand_over(2)
    assert group.asked == []
    group.clock.advance(HOLD_S)
    group.keeper.tick()
    group.keeper.hand_over(2)
    assert group.asked == [2, 2]


@pytest.mark.usefixtures("short_linger")
def test_a_group_that_rests_leaves_a_member_in_maintenance(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Nothing happens in it, and group 0 is led elsewhere."""

    async def body(nodes: list[Node]) -> None:
        lead = await leader_of(nodes)
        rests = next(node for node in nodes if node is not lead)
        own = nodes.index(rests)
        await make_groups(nodes, [own, *(each for each in range(3) if each != own)])
        await until(lambda: led(nodes, 1) == [rests], "it leads")
        await until(lambda: 1 not in rests.data_groups.working, "it rests")
        name, until_ms = rests.member.config.name, rests.member.clock.wall_ms() + 600_000
        await lead.raft.proposer.propose(SetMaintenanceCommand([name], until_ms))
        others = [node for node in nodes if node is not rests]
        await until(lambda: bool(led(others, 1)), "another one leads")

    run_with(tmp_path, 3, body)


def test_a_member_in_maintenance_leads_nothing(tmp_path: Path, run_with: RunWith) -> None:
    """Group 0 and a data group alike, also one that rests; it gets neither back meanwhile."""

    async def body(nodes: list[Node]) -> None:
        lead = await leader_of(nodes)
        own = nodes.index(lead)
        await make_groups(nodes, [own, *(each for each in range(3) if each != own)])
        await until(lambda: led(nodes, 1) == [lead], "it leads both")
        await place(lead, 1)
        name, until_ms = lead.member.config.name, lead.member.clock.wall_ms() + 600_000
        assert await lead.raft.proposer.propose(SetMaintenanceCommand([name], until_ms)) is not None
        others = [node for node in nodes if node is not lead]
        await until(lambda: any(node.raft.group.is_leader for node in others), "group 0")
        await until(lambda: bool(led(others, 1)), "the data group")
        await until(lambda: led(others, 1)[0].data_groups.replicas[1]._upkeep.keeper.may_prefer, "")
        leader = led(others, 1)[0]
        leader.data_groups.tick_membership()
        assert led(nodes, 1) == [leader]
        ends = SetMaintenanceCommand([name], 0)
        await (await leader_of(nodes)).raft.proposer.propose(ends)
        await until(lambda: led(nodes, 1) == [lead], "it should lead, and does again")

    run_with(tmp_path, 3, body)


def test_a_leader_that_is_cut_off_from_group_0_leaves_its_groups(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Also one that rests. It gets leadership back once it hears the leader of group 0 again."""

    async def body(nodes: list[Node]) -> None:
        lead = await leader_of(nodes)
        cut_off = next(node for node in nodes if node is not lead)
        own = nodes.index(cut_off)
        await make_groups(nodes, [own, *(each for each in range(3) if each != own)])
        await until(lambda: led(nodes, 1) == [cut_off], "it leads the group")
        await place(lead, 1)
        silent_s, own_raft = Raft.leader_silent_s, cut_off.raft.group.raft

        def is_silent(raft: Raft, now: float) -> float:
            return 60.0 if raft is own_raft else silent_s(raft, now)

        with patch.object(Raft, "leader_silent_s", is_silent):
            others = [node for node in nodes if node is not cut_off]
            await until(lambda: bool(led(others, 1)), "another member leads it")

            def is_said(node: Node) -> bool:
                return node.peers.presence.said(own, 0.0)[0].is_cut_off

            await until(lambda: all(map(is_said, others)), "it says so")
        await until(lambda: led(nodes, 1) == [cut_off], "it should lead, and does again")

    run_with(tmp_path, 3, body)


def test_damaged_bytes_are_left_to_another_leader(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "leads")
        await place(nodes[0], 1)
        placed = nodes[0].data_groups.replicas[1].group_replica
        await until(lambda: "f" * 32 in placed.logs.machine.state.topics.by_id, "the topic")
        lead = await leader_of(nodes)
        run = "s", "b" * 32, "samelog://publisher/p", 0
        for command in (
            CreateTopicCommand("a" * 32, "t", 1, {}, 0),
            OpenRunCommand(*run, "c" * 32, None, None),
            OpenInputCommand("s", "a" * 32, 0),
        ):
            assert not isinstance(await lead.raft.proposer.propose(command), Rejection)
        opening = OpenPlacedInput(*run, 0, "c" * 32, None, None, None, "f" * 32, 0)
        opened = await placed.raft.proposer.propose(opening)
        placed.raft.coordinator._planner.damaged[opened.number] = "a batch with another checksum"
        nodes[0].data_groups.work(nodes[0].data_groups.replicas[1])
        await until(lambda: bool(led(nodes[1:], 1)), "the data group has another leader")
        lead = await leader_of(nodes)
        number = next(iter(lead.logs.machine.state.sessions.inputs))
        lead.raft.coordinator._planner.damaged[number] = "a batch with another checksum"
        others = [node for node in nodes if node is not lead]
        await until(lambda: any(node.raft.group.is_leader for node in others), "and so has group 0")

    run_with(tmp_path, 3, body)

"""Nodes that were added while this one was cut off, and that it hears of from nobody else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.consensus.errors import NotLeader
from samelog.sequencer.cluster import strangers
from samelog.sequencer.cluster.members import Members
from samelog.sequencer.cluster.peers import PeerLink, make_hello
from samelog.sequencer.cluster.strangers import Stranger
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.wire.bounds import UNDECIDED, Life
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import Hello
from samelog.wire.peer_messages import Forgotten, MemberList
from tests.sequencer.cluster import (
    RunWith,
    Session,
    batch,
    join,
    leader_of,
    make_node,
    merged,
    offset,
    until,
)


def member(number: int) -> Member:
    name = f"n{number}"
    return Member(number, name, f"127.0.0.1:{7000 + number}", f"samelog://node/{name}", voter=True)


def members_after(*lists: tuple[int, ...]) -> Members:
    """What a node knows after it has applied these lists."""
    machine = StateMachine()
    for numbers in lists:
        machine.apply(SetMembers([member(number) for number in numbers]))
    return Members(machine, (), configured=())


def hello_of(number: int | None = 4, cluster_id: str = "c") -> Hello:
    life = Life(1, "e", (), True, cluster_id, term=2, last_index=9, last_term=2)
    return make_hello(cluster="main", node="n4", number=number, life=life)


@pytest.mark.parametrize(
    ("hello", "next_member", "cluster_id", "expected"),
    [
        (hello_of(), 3, "c", True),
        (hello_of(), 4, "c", True),
        (hello_of(), 5, "c", False),
        (hello_of(), 3, "other", False),
        (hello_of(), 0, "", True),
        (hello_of(cluster_id=""), 3, "", False),
        (hello_of(cluster_id=UNDECIDED), 0, "", False),
        (hello_of(cluster_id=UNDECIDED), 3, "c", False),
        (hello_of(number=None), 3, "c", False),
        (make_hello(cluster="main", node="n4", number=4), 3, "c", False),
    ],
)
def test_who_was_removed_or_is_of_another_cluster_is_none(
    hello: Hello, next_member: int, cluster_id: str, expected: bool
) -> None:
    found = strangers.may_be_newer(hello, next_member=next_member, cluster_id=cluster_id)
    assert found is expected


class Ear:
    """Keeps what was told. Stands in for a node's PeerListener."""

    def __init__(self, members: Members) -> None:
        self.members = members

    def on_peer_message(self, node: int, message: MemberList) -> None:
        self.members.hear(message)


class Wire:
    """Keeps what was sent. Stands in for a transport.Connection."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def stranger_at(members: Members, wire: Wire) -> Stranger:
    return Stranger(hello_of(), members, cast("Any", wire), cast("Any", Ear(members)))


def test_a_newcomer_is_known_once_it_has_shown_a_newer_list_with_itself_in_it() -> None:
    own, wire = members_after((0, 1, 2)), Wire()
    newer = members_after((0, 1, 2), (0, 1, 2, 3), (0, 3, 4)).told()
    stranger = stranger_at(own, wire)
    assert wire.sent == [own.told()]
    with pytest.raises(ProtocolFault) as later:
        stranger.on_message(newer)
    assert later.value.code is FaultCode.NOT_READY
    assert set(own.all) == {0, 3, 4}


@pytest.mark.parametrize("shown", [(0, 1, 2, 3), ()])
def test_a_list_without_its_teller_counts_for_nothing(shown: tuple[int, ...]) -> None:
    own = members_after((0, 1, 2))
    with pytest.raises(ProtocolFault) as refused:
        stranger_at(own, Wire()).on_message(members_after((0,), (0, 1), shown).told())
    assert refused.value.code is FaultCode.NOT_A_MEMBER
    assert set(own.all) == {0, 1, 2}


def test_a_stranger_may_say_nothing_else() -> None:
    stranger = stranger_at(members_after((0, 1, 2)), Wire())
    said: list[Callable[[], None]] = [
        lambda: stranger.on_message(Forgotten("it did")),
        lambda: stranger.on_data(0, 0, 0, memoryview(b"x")),
        lambda: stranger.on_raft(memoryview(b"x")),
    ]
    for say in said:
        with pytest.raises(ProtocolFault) as refused:
            say()
        assert refused.value.code is FaultCode.PROTOCOL


def test_who_is_told_a_list_instead_of_a_welcome_shows_its_own() -> None:
    own, wire = members_after((0, 1, 2), (0, 4)), Wire()
    unused: Any = None
    ear = cast("Any", Ear(own))
    link = PeerLink(0, unused, unused, own.told, ear, tls=unused, backoff=unused, clock=unused)
    link._link = cast("Any", SimpleNamespace(connection=wire))
    link.on_message(members_after((0, 1, 2)).told())
    assert wire.sent == [own.told()]


def votes(node: Node, count: int) -> bool:
    return sum(each.voter for each in node.logs.machine.state.members.by_number.values()) == count


async def remove(node: Node, there: list[Node]) -> None:
    """A leader that is to go hands over first."""
    while True:
        leader = await leader_of(there)
        with suppress(NotLeader):
            await leader.peers.changes.remove(node.member.config.name)
            return


def test_who_was_cut_off_meets_those_that_came_since(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"1"))
        leader = await leader_of(nodes)
        away = next(node for node in nodes if node is not leader)
        number = away.peers.number
        await away.stop()
        there = [node for node in nodes if node is not away]
        for voters in (4, 5):
            there.append(await join(tmp_path, leader))
            await until(partial(votes, leader, voters), f"{voters} voters")
        for old in [node for node in nodes if node is not away]:
            await remove(old, there)
            await old.stop()
            there.remove(old)
        back = make_node(tmp_path, 5, number, bootstrap=False)
        await back.start()
        try:
            await session.send(there, batch(b"2"))
            everybody = [*there, back]
            await until(lambda: all(offset(node) == 2 for node in everybody), "all are in step")
            assert len({merged(node) for node in everybody}) == 1
        finally:
            for node in (*there, back):
                await node.stop()

    run_with(tmp_path, 3, body)

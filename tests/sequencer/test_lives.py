"""What an introduction says against what is known of a node's lives."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.consensus import encode_groups
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.lives import (
    BEGAN_BEFORE,
    LIVE_S,
    NEVER_SEEN,
    Acknowledged,
    Contradiction,
    KnownLife,
    Lives,
    contradiction,
    descends,
)
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.cluster.peers import Callers, PeerServer
from samelog.sequencer.parts import PeerParts
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import LetIn, MemberLives
from samelog.sequencer.state.types import State
from samelog.wire.bounds import LIVES_TOLD, UNDECIDED, Life, ReplicaEnd
from samelog.wire.errors import FaultCode, ProtocolFault

PROMISED = (Acknowledged(2, 5, group=7, replica=3),)
MANY = tuple(f"m{number}" for number in range(LIVES_TOLD))


def life(boot: int = 5, incarnation: str = "e", before: tuple[str, ...] = (), **more: Any) -> Life:
    told = {"is_sure": True, "cluster_id": "c", "term": 3, "last_index": 9, "last_term": 3, **more}
    return Life(boot, incarnation, before, **told)


@pytest.mark.parametrize(
    ("newer", "known", "expected"),
    [
        (life(5, "e"), KnownLife(5, "e"), True),
        (life(6, "e"), KnownLife(5, "e"), False),
        (life(5, "f"), KnownLife(5, "e"), False),
        (life(4, "d", ("e",)), KnownLife(5, "e"), False),
        (life(6, "f", ("d", "e")), KnownLife(5, "e"), True),
        (life(6, "f", ("d",)), KnownLife(5, "e"), False),
        (life(2_000_000, "f"), KnownLife(5, "e"), False),
        (life(6 + LIVES_TOLD, "f", MANY), KnownLife(5, "e"), True),
        (life(4 + LIVES_TOLD, "f", MANY), KnownLife(5, "e"), False),
    ],
)
def test_a_life_follows_another_one_of_the_same_directory(
    newer: Life, known: KnownLife, expected: bool
) -> None:
    assert descends(newer, known) is expected


@pytest.mark.parametrize(
    ("own", "peer", "known", "acknowledged", "found"),
    [
        (life(), life(), NEVER_SEEN, (), None),
        (life(cluster_id=""), life(cluster_id=""), NEVER_SEEN, (), None),
        (life(cluster_id=UNDECIDED), life(), NEVER_SEEN, (), None),
        (life(), life(cluster_id=UNDECIDED), NEVER_SEEN, (), None),
        (life(), life(cluster_id=""), NEVER_SEEN, (), Contradiction(BEGAN_BEFORE)),
        (
            life(cluster_id=UNDECIDED),
            life(cluster_id=""),
            NEVER_SEEN,
            (),
            Contradiction(BEGAN_BEFORE),
        ),
        (life(), life(cluster_id="", is_sure=False), NEVER_SEEN, (), None),
        (
            life(cluster_id=""),
            life(),
            NEVER_SEEN,
            (),
            Contradiction(BEGAN_BEFORE, is_own=True),
        ),
        (life(cluster_id="", is_sure=False), life(), NEVER_SEEN, (), None),
        (
            life(),
            life(6, "f", ("d",), is_sure=False),
            KnownLife(5, "e"),
            (),
            Contradiction("boot 5 was another life of it", KnownLife(5, "e")),
        ),
        (life(), life(), NEVER_SEEN, (Acknowledged(3, 9),), None),
        (life(), life(term=4, last_index=1), NEVER_SEEN, (Acknowledged(3, 9),), None),
        (life(), life(is_sure=False), NEVER_SEEN, (Acknowledged(3, 10),), None),
        (
            life(),
            life(),
            NEVER_SEEN,
            (Acknowledged(3, 10),),
            Contradiction("it acknowledged entry 10 in term 3"),
        ),
        (
            life(),
            life(),
            NEVER_SEEN,
            (Acknowledged(4, 1),),
            Contradiction("it acknowledged entry 1 in term 4"),
        ),
        (life(), life(replicas=(ReplicaEnd(7, 3, 2, 5, 2),)), NEVER_SEEN, PROMISED, None),
        (life(), life(replicas=(ReplicaEnd(7, 3, 3, 1, 1),)), NEVER_SEEN, PROMISED, None),
        (life(), life(replicas=(ReplicaEnd(7, 4, 1, 0, 0),)), NEVER_SEEN, PROMISED, None),
        (life(), life(replicas=()), NEVER_SEEN, PROMISED, None),
        (
            life(),
            life(replicas=(ReplicaEnd(7, 3, 2, 4, 2),)),
            NEVER_SEEN,
            PROMISED,
            Contradiction("it acknowledged entry 5 in term 2 of group 7"),
        ),
        (
            life(),
            life(replicas=(ReplicaEnd(7, 3, 2, 5, 2), ReplicaEnd(8, 1, 5, 9, 5))),
            NEVER_SEEN,
            (*PROMISED, Acknowledged(6, 0, 8, 1)),
            Contradiction("it led in term 6 of group 8"),
        ),
    ],
)
def test_who_has_forgotten_something_is_found_out(
    own: Life,
    peer: Life,
    known: KnownLife,
    acknowledged: tuple[Acknowledged, ...],
    found: Contradiction | None,
) -> None:
    assert contradiction(own, peer, known, acknowledged) == found


def test_two_clusters_of_one_name_have_nothing_to_say_to_each_other() -> None:
    with pytest.raises(ProtocolFault, match="two clusters of one name") as caught:
        contradiction(life(cluster_id="c"), life(cluster_id="d"), NEVER_SEEN, ())
    assert caught.value.code is FaultCode.WRONG_CLUSTER


def test_the_newest_life_counts_whether_it_was_met_or_is_written_down() -> None:
    recorded = {1: KnownLife(7, "g")}
    lives = Lives(
        life, lambda number: recorded.get(number, NEVER_SEEN), lambda number: (), lambda number: ()
    )
    assert lives.meet(1, life(5, "e"))
    assert not lives.meet(1, life(5, "e"))
    assert lives.known(1) == KnownLife(7, "g")
    assert lives.meet(1, life(8, "h", ("g",)))
    assert lives.known(1) == KnownLife(8, "h")
    assert lives.contradiction(1, life(9, "i", ("g",))) == Contradiction(
        "boot 8 was another life of it", KnownLife(8, "h")
    )


def test_acknowledgements_are_compared_once_per_life() -> None:
    """A bulk connection's Hello is older than the newest acknowledgements."""
    acknowledged = Acknowledged(3, 9)
    lives = Lives(
        life, lambda number: NEVER_SEEN, lambda number: (), lambda number: (acknowledged,)
    )
    assert lives.contradiction(1, life()) is None
    lives.meet(1, life())
    acknowledged = Acknowledged(3, 10)
    assert lives.contradiction(1, life()) is None
    restarted = lives.contradiction(1, life(6, "f", ("e",)))
    assert restarted == Contradiction("it acknowledged entry 10 in term 3", KnownLife(5, "e"))


def test_a_suspect_counts_again_by_an_entry_that_names_this_very_life() -> None:
    machine, calls = StateMachine(), list[str]()
    raft = SimpleNamespace(may_vote=False, regain_trust=lambda: calls.append("trusted"))
    record = SimpleNamespace(number=1, incarnation="now", cluster_id="c", suspicion="")
    directory = SimpleNamespace(record=record, knows_far=lambda far: None)
    group = SimpleNamespace(raft=raft)
    own = OwnLife(cast(Any, directory), cast(Any, group), machine)
    machine.apply(LetIn(1, "before"))
    own.settle()
    assert calls == []
    machine.apply(LetIn(1, "now"))
    own.settle()
    assert calls == ["trusted"]


def test_a_life_that_is_connected_is_not_displaced() -> None:
    heard: list[int] = []

    class Listener:
        def on_peer_dialled(self, server: PeerServer) -> None:
            callers.add(server)

        def on_raft(self, node: int, messages: object) -> None:
            heard.append(node)

    async def body() -> None:
        now = asyncio.get_running_loop().time()
        link = SimpleNamespace(last_received=now, close=lambda: None)
        payload = memoryview(encode_groups([]))
        old = PeerServer(1, "old", cast(Any, link), cast(Any, Listener()))
        assert callers.has_other(1, "new")
        assert not callers.has_other(1, "old")
        assert not callers.has_other(2, "new")
        old.on_raft(payload)
        link.last_received -= LIVE_S + 1
        assert not callers.has_other(1, "new")
        new = PeerServer(1, "new", cast(Any, link), cast(Any, Listener()))
        old.on_raft(payload)
        assert heard == [1]
        new.on_raft(payload)
        assert heard == [1, 1]

    callers = Callers()
    asyncio.run(body())


@pytest.mark.parametrize(
    ("is_sure", "let_in", "is_up", "takes_in", "match", "may_hold"),
    [
        (True, "", True, True, 7, True),
        (False, "", True, True, 7, False),
        (False, "another", True, True, 7, False),
        (False, "e", True, True, 7, True),
        (True, "", False, True, 7, False),
        (True, "", True, False, 7, False),
        (True, "", True, True, 0, False),
        (True, "", True, True, None, True),
    ],
)
def test_groups_begin_on_members_that_are_up_count_and_take_in(
    *, is_sure: bool, let_in: str, is_up: bool, takes_in: bool, match: int | None, may_hold: bool
) -> None:
    """A group whose only member has yet to be let in would wait for ever: no other member lets it
    in. A member without entries may have to be let in (world 74 of --recreating --converting).
    """
    anything: Any = None
    lives: Any = SimpleNamespace(met={1: life(is_sure=is_sure)}, own=lambda: life(is_sure=is_sure))
    presence: Any = SimpleNamespace(
        is_heard=lambda number, now: is_up, takes_in=lambda number, now: takes_in
    )
    state = State()
    state.members.started = {number: MemberLives(5, "e", let_in) for number in (0, 1)}
    progress = None if match is None else SimpleNamespace(match=match)
    raft = SimpleNamespace(progress=lambda number: progress)
    keeper = object.__new__(GroupKeeper)
    keeper._group = SimpleNamespace(raft=raft)  # type: ignore[assignment]
    known = anything, lives, anything, anything, anything, keeper, presence
    peers = PeerParts(0, *known, anything, anything)
    assert [peers.may_hold(number, state, 1.0) for number in (0, 1)] == [may_hold] * 2

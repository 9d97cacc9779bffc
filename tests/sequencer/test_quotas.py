"""Caps per identity: what is too much is refused with words, and taken once there is room."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.config.tables.node import NodePlaces, Quotas
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.ingest.quotas import NodeQuotas, QuotaKeeper
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input, SessionsTable
from samelog.sequencer.state.tables.sessions import Session as KnownSession
from samelog.sequencer.state.types import State
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import RunWith, Session, batch, offset, until


def limit(node: Node, quotas: Quotas) -> None:
    """As if the node had been configured so."""
    node.member.quotas.limit(quotas)


def test_an_identity_has_so_many_sessions_and_no_more(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        limit(nodes[0], Quotas(sessions=2))
        first = Session("a")
        await first.open(nodes[0])
        await Session("b").open(nodes[0])
        with pytest.raises(
            RequestRefused, match=r"publisher/x has 2 sessions with an open run, of at most 2"
        ) as refused:
            await Session("c").open(nodes[0])
        assert refused.value.code is FaultCode.OVER_QUOTA
        await first.open(nodes[0])
        nodes[0].logs.intake.end_run(first.name, first.run_id, {})
        machine = nodes[0].logs.machine
        await until(lambda: machine.state.sessions.open_run_of("a") is None, "its end makes room")
        await Session("c").open(nodes[0])

    run_with(tmp_path, 1, body)


def test_sessions_beyond_ten_times_the_quota_are_forgotten_by_an_entry(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        for node in nodes:
            limit(node, Quotas(sessions=1))
        machines = [node.logs.machine for node in nodes]

        def all_released() -> bool:
            inputs = machines[0].state.sessions.inputs.values()
            leaders = [node.raft for node in nodes if node.raft.group.is_leader]
            return any(all(map(raft.replica.is_released, inputs)) for raft in leaders)

        for number in range(11):
            session = Session(f"s{number}")
            await session.send(nodes, batch(b"x"))
            ends = {("t", 0): (0, len(session.data))}
            nodes[0].logs.intake.end_run(session.name, session.run_id, ends)
            await until(lambda: machines[0].index.open_runs.total() == 0, "closed")
            await until(all_released, "released")
        await until(
            lambda: all(len(each.state.sessions.inputs) <= 10 for each in machines), "forgotten"
        )
        for machine in machines:
            assert machine.state.sessions.by_name["s0"].runs == []
            assert all(machine.state.sessions.by_name[f"s{number}"].runs for number in range(1, 11))
        states = [machine.state for machine in machines]
        await until(lambda: all(each.sessions == states[0].sessions for each in states), "equal")

    run_with(tmp_path, 3, body)


def test_an_identity_has_so_many_partitions_and_no_more(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        limit(nodes[0], Quotas(partitions=1))
        first = Session("a")
        await first.open(nodes[0])
        with pytest.raises(RequestRefused, match=r"has 1 partition in its open sessions, of at"):
            await Session("b").open(nodes[0])
        await first.open(nodes[0])

    run_with(tmp_path, 1, body)


def test_bytes_that_are_not_merged_are_capped_for_publishers_not_for_peers(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        number = (await Session("a").open(nodes[0])).input
        for node in nodes[1:]:
            await node.stop()
        data = batch(bytes(1_000))
        size = len(data)
        limit(nodes[0], Quotas(unmerged_bytes=3 * size))
        for place in range(3):
            nodes[0].logs.intake.append(number, 0, 0, place * size, data)
        with pytest.raises(
            RequestRefused, match=r"bytes that are not merged, of at most"
        ) as refused:
            nodes[0].logs.intake.append(number, 0, 0, 3 * size, data)
        assert refused.value.code is FaultCode.TOO_MANY
        nodes[0].logs.intake.restore(number, 0, 0, 3 * size, data)

    run_with(tmp_path, 3, body)


def test_what_is_merged_makes_room(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        data = batch(bytes(1_000))
        limit(nodes[0], Quotas(unmerged_bytes=2 * len(data)))
        session = Session("a")
        for count in range(1, 9):
            await session.send(nodes, data)
            await until(lambda count=count: offset(nodes[0]) == count, "it is merged")  # type: ignore[misc]

    run_with(tmp_path, 1, body)


INPUT = Input(1, "s", 1)


def keeper(shared: NodeQuotas, number: int, held: dict[int, int]) -> QuotaKeeper:
    """Of a replica with one input, of which so many bytes are not merged."""
    sessions: Any = SimpleNamespace(
        unmerged_bytes=lambda entry: held[entry.number],
        take_grown=lambda: {number: None},
        used=SimpleNamespace(grown={}),
    )
    state = State(
        sessions=SessionsTable(
            {"s": KnownSession("s", "d", "samelog://publisher/x")},
            {number: Input(number, "s", 1)},
        )
    )
    return QuotaKeeper(StateMachine(state), sessions, shared)


def test_what_is_to_be_written_is_counted_in_all_groups_of_a_node() -> None:
    """Each of them would promise the same free bytes of the disk otherwise."""
    held = {1: 30, 2: 5}
    shared = NodeQuotas(Quotas())
    first, second = (keeper(shared, number, held) for number in held)
    assert first.recount(1_000, 7) == 30 + 7
    assert second.recount(1_000, 4) == 30 + 7 + 5 + 4
    assert second.recount(1_000, 0) == 30 + 7 + 5
    first.forget()
    assert second.recount(1_000, 0) == 5


def test_what_an_identity_holds_in_all_groups_of_a_node_counts_together() -> None:
    held = {1: 0, 2: 0}
    shared = NodeQuotas(Quotas(unmerged_bytes=100))
    first, second = (keeper(shared, number, held) for number in held)
    first.accept(INPUT, 60)
    held[1] = 60
    with pytest.raises(RequestRefused, match=r"60 bytes that are not merged, of at most 100"):
        second.accept(INPUT, 60)
    held[1] = 0
    first.count()  # it was merged
    second.accept(INPUT, 60)
    shared.limit(Quotas(unmerged_bytes=10))
    with pytest.raises(RequestRefused, match=r"of at most 10"):
        first.accept(INPUT, 20)
    second.forget()
    assert not shared.unmerged.total()


def test_members_of_a_host_share_what_an_identity_may_hold() -> None:
    share = NodePlaces(members_on_host=3).share
    assert (share(0), share(1), share(100)) == (0, 1, 34), "no limit stays none, and no other is"
    shared = NodeQuotas(Quotas(unmerged_bytes=100), share)
    assert shared.unmerged_limit == 34
    shared.measured(1_200)
    assert shared.unmerged_limit == 34
    shared.limit(Quotas())
    shared.measured(1_200)
    assert shared.unmerged_limit == 100, "a third of a quarter of the disk"

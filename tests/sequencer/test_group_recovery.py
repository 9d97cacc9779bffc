"""One replica of a data group goes on alone: its files, and what it asks group 0 for again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from samelog.consensus import Entry, HardState
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.sequencer.cluster import leader_upkeep
from samelog.sequencer.data_groups import leftovers, recovering
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.merge.session_bytes import SessionBytes
from samelog.sequencer.node import Node
from samelog.sequencer.raft.alone import Held, held_by, saved
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.recovery import NUMBERS_LEFT_OUT, leave_numbers_out
from samelog.sequencer.spanning.steps import next_steps
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, encode_commands
from samelog.sequencer.state.expiry import forgotten
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import LogTransactions, OpenInLog
from samelog.sequencer.state.tables.placement import OpenPartition, SetReplicas
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.sessions import (
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.stages import UnitStep
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import (
    TIMEOUT_MS_MAX,
    AddToTransaction,
    EndTransaction,
    InitProducer,
    Transaction,
)
from samelog.sequencer.state.two_phase import Decision, TwoPhase
from samelog.sequencer.state.types import State
from samelog.store.disk.files import OsFileSystem
from tests.sequencer import test_spanning_state as spanning
from tests.sequencer import test_stage_state as stages
from tests.sequencer.cluster import RunWith, until
from tests.sequencer.test_data_groups import led, make_groups, place

NO_BYTES = cast(SessionBytes, None)
"""Markers are planned from what is known alone."""
FS, GROUP, TOPIC = OsFileSystem(), 3, "t" * 32
OWN, OTHER = PlacedReplica(1, 5), PlacedReplica(2, 6)
GROUP_NOW = PlacedGroup(GROUP, 2, (OWN,), 1, (1, 2), version=1, recovered=1001)


def log_of(path: Path) -> MemberLog:
    return MemberLog.open(FS, str(path / "raft"), cluster="c", node=1)


def written(path: Path) -> MemberLog:
    """A replica with two entries, the newest of which nobody has committed."""
    log = log_of(path)
    entries = [
        Entry(1, 4, encode_commands([SetReplicas(GROUP, 1, 0, "", [OWN, OTHER])])),
        Entry(2, 4, encode_commands([OpenPartition(7, TOPIC, "t", {}, 1, [7])])),
    ]
    store = RaftStore.open(FS, log, GROUP, OWN.replica)
    store.write(saved(None, HardState(4, 2, 1), entries))
    log.sync()
    return log


def go_on(path: Path, log: MemberLog) -> bool:
    return recovering.go_on_alone(FS, log, str(path), GROUP_NOW, OWN, name="n1", wall_ms=9)


def test_it_takes_all_that_it_holds_and_votes_alone(tmp_path: Path) -> None:
    log = written(tmp_path)
    assert go_on(tmp_path, log)
    log.close()
    store = RaftStore.open(FS, log_of(tmp_path), GROUP, OWN.replica)
    snapshot = store.snapshot
    assert snapshot is not None
    assert (snapshot.last_index, snapshot.voters, store.entries) == (3, (1,), [])
    assert store.hard_state == HardState(1004, None, 3)
    state = held_by(store).machine.state
    assert list(state.partitions.by_number) == [7], "what was not known to be committed counts, too"
    assert (state.placement.own, state.placement.version) == ([OWN], GROUP_NOW.recovered)
    (event,) = state.events.remembered
    assert state.placement.ends == {7: 0}, "group 0 has to know"
    assert "group 3 went on with the replica of n1 alone after entry 2 of term 4" in event.text


def test_it_does_so_once(tmp_path: Path) -> None:
    log = written(tmp_path)
    assert go_on(tmp_path, log)
    before = held_by(RaftStore.open(FS, log, GROUP, OWN.replica))
    assert not go_on(tmp_path, log)
    after = held_by(RaftStore.open(FS, log, GROUP, OWN.replica))
    assert (after.last_index, after.term) == (before.last_index, before.term)


def test_what_was_of_the_life_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "groups" / "3"
    path.mkdir(parents=True)
    (path / "file").write_text("bytes")
    leftovers.set_aside(FS, str(path), GROUP, 6)
    assert not path.exists()
    assert (tmp_path / "set-aside.group.3.6" / "file").read_text() == "bytes"
    leftovers.set_aside(FS, str(path), GROUP, 6)


# --- what waits to be executed --------------------------------------------------------------------


def held_after(path: Path, *commands: AnyCommand) -> Held:
    """By a replica whose files have these, for a staged session and one that is not."""
    opening: list[AnyCommand] = [CreateTopicCommand("t1", "t", 1, {}, 1)]
    for session, stage in (("a", "sink"), ("plain", None)):
        opening.append(
            OpenRunCommand(session, session, "i", 0, f"run-{session}", None, None, stage)
        )
        opening.append(OpenInputCommand(session, "t1", 0))
    log = log_of(path)
    store = RaftStore.open(FS, log, GROUP, OWN.replica)
    entry = Entry(1, 4, encode_commands([*opening, *commands]))
    store.write(saved(None, HardState(4, 2, 1), [entry]))
    log.sync()
    return held_by(RaftStore.open(FS, log, GROUP, OWN.replica))


def test_what_was_published_waits_and_what_was_refused_does_not(tmp_path: Path) -> None:
    first, published = stages.merge(0, 2), stages.merge(1, 1)
    refused = stages.publish(stages.merge(2, 2, start=10), names="a")
    held = held_after(tmp_path, first, stages.publish(published, names="a"), refused)
    assert held.pending == [first, published]


def test_nothing_waits_for_a_partition_that_is_gone(tmp_path: Path) -> None:
    held = held_after(tmp_path, stages.merge(0, 2), HardReset("r", 9, 3))
    assert held.pending == []
    assert held.partitions == [("t", 0, 0)]


# --- what it asks for again -----------------------------------------------------------------------


def cluster_with_a_decided_unit() -> StateMachine:
    make: Any = spanning.cluster
    cluster: StateMachine = make.__wrapped__()
    cluster.apply(spanning.begin())
    for group in (1, 2, 0):
        cluster.apply(spanning.settle(group, UnitStep.PREPARED))
    return cluster


def recovered(group: StateMachine) -> StateMachine:
    group.state.placement.recovered = 1001
    return group


def test_what_was_decided_is_pinned_again_where_that_was_lost() -> None:
    cluster = cluster_with_a_decided_unit()
    group = spanning.data_group(1)
    assert next_steps(cluster.state, group.state, 1).pin == []
    found = next_steps(cluster.state, recovered(group).state, 1)
    assert (found.pin, found.end) == ([spanning.UNIT], [])


def test_what_was_committed_is_carried_out_where_that_was_lost() -> None:
    cluster = cluster_with_a_decided_unit()
    for number in (1, 2, 0):
        cluster.apply(spanning.settle(number, UnitStep.DONE))
    assert not cluster.state.stages.units
    group = spanning.data_group(1)
    group.apply(spanning.pin(1))
    assert next_steps(cluster.state, group.state, 1).end == [(spanning.UNIT, False)]
    assert next_steps(cluster.state, recovered(group).state, 1).end == [(spanning.UNIT, True)]


def test_transactions_that_group_0_has_forgotten_are_aborted() -> None:
    """Those that are overdue: 1, which it does not know, and 2, of which it knows an older one."""
    cluster, group = StateMachine(), StateMachine()
    group.apply(OpenPartition(7, TOPIC, "t", {}, 1, [7]))
    now_ms = 2 * TIMEOUT_MS_MAX
    began = {1: 1, 2: 1, 3: 1, 4: now_ms - TIMEOUT_MS_MAX}
    opened = {n: OpenInLog(0, 5, n, at_ms) for n, at_ms in began.items()}
    group.state.open_transactions.by_partition[7] = LogTransactions(open=opened)
    for producer, number in ((2, 4), (3, 5)):
        unit = TwoPhase(number, participants={7: 0})  # type: ignore[dict-item]
        known = Transaction(producer, 0, number=number, unit=unit)
        cluster.state.transactions.by_id[f"t{producer}"] = known
        cluster.state.transactions.producers[producer] = f"t{producer}"
    planner = Planner(group, PlannerLimits(), cluster)
    assert not planner.plan({}, NO_BYTES, term=1, now_ms=now_ms)
    planner.forgotten.update(forgotten(group, cluster, now_ms))
    assert planner.forgotten == {(7, 1, 5), (7, 2, 5)}
    (merge,) = planner.plan({}, NO_BYTES, term=1, now_ms=now_ms)
    assert merge.extras is not None
    assert {end.producer_id: end.is_commit for end in merge.extras.ends} == {1: False, 2: False}
    assert not isinstance(group.apply(merge), Rejection)
    assert list(group.state.open_transactions.by_partition[7].open) == [3, 4]
    assert not planner.plan({}, NO_BYTES, term=1, now_ms=now_ms)
    assert not planner.forgotten


def test_a_recovered_group_0_numbers_no_transaction_again() -> None:
    """Its producer may have had transaction 2 in a data group, by entries that are lost."""
    cluster = StateMachine()
    cluster.apply(CreateTopicCommand(TOPIC, "t", 1, {}, 1))
    cluster.apply(InitProducer("t1", 60_000, -1, -1, 42, 1))
    begin = AddToTransaction("t1", 42, 0, [1], [], 2)
    end = EndTransaction("t1", 42, 0, is_commit=True, bumps=False, new_producer_id=43, at_ms=3)
    cluster.apply(begin)
    known = cluster.state.transactions.by_id["t1"]
    leave_numbers_out(cluster.state)
    assert known.number == 1, "a known transaction keeps its number"
    assert not isinstance(cluster.apply(end), Rejection)
    cluster.state.transactions.carried_out(42, 1, 1)
    assert not isinstance(cluster.apply(begin), Rejection)
    assert known.number == 2 + NUMBERS_LEFT_OUT


def test_the_leader_of_an_idle_group_aborts_what_is_forgotten(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_upkeep, "EXPIRY_INTERVAL_S", 0.1)

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "leads")
        await place(nodes[0], 1)
        [number] = nodes[0].cluster.topics.by_id["f" * 32].partition_numbers
        found = [node.data_groups.replicas[1].group_replica for node in nodes]
        states = [each.logs.machine.state for each in found]
        await until(lambda: all(number in each.partitions.by_number for each in states), "opened")
        for state in states:
            opened = LogTransactions(open={9: OpenInLog(0, 1, 0, 1)})
            state.open_transactions.by_partition[number] = opened
        nodes[0].data_groups.work(nodes[0].data_groups.replicas[1])

        def is_over(state: State) -> bool:
            return not state.open_transactions.by_partition[number].open

        await until(lambda: all(map(is_over, states)), "all have merged the marker")

    run_with(tmp_path, 3, body)


def test_the_leader_of_a_group_gives_up_held_runs_that_are_forgotten(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Group 0 does not know the sessions, and only one of them has a held run."""
    run = 0, 0, "r", None, None

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "leads")
        await place(nodes[0], 1)
        [number] = nodes[0].cluster.topics.by_id["f" * 32].partition_numbers
        found = [node.data_groups.replicas[1].group_replica for node in nodes]
        machines = [each.logs.machine for each in found]
        has = lambda each: number in each.state.partitions.by_number  # noqa: E731
        await until(lambda: all(map(has, machines)), "opened")
        begun = [
            OpenPlacedInput(name, "d", "i", *run, stage, "f" * 32, 0)
            for name, stage in (("plain", None), ("held", "stage"))
        ]
        await nodes[0].data_groups.replicas[1].raft.ask(begun)[1]
        nodes[0].data_groups.work(nodes[0].data_groups.replicas[1])
        known = [each.state.sessions for each in machines]
        is_over = lambda each: (run := each.run_of("held", "r")) and run.closed  # noqa: E731
        await until(lambda: all(map(is_over, known)), "the run is closed")
        assert all(each.state.sessions.open_run_of("plain") for each in machines)

    run_with(tmp_path, 3, body)


def test_markers_that_were_lost_are_written_again() -> None:
    cluster, group = StateMachine(), StateMachine()
    group.apply(OpenPartition(7, TOPIC, "t", {}, 1, [7]))
    opened = {n: OpenInLog(0, 5, 10 * n, 1) for n in (1, 2, 3, 4)}
    group.state.open_transactions.by_partition[7] = LogTransactions(open=dict(opened))
    units = {
        1: (5, TwoPhase(5, decision=Decision.COMMIT)),
        2: (5, TwoPhase(5, participants={7: 0})),  # type: ignore[dict-item]
        3: (6, TwoPhase(6, participants={7: 0})),  # type: ignore[dict-item]
    }
    for producer, (number, unit) in units.items():
        name = f"t{producer}"
        cluster.state.transactions.by_id[name] = Transaction(producer, 0, number=number, unit=unit)
        cluster.state.transactions.producers[producer] = name
    planner = Planner(group, PlannerLimits(), cluster)
    assert not planner.owes_markers
    recovered(group)
    assert planner.owes_markers
    (merge,) = planner.plan({}, NO_BYTES, term=1, now_ms=9)
    assert merge.extras is not None
    assert merge.partition == 7
    assert {end.producer_id: end.is_commit for end in merge.extras.ends} == {1: True, 3: False}
    assert not planner.owes_markers
    assert structs.astuple(merge.extras.ends[0])[:3] == (1, 0, 5)

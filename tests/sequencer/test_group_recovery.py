"""One replica of a data group goes on alone: its files, and what it asks group 0 for again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from msgspec import structs

from samelog.consensus import Entry, HardState
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.sequencer.data_groups import leftovers, recovering
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.merge.session_bytes import SessionBytes
from samelog.sequencer.raft.alone import Held, held_by, saved
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.spanning.steps import next_steps
from samelog.sequencer.state.commands import (
    AnyCommand,
    CreateTopicCommand,
    OpenInputCommand,
    OpenRunCommand,
    encode_commands,
)
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.placement.commands import OpenPartition, SetReplicas
from samelog.sequencer.state.reset_commands import HardReset
from samelog.sequencer.state.tables.open_transactions import LogTransactions, OpenInLog
from samelog.sequencer.state.transactions.commands import UnitStep
from samelog.sequencer.state.transactions.state import Transaction
from samelog.sequencer.state.transactions.two_phase import Decision, TwoPhase
from samelog.store.disk.files import OsFileSystem
from tests.sequencer import test_spanning_state as spanning
from tests.sequencer import test_stage_state as stages

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
    (event,) = state.events
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
    assert not cluster.state.transactions.spanning.units
    group = spanning.data_group(1)
    group.apply(spanning.pin(1))
    assert next_steps(cluster.state, group.state, 1).end == [(spanning.UNIT, False)]
    assert next_steps(cluster.state, recovered(group).state, 1).end == [(spanning.UNIT, True)]


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

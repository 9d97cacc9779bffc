"""What happens to a partition happens in every table."""

from __future__ import annotations

import pytest

from samelog.sequencer.state.instructions import Sequence5, VoidRecordsCommand
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.sequencer.state.tables.mirrors import MirrorPlace
from samelog.sequencer.state.tables.open_transactions import LogTransactions, OpenInLog
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import Input, Run, Session
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State

GONE, STAYING, NEXT = 1, 2, 7
PRODUCER = 42
OF_THE_CLUSTER = (
    *("copy_targets", "members", "topics", "schemas", "views", "groups", "transactions", "stages"),
    *("feeds", "access", "placement", "resets", "events"),
)
"""Tables of the metadata group: units tell them of partitions that are deleted or reset."""


def known() -> State:
    """Two partitions, of each of which every table knows something."""
    state = State()
    state.topics.by_id["t"] = Topic("t", "t", {}, 1, [GONE, STAYING])
    state.sessions.by_name["s"] = Session("s", "d", "samelog://publisher/x", [Run("r", 3)])
    for number in (GONE, STAYING):
        state.partitions.put(Partition(number, "t", number - 1, next_offset=10, checked_sum=5))
        state.sessions.inputs[number] = Input(number, "s", number, run=3, byte=100, last_id=9)
        state.producers.learn(number, [Sequence5(PRODUCER, 0, 0, 4, 5)], append_ms=50)
        state.watermarks.learn(number, [("feed", 9)])
        opened = LogTransactions(open={PRODUCER: OpenInLog(0, 1, 5, 50)})
        state.open_transactions.by_partition[number] = opened
        state.epochs.by_partition[number] = 4
        state.keys.by_partition[number] = KeyedPartition(floor=2, agreed={0: 77})
        state.mirrors.places[number] = MirrorPlace(crc=8, open={5: (0, 3)})
        state.mirrors.ended[10 * number] = 4
        state.mirrors.owed[10 * number] = [(5, 0, 3)]
        state.mirrors.positions.setdefault("g", {})[number] = 70
    state.sessions.next_input = STAYING + 1
    return state


def exported(state: State, number: int) -> dict[str, bytes]:
    """What all tables have of a partition."""
    return {name: table.export(number) for name, table in state.partition_tables.items()}


def test_every_table_of_the_state_is_told() -> None:
    """One that is a field, and is not told what happens to partitions, would keep what is gone."""
    tables = State().partition_tables
    fields = [name for name in State.__struct_fields__ if name not in OF_THE_CLUSTER]
    assert fields == ["version", *tables]
    assert not any(hasattr(getattr(State(), name), "renumber") for name in OF_THE_CLUSTER)


def test_nothing_is_left_of_a_partition_that_is_dropped() -> None:
    state, before = known(), known()
    state.drop_partitions({GONE})
    assert GONE not in state.partitions.by_number
    assert [entry.partition for entry in state.sessions.inputs.values()] == [STAYING]
    assert list(state.producers.batches[PRODUCER]) == [STAYING]
    assert list(state.watermarks.by_dedup_id["feed"]) == [STAYING]
    for facts in (state.open_transactions, state.epochs, state.keys):
        assert list(facts.by_partition) == [STAYING]
    assert list(state.mirrors.places) == [STAYING]
    assert list(state.mirrors.positions["g"]) == [GONE, STAYING], "the metadata group keeps them"
    state.drop_partitions({10 * GONE})
    assert [*state.mirrors.ended, *state.mirrors.owed] == [10 * STAYING] * 2
    assert exported(state, STAYING) == exported(before, STAYING)


def test_a_log_that_is_restarted_is_empty_and_takes_nothing_twice() -> None:
    state, before = known(), known()
    state.topics.by_id["t"].partition_numbers = [NEXT, STAYING]
    state.restart_logs({GONE: NEXT})
    assert state.partitions.by_number[NEXT] == Partition(NEXT, "t", 0)
    assert state.partitions.next_number == NEXT + 1
    assert state.sessions.inputs[GONE].partition == NEXT
    assert state.sessions.inputs[GONE].place == before.sessions.inputs[GONE].place
    assert state.producers.batches[PRODUCER][NEXT] == [Sequence5(PRODUCER, 0, 0, 4, -1)]
    assert state.watermarks.by_dedup_id["feed"] == {NEXT: 9, STAYING: 9}
    assert list(state.open_transactions.by_partition) == [STAYING]
    assert state.epochs.base_of(NEXT) == before.epochs.base_of(GONE)
    assert state.keys.by_partition[NEXT] == KeyedPartition()
    assert state.mirrors.places[NEXT] == MirrorPlace()
    assert list(state.mirrors.positions["g"]) == [STAYING]
    state.mirrors.renumber({10 * STAYING: 80})
    assert (state.mirrors.ended, list(state.mirrors.owed)) == ({10 * GONE: 4, 80: 0}, [10 * GONE])
    assert exported(state, STAYING) == exported(before, STAYING)


def test_what_one_group_exports_another_one_imports() -> None:
    source, target = known(), State()
    for name, table in target.partition_tables.items():
        table.import_(GONE, exported(source, GONE)[name])
    came, had = exported(target, GONE), exported(source, GONE)
    assert target.epochs.base_of(GONE) > source.epochs.base_of(GONE)
    assert {**came, "epochs": b""} == {**had, "epochs": b""}
    assert target.sessions.inputs[1].number == 1
    assert target.producers.seen_ms == {PRODUCER: 50}
    assert target.mirrors.places == {GONE: source.mirrors.places[GONE]}
    target.mirrors.import_(10 * GONE, source.mirrors.export(10 * GONE))
    assert (target.mirrors.ended, target.mirrors.owed) == ({10: 4}, {10: [(5, 0, 3)]})


def test_nothing_is_exported_of_what_is_not_known() -> None:
    target = State()
    target.partitions.put(Partition(9, "t", 0))
    before = target.partition_tables
    for name, table in before.items():
        table.import_(9, exported(target, 9)[name])
    assert (target.producers.batches, target.watermarks.by_dedup_id) == ({}, {})
    assert (target.open_transactions.by_partition, target.keys.by_partition) == ({}, {})


def test_records_that_are_given_up_count_in_no_checksum_and_no_digest() -> None:
    state = known()
    command = VoidRecordsCommand(GONE, 3, 6, 0, 1, 1, 1)
    for table in state.partition_tables.values():
        table.give_up(command)
    partition = state.partitions.by_number[GONE]
    assert partition.voids == (command,)
    assert (partition.checked_offset, partition.checked_sum) == (10, None)
    assert state.keys.by_partition[GONE].agreed == {}
    assert state.keys.by_partition[STAYING].agreed == {0: 77}
    assert state.partitions.by_number[STAYING].checked_sum == 5


@pytest.mark.parametrize("idle", [(), (PRODUCER,)])
def test_idle_producers_are_forgotten_everywhere(idle: tuple[int, ...]) -> None:
    state = known()
    for table in state.partition_tables.values():
        table.expire(idle)
    assert (PRODUCER in state.producers.batches) is not bool(idle)
    assert (PRODUCER in state.producers.seen_ms) is not bool(idle)

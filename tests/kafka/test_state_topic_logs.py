"""Reading `__consumer_offsets` and `__transaction_state` of one state: who follows them has what
the state has, however often it reads, from wherever, and across snapshots.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.authorisation import Rights
from samelog.config.tables.node import Grant
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.apis.checks import _OF_TOPICS
from samelog.kafka.broker import Broker
from samelog.kafka.state_topics.log import FeedLog, FeedStream
from samelog.kafka.state_topics.records import told
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import End, Merge, MergeExtras
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import feeds
from samelog.sequencer.state.tables.feeds import ITSELF, PARTITIONS, StateTopic, partition_for
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommitOffsets,
    CommittedOffset,
    DeleteGroups,
    DropOffsets,
    Phase,
    SaveGroup,
)
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.tables.transactions import (
    AddToTransaction,
    CommitInTransaction,
    EndTransaction,
    ForgetTransactionalIds,
    InitProducer,
)

GROUPS = ("billing", "reports", "gruppe-ä")
Table = dict[bytes, bytes]


def machine_at() -> StateMachine:
    machine = StateMachine()
    for number, name in enumerate(("flights", "weather")):
        machine.apply(CreateTopicCommand(f"{number:032x}", name, 2, {}, 1))
    return machine


def commit(group: str, partition: int, offset: int, at_ms: int = 1) -> CommitOffsets:
    return CommitOffsets([(group, [(partition, CommittedOffset(offset, -1, "m", at_ms))])])


def save(group: str, generation: int) -> SaveGroup:
    each = ClassicMember("m1", None, "c", "/h", 10, 60, [("range", b"sub")], b"assigned")
    stable = Phase.STABLE
    return SaveGroup(group, generation, stable, "consumer", "range", "m1", [each], [], [], 5)


def leave(group: str, generation: int) -> SaveGroup:
    empty = Phase.EMPTY
    return SaveGroup(group, generation, empty, "consumer", None, None, [], ["m1"], [], 6)


def records_of(data: memoryview) -> list[kernels.Record]:
    return kernels.decode_records(data, 0, len(data), "", 0, decompress)


class Reader:
    """Somebody who reads all partitions of a topic from the beginning, in steps, by their bytes."""

    def __init__(self, topic: StateTopic) -> None:
        self.topic = topic
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.table: Table = {}

    def read(self, machine: StateMachine, limit_bytes: int = 1) -> None:
        logs = {index: FeedLog(machine, self.topic, index) for index in self.positions}
        for index, log in logs.items():
            while self.positions[index] < log.next_offset:
                self._take(index, log, limit_bytes)

    def _take(self, index: int, log: FeedLog, limit_bytes: int) -> None:
        first = self.positions[index]
        data = log.view(*log.locate(first), limit_bytes)
        records = records_of(data)
        assert records, "nothing comes up to the end"
        for record in records:
            assert record.offset >= self.positions[index]
            self.positions[index] = record.offset + 1
            assert record.key is not None
            if record.value is None:
                self.table.pop(record.key, None)
            else:
                self.table[record.key] = record.value


def present(machine: StateMachine, topic: StateTopic) -> Table:
    """What there is, without any feed."""
    groups, table = machine.state.groups.by_id, {}
    keys = [(name, ITSELF) for name in machine.state.transactions.by_id]
    if topic is StateTopic.OFFSETS:
        keys = [(name, number) for name, group in groups.items() for number in group.offsets]
        keys += [(name, ITSELF) for name, group in groups.items() if group.protocol_type]
    for key in keys:
        record = told(machine.state, topic, key)
        assert record is not None
        assert record.value is not None
        table[record.key] = record.value
    return table


def restored(machine: StateMachine) -> StateMachine:
    return StateMachine.decode(machine.encode())


PARTITION = st.integers(1, 4)
COMMANDS = st.one_of(
    st.builds(commit, st.sampled_from(GROUPS), PARTITION, st.integers(0, 9), st.integers(0, 99)),
    st.builds(save, st.sampled_from(GROUPS), st.integers(1, 9)),
    st.builds(leave, st.sampled_from(GROUPS), st.integers(1, 9)),
    st.builds(
        lambda group, number: DropOffsets([(group, number, -1)]), st.sampled_from(GROUPS), PARTITION
    ),
    st.builds(lambda group: DeleteGroups([group]), st.sampled_from(GROUPS)),
    st.builds(lambda name: InitProducer(name, 9, -1, -1, 7, 1), st.sampled_from("xy")),
    st.builds(
        lambda name, number: AddToTransaction(name, 7, 0, [number], ["billing"], 2),
        st.sampled_from("xy"),
        PARTITION,
    ),
    st.builds(
        lambda n, number: CommitInTransaction(
            "x", 7, 0, "billing", [(number, CommittedOffset(n, -1, "", 3))], joins=True, at_ms=3
        ),
        st.integers(0, 9),
        PARTITION,
    ),
    st.builds(
        lambda name, is_commit: EndTransaction(name, 7, 0, is_commit, False, 8, 4),
        st.sampled_from("xy"),
        st.booleans(),
    ),
    st.builds(lambda name: ForgetTransactionalIds([(name, 1)]), st.sampled_from("xy")),
    st.builds(lambda number: DeleteTopicCommand(f"{number:032x}"), st.integers(0, 1)),
    st.just(HardReset("r", 1, 1)),
)


def assert_followed(commands: Iterable[AnyCommand], stops: Iterable[bool]) -> None:
    """A reader that reads at these stops, with a snapshot at each, has it all in the end."""
    machine, readers = machine_at(), [Reader(topic) for topic in StateTopic]
    for command, is_stop in zip(commands, stops, strict=True):
        machine.apply(command)
        if is_stop:
            machine = restored(machine)
            for reader in readers:
                reader.read(machine)
                assert reader.table == present(machine, reader.topic)
    for reader in (*readers, *map(Reader, StateTopic)):
        reader.read(machine, 1 << 20)
        assert reader.table == present(machine, reader.topic)


@given(st.lists(st.tuples(COMMANDS, st.booleans()), max_size=30))
def test_who_follows_has_what_the_state_has(steps: list[tuple[AnyCommand, bool]]) -> None:
    assert_followed([command for command, _ in steps], [is_stop for _, is_stop in steps])


@given(st.lists(COMMANDS, max_size=30), st.integers(0, 30))
def test_offsets_are_those_of_any_node(commands: list[AnyCommand], at: int) -> None:
    """Of one that was restarted, too."""
    one, other = machine_at(), machine_at()
    for number, command in enumerate(commands):
        if number == at:
            other = restored(other)
        one.apply(command)
        other.apply(command)
    assert one.encode() == other.encode()
    for topic in StateTopic:
        for index in range(PARTITIONS):
            mine, its = (FeedLog(each, topic, index) for each in (one, other))
            assert bytes(mine.view(0, 0, 1 << 20)) == bytes(its.view(0, 0, 1 << 20))


def test_an_aborted_commit_is_told_of_nowhere_and_markers_end_the_transaction() -> None:
    machine, reader = machine_at(), Reader(StateTopic.TRANSACTIONS)
    machine.apply(InitProducer("x", 9, -1, -1, 77, 1))
    machine.apply(AddToTransaction("x", 77, 0, [1], [], 2))
    machine.apply(EndTransaction("x", 77, 0, True, False, 8, 4))
    reader.read(machine)
    ends = [End(77, 0, 1, is_commit=True)]
    machine.apply(Merge(1, 0, 3, 9, False, [], extras=MergeExtras(ends=ends)))
    before = dict(reader.table)
    reader.read(machine)
    assert reader.table == present(machine, StateTopic.TRANSACTIONS) != before


def test_each_change_has_an_offset_of_its_own_and_the_newest_stays() -> None:
    machine = machine_at()
    log = FeedLog(machine, StateTopic.OFFSETS, partition_for("billing"))
    for offset in range(1000):
        machine.apply(commit("billing", 1, offset))
        assert len(records_of(log.view(0, 0, 1 << 20))) == 1
    assert log.next_offset == 1000
    (record,) = records_of(log.view(0, 0, 1 << 20))
    assert record.offset == 999
    assert record.value is not None
    assert struct.unpack_from(">hq", record.value) == (3, 999)
    assert record.key == struct.pack(">hh", 1, 7) + b"billing" + struct.pack(
        ">h", 7
    ) + b"flights" + struct.pack(">i", 0)


@pytest.mark.parametrize("gone", [DeleteTopicCommand("0" * 32), HardReset("r", 1, 1)])
def test_what_goes_with_a_topic_is_told_by_the_topics_name(gone: AnyCommand) -> None:
    machine, reader = machine_at(), Reader(StateTopic.OFFSETS)
    machine.apply(commit("billing", 1, 5))
    reader.read(machine)
    assert len(reader.table) == 1
    machine.apply(gone)
    reader.read(machine)
    assert reader.table == {}


def test_old_tombstones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TOMBSTONES_KEPT", 2)
    machine = machine_at()
    for number in range(1, 5):
        machine.apply(commit("billing", number, 1))
        machine.apply(DropOffsets([("billing", number, -1)]))
    log = FeedLog(machine, StateTopic.OFFSETS, partition_for("billing"))
    records = records_of(log.view(0, 0, 1 << 20))
    assert [(each.offset, each.value) for each in records] == [(5, None), (7, None)]


def test_a_read_is_bounded() -> None:
    machine = machine_at()
    for generation in range(2000):
        machine.apply(commit("billing", 1 + generation % 4, 1))
        machine.state.groups.by_id["billing"].offsets[1000 + generation] = CommittedOffset(
            1, -1, "m" * 50, 1
        )
        machine.state.partitions.by_number[1000 + generation] = machine.state.partitions.by_number[
            1
        ]
        machine.apply(commit("billing", 1000 + generation, 1))
    log = FeedLog(machine, StateTopic.OFFSETS, partition_for("billing"))
    assert 0 < len(log.view(0, 0, 1 << 30)) <= 16 << 10


def test_who_waits_is_told_of_its_partition_only() -> None:
    machine, told_of = machine_at(), list[str]()
    mine = FeedStream(machine, StateTopic.OFFSETS, partition_for("billing"))
    other = FeedStream(machine, StateTopic.OFFSETS, partition_for("reports"))
    listeners = [lambda: told_of.append("mine"), lambda: told_of.append("other")]
    mine.add_listener(listeners[0])
    other.add_listener(listeners[1])
    machine.apply(commit("billing", 1, 5))
    assert told_of == ["mine"]
    mine.remove_listener(listeners[0])
    other.remove_listener(listeners[1])
    assert machine.feed_listeners == []


@pytest.mark.parametrize(
    ("name", "partition"), [("", 0), ("billing", 9), ("polygenelubricants", 0), ("gruppe-ä", 48)]
)
def test_a_group_has_the_partition_that_kafka_gives_it(name: str, partition: int) -> None:
    """Hashes as Java's `"billing".hashCode()` has them."""
    assert partition_for(name) == partition


def broker_with(grant: Grant, *, acls: bool) -> Broker:
    """What decides about rights, with these."""
    broker = object.__new__(Broker)
    broker.machine = machine_at()
    rights = Rights([grant], [])
    broker.parts = SimpleNamespace(member=SimpleNamespace(rights=rights))  # type: ignore[assignment]
    broker._acls = SimpleNamespace(allow=lambda *_: acls)  # type: ignore[assignment]
    return broker


def grant(**given: Any) -> Grant:
    return Grant(identity="*", **given)


@pytest.mark.parametrize("name", list(StateTopic))
def test_nobody_may_do_more_than_read_them(name: str) -> None:
    everything = grant(
        admin=True, publish_sessions=["*"], publish_topics=["*"], subscribe_topics=["*"]
    )
    broker, ann = broker_with(everything, acls=True), KafkaClient("ann", "l", "h")
    assert broker.may_read(ann, name)
    assert not broker.may_write(ann, name)
    kind = AclResource.TOPIC
    may = {each for each in _OF_TOPICS if broker.may(ann, each, kind, name)}
    assert may == {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}
    assert broker.may_write(ann, "others")
    broker.machine.state.topics.by_name[name] = "of users, of before the level"
    assert broker.may_write(ann, name)


@pytest.mark.parametrize(
    ("groups", "acls", "may"),
    [(["*"], False, True), (["billing-*"], False, False), (["billing-*"], True, True)],
)
def test_who_may_not_see_all_groups_may_not_read_them(
    groups: list[str], acls: bool, may: bool
) -> None:
    broker = broker_with(grant(subscribe_topics=["*"], subscribe_groups=groups), acls=acls)
    ann = KafkaClient("ann", "l", "h")
    assert broker.may_read(ann, TOPIC) is may
    assert broker.may_describe(ann, TOPIC) is may
    assert broker.may_read(ann, "others")


TOPIC = StateTopic.OFFSETS.value

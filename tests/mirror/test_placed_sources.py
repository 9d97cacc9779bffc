"""Topics of a samelog source that are in data groups: whole only if somebody has each partition."""

from __future__ import annotations

from samelog.admin.mirror_answers import SourcePartition, SourceState, SourceTopic
from samelog.config.values import Address
from samelog.mirror.samelog_source import with_placed

A, B = (Address("a", 1), "a"), (Address("b", 1), "b")


def topic(*ends: tuple[int, int]) -> SourceTopic:
    """Partition and end of those that are on a node."""
    parts = tuple(SourcePartition(n, 0, end, 0, 0, 0, None, ()) for n, end in ends)
    return SourceTopic("p", "log", {}, 0, (), is_mirror=False, partitions=parts)


def state(*here: SourceTopic) -> SourceState:
    return SourceState("c", (), (), {"p": 2}, here)


def test_the_most_advanced_replica_says_where_a_partition_ends() -> None:
    told = [(A, state(topic((0, 5), (1, 7)))), (B, state(topic((0, 9))))]
    found, holders = with_placed(state(), told)
    (whole,) = found.topics
    assert [(each.partition, each.next_offset) for each in whole.partitions] == [(0, 9), (1, 7)]
    assert holders == {("p", 0): [B, A], ("p", 1): [A]}
    assert found.placed == {}


def test_a_topic_with_a_partition_that_nobody_has_is_not_mirrored() -> None:
    found, holders = with_placed(state(), [(B, state(topic((0, 9))))])
    assert found.topics == ()
    assert found.placed == {"p": 2}
    assert holders == {("p", 0): [B]}

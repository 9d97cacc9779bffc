"""Which groups a change of the table concerns."""

from __future__ import annotations

from samelog.placement.values import PlacedGroup, PlacedPartition, PlacedReplica, Placement
from samelog.sequencer.data_groups.contents import Contents


def group(number: int) -> PlacedGroup:
    """With one replica."""
    return PlacedGroup(number, 1, (PlacedReplica(0, number),), 0, (0,))


def table() -> Placement:
    """Two groups; partitions 1 and 2 in the first."""
    found = Placement(version=1)
    found.groups.update({number: group(number) for number in (1, 2)})
    for number in (1, 2):
        found.partitions[number] = PlacedPartition(number, "t", number, 1)
    return found


def test_what_is_new_is_told_once() -> None:
    contents, known = Contents(), table()
    assert contents.follow(known) == {1, 2}
    assert contents.follow(known) == set()
    assert sorted(contents.of(1)) == [1, 2]
    assert not contents.of(2)


def test_a_partition_that_moves_concerns_both_groups() -> None:
    contents, known = Contents(), table()
    contents.follow(known)
    known.partitions[2] = PlacedPartition(2, "t", 2, 2)
    known.version += 1
    assert contents.follow(known) == {1, 2}
    assert (list(contents.of(1)), list(contents.of(2))) == ([1], [2])


def test_what_is_gone_concerns_its_group() -> None:
    contents, known = Contents(), table()
    contents.follow(known)
    del known.partitions[1], known.groups[2]
    known.version += 1
    assert contents.follow(known) == {1, 2}
    assert list(contents.of(1)) == [2]


def test_another_value_concerns_its_group_alone() -> None:
    contents, known = Contents(), table()
    contents.follow(known)
    known.groups[2] = group(2)
    known.version += 1
    assert contents.follow(known) == {2}

"""What a group's leader makes of an order: the next configuration, or nothing."""

from __future__ import annotations

import pytest

from samelog.placement.orders import ordered
from samelog.placement.tasks import Action, GroupOrder
from samelog.placement.values import PlacedGroup, PlacedReplica

NEW = PlacedReplica(4, 14, votes=False, is_whole=False)
GROUP = PlacedGroup(
    1, 3, (*(PlacedReplica(each, 10 + each) for each in (1, 2, 3)), NEW), 1, (1, 2, 3), version=5
)


def made(
    action: Action, member: int, replica: int, *, version: int = 5, healthy: str = "1234"
) -> list[tuple[int, bool]] | None:
    """(member, whether it votes) of the next configuration."""
    order = GroupOrder(7, action, 1, version, member, replica, copies=3)
    new = PlacedReplica(member, replica, votes=False, is_whole=False)
    found = ordered(order, GROUP, new, list(map(int, healthy)))
    return None if found is None else [(each.member, each.votes) for each in found]


OLD = [(1, True), (2, True), (3, True)]


@pytest.mark.parametrize(
    ("action", "member", "replica", "healthy", "wanted"),
    [
        (Action.ADD_LEARNER, 5, 15, "1234", [*OLD, (4, False), (5, False)]),
        (Action.ADD_LEARNER, 4, 14, "1234", None),
        (Action.ADD_LEARNER, 4, 99, "1234", None),
        (Action.PROMOTE, 4, 14, "1234", [*OLD, (4, True)]),
        (Action.PROMOTE, 4, 14, "123", None),
        (Action.PROMOTE, 4, 99, "1234", None),
        (Action.REMOVE, 4, 14, "123", OLD),
        (Action.REMOVE, 1, 11, "123", None),
        (Action.REMOVE, 1, 11, "1234", None),
        (Action.REMOVE, 1, 11, "23", [(2, True), (3, True), (4, False)]),
        (Action.REMOVE, 1, 99, "123", [*OLD, (4, False)]),
        (Action.LEAD, 2, 12, "123", None),
    ],
)
def test_an_order_makes_the_next_configuration(
    action: Action, member: int, replica: int, healthy: str, wanted: list[tuple[int, bool]] | None
) -> None:
    assert made(action, member, replica, healthy=healthy) == wanted


def test_an_order_for_another_configuration_is_void() -> None:
    for version in (4, 6):
        assert made(Action.PROMOTE, 4, 14, version=version) is None


def test_a_replica_that_the_table_does_not_name_is_not_added() -> None:
    order = GroupOrder(7, Action.ADD_LEARNER, 1, 5, member=5, replica=15, copies=3)
    assert ordered(order, GROUP, None, [1, 2, 3]) is None
    assert ordered(order, GROUP, PlacedReplica(5, 16), [1, 2, 3]) is None


def test_a_group_without_a_configuration_takes_no_order() -> None:
    """Its leader has yet to write the first one, of the version that the table names."""
    new = PlacedGroup(1, 3, (), 1, (1, 2, 3))
    for action in (Action.ADD_LEARNER, Action.PROMOTE, Action.REMOVE):
        order = GroupOrder(7, action, 1, 0, member=4, replica=14, copies=3)
        assert ordered(order, new, NEW, [1, 2, 3]) is None

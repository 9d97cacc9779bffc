"""How many copies a topic gets that is created without a number."""

from __future__ import annotations

import pytest

from samelog.placement import defaults
from samelog.placement.changes import SetDefaultCopies
from samelog.placement.defaults import EVERYWHERE, copies_of_new, default_copies, goal_of_topic
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import Placement
from tests.placement.tables import apply, create, table_of


def test_a_number_is_taken_as_it_is_and_no_number_as_the_default() -> None:
    table = Placement()
    assert copies_of_new(table, None, nodes=3) == EVERYWHERE
    assert copies_of_new(table, 3, nodes=3) == EVERYWHERE, "a copy on every node"
    assert [copies_of_new(table, asked, nodes=3) for asked in (1, 2, 5)] == [1, 2, 5]
    table.default_copies = 2
    assert copies_of_new(table, None, nodes=3) == 2
    assert [copies_of_new(table, asked, nodes=3) for asked in (1, 3, 5)] == [1, 3, 5]


def test_one_constant_decides_where_default_topics_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "AS_SHIPPED", 3)
    table = Placement()
    assert (default_copies(table), copies_of_new(table, None, nodes=3)) == (3, 3)
    assert copies_of_new(table, 3, nodes=3) == 3


def test_a_later_default_changes_no_topic() -> None:
    table = table_of(5)
    apply(table, SetDefaultCopies(2))
    create(table, 4, default_copies(table.placement))
    before, numbers = dict(table.groups), sorted(table.partitions)
    apply(table, SetDefaultCopies(5))
    assert table.groups == before
    assert goal_of_topic(table.placement, numbers) == 2
    apply(table, SetDefaultCopies(0))
    assert default_copies(table.placement) == defaults.AS_SHIPPED
    assert goal_of_topic(table.placement, numbers) == 2


def test_an_impossible_default_is_refused() -> None:
    table = table_of(3)
    with pytest.raises(PlacementRefused, match="there can be up to 7"):
        apply(table, SetDefaultCopies(8))
    assert table.placement.default_copies == 0

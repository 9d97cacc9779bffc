"""A data group hears of a schema and of settings later than group 0: nothing is refused by what the
cluster knows better by then.
"""

from __future__ import annotations

import pytest

from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.refusing import schema_filter
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import AlterTopicCommand, CreateTopicCommand
from tests.judging.test_schema_filter import (
    BAD,
    FIRST,
    GOOD,
    NODE,
    SECOND,
    WIDE,
    World,
    batch,
    marked,
)
from tests.judging.test_stage_checks import why_unfit


class LateGroup(World):
    """A data group that has not heard yet what the cluster says of the topic."""

    def group_0(self) -> StateMachine:
        cluster = StateMachine()
        cluster.apply(CreateTopicCommand("t", "ticks", 1, NODE, 0))
        cluster.apply(SetSchemaCommand("t", 0, FIRST, 1))
        return cluster

    def look(self) -> list[Merge]:
        """What is planned once it was checked."""
        assert self.plan() == []
        self.check()
        return self.plan()


def test_nothing_is_refused_by_an_older_version_than_the_cluster_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_filter, "LOOK_S", 0.0)
    world = LateGroup()
    second = SetSchemaCommand("t", 1, SECOND, 2)
    world.cluster.apply(second)
    world.put(1, marked(WIDE, 2), batch(WIDE, BAD))
    assert world.look() == []
    world.apply(second)
    world.planner.reset()
    world.run_dry()
    assert world.values == [WIDE, WIDE]
    (refused,) = [each for extras in world.extras for each in extras.refused]
    assert [each.record for each in refused.told] == [1]


def test_nothing_is_refused_by_settings_that_the_cluster_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_filter, "LOOK_S", 0.0)
    world = LateGroup()
    off = AlterTopicCommand("t", {"schema.enforce": "off"}, [])
    world.cluster.apply(off)
    world.put(1, batch(BAD))
    assert world.look() == []
    world.apply(off)
    world.check()
    world.planner.reset()
    (plain,) = world.plan()
    assert plain.next_offset - plain.base_offset == 1


def test_nothing_is_refused_while_the_cluster_does_not_answer() -> None:
    world = LateGroup()
    world.is_cut_off = True
    world.put(1, batch(GOOD))
    world.run_dry()
    assert world.values == [GOOD], "what fits needs nobody's word"
    world.put(1, batch(BAD))
    assert world.look() == []
    world.is_cut_off = False
    world.run_dry()
    assert [len(extras.refused) for extras in world.extras] == [0, 1]


def test_what_is_staged_waits_for_the_version_that_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_filter, "LOOK_S", 0.0)
    world = LateGroup()
    second = SetSchemaCommand("t", 1, SECOND, 2)
    world.cluster.apply(second)
    with pytest.raises(CannotCheck):
        why_unfit(world, marked(WIDE, 2))
    world.apply(second)
    assert why_unfit(world, marked(WIDE, 2)) == ""

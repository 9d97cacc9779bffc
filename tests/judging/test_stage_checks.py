"""What is staged for a topic that nodes check is published only if all of it fits its marks."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from samelog.format import _kernels as kernels
from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.refusing import schema_filter
from samelog.sequencer.refusing.stage_checks import StageChecks
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import AlterTopicCommand
from tests.judging.test_schema_filter import BAD, GOOD, NODE, SECOND, WIDE, World, batch, marked


def why_unfit(world: World, *batches: bytes) -> str:
    """What is said of these batches, which one session has staged."""
    start, size = len(world.bytes.files.get((1, 0, 0), b"")), sum(map(len, batches))
    world.put(1, *batches)
    ranges = {1: [Range(1, 0, 0, start, start + size, len(batches), size, 0)]}
    checks = StageChecks(world.machine, cast(Any, world.bytes), world.schemas)
    return asyncio.run(checks.why_unfit(ranges))


def test_what_fits_its_marks_may_be_published() -> None:
    world = World()
    assert why_unfit(world, marked(GOOD, 1), marked(GOOD, 1)) == ""
    assert world.judge.asked == 2


def test_the_first_record_that_does_not_fit_is_named() -> None:
    found = why_unfit(World(), marked(GOOD, 1), marked(BAD, 1))
    assert found == "topic 'ticks': record 0, column 'a': not int32: {\"a\":\"x\"}"


def test_a_record_without_a_mark_may_be_of_any_version_by_then() -> None:
    world = World()
    assert "a record that says its version" in why_unfit(world, marked(GOOD, 1), batch(GOOD))


def test_a_mark_decides_and_old_versions_count_as_the_topic_says() -> None:
    world = World()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    sent = marked(WIDE, 2), marked(GOOD, 1)
    assert why_unfit(world, *sent) == ""
    world = World()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    assert "not int32" in why_unfit(world, marked(WIDE, 1))
    world = World()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    world.apply(AlterTopicCommand("t", {"schema.accept": "2"}, []))
    assert "version 2 or newer" in why_unfit(world, *sent)


def test_tombstones_fit_and_topics_that_nobody_checks_take_everything() -> None:
    nothing = kernels.build_batches(
        [None], keys=[b"k"], timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    assert why_unfit(World(), nothing) == ""
    world = World()
    world.apply(AlterTopicCommand("t", {"schema.enforce": "off"}, []))
    assert why_unfit(world, batch(BAD)) == ""
    assert world.judge.asked == 0
    world.apply(AlterTopicCommand("t", NODE, []))
    assert why_unfit(world, marked(BAD, 1)) != ""


def test_nothing_is_published_while_nobody_can_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_filter, "AGAIN_AFTER_S", 0.0)
    world = World()
    world.judge.why_not = "pyarrow is not installed"
    with pytest.raises(CannotCheck):
        why_unfit(world, marked(GOOD, 1))
    assert "pyarrow" in world.schemas.troubles[0]


def test_a_topic_without_a_schema_takes_nothing_staged() -> None:
    world = World()
    world.machine.state.topics.by_id["t"].schemas.clear()
    with pytest.raises(CannotCheck, match="has no schema yet"):
        why_unfit(world, batch(GOOD))

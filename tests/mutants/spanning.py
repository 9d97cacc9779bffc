"""Planted bugs in what spans data groups that tests of the replicated state find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.spanning import steps
from samelog.sequencer.spanning.steps import UnitSteps
from samelog.sequencer.state.tables.stages import SettleUnit, StagedUnit, StagesTable, UnitStep
from samelog.sequencer.state.two_phase import Decision


@contextmanager
def close_what_is_pinned() -> Iterator[None]:
    """What is pinned can be closed, and pinned for another batch."""
    with patch.object(StagesTable, "is_pinned", lambda self, session: False):
        yield


@contextmanager
def let_batches_overtake() -> Iterator[None]:
    """A batch begins when the one before it is decided, carried out or not."""
    original = StagesTable.of_stage

    def of_stage(self: StagesTable, stage: str) -> tuple[int, StagedUnit] | None:
        known = original(self, stage)
        return known if known is not None and known[1].unit.is_open else None

    with patch.object(StagesTable, "of_stage", of_stage):
        yield


@contextmanager
def seal_what_is_pinned() -> Iterator[None]:
    """A partition goes to another group though a batch is being published in it."""
    with patch.object(StagesTable, "pins_partition", lambda self, number: False):
        yield


@contextmanager
def tell_what_is_not_there() -> Iterator[None]:
    """Who has no pin of a unit that is committed believes that it was carried out."""
    original = steps._of_unit

    def of_unit(
        found: UnitSteps, who: tuple[int, int], known: StagedUnit, own: StagesTable, *rest: Any
    ) -> None:
        if known.unit.decision is Decision.COMMIT and who[0] not in own.pins:
            found.tell.append(SettleUnit(*who, UnitStep.DONE))
        else:
            original(found, who, known, own, *rest)

    with patch.object(steps, "_of_unit", of_unit):
        yield


@contextmanager
def give_up_what_was_published() -> Iterator[None]:
    """Group 0 gives up a unit that a single group has, and may have published, without its word."""

    def give_up(self: StagesTable, number: int, problem: str) -> bool:
        known = self.units[number]
        known.problem = problem
        return known.unit.decide(Decision.ABORT)

    with patch.object(StagesTable, "give_up", give_up):
        yield


@contextmanager
def publish_what_was_refused() -> Iterator[None]:
    """A group forgets what it has refused as soon as group 0 has heard it."""

    def has_ended(self: StagesTable, number: int) -> bool:
        return number in self.ended

    with patch.object(StagesTable, "has_ended", has_ended):
        yield


_TESTS = "tests/sequencer/test_spanning_state.py::"
SPANNING = (
    (
        "transactions.3",
        let_batches_overtake,
        _TESTS + "test_a_unit_is_committed_once_all_groups_are_prepared",
    ),
    (
        "transactions.4",
        close_what_is_pinned,
        _TESTS + "test_what_is_pinned_stays_until_it_is_carried_out",
    ),
    (
        "transactions.4",
        seal_what_is_pinned,
        _TESTS + "test_what_is_pinned_is_not_sealed_and_what_is_sealed_is_not_pinned",
    ),
    (
        "transactions.13",
        give_up_what_was_published,
        _TESTS + "test_what_a_group_may_have_published_is_not_given_up",
    ),
    (
        "transactions.13",
        publish_what_was_refused,
        _TESTS + "test_a_refusal_forbids_a_later_publication",
    ),
    (
        "transactions.4",
        tell_what_is_not_there,
        _TESTS + "test_a_group_tells_what_its_own_entries_say",
    ),
)
"""Rule, bug, and the test that finds it."""

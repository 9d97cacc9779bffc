"""Planted bugs about what spans several data groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.spanning import participant, steps
from samelog.sequencer.spanning.steps import UnitSteps
from samelog.sequencer.state import machine as state_machine
from samelog.sequencer.state.instructions import End, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import JoinedInLog
from samelog.sequencer.state.tables.stages import (
    PinStage,
    SettleUnit,
    StagedUnit,
    StagesTable,
    UnitStep,
)
from samelog.sequencer.state.tables.transactions import CarriedOut, TransactionsTable
from samelog.sequencer.state.two_phase import Decision, Step, TwoPhase
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import stages as stage_units


@contextmanager
def prepared_by_word() -> Iterator[None]:
    """A group says that it is prepared as soon as it hears of a unit."""
    original = steps._of_unit

    def of_unit(
        found: UnitSteps, who: tuple[int, int], known: StagedUnit, own: StagesTable, *rest: Any
    ) -> None:
        original(found, who, known, own, *rest)
        if known.unit.participants[who[1]] is Step.JOINED and known.unit.is_open:
            found.tell.append(SettleUnit(*who, UnitStep.PREPARED))

    with patch.object(steps, "_of_unit", of_unit):
        yield


@contextmanager
def decide_by_the_first() -> Iterator[None]:
    """A unit is committed once one of its groups is prepared."""
    original = TwoPhase.prepared

    def prepared(self: TwoPhase, participant: int) -> bool:
        is_news = original(self, participant)
        for each in self.participants if is_news else ():
            self.participants[each] = Step.PREPARED
        return is_news

    with patch.object(TwoPhase, "prepared", prepared):
        yield


@contextmanager
def carry_out_a_part() -> Iterator[None]:
    """Of what is pinned, partitions with an odd number are left out."""

    def left(state: State, pin: PinStage) -> dict[int, list[Range]]:
        return {
            n: ranges for n, ranges in pin.ranges if n in state.partitions.by_number and n % 2 == 0
        }

    with (
        patch.object(stage_units, "ranges_left", left),
        patch.object(participant, "ranges_left", left),
    ):
        yield


@contextmanager
def forget_what_is_decided() -> Iterator[None]:
    """Group 0 forgets a unit when it has decided it."""

    def forget(self: StagesTable, number: int) -> None:
        if self.units[number].unit.decision is not Decision.NONE:
            del self.units[number]

    with patch.object(StagesTable, "forget_done", forget):
        yield


@contextmanager
def forget_pins_in_snapshots() -> Iterator[None]:
    """A snapshot does not have what a group has pinned."""

    def encode(self: StateMachine) -> bytes:
        spanning = self.state.stages
        pins, spanning.pins = spanning.pins, {}
        try:
            return state_machine._encoder.encode(self.state)
        finally:
            spanning.pins = pins

    with patch.object(StateMachine, "encode", encode):
        yield


@contextmanager
def done_by_word() -> Iterator[None]:
    """A group says that it has carried out what it is about to carry out."""
    original = steps._of_unit

    def of_unit(
        found: UnitSteps, who: tuple[int, int], known: StagedUnit, own: StagesTable, *rest: Any
    ) -> None:
        original(found, who, known, own, *rest)
        if known.unit.decision is Decision.COMMIT:
            found.tell.append(SettleUnit(*who, UnitStep.DONE))
            found.end = [each for each in found.end if each[0] != who[0]]

    with patch.object(steps, "_of_unit", of_unit):
        yield


@contextmanager
def say_markers_and_write_none() -> Iterator[None]:
    """Data groups say that transactions have their markers, and leave these to group 0."""
    due = TransactionView._due

    def tell(found: UnitSteps, coordinator: TransactionsTable, here: TransactionsTable) -> None:
        for partition, ends in coordinator.markers_due().items():
            markers = [(end.producer_id, end.number, partition) for end in ends]
            found.tell.append(CarriedOut(markers))

    def own_due(self: TransactionView) -> dict[int, list[End]]:
        return {} if self._machine.state.placement.own else due(self)

    with (
        patch.object(steps, "_tell_markers", tell),
        patch.object(TransactionView, "_due", own_due),
    ):
        yield


@contextmanager
def take_behind_the_marker() -> Iterator[None]:
    """A batch is taken until its transaction's marker is applied: what is proposed already does not
    count.
    """

    def part(self: TransactionView, partition: int, producer: int) -> JoinedInLog | None:
        return self._known.taking_part(partition, producer)

    with patch.object(TransactionView, "_part", part):
        yield


SPANNING = (
    carry_out_a_part,
    decide_by_the_first,
    done_by_word,
    forget_pins_in_snapshots,
    forget_what_is_decided,
    prepared_by_word,
    say_markers_and_write_none,
    take_behind_the_marker,
)

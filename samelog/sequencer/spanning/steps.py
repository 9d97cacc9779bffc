"""What a group has to do next for units of work that span several groups, and what group 0 has to
be told of it.

Invariant: group 0 is told only what an entry of this group says, so that a leader that was deposed,
or whose view of group 0 is old, tells nothing that is not so; what is asked for twice is done once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from samelog.sequencer.state.tables.open_transactions import OpenTransactionsTable
from samelog.sequencer.state.tables.stages import SettleUnit, StagedUnit, StagesTable, UnitStep
from samelog.sequencer.state.tables.transactions import CarriedOut, TransactionsTable
from samelog.sequencer.state.two_phase import Decision, Step
from samelog.sequencer.state.types import State

MARKERS_AT_ONCE = 1000


@dataclass(slots=True)
class UnitSteps:
    """Of one group."""

    pin: list[int] = field(default_factory=list)
    """Units to prepare."""
    decide: list[int] = field(default_factory=list)
    """Units that this group alone publishes, or refuses."""
    end: list[tuple[int, bool]] = field(default_factory=list)
    """(unit, whether it is committed): decisions to carry out."""
    tell: list[SettleUnit | CarriedOut] = field(default_factory=list)
    """For group 0."""


def next_steps(cluster: State, here: State, group: int) -> UnitSteps:
    """`cluster`: group 0's state, which may be old; `here`: this group's."""
    units, own = cluster.stages, here.stages
    found = UnitSteps()
    has_forgotten = bool(here.placement.recovered)
    for number, known in units.units.items():
        step = known.unit.participants.get(group)
        if step is not None and step is not Step.DONE:
            _of_unit(found, (number, group), known, own, has_forgotten)
    if _is_resetting(cluster, group):
        found.pin.clear()  # what the units name is of logs that the group has yet to begin
        found.decide.clear()
    for number in own.pins.keys() - units.units.keys():
        if number <= units.last:  # group 0 has done with it, without what was pinned too late
            found.end.append((number, _was_committed(cluster, here, number)))
    if cluster.transactions.deciding and group:
        _tell_markers(found, cluster.transactions, here.open_transactions)
    return found


def _is_resetting(cluster: State, group: int) -> bool:
    return group in cluster.placement.resetting


def _of_unit(
    found: UnitSteps,
    who: tuple[int, int],
    known: StagedUnit,
    own: StagesTable,
    has_forgotten: bool = False,
) -> None:
    """`has_forgotten`: the group may have lost what it committed: one replica went on alone."""
    number, group = who
    if known.sole and known.unit.is_open:
        _of_sole_unit(found, who, own)
    elif known.unit.is_open:
        if number not in own.pins:
            found.pin.append(number)
        elif known.unit.participants[group] is Step.JOINED:
            found.tell.append(SettleUnit(number, group, UnitStep.PREPARED))
    else:
        _carry_out(found, who, known, own, has_forgotten)


def _of_sole_unit(found: UnitSteps, who: tuple[int, int], own: StagesTable) -> None:
    number, group = who
    if number in own.ended:
        why = own.ended[number]
        step = UnitStep.REFUSED if why else UnitStep.DONE
        found.tell.append(SettleUnit(number, group, step, why))
    elif not own.has_ended(number):  # else this state of group 0 is older than the end
        found.decide.append(number)


def _carry_out(
    found: UnitSteps,
    who: tuple[int, int],
    known: StagedUnit,
    own: StagesTable,
    has_forgotten: bool,
) -> None:
    number, group = who
    is_commit = known.unit.decision is Decision.COMMIT
    if number in own.ended:
        found.tell.append(SettleUnit(number, group, UnitStep.DONE))
    elif number in own.pins or known.sole or not is_commit:  # else it is older than the decision
        found.end.append((number, is_commit))
    elif has_forgotten:  # or the group lost what it had prepared
        found.pin.append(number)


def _was_committed(cluster: State, here: State, number: int) -> bool:
    """Whether group 0 has done with a unit that it committed: then a recovered group has lost that
    it was carried out here, too.
    """
    stage = cluster.stages.published.get(here.stages.pins[number].stage)
    is_its_last = stage is not None and stage.unit == number
    return bool(here.placement.recovered) and is_its_last


def _tell_markers(
    found: UnitSteps, coordinator: TransactionsTable, here: OpenTransactionsTable
) -> None:
    """Transactions that have their markers in this group's logs, which group 0 does not know."""
    markers = [
        (end.producer_id, end.number, partition)
        for partition, ends in coordinator.markers_due().items()
        for end in ends
        if here.in_log(partition).has_ended(end)
    ]
    if markers:
        found.tell.append(CarriedOut(markers[:MARKERS_AT_ONCE]))


def groups_concerned(cluster: State) -> set[int]:
    """Who has something to do yet, or to tell."""
    known, group_of = cluster.transactions, cluster.placement.group_of
    found = {group for each in cluster.stages.units.values() for group in each.unit.unfinished()}
    if known.deciding:
        found.update(group_of(partition) for partition in known.markers_due())
    return found


def lost_groups(cluster: State) -> Iterator[SettleUnit]:
    """In group 0: parts of units in groups that are gone, with all that they had."""
    for number, known in cluster.stages.units.items():
        for group in known.unit.unfinished():
            if group and group not in cluster.placement.groups:
                yield SettleUnit(number, group, UnitStep.GONE)

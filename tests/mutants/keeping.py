"""Planted bugs in the care for the members and the leadership of Raft groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.cluster import group_keeper, keeper_steps
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.keeper_steps import KeeperStep, Observed, WantedGroup
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep


@contextmanager
def keep_leading(kind: type) -> Iterator[None]:
    """No bug: leaders of one kind of group never yield."""
    original = vars(GroupKeeper)["is_to_yield"].fget

    def is_to_yield(self: GroupKeeper) -> bool:
        return not isinstance(self._kept, kind) and bool(original(self))

    with patch.object(GroupKeeper, "is_to_yield", property(is_to_yield)):
        yield


@contextmanager
def lead_in_maintenance() -> Iterator[None]:
    """A member in maintenance keeps leading, and is given leadership."""
    with patch.object(group_keeper, "is_in_maintenance", lambda cluster, number, now_ms: False):
        yield


@contextmanager
def rest_despite_maintenance() -> Iterator[None]:
    """A member in maintenance keeps leading resting groups, as they are not checked."""
    name = "samelog.sequencer.data_groups.hosting.is_in_maintenance"
    with patch(name, lambda cluster, number, now_ms: False):
        yield


@contextmanager
def lead_without_group_0() -> Iterator[None]:
    """A member that hears no leader of group 0 keeps leading data groups."""
    original = GroupKeeper._observe

    def observe(self: GroupKeeper) -> Observed:
        return dataclasses.replace(original(self), is_cut_off=False)

    with patch.object(GroupKeeper, "_observe", observe):
        yield


@contextmanager
def prefer_who_is_cut_off() -> Iterator[None]:
    """A preferred leader that hears no leader of group 0 gets leadership back at once."""
    original = GroupKeeper._peer

    def peer(self: GroupKeeper, *given: Any) -> Any:
        return dataclasses.replace(original(self, *given), is_cut_off=False)

    with patch.object(GroupKeeper, "_peer", peer):
        yield


@contextmanager
def keep_damage_in_data_groups() -> Iterator[None]:
    """A leader of a data group keeps leadership though bytes of a session have rotted there."""
    original = GroupKeeper._damage

    def damage(self: GroupKeeper) -> set[object]:
        return set() if isinstance(self._kept, DataGroupUpkeep) else original(self)

    with patch.object(GroupKeeper, "_damage", damage):
        yield


@contextmanager
def leave_damage_again_and_again() -> Iterator[None]:
    """Damage that all have goes to and fro between them for ever."""
    original = GroupKeeper.transfer

    def transfer(self: GroupKeeper, to: int) -> bool:
        return original(self, to) and False

    with patch.object(GroupKeeper, "transfer", transfer):
        yield


@contextmanager
def hand_back_at_once() -> Iterator[None]:
    """Who is preferred gets leadership back before its successor could do anything."""
    with patch.object(group_keeper, "HOLD_S", 0.0):
        yield


@contextmanager
def lead_despite_maintenance() -> Iterator[None]:
    """Leadership goes to who would give it away at once."""
    original = keeper_steps._heir

    def heir(wanted: WantedGroup, observed: Observed) -> Any:
        well = (
            dataclasses.replace(each, takes_in=True, is_resting=False) for each in observed.peers
        )
        return original(wanted, dataclasses.replace(observed, peers=tuple(well)))

    with patch.object(keeper_steps, "_heir", heir):
        yield


@contextmanager
def change_many_at_once() -> Iterator[None]:
    """A second change of the members begins beside the first."""
    original = keeper_steps._change

    def change(
        wanted: WantedGroup, observed: Observed, done: Collection[KeeperStep]
    ) -> KeeperStep | None:
        return original(wanted, dataclasses.replace(observed, may_change=True), ())

    with patch.object(keeper_steps, "_change", change):
        yield


@contextmanager
def readmit_who_lacks_records() -> Iterator[None]:
    """A suspect counts again before it has what the others have."""
    original = keeper_steps._readmit

    def readmit(observed: Observed) -> KeeperStep | None:
        close = (dataclasses.replace(each, is_close=True) for each in observed.peers)
        return original(dataclasses.replace(observed, peers=tuple(close)))

    with patch.object(keeper_steps, "_readmit", readmit):
        yield


_IN = "tests/sequencer/test_group_keeper.py::test_"
_STEPS = _IN + "suspects_come_first_then_one_change_of_members"

KEEPING = (
    ("raft.49", lead_in_maintenance, _IN + "a_member_in_maintenance_leads_nothing"),
    (
        "raft.49",
        rest_despite_maintenance,
        _IN + "a_group_that_rests_leaves_a_member_in_maintenance",
    ),
    ("raft.49", keep_damage_in_data_groups, _IN + "damaged_bytes_are_left_to_another_leader"),
    ("raft.49", leave_damage_again_and_again, _IN + "damage_is_left_to_another_leader_once"),
    ("raft.49", hand_back_at_once, _IN + "leadership_is_held_for_a_moment"),
    (
        "raft.49",
        lead_despite_maintenance,
        _IN + "leadership_goes_to_nobody_who_would_give_it_away_at_once",
    ),
    (
        "placement.20",
        lead_without_group_0,
        _IN + "a_leader_that_is_cut_off_from_group_0_leaves_its_groups",
    ),
    (
        "placement.20",
        prefer_who_is_cut_off,
        _IN + "a_preferred_leader_that_says_it_is_cut_off_does_not_get_leadership",
    ),
    ("raft.50", change_many_at_once, _STEPS),
    ("raft.50", readmit_who_lacks_records, _STEPS),
)
"""Rule, bug, and the test that finds it."""

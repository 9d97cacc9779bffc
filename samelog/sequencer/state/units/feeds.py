"""Gives offsets to what changes in the state: of groups, their committed offsets, and transactional
ids (feed.py).

Invariant: whatever changes what a record would hold is noted by the command that changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.feeds import ITSELF, Key, StateTopic
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State

NamedPlaces = Mapping[int, tuple[str, int]]
"""Partition number -> (topic's name, index)."""


def note_groups(state: State, keys: Iterable[Key], *, is_new: bool = True) -> None:
    """These of groups are perhaps new, or others (`is_new`), or gone."""
    for key in keys:
        name, number = key
        group, feed = state.groups.by_id.get(name), state.feeds.feed(OFFSETS, name)
        if group is None or (number != ITSELF and number not in group.offsets):
            topic, index = _place(state, number)
            feed.deleted(key, topic, index)
        elif is_new:
            since_ms = group.since_ms if number == ITSELF else group.offsets[number].at_ms
            feed.changed(key, since_ms)


def note_transactions(state: State, names: Iterable[str], *, is_new: bool = True) -> None:
    """The same of transactional ids."""
    for name in names:
        feed = state.feeds.feed(StateTopic.TRANSACTIONS, name)
        known = state.transactions.by_id.get(name)
        if known is None:
            feed.deleted((name, ITSELF))
        elif is_new:
            feed.changed((name, ITSELF), known.used_ms)


def places_of(topic: Topic) -> NamedPlaces:
    """Where the partitions of a topic are, in words that outlive it."""
    return {number: (topic.name, index) for index, number in enumerate(topic.partition_numbers)}


def forget_places(state: State, gone: NamedPlaces) -> None:
    """These partitions are gone, with what was committed in them and their part of transactions."""
    _note_lost_offsets(state, gone)
    units = ((name, known.unit) for name, known in state.transactions.by_id.items())
    names = [n for n, unit in units if unit is not None and unit.participants.keys() & gone]
    state.groups.forget_partitions(gone)
    state.transactions.forget_partitions(gone)
    note_transactions(state, names)


def _note_lost_offsets(state: State, gone: NamedPlaces) -> None:
    for name, group in state.groups.by_id.items():
        for number in group.offsets:
            if number in gone:
                state.feeds.feed(OFFSETS, name).deleted((name, number), *gone[number])


def _place(state: State, number: int) -> tuple[str, int]:
    place = place_of(state, number)
    return ("", -1) if place is None else (place[0].name, place[1])


OFFSETS = StateTopic.OFFSETS

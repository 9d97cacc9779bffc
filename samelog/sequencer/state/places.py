"""Partitions of topics and of views, by their numbers and names: where groups commit to, and read.

Invariant: a number is of one topic or one view; a view's partitions have their records in its base.
"""

from __future__ import annotations

from collections.abc import Iterable

from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State


def named_topic(state: State, name: str) -> Topic | None:
    """A living topic, or a view as one."""
    topic_id = state.topics.by_name.get(name)
    if topic_id is not None:
        return state.topics.by_id[topic_id]
    view = state.views.named(name)
    return None if view is None else state.topic_of_view(view)


def all_topics(state: State) -> Iterable[Topic]:
    """Topics, and views as topics."""
    yield from state.topics.by_id.values()
    yield from map(state.topic_of_view, state.views.by_id.values())


def place_of(state: State, number: int) -> tuple[Topic, int] | None:
    """(topic, index) of a partition, or of one of a view; None: it is gone."""
    partition = state.partitions.by_number.get(number)
    if partition is not None:
        return state.topics.by_id[partition.topic_id], partition.index
    found = state.views.index.by_number.get(number)
    return None if found is None else (state.topic_of_view(found[0]), found[1])


def base_number(state: State, number: int) -> int:
    """The number of the partition that has the records."""
    found = state.views.index.by_number.get(number)
    if found is None:
        return number
    view, place = found
    return state.topics.by_id[view.base_id].partition_numbers[place]


def base_topic(state: State, topic: Topic) -> Topic:
    """The topic that has the records of a topic, or of a view as one."""
    view = state.views.by_id.get(topic.topic_id)
    return topic if view is None else state.topics.by_id[view.base_id]


class Living:
    """The partitions there are, of topics and of views."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __contains__(self, number: object) -> bool:
        state = self._state
        return number in state.partitions.by_number or number in state.views.index.by_number

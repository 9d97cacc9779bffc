"""Planted bugs in what is told of groups and transactions as topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.kafka import broker
from samelog.kafka.state_topics.log import FeedLog, FeedStream
from samelog.sequencer.state.tables.feeds import Feed, Key
from samelog.sequencer.state.units import topics, transactions


@contextmanager
def number_by_what_is_there() -> Iterator[None]:
    """The next offset is the number of keys: it falls when something is deleted."""
    original = Feed._next

    def following(self: Feed) -> int:
        original(self)
        self.next_offset = len(self.newest) + len(self.gone) + 1
        return self.next_offset - 1

    with patch.object(Feed, "_next", following):
        yield


@contextmanager
def change_in_place() -> Iterator[None]:
    """What has an offset keeps it when it changes: who has read it reads it no more."""
    original = Feed.changed

    def changed(self: Feed, key: Key, at_ms: int) -> None:
        if key not in self.newest:
            original(self, key, at_ms)

    with patch.object(Feed, "changed", changed):
        yield


@contextmanager
def delete_in_silence() -> Iterator[None]:
    """What is gone gets no tombstone."""

    def deleted(self: Feed, key: Key, topic: str = "", index: int = -1) -> None:
        self.newest.pop(key, None)

    with patch.object(Feed, "deleted", deleted):
        yield


@contextmanager
def tell_no_decisions() -> Iterator[None]:
    """Offsets that are committed by a transaction are not told."""
    with patch.object(transactions, "note_groups", lambda state, keys, *, is_new=True: None):
        yield


@contextmanager
def forget_the_names_of_topics() -> Iterator[None]:
    """A topic is deleted before its name is looked up."""

    def places_of(topic: Any) -> dict[int, tuple[str, int]]:
        return {number: ("", index) for index, number in enumerate(topic.partition_numbers)}

    with patch.object(topics, "places_of", places_of):
        yield


@contextmanager
def show_what_was_replaced() -> Iterator[None]:
    """A place is shown though its thing has a newer one."""

    def newest(self: FeedLog, first: int) -> Iterable[Any]:
        self._follow()
        return [each for each in self._places if each[0] >= first]

    with patch.object(FeedLog, "_newest", newest):
        yield


@contextmanager
def wake_nobody() -> Iterator[None]:
    """Who waits is not told of a change."""
    with patch.object(FeedStream, "_moved", lambda self: None):
        yield


@contextmanager
def let_them_be_written() -> Iterator[None]:
    """Grants and ACLs count for these topics as for others."""
    with patch.object(broker, "is_reserved", lambda name, machine: False):
        yield


_LOGS = "tests/kafka/test_state_topic_logs.py::"
_FOLLOWED = _LOGS + "test_who_follows_has_what_the_state_has"
STATE_TOPICS = (
    ("kafka.4", number_by_what_is_there, _FOLLOWED),
    ("kafka.4", change_in_place, _FOLLOWED),
    ("kafka.4", delete_in_silence, _FOLLOWED),
    ("kafka.4", tell_no_decisions, _FOLLOWED),
    (
        "kafka.4",
        forget_the_names_of_topics,
        _LOGS + "test_what_goes_with_a_topic_is_told_by_the_topics_name",
    ),
    (
        "kafka.4",
        show_what_was_replaced,
        _LOGS + "test_each_change_has_an_offset_of_its_own_and_the_newest_stays",
    ),
    ("kafka.5", wake_nobody, _LOGS + "test_who_waits_is_told_of_its_partition_only"),
    ("kafka.5", let_them_be_written, _LOGS + "test_nobody_may_do_more_than_read_them"),
)
"""Rule, bug, and the test that finds it."""

"""Planted bugs in what a subscriber takes its patterns for, in what a publisher refuses, and in how
views are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.admin.known_schemas import TopicSchemas
from samelog.publisher import row_checks
from samelog.publisher.row_checks import RowChecks
from samelog.replicator.pull.copy_directory import CopyDirectory
from samelog.sequencer.state.tables.views import ViewIndex
from samelog.subscriber.engine import Engine
from samelog.subscriber.start import StartFinder
from samelog.subscriber.topics.chosen import ChosenTopics, TopicPattern
from samelog.subscriber.topics.watching import TopicWatch


@contextmanager
def begin_new_topics_at_their_end() -> Iterator[None]:
    """A subscriber that began at the end leaves out what was written to a topic that was made since
    before it was noticed.
    """
    with patch.object(StartFinder, "note_new", lambda self, topics: None):
        yield


@contextmanager
def believe_every_list_of_topics() -> Iterator[None]:
    """A topic that a node does not list is read no more."""
    original = ChosenTopics.unknown

    def unknown(self: ChosenTopics, topics: Iterable[str]) -> list[str]:
        listed = list(topics)
        self.names = tuple(name for name in self.names if name in listed)
        return original(self, listed)

    with patch.object(ChosenTopics, "unknown", unknown):
        yield


@contextmanager
def go_on_in_what_took_the_name() -> Iterator[None]:
    """A deleted topic is taken up again, because a node that lags lists it."""
    with patch.object(TopicWatch, "deleted", lambda self, topic, log_id: None):
        yield


@contextmanager
def leave_old_copies_in_place() -> Iterator[None]:
    """The copy of a deleted topic stays where the new topic's copy belongs."""
    with patch.object(CopyDirectory, "set_aside_others", lambda self, topic, log_id: []):
        yield


@contextmanager
def begin_new_topics_of_groups_at_their_end() -> Iterator[None]:
    """A member that started with "latest" skips records of a topic that was created again."""
    with patch.object(Engine, "note_new", lambda self, topic: None):
        yield


@contextmanager
def take_the_clusters_own_topics() -> Iterator[None]:
    """The whole cluster has the topics of its own, too."""

    def means(self: TopicPattern, topic: str) -> bool:
        return self.expression.fullmatch(topic) is not None

    with patch.object(TopicPattern, "means", means):
        yield


@contextmanager
def judge_marks_by_the_newest() -> Iterator[None]:
    """A publisher takes any mark, and judges by the newest version."""
    with patch.object(row_checks, "_version", lambda pairs, newest: newest):
        yield


@contextmanager
def refuse_by_old_versions() -> Iterator[None]:
    """A publisher refuses by the version that it heard of first."""
    original = RowChecks._ask

    def ask(self: RowChecks, topic: str) -> TopicSchemas | None:
        return original(self, topic) if self._known.known(topic) is None else None

    with patch.object(RowChecks, "_ask", ask):
        yield


@contextmanager
def find_views_that_were_dropped() -> Iterator[None]:
    """A view that was dropped is still found by its name and its partitions."""
    with patch.object(ViewIndex, "remove", lambda self, view: None):
        yield


_TOPICS = "tests/subscriber/test_topics.py::"
_RECREATED = "tests/e2e/test_recreated_topics.py::"
_ROWS = "tests/publisher/test_rows.py::"
ENFORCING = (
    (
        "sessions.18",
        judge_marks_by_the_newest,
        _ROWS + "test_a_record_that_does_not_fit_is_refused_with_all_that_came_with_it",
    ),
    (
        "sessions.18",
        refuse_by_old_versions,
        _ROWS + "test_before_a_record_is_refused_it_is_asked_for_a_newer_version",
    ),
    (
        "readers.10",
        find_views_that_were_dropped,
        "tests/sequencer/test_views.py::test_a_view_is_found_as_by_looking_at_all",
    ),
    (
        "readers.11",
        begin_new_topics_at_their_end,
        _TOPICS + "test_what_is_new_is_read_from_its_beginning",
    ),
    (
        "readers.11",
        believe_every_list_of_topics,
        _TOPICS + "test_a_log_is_told_once_whatever_a_node_says_that_lags",
    ),
    (
        "readers.11",
        go_on_in_what_took_the_name,
        _TOPICS + "test_a_log_is_told_once_whatever_a_node_says_that_lags",
    ),
    (
        "readers.21",
        leave_old_copies_in_place,
        _TOPICS + "test_copies_of_a_topic_that_was_deleted_are_set_aside_for_the_new_one",
    ),
    (
        "readers.21",
        begin_new_topics_of_groups_at_their_end,
        _RECREATED + "test_a_native_group_reads_the_new_topic_from_its_start",
    ),
    ("readers.11", take_the_clusters_own_topics, _TOPICS + "test_a_pattern_means_whole_names"),
)

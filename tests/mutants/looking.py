"""Planted bugs in what is shown to people, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.config.authorisation import Rights
from samelog.http import application
from samelog.http.console import document, producer
from samelog.http.console.document import Section, ShownRow
from samelog.http.console.producer import Producer
from samelog.http.console.proxy import ConsoleProxy
from samelog.http.console.upstream import NodeUnreachable, NodeUpstream
from samelog.sequencer.admin import records


@contextmanager
def leave_what_is_gone() -> Iterator[None]:
    """Pages are not told of rows that are no more."""

    def changes(before: Section, now: Section) -> dict[str, ShownRow | None]:
        return {key: row for key, row in now.items() if before.get(key) != row}

    with patch.object(document, "_section_changes", changes):
        yield


@contextmanager
def forget_slow_readers() -> Iterator[None]:
    """What a slow page has not taken is thrown away, and it goes on with the next change."""

    def put(self: producer._Reader, event: bytes) -> None:
        self._events.append(event)
        self._bytes += len(event)
        if self._bytes > producer.READER_BYTES_MAX and len(self._events) > 1:
            self._events.clear()
            self._bytes = 0
        self._wake.set()

    with patch.object(producer._Reader, "put", put):
        yield


@contextmanager
def look_for_nobody() -> Iterator[None]:
    """A node goes on looking when the last page is closed."""
    with patch.object(Producer, "_end_if_idle", lambda self: None):
        yield


@contextmanager
def answer_other_pages() -> Iterator[None]:
    """Pages of other sites get answers, with the rights of whoever reads them."""
    with patch.object(application, "is_of_another_page", lambda request: False):
        yield


@contextmanager
def show_records_to_anybody() -> Iterator[None]:
    """Whoever may ask a node at all sees the records of every topic."""
    with patch.object(Rights, "may_subscribe", lambda self, identity, topic: True):
        yield


@contextmanager
def show_views_without_rights() -> Iterator[None]:
    """Pages show records of a view when its owner may not read the base any more."""
    with patch.object(records, "check_owner", lambda rights, view, base: None):
        yield


@contextmanager
def let_anybody_in() -> Iterator[None]:
    """`samelog ui` answers every user of its host."""
    with patch.object(ConsoleProxy, "_check", lambda self, request: None):
        yield


@contextmanager
def send_changes_again() -> Iterator[None]:
    """A change that a node may have made before it fell silent is sent to the next one."""
    original = NodeUnreachable.__init__

    def init(self: NodeUnreachable, text: str, *, sent: bool) -> None:
        original(self, text, sent=False)

    with patch.object(NodeUnreachable, "__init__", init):
        yield


@contextmanager
def speak_to_anybody() -> Iterator[None]:
    """`samelog ui` asks whoever has a certificate of the authority, be it that node or not."""
    with patch.object(NodeUpstream, "_check_identity", lambda self, session: None):
        yield


_CONSOLE = "tests/http/test_console.py::"
LOOKING = (
    ("operations.2", leave_what_is_gone, _CONSOLE + "test_changes_make_the_next_document"),
    (
        "operations.2",
        forget_slow_readers,
        _CONSOLE + "test_a_slow_reader_starts_anew_with_a_document",
    ),
    (
        "operations.2",
        look_for_nobody,
        _CONSOLE + "test_one_look_serves_all_readers_and_nothing_runs_without_them",
    ),
    ("operations.3", answer_other_pages, _CONSOLE + "test_pages_of_others_get_nothing"),
    (
        "operations.3",
        show_records_to_anybody,
        "tests/sequencer/test_console_answers.py::test_what_a_cluster_answers_to_its_console",
    ),
    (
        "operations.3",
        let_anybody_in,
        _CONSOLE + "test_who_has_the_link_sees_the_cluster_and_nobody_else",
    ),
    (
        "readers.9",
        show_views_without_rights,
        "tests/sequencer/test_console_kinds.py::test_topics_that_are_no_plain_logs_are_told",
    ),
    (
        "operations.3",
        send_changes_again,
        _CONSOLE + "test_a_change_that_may_be_made_is_not_sent_again",
    ),
    (
        "operations.3",
        speak_to_anybody,
        _CONSOLE + "test_nothing_is_said_to_whoever_is_not_the_node",
    ),
)
"""Rule, bug, and the test that finds it."""

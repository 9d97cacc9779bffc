"""Planted bugs in the quotas of sessions and partitions, and in what is remembered of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.publisher import shipper
from samelog.sequencer.cluster import leader_upkeep
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    Session,
)
from samelog.wire.errors import FaultCode


@contextmanager
def count_ended_sessions() -> Iterator[None]:
    """Sessions that have ended use up the quota of open ones."""
    original = QuotaKeeper.check_session

    def check(self: QuotaKeeper, identity: str, session: str) -> None:
        index = self._machine.index
        with patch.object(index, "open_runs", index.remembered):
            original(self, identity, session)

    with patch.object(QuotaKeeper, "check_session", check):
        yield


@contextmanager
def forget_the_newest_sessions() -> Iterator[None]:
    """Of too many sessions those are forgotten that ended last."""
    original = SessionIndex.idle

    def idle(self: SessionIndex, identity: str) -> dict[str, None]:
        return dict(reversed(original(self, identity).items()))

    with patch.object(SessionIndex, "idle", idle):
        yield


@contextmanager
def remember_all_sessions() -> Iterator[None]:
    """However many sessions have ended, none is forgotten early."""
    with patch.object(leader_upkeep, "crowded", lambda *_, **__: None):
        yield


@contextmanager
def forget_to_count_closed_runs() -> Iterator[None]:
    """A run that is closed still counts."""
    original = SessionIndex.note

    def note(self: SessionIndex, session: Session) -> None:
        if not session.runs or not session.runs[-1].closed:
            original(self, session)

    with patch.object(SessionIndex, "note", note):
        yield


@contextmanager
def wait_for_room_in_a_quota() -> Iterator[None]:
    """A publisher over its quota waits without a word."""
    with patch.object(shipper, "_REFUSALS", (FaultCode.NOT_AUTHORISED,)):
        yield


_QUOTAS = "tests/sequencer/test_quotas.py::"
_INDEX = "tests/sequencer/test_session_index.py::"
SESSION_QUOTAS = (
    (
        "sessions.21",
        count_ended_sessions,
        _QUOTAS + "test_an_identity_has_so_many_sessions_and_no_more",
    ),
    (
        "sessions.21",
        forget_to_count_closed_runs,
        _INDEX + "test_an_index_that_follows_all_changes_equals_a_fresh_one",
    ),
    (
        "sessions.21",
        wait_for_room_in_a_quota,
        "tests/publisher/test_shipping.py::test_a_wait_in_a_loop_ends_when_the_quota_is_used_up",
    ),
    (
        "sessions.22",
        forget_the_newest_sessions,
        _INDEX
        + "test_the_sessions_that_ended_longest_ago_are_forgotten_beyond_ten_times_the_quota",
    ),
    (
        "sessions.22",
        remember_all_sessions,
        _QUOTAS + "test_sessions_beyond_ten_times_the_quota_are_forgotten_by_an_entry",
    ),
)

"""Planted bugs in how long a publisher gathers records before it ships them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.replicator.push.session_watch import SessionWatch
from samelog.runtime import linger
from samelog.runtime.linger import Linger


@contextmanager
def gather_for_a_constant_time() -> Iterator[None]:
    """The linger does not follow the load."""
    with patch.object(linger, "GROWTH", 1.0):
        yield


@contextmanager
def linger_after_a_pause() -> Iterator[None]:
    """The first record after a pause lingers too."""
    with patch.object(Linger, "wait_s", lambda self, now: self.linger_s):
        yield


@contextmanager
def linger_while_awaited() -> Iterator[None]:
    """What is waited for lingers."""
    with patch.object(SessionWatch, "hurry", lambda self: None):
        yield


_PURE = "tests/runtime/test_linger.py::"
_CLIENT = "tests/replicator/test_push_client.py::"
LINGER = (
    (
        "sessions.20",
        gather_for_a_constant_time,
        _PURE + "test_the_linger_grows_while_changes_keep_coming_and_shrinks_with_pauses",
    ),
    (
        "sessions.20",
        linger_after_a_pause,
        _PURE + "test_the_first_change_after_a_pause_is_sent_at_once",
    ),
    (
        "sessions.20",
        linger_while_awaited,
        _CLIENT + "test_what_is_waited_for_is_shipped_at_once",
    ),
)

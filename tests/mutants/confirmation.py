"""Planted bugs in confirmation before data is destroyed, and in the lag of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.admin.requests import ConfirmedRequest
from samelog.cli.commands import session
from samelog.sequencer.admin import groups


@contextmanager
def destroy_without_the_name() -> Iterator[None]:
    """A node carries out a destructive request without checking its confirmation."""
    with patch.object(ConfirmedRequest, "_compare", lambda self, wanted: None):
        yield


@contextmanager
def retire_without_the_name() -> Iterator[None]:
    """A command destroys without --confirm."""
    with patch.object(session, "check_confirmed", lambda given, name, loss: None):
        yield


@contextmanager
def count_committed_partitions_only() -> Iterator[None]:
    """A group has no lag in partitions in which it committed nothing."""
    with patch.object(groups, "positions", lambda state, group: dict(group.offsets)):
        yield


_CONFIRMATION = "tests/cli/test_confirmation.py::"
CONFIRMATION = (
    (
        "operations.6",
        destroy_without_the_name,
        _CONFIRMATION + "test_a_request_over_http_has_to_repeat_the_name",
    ),
    (
        "operations.6",
        retire_without_the_name,
        _CONFIRMATION + "test_without_the_name_nothing_is_asked_for",
    ),
    (
        "operations.7",
        count_committed_partitions_only,
        "tests/sequencer/test_group_lags.py::test_every_place_counts_the_same_lag",
    ),
)
"""Rule, bug, and the test that finds it."""

"""Planted bugs in how many copies a topic gets that is created without a number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import replace

from samelog.placement import changes
from samelog.placement.changes import SetDefaultCopies
from samelog.placement.values import Placement


@contextmanager
def change_what_exists() -> Iterator[None]:
    """Another default is the goal of topics that exist, too."""

    def set_default(placement: Placement, change: SetDefaultCopies) -> None:
        before, placement.default_copies = (
            placement.default_copies,
            change.copies,
        )
        for number, group in placement.groups.items():
            if group.copies == before:
                placement.groups[number] = replace(group, copies=change.copies)

    with patch.dict(changes._APPLY, {SetDefaultCopies: set_default}):
        yield


_IN = "tests/placement/test_defaults.py::"

DEFAULTS = (("placement.21", change_what_exists, _IN + "test_a_later_default_changes_no_topic"),)
"""Rule, bug, and the test that finds it."""

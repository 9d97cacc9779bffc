"""Planted bugs about when nodes elect, each found by a test of `tests/consensus`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.consensus import Role
from samelog.consensus.core import Core
from samelog.consensus.patience import Patience


@contextmanager
def never_patient() -> Iterator[None]:
    """A node campaigns by the configured timeout, however late its own loop is."""
    with patch.object(Patience, "delayed", lambda self, by_s, now: 0.0):
        yield


@contextmanager
def patient_with_candidates() -> Iterator[None]:
    """A late node also takes its leader to live for longer when others ask."""

    def in_lease(self: Core) -> bool:
        alive = self.now < self.leader_seen + self.patience.seconds
        return self.role is Role.LEADER or (self.leader is not None and alive)

    with patch.object(Core, "in_lease", property(in_lease)):
        yield


_PATIENCE = "tests/consensus/test_patience.py::"
PATIENCE = (
    ("raft.6", never_patient, _PATIENCE + "test_a_node_that_is_late_waits_longer_for_its_leader"),
    ("raft.6", patient_with_candidates, _PATIENCE + "test_patience_moves_no_answer_to_others"),
)
"""Rule, bug, and the test that finds it."""

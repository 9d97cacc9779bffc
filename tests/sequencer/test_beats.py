"""How often members speak for what rests between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.sequencer.data_groups.beats import QuietGroups


@pytest.mark.parametrize(
    ("heartbeat_ms", "election_ms", "pause_s"),
    [(100, 1000, 0.2), (20, 200, 0.04), (50, 150, 0.05), (100, 600, 0.12), (333, 1000, 0.333)],
)
def test_beats_are_half_as_many_as_heartbeats_where_enough_are_left(
    heartbeat_ms: int, election_ms: int, pause_s: float
) -> None:
    settings = SimpleNamespace(heartbeat_ms=heartbeat_ms, election_ms=election_ms)
    anything: Any = None
    given: Any = SimpleNamespace(config=SimpleNamespace(raft=settings), clock=anything)
    assert QuietGroups(given, anything, anything)._pause_s == pytest.approx(pause_s)

"""Planted bugs in what quiet sessions cost a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.merge.session_store import SessionStore


@contextmanager
def look_at_every_session() -> Iterator[None]:
    """All sessions are looked at each second to find those of nodes."""
    original = RunKeeper.tick

    def tick(self: RunKeeper, now: float, *, is_leader: bool) -> None:
        machine = self._machine
        with patch.object(machine.index, "of_nodes", dict.fromkeys(machine.state.sessions)):
            original(self, now, is_leader=is_leader)

    with patch.object(RunKeeper, "tick", tick):
        yield


@contextmanager
def count_every_input() -> Iterator[None]:
    """All inputs are looked at to count what is not merged."""

    def take_grown(self: SessionStore) -> dict[int, None]:
        return dict.fromkeys(self._machine.state.inputs)

    with patch.object(SessionStore, "take_grown", take_grown):
        yield


_TEST = "tests/sequencer/test_idle_sessions.py::test_quiet_sessions_cost_nothing"
IDLE_SESSIONS = ((433, look_at_every_session, _TEST), (433, count_every_input, _TEST))

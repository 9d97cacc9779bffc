"""Fixtures of tests with whole nodes in one event loop."""

from __future__ import annotations

import pytest

from samelog.sequencer.data_groups import working


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replicas of data groups rest 0.1 s after their last work, not 5 s."""
    monkeypatch.setattr(working, "LINGER_S", 0.1)

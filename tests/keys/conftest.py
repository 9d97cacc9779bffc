"""Indexes are stored at once, so that nobody waits for that."""

from __future__ import annotations

import pytest

from samelog.sequencer.keys import keeper


@pytest.fixture(autouse=True)
def stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "STORE_AFTER_S", 0.0)

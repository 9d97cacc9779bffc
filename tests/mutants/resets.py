"""Planted bugs in what a reset of the cluster leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.state import reset_state


@contextmanager
def forget_dedup_at_resets() -> Iterator[None]:
    """A hard reset forgets what dedup knows of partitions."""
    with patch.object(reset_state, "_move_dedup", lambda state, moved: None):
        yield

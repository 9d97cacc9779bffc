"""`samelog mirror status` says why a mirror is not continued."""

from __future__ import annotations

import pytest

from samelog.admin.mirror_answers import (
    MirroredPartition,
    MirrorInfo,
    SourcePartition,
    SourceTopic,
)
from samelog.cli.commands.mirroring.mirror import _compared
from samelog.mirror.stops import MirrorStop

LOG, END = "log", 40


def mirror(promoted_ms: int = -1) -> MirrorInfo:
    """A mirror that ends there."""
    names = "eu.flights", "id", "there", "flights", LOG, ("there",)
    parts = (MirroredPartition(0, 0, END, None, None),)
    return MirrorInfo(*names, True, 1, promoted_ms, (), {}, 0, parts, len(parts))


def source(log_id: str, end: int) -> dict[str, SourceTopic]:
    """The source's topic, with a log that ends there."""
    parts = (SourcePartition(0, 0, end, 0, 0, 0, None, ()),)
    return {"flights": SourceTopic("flights", log_id, {}, 0, (), False, parts)}


@pytest.mark.parametrize(
    ("topics", "end", "lag", "state"),
    [
        (source(LOG, END + 2), END + 2, 2, "mirror"),
        (None, None, None, "mirror"),
        (source(LOG, END - 1), END - 1, 0, "mirror, and the source ends below it"),
        (source("another", 0), None, None, "stopped: the source was reset, or its topic recreated"),
        (
            {},
            None,
            None,
            "mirror; the source has no such topic, or mirror.toml does not choose it",
        ),
    ],
)
def test_a_mirror_is_compared_with_the_log_that_it_mirrors(
    topics: dict[str, SourceTopic] | None, end: int | None, lag: int | None, state: str
) -> None:
    [row], _ = _compared([mirror()], topics, {})
    assert (row.mirrored, row.end, row.lag, row.state) == (END, end, lag, state)


def test_a_promoted_mirror_is_compared_with_nothing() -> None:
    [row], _ = _compared([mirror(promoted_ms=1)], source("another", 0), {})
    assert row.lag is None
    assert row.state.startswith("promoted 1970-01-01")


@pytest.mark.parametrize(
    ("stop", "state"),
    [
        (MirrorStop("id", LOG, END, "the batch at 40 is odd"), "stopped: the batch at 40 is odd"),
        (MirrorStop("id", LOG, END - 1, "it is odd"), "mirror"),
        (MirrorStop("id", "another", END, "it is odd"), "mirror"),
        (MirrorStop("another", LOG, END, "it is odd"), "mirror"),
    ],
)
def test_a_stop_counts_while_the_mirror_ends_there(stop: MirrorStop, state: str) -> None:
    [row], _ = _compared([mirror()], source(LOG, END + 2), {"eu.flights/0": stop})
    assert row.state == state
    [row], _ = _compared([mirror(promoted_ms=1)], source(LOG, END + 2), {"eu.flights/0": stop})
    assert row.state.startswith("promoted")

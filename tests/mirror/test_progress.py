"""How far a sidecar's mirrors are, as it is shown to who waits."""

from __future__ import annotations

from samelog.mirror.progress import MirrorProgress


def test_what_is_mirrored_is_told_of_what_there_is() -> None:
    progress = MirrorProgress()
    assert progress.amount() == (0, None)
    first, second = progress.of("t", 0), progress.of("t", 1)
    first.mirrored, first.end = 40, 100
    assert progress.amount() == (40, None), "of the other nothing is known"
    second.mirrored, second.end = 5, 7
    assert progress.amount() == (45, 107)
    progress.lost_source("it is away")
    assert progress.amount() == (45, None)


def test_a_restore_ends_where_it_was_to_end() -> None:
    progress = MirrorProgress()
    known = progress.of("t", 0)
    known.mirrored, known.end, known.stop = 40, 100, 60
    assert progress.amount() == (40, 60)
    progress.lost_source("it is away")
    assert progress.amount() == (40, 60)
    known.mirrored = 61
    assert progress.amount() == (61, 61)

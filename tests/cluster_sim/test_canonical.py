"""The merged log as a world knows it."""

from __future__ import annotations

from tests.cluster_sim.canonical import CanonicalLog


def test_a_copy_that_begins_within_a_transaction_knows_it_from_its_first_batch_there() -> None:
    """A node that continued behind an archive was taken for one that tells readers something wrong
    (world 9100381106 of many groups).
    """
    log = CanonicalLog("t", 0, lambda *_: True)
    log.batches = {7: [82, 135], 8: [90]}
    aborted = [(7, 82, 136), (8, 90, 140)]
    assert log.behind(0, aborted) == aborted
    assert log.behind(118, aborted) == [(7, 135, 136)], "of 8 only the marker is there"
    assert log.behind(118, [(7, 135, 136)]) == [(7, 135, 136)]
    assert log.behind(118, [(7, 136, 136)]) == [], "a copy that lacks batch 135 is found"

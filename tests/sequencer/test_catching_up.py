"""What a replica that catches up says of how far it is."""

from __future__ import annotations

import pytest

from samelog.sequencer.cluster.catching_up import History, history_of, phase
from samelog.sequencer.state.tables.partitions import Partition


@pytest.mark.parametrize(
    ("history", "takes_writes", "said"),
    [
        (History(0, 0), True, ""),
        (History(9, 9), True, ""),
        (History(43, 100), True, "history 43 %"),
        (History(999, 1000), True, "history 99 %"),
        (History(0, 7), True, "history 0 %"),
        (History(9, 9), False, "writes"),
    ],
)
def test_phases_come_in_order(history: History, takes_writes: bool, said: str) -> None:
    assert phase(history, takes_writes=takes_writes) == said


def test_history_is_counted_from_the_log_start() -> None:
    known = {
        1: Partition(1, "t", 0, next_offset=100, log_start=40),
        2: Partition(2, "t", 1, next_offset=10),
        3: Partition(3, "t", 2, next_offset=30),
    }
    assert history_of(known, {1: 70, 2: 12}) == History(40, 100)
    assert history_of(known, {1: 20, 2: 10, 3: 30}) == History(40, 100)
    assert history_of({}, {}) == History(0, 0)

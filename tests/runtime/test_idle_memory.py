"""What is freed is given back when a process is idle, and not before."""

from __future__ import annotations

import psutil

from samelog.runtime.idle import IDLE_S, IdleMemory, give_memory_back
from samelog.runtime.loop import keep_freed_memory

BLOCKS, BLOCK_BYTES = 64, 1 << 20


def test_it_is_given_back_once_after_a_while_without_work() -> None:
    given: list[float] = []
    now = 0.0
    tested = IdleMemory(now, lambda: given.append(now))
    for work, at in ((1, 0.0), (2, 9.0), (2, 9.0 + IDLE_S - 1), (2, 9.0 + IDLE_S), (2, 100.0)):
        now = at
        tested.look(work, now)
    assert given == [9.0 + IDLE_S]
    for work, at in ((3, 101.0), (3, 101.0 + IDLE_S)):
        now = at
        tested.look(work, now)
    assert given == [9.0 + IDLE_S, 101.0 + IDLE_S]


def test_blocks_that_were_freed_are_the_systems_again() -> None:
    keep_freed_memory()
    blocks = [bytearray(BLOCK_BYTES) for _ in range(BLOCKS)]
    held, last = used(), bytearray(BLOCK_BYTES)  # what is freed below `last` stays in the heap
    blocks.clear()
    give_memory_back()
    assert used() < held - BLOCKS * BLOCK_BYTES / 2
    assert len(last) == BLOCK_BYTES


def used() -> int:
    """Bytes of this process alone."""
    return int(psutil.Process().memory_full_info().uss)

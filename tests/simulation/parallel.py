"""Runs many seeds on all processors.

Invariant: results come in the order of the seeds, and are the same for any number of jobs.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def in_order(run: Callable[[A], B], items: Iterable[A], jobs: int = 0) -> Generator[B, None, None]:
    """`run` of every item, `jobs` at a time (0: one for each processor); `run` can be imported.
    Whoever stops early closes the iterator: what has not begun is given up then.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from map(run, items)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield from pool.map(run, items)
    finally:
        pool.shutdown(cancel_futures=True)

"""Work that can be interrupted: a generator that yields after each step and returns a result.

The caller decides whether the steps run at once (`finished`) or with pauses between them
(`runtime.slices`).

Invariant: a step is short for every input; only the number of steps grows with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import TypeAlias, TypeVar

T = TypeVar("T")
ElementT = TypeVar("ElementT")

StepWork: TypeAlias = Generator[None, None, T]


def finished(steps: StepWork[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def done_within(steps: StepWork[object], count: int) -> bool:
    """Run so many steps at most. Returns whether the work is done."""
    return sum(1 for _ in islice(steps, count)) < count


def mapped(work: Callable[[ElementT], T], elements: Iterable[ElementT]) -> StepWork[list[T]]:
    """Call `work` for each element, one element a step; return the results."""
    found = []
    for each in elements:
        found.append(work(each))
        yield
    return found

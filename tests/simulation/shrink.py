"""Makes a failure smaller: planned faults are left out as long as the same rule is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Failure(Protocol):
    """One failing world."""

    rule: str
    """What is broken: the same for the same kind of breach."""

    def left(self) -> list[int]:
        """The numbers of the faults that were not left out."""


F = TypeVar("F", bound=Failure)


def shrink(failure: F, without: Callable[[F, list[int]], F | None], *, tries: int = 60) -> F:
    """The smallest failure of the same rule found in so many tries.

    without: runs the world of a failure without some more of its faults; None: it holds then.
    """
    best = failure
    size = max(1, len(best.left()) // 2)
    while tries > 0 and best.left():
        smaller, used = _first_smaller(best, without, size, tries)
        tries -= used
        if smaller is not None:
            best = smaller
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return best


def _first_smaller(
    best: F, without: Callable[[F, list[int]], F | None], size: int, tries: int
) -> tuple[F | None, int]:
    """The first failure that is left when `size` neighbours are left out, and the tries it took."""
    left = best.left()
    for used, start in enumerate(range(0, len(left), size), 1):
        smaller = without(best, left[start : start + size])
        if smaller is not None and smaller.rule == best.rule:
            return smaller, used
        if used == tries:
            break
    return None, used

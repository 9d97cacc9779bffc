"""Says now and then how far a long run is; on standard error, so that results stay readable."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

EVERY_S = 10.0

A = TypeVar("A")


def shown(items: Iterable[A], total: int, what: str) -> Iterator[A]:
    """The items as they come; every ten seconds a line says how many came of `total`."""
    begin = spoken = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - spoken >= EVERY_S:
            spoken = now
            left_s = (now - begin) / count * (total - count)
            sys.stderr.write(f"{count:,} of {total:,} {what}, {left_s:.0f} s to go\n")

"""What happened in a world, for people and for comparing two runs of it.

Lines that differ in numbers only and come again and again are folded: the last one of them stays,
with their count, so that what broke the world is not pushed out by what repeats.

Invariant: equal worlds give equal digests; everything that a process does to the outside goes in.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable

KEPT_LINES = 80
UNFOLDED = 3
_NUMBERS = re.compile(r"[0-9.]+")


class Trace:
    """Events are kept for reading; effects only go into the digest, unless `is_verbose`."""

    def __init__(self, now: Callable[[], float], *, is_verbose: bool = False) -> None:
        self._lines: deque[str] = deque(maxlen=None if is_verbose else KEPT_LINES)
        self._now = now
        self.is_verbose = is_verbose
        self._hash = hashlib.blake2b(digest_size=16)
        self._kinds: dict[str, list[int]] = {}
        """Kind of line -> how often it came, and the number of its last line."""
        self._count = 0

    def event(self, who: str, what: str) -> None:
        """Something worth reading."""
        line = f"{self._now():10.6f} {who:6} {what}"
        self._hash.update(line.encode())
        if self.is_verbose or not self._is_folded(line):
            self._count += 1
            self._lines.append(line)

    def _is_folded(self, line: str) -> bool:
        """Whether the line took the place of an older one of its kind, which is still there."""
        kind = self._kinds.setdefault(_NUMBERS.sub("#", line), [0, 0])
        kind[0] += 1
        place = kind[1] - (self._count - len(self._lines))
        if kind[0] <= UNFOLDED or place < 1:
            kind[1] = self._count + 1
            return False
        self._lines[place - 1] = f"{line} (and {kind[0] - UNFOLDED} like it before)"
        return True

    def effect(self, who: str, what: str) -> None:
        """One change of a disk."""
        line = f"{self._now():10.6f} {who:6} . {what}"
        self._hash.update(line.encode())
        if self.is_verbose:
            self._lines.append(line)

    @property
    def lines(self) -> list[str]:
        """What is kept of it, in the order of time (of a folded line: of its first)."""
        return list(self._lines)

    @property
    def digest(self) -> str:
        """Of everything so far."""
        return self._hash.hexdigest()

"""What happened in a world, for people and for comparing two runs of it.

Invariant: equal worlds give equal digests; everything that a process does to the outside goes in.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

KEPT_LINES = 60


class Trace:
    """Events are kept for reading; effects only go into the digest, unless `is_verbose`."""

    def __init__(self, now: Callable[[], float], *, is_verbose: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=None if is_verbose else KEPT_LINES)
        self._now = now
        self._is_verbose = is_verbose
        self._hash = hashlib.blake2b(digest_size=16)

    def event(self, who: str, what: str) -> None:
        """Something worth reading."""
        line = f"{self._now():10.6f} {who:6} {what}"
        self.lines.append(line)
        self._hash.update(line.encode())

    def effect(self, who: str, what: str) -> None:
        """One change of a disk."""
        line = f"{self._now():10.6f} {who:6} . {what}"
        self._hash.update(line.encode())
        if self._is_verbose:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """Of everything so far."""
        return self._hash.hexdigest()

"""Whether any of some tasks is in the middle of something.

Tasks that come round to the same waiting place again and again may be ended while all of them wait
there, and begun again later. Between two such places they say that they are at work.

Invariant: whoever says so says it before the first wait of its work, until behind the last one.
"""

from __future__ import annotations


class AtWork:
    """Of some tasks together: `with at_work: …` around work that is not to be cut off."""

    def __init__(self) -> None:
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *exc: object) -> None:
        self._count -= 1

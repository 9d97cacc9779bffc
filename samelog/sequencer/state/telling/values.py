"""What is to be told, and is not in the topic yet.

Invariant: as in `telling.events`.
"""

from __future__ import annotations

import msgspec


class ToldEvent(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened."""

    number: int
    at_ms: int
    kind: str
    subject: str
    detail: str


class ToldEvents(msgspec.Struct):
    """What is to be told. `term`: of the newest election that was; `untold`: how many events were
    not kept, because too many waited.
    """

    next_number: int = 0
    waiting: list[ToldEvent] = []
    term: int = 0
    untold: int = 0

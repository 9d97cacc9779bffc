"""The node's acknowledgements on a push connection, as a pure state: which are sent, and when.

What became committed or merged is told at once if nothing was told just before. What is only
durable here is told soon after, because mostly its commitment follows in a moment. Whatever moves
meanwhile is told together.

Invariant: acknowledgements of a handle never go back, and none is told twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from samelog.wire.messages import Ack
from samelog.wire.push.effects import ProgressTold

ACK_GAP_S = 0.004
"""Between two acknowledgements, if news do not stop."""
_NOTHING: ProgressTold = ((0, 0), (0, 0), (0, 0))


@dataclass(slots=True)
class _Positions:
    """How far a handle is, and how far it was told."""

    reached: ProgressTold = _NOTHING
    told: ProgressTold = _NOTHING


class Acknowledgements:
    """Of one connection. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.due_at: float | None = None
        """When to call `take`; None: there is nothing to tell."""
        self._handles: dict[int, _Positions] = {}
        self._news: set[int] = set()
        self._next_at = 0.0

    def open(self, handle: int) -> None:
        """Nothing was told of this handle so far."""
        self._handles[handle] = _Positions()

    def forget(self, handle: int) -> None:
        """Nothing more is told of this handle."""
        del self._handles[handle]
        self._news.discard(handle)

    def reached(self, handle: int, places: ProgressTold, now: float) -> bool:
        """A handle is as far, if it was not further; whether `due_at` is another one now."""
        known = self._handles[handle]
        durable, acknowledged, merged = map(max, known.reached, places)
        known.reached = (durable, acknowledged, merged)
        if known.reached == known.told:
            return False
        self._news.add(handle)
        due_at = now + ACK_GAP_S
        if now >= self._next_at and (acknowledged, merged) != known.told[1:]:
            due_at = now
        if self.due_at is not None and self.due_at <= due_at:
            return False
        self.due_at = due_at
        return True

    def take(self, now: float) -> list[Ack]:
        """What is to be sent now."""
        if self.due_at is None:
            return []
        self.due_at, self._next_at = None, now + ACK_GAP_S
        news, self._news = sorted(self._news), set()
        acks = []
        for handle in news:
            known = self._handles[handle]
            if known.reached != known.told:
                durable, acknowledged, merged = known.told = known.reached
                acks.append(Ack(handle, *durable, *acknowledged, *merged))
        return acks

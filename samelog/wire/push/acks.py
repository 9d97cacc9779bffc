"""The node's acknowledgements on a push connection, as a pure state: which are sent, and when.

Positions of all sessions of the connection leave in one message. What became committed or merged is
sent at once if nothing was sent just before. What is only durable is sent soon after, because
mostly its commitment follows in a moment. What another node reports to the publisher anyway, as the
leader of the input's group, is sent later, or with the next message. Whatever moves meanwhile is
sent together.

Invariant: acknowledgements of a handle never go back, none is sent twice, and none is sent later
than `LATER_S` after the position moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from samelog.wire.bounds import ACKS_TOLD, Ack
from samelog.wire.messages import Acks
from samelog.wire.push.effects import ProgressTold

ACK_GAP_S = 0.004
"""Between two messages, if news do not stop."""
LATER_S = 0.05
"""So long positions may wait that the publisher learns from another node."""
SOON_BYTES = 1 << 20
"""Durable bytes that make room in the sender's window, and so do not wait for long."""
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
        self._channels: dict[int, dict[int, _Positions]] = {}
        """Channel -> handle -> positions."""
        self._news: dict[int, dict[int, _Positions]] = {}
        """The same, of handles that may have moved."""
        self._next_at = 0.0

    def open(self, channel: int, handle: int) -> None:
        """Nothing was told of this handle so far."""
        self._channels.setdefault(channel, {})[handle] = _Positions()

    def forget(self, channel: int, handle: int) -> None:
        """Nothing more is told of this handle."""
        del self._channels[channel][handle]
        self._news.get(channel, {}).pop(handle, None)

    def close(self, channel: int) -> None:
        """Nothing more is told on this channel."""
        self._channels.pop(channel, None)
        self._news.pop(channel, None)

    def reached(
        self,
        channel: int,
        handle: int,
        places: ProgressTold,
        now: float,
        *,
        can_wait: bool = False,
    ) -> bool:
        """Note how far a handle is, if it was not further; return whether `due_at` has changed.
        `can_wait`: the publisher learns of commitment and merging from another node.
        """
        known = self._channels[channel][handle]
        durable, acknowledged, merged = map(max, known.reached, places)
        known.reached = (durable, acknowledged, merged)
        told = known.told
        if known.reached == told:
            return False
        self._news.setdefault(channel, {})[handle] = known
        if can_wait:
            is_much = durable[0] > told[0][0] or durable[1] - told[0][1] >= SOON_BYTES
            due_at = now + (ACK_GAP_S if is_much else LATER_S)
        elif now >= self._next_at and (acknowledged, merged) != told[1:]:
            due_at = now
        else:
            due_at = now + ACK_GAP_S
        if self.due_at is not None and self.due_at <= due_at:
            return False
        self.due_at = due_at
        return True

    def take(self, now: float) -> list[Acks]:
        """What is to be sent now."""
        if self.due_at is None:
            return []
        self.due_at, self._next_at = None, now + ACK_GAP_S
        news, self._news = self._news, {}
        return _told(news)

    def take_channel(self, channel: int) -> list[Acks]:
        """What there is to tell on this channel: something follows that has to come behind it."""
        return _told({channel: self._news.pop(channel, {})})


def _told(news: dict[int, dict[int, _Positions]]) -> list[Acks]:
    """The positions that have moved, which count as told from now on."""
    acks = []
    for channel, moved in news.items():
        for handle, known in moved.items():
            if known.reached != known.told:
                durable, acknowledged, merged = known.told = known.reached
                acks.append(Ack(channel, handle, *durable, *acknowledged, *merged))
    if len(acks) > ACKS_TOLD:
        starts = range(0, len(acks), ACKS_TOLD)
        return [Acks(tuple(acks[start : start + ACKS_TOLD])) for start in starts]
    return [Acks(tuple(acks))] if acks else []

"""How long a peer may be silent or slow: the deadlines of one connection, as a pure state.

A peer that is alive completes a frame now and then, if only a Ping; so "no whole frame for
`frame_s`" catches whoever trickles bytes, inside a frame or inside a TLS record, and "no bytes for
`idle_s`" whoever is gone.

Invariant: as long as the connection lives, `next_check` is at most one `ping_s` away; a missed
deadline stays missed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a peer may take, in seconds."""

    connect_s: float = 5.0
    handshake_s: float = 10.0
    first_frame_s: float = 10.0
    frame_s: float = 20.0
    idle_s: float = 10.0
    ping_s: float = 2.0
    close_s: float = 5.0

    def longer(self, times: int) -> Deadlines:
        """The same, but the peer may take so many times as long to answer and to be silent."""
        return replace(
            self,
            connect_s=self.connect_s * times,
            handshake_s=self.handshake_s * times,
            first_frame_s=self.first_frame_s * times,
            idle_s=self.idle_s * times,
        )


class _Phase(Enum):
    HANDSHAKE = auto()
    FIRST_FRAME = auto()
    TALKING = auto()
    PAUSED = auto()
    UNWATCHED = auto()
    CLOSING = auto()


class PeerWatch:
    """What a connection waits for, since when. All times are seconds of one monotonic clock."""

    def __init__(self, deadlines: Deadlines, now: float) -> None:
        self._deadlines = deadlines
        self._phase = _Phase.HANDSHAKE
        self._resumed = _Phase.TALKING
        self._phase_start = now
        self.has_talked = False
        """Whether the peer has sent a frame that is not a Ping."""
        self.last_received = now
        """When bytes last came, of whatever. This and the next two are set by the connection."""
        self.last_frame = now
        """When a whole frame last came."""
        self.last_sent = now
        """When something was last sent, so that no Ping is needed for a while."""

    def opened(self, now: float) -> None:
        """The handshake is done; the first frame is due."""
        self._enter(_Phase.FIRST_FRAME, now)

    def first_frame(self, now: float) -> None:
        """The first frame came that is not a Ping."""
        self.has_talked = True
        if self._phase is _Phase.FIRST_FRAME:
            self._enter(_Phase.TALKING, now)
        else:  # reading was paused while it was handled
            self._resumed = _Phase.TALKING

    def paused(self, now: float) -> None:
        """This side takes nothing for a while: the peer's silence says nothing."""
        self._resumed = self._phase
        self._enter(_Phase.PAUSED, now)

    def resumed(self, now: float) -> None:
        """Note that this side reads again: the deadlines restart."""
        self._enter(self._resumed, now)
        self.last_frame = self.last_received = now

    def stood_still(self, for_s: float) -> None:
        """This process stood still for so long: that is not the peer's time."""
        self._phase_start += for_s
        self.last_received += for_s
        self.last_frame += for_s

    def unwatched(self, now: float) -> None:
        """What is spoken is not made of frames: whoever speaks it keeps its own deadlines."""
        self._enter(_Phase.UNWATCHED, now)

    def closing(self, now: float) -> None:
        """This side has said its last; the peer is to close."""
        self._enter(_Phase.CLOSING, now)

    def missed(self, now: float) -> str | None:
        """What the peer should have done by now, if anything."""
        return next((text for due, text in self._dues() if now >= due), None)

    def ping_due(self, now: float) -> bool:
        """Whether nothing was sent for so long that the peer might worry."""
        talking = self._phase in (_Phase.FIRST_FRAME, _Phase.TALKING, _Phase.PAUSED)
        return talking and now >= self.last_sent + self._deadlines.ping_s

    def next_check(self, now: float) -> float:
        """When to ask again, if a Ping that was due has been sent."""
        ping = self.last_sent + self._deadlines.ping_s
        soon = ping if ping > now else now + self._deadlines.ping_s
        return min([soon, *(due for due, _ in self._dues())])

    def _enter(self, phase: _Phase, now: float) -> None:
        self._phase, self._phase_start = phase, now

    def _dues(self) -> list[tuple[float, str]]:
        limits = self._deadlines
        match self._phase:
            case _Phase.HANDSHAKE:
                return [(self._phase_start + limits.handshake_s, "no TLS handshake in time")]
            case _Phase.FIRST_FRAME:
                return [(self._phase_start + limits.first_frame_s, "no first frame in time")]
            case _Phase.TALKING:
                idle = self.last_received + limits.idle_s
                frame = self.last_frame + limits.frame_s
                return [(idle, "silent for too long"), (frame, "no whole frame in time")]
            case _Phase.CLOSING:
                return [(self._phase_start + limits.close_s, "not closed in time")]
            case _Phase.PAUSED | _Phase.UNWATCHED:
                return []

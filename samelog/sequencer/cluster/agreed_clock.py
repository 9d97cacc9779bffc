"""The time of day that a majority of the cluster's voters agrees on.

Every member tells all others its wall clock once a second, with its health. Expiry,
timeouts and timestamps in replicated state use the time that the clocks of a majority have reached,
so a minority of wrong clocks, the leader's included, changes nothing.

Invariant: between two reports the time moves with the monotonic clock of the host alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from samelog.runtime.clock import Clock


class AgreedClock:
    """One member's. Implements runtime.clock.Clock."""

    def __init__(self, host: Clock) -> None:
        self.host = host
        self.now = host.now
        self._voters: Callable[[], Collection[int]] = tuple
        self._ahead: dict[int, int] = {}
        """Member -> by how many ms its wall clock is ahead of the monotonic clock of this host."""
        self._agreed: int | None = None
        """The same of the majority's time; None while too few clocks are known."""

    def follow(self, voters: Callable[[], Collection[int]]) -> None:
        """Set who votes in the cluster, as far as this member knows."""
        self._voters = voters

    def heard(self, member: int, wall_ms: int) -> None:
        """Note what a member's wall clock says now."""
        self._ahead[member] = wall_ms - round(self.now() * 1000)
        voters = self._voters()
        known = sorted((self._ahead[each] for each in voters if each in self._ahead), reverse=True)
        needed = len(voters) // 2 + 1
        self._agreed = known[needed - 1] if len(known) >= needed else None

    @property
    def is_agreed(self) -> bool:
        """Whether the clocks of a majority are known: nothing expires before."""
        return self._agreed is not None

    def wall_ms(self) -> int:
        """Milliseconds since the epoch by a majority's clocks; by the host's while they are not
        known.
        """
        if self._agreed is None:
            return self.host.wall_ms()
        return self._agreed + round(self.now() * 1000)

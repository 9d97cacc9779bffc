"""How much an identity may ask of one node, and how much the connections of a listener hold.

Quotas are of an identity: bytes written, bytes read, requests, each per second.

As Kafka's quotas: what was asked is answered, with the time by which it was too much, and for that
time nothing more is taken from the connection. A second's worth may come at once.

A listener's connections hold requests that came, and answers that did not leave. Beyond the limit
nothing more is read from any client, and no records are read for one, until a quarter of the limit
is free again; who holds most can be told to go.

Invariant: in the long run no identity gets more than its rates; what one is owed for never grows
beyond what it has asked.
Also: the total is the sum of what each holder said last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from samelog.config.authorisation import USER_PREFIX, matches
from samelog.config.tables.kafka import ClientQuota
from samelog.sequencer.state.access_state import EVERY_USER
from samelog.sequencer.state.machine import StateMachine

HolderT = TypeVar("HolderT", bound=Hashable)


class Memory(Generic[HolderT]):
    """`limit_bytes` may be passed by what is under way when it is reached."""

    def __init__(self, limit_bytes: int, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when memory gets short, and when it is no longer."""
        self._limit = limit_bytes
        self._changed = changed
        self._held: dict[HolderT, int] = {}
        self.total = 0
        self.is_short = False
        self.spells = 0
        """How often it has got short."""
        self._spells_seen = 0
        """By `stays_short`."""

    @property
    def left(self) -> int:
        """Bytes up to the limit; 0 while memory is short."""
        return 0 if self.is_short else max(0, self._limit - self.total)

    def hold(self, holder: HolderT, size: int) -> None:
        """Set how many bytes a holder has now; 0 forgets the holder."""
        if size == self._held.get(holder, 0):
            return
        self.total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        was_short = self.is_short
        self.is_short = self.total > (self._limit * 3 // 4 if was_short else self._limit)
        if self.is_short != was_short:
            self.spells += self.is_short
            self._changed()

    def stays_short(self) -> bool:
        """Whether memory has been short ever since this was asked last."""
        stays = self.is_short and self.spells == self._spells_seen
        self._spells_seen = self.spells
        return stays

    def largest(self) -> HolderT | None:
        """The holder with the most bytes."""
        return max(self._held, key=self._held.__getitem__, default=None)


PAUSE_S_MAX = 10.0
"""Below clients' request timeouts; what is owed beyond that is asked for next time."""
IDENTITIES_MAX = 10_000


@dataclass(slots=True)
class _Rate:
    """One rate, 0 for none; `left` of a second's worth, below 0 what was too much."""

    per_s: int
    left: float
    at: float

    def charge(self, amount: int, now: float) -> float:
        """Use `amount`. Returns the seconds until the rate allows it."""
        if not self.per_s:
            return 0.0
        gained = max(0.0, now - self.at) * self.per_s
        self.left, self.at = min(self.per_s, self.left + gained) - amount, now
        return max(0.0, -self.left / self.per_s)


class Allowance:
    """What one identity has used of its quota."""

    def __init__(self, quota: ClientQuota, now: float) -> None:
        rates = (quota.producer_byte_rate, quota.consumer_byte_rate, quota.request_rate)
        self._written, self._read, self._requests = (_Rate(rate, rate, now) for rate in rates)

    def change(self, quota: ClientQuota) -> None:
        """Apply other rates from now on. What an identity has used too much still counts."""
        self._written.per_s = quota.producer_byte_rate
        self._read.per_s = quota.consumer_byte_rate
        self._requests.per_s = quota.request_rate

    def charge(self, now: float, *, written: int = 0, read: int = 0) -> float:
        """Count a request and its bytes. Returns for how many seconds to read nothing more."""
        pause = max(
            self._requests.charge(1, now),
            self._written.charge(written, now) if written else 0.0,
            self._read.charge(read, now) if read else 0.0,
        )
        return min(pause, PAUSE_S_MAX)


QUOTA_KEYS = ("producer_byte_rate", "consumer_byte_rate")
"""The rates that a user may be given over the Kafka protocol."""


class Allowances:
    """The allowances of all identities: each under the first quota of the configuration that names
    it, or else under what was set over the Kafka protocol for its user, or for every user.
    """

    def __init__(self, quotas: Sequence[ClientQuota], machine: StateMachine | None = None) -> None:
        """`machine`: has the replicated settings."""
        self._quotas = tuple(quotas)
        self._machine = machine or StateMachine()
        self._version = 0
        self._known: OrderedDict[str, Allowance] = OrderedDict()

    def change(self, quotas: Sequence[ClientQuota]) -> None:
        """Apply other quotas from now on, to identities that are already connected, too."""
        self._quotas = tuple(quotas)
        self._apply()

    def limits_anybody(self) -> bool:
        """Whether there are quotas; those that were changed meanwhile count from now on."""
        access = self._machine.state.access
        if access.version != self._version:
            self._version = access.version
            self._apply()
        return bool(self._quotas or access.quotas or self._known)

    def _apply(self) -> None:
        for identity, allowance in self._known.items():
            allowance.change(self._quota(identity) or ClientQuota(identity=identity))

    def _quota(self, identity: str) -> ClientQuota | None:
        own = next((each for each in self._quotas if matches(each.identity, identity)), None)
        replicated = self._machine.state.access.quotas
        if own is not None or not replicated:
            return own
        user = identity.removeprefix(USER_PREFIX)
        rates = replicated.get(user) or replicated.get(EVERY_USER)
        return None if rates is None else ClientQuota(identity=identity, **rates)

    def of(self, identity: str, now: float) -> Allowance | None:
        """What an identity has used, however many connections it has; None: it may have all."""
        quota = self._quota(identity)
        if quota is None:
            return None
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = Allowance(quota, now)
            if len(self._known) > IDENTITIES_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(identity)
        return found

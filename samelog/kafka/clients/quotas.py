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
from typing import Any, Generic, TypeVar

from samelog.config.authorisation import USER_PREFIX, matches
from samelog.config.tables.kafka import ClientQuota
from samelog.kafka.clients.quota_owners import owners_for
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
        before = self._held.get(holder, 0)
        if size == before:
            return
        self.total += size - before
        if size:
            self._held[holder] = size
        else:
            del self._held[holder]
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
    """What an identity, or one of its client ids, has used of its quota."""

    def __init__(self, quota: ClientQuota, now: float) -> None:
        rates = (quota.producer_byte_rate, quota.consumer_byte_rate, quota.request_rate)
        self._written, self._read, self._requests = (_Rate(rate, rate, now) for rate in rates)
        self._client: str | None = None
        """The client id that it is for; None: it does not matter."""
        self._is_over = False

    @property
    def is_of_all(self) -> bool:
        """Whether client ids do not matter."""
        return self._client is None

    def is_for(self, client: str) -> bool:
        """Whether it is what a client id has; else `Allowances.of` knows."""
        return not self._is_over and self._client in (None, client)

    def share(self, client: str, written: _Rate | None, read: _Rate | None) -> None:
        """Go by these from now on, which others may go by, too; None: there is none."""
        self._client = client
        self._written, self._read = written or _Rate(0, 0, 0), read or _Rate(0, 0, 0)
        self._requests = _Rate(0, 0, 0)

    def end(self) -> None:
        """It is for nobody any more."""
        self._is_over = True

    def change(self, quota: ClientQuota) -> None:
        """Apply other rates from now on. What an identity has used too much still counts."""
        self._written.per_s = quota.producer_byte_rate
        self._read.per_s = quota.consumer_byte_rate
        self._requests.per_s = quota.request_rate

    def charge(self, now: float, *, requests: int = 1, written: int = 0, read: int = 0) -> float:
        """Count a request, as so many, and its bytes. Returns for how many seconds to read nothing
        more.
        """
        pause = max(
            self._requests.charge(requests, now),
            self._written.charge(written, now) if written else 0.0,
            self._read.charge(read, now) if read else 0.0,
        )
        return min(pause, PAUSE_S_MAX)


QUOTA_KEYS = ("producer_byte_rate", "consumer_byte_rate")
"""The rates that may be set over the Kafka protocol."""


class Allowances:
    """The allowances of all identities: each under the first quota of the configuration that names
    it, or else under what was set over the Kafka protocol for its user, its client id, or both.
    """

    def __init__(self, quotas: Sequence[ClientQuota], machine: StateMachine | None = None) -> None:
        """`machine`: has the replicated settings."""
        self._quotas = tuple(quotas)
        self._machine = machine or StateMachine()
        self._version = 0
        self._known: OrderedDict[tuple[str, str], Allowance] = OrderedDict()
        """By identity and client id; that is empty where a file says what counts."""
        self._rates: OrderedDict[tuple[str, str | None, str | None], _Rate] = OrderedDict()
        """By key, user and client id: None where all of them share a rate."""

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
        for (identity, client), allowance in [*self._known.items()]:
            own = self._own(identity)
            if own is None:
                allowance.share(client, *self._replicated(identity, client, 0.0))
            elif allowance.is_of_all:
                allowance.change(own)
            else:  # a file has a quota for all of its client ids together
                self._known.pop((identity, client)).end()

    def _own(self, identity: str) -> ClientQuota | None:
        return next((each for each in self._quotas if matches(each.identity, identity)), None)

    def _replicated(self, identity: str, client: str, now: float) -> list[_Rate | None]:
        user = identity.removeprefix(USER_PREFIX)
        return [self._rate(key, user, client, now) for key in QUOTA_KEYS]

    def _rate(self, key: str, user: str, client: str, now: float) -> _Rate | None:
        """The rate that counts, which all have together who share it."""
        replicated = self._machine.state.access.quotas
        for owner in owners_for(user, client) if replicated else ():
            per_s = replicated.get(owner.text, {}).get(key)
            if per_s is not None:
                of_user = None if owner.user is None else user
                of_client = None if owner.client is None else client
                place = key, of_user, of_client
                rate = self._rates.setdefault(place, _Rate(per_s, per_s, now))
                rate.per_s = per_s
                _forget_oldest(self._rates)
                return rate
        return None

    def of(self, identity: str, now: float, client: str = "") -> Allowance | None:
        """What an identity has used, with a client id if that matters, however many connections
        there are; None: it may have all.
        """
        own = self._own(identity)
        rates = None if own is not None else self._replicated(identity, client, now)
        if own is None and not any(rates or ()):
            return None
        place = identity, client if own is None else ""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = Allowance(own or ClientQuota(identity=identity), now)
            if rates is not None:
                found.share(client, *rates)
            _forget_oldest(self._known)
        self._known.move_to_end(place)
        return found


def _forget_oldest(kept: OrderedDict[Any, Any]) -> None:
    if len(kept) > IDENTITIES_MAX:
        kept.popitem(last=False)

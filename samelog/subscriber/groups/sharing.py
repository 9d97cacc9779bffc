"""How a member of a group reads: it takes up the partitions that it is given, at the position that
is committed, and lets go of those that it is to give up, once its application is done with them.

All of this is done in the application's thread, where it asks for more.

Invariant: nothing is handed out of a partition that is not, or not any more, the member's (214).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from samelog.config.tables.client import ClientConfig
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.share import Share
from samelog.subscriber.errors import NotCommitted, PositionLost
from samelog.subscriber.groups.membership import Claim, GroupMembership
from samelog.subscriber.groups.speaking import Speaker
from samelog.subscriber.keeper import Keeper

log = logging.getLogger(__name__)

COMMIT_S = 10.0
"""How long it is waited for that positions are committed."""


@dataclass(frozen=True, slots=True)
class InHand:
    """Offsets [first_offset, next_offset) of a partition that were handed out, and are not dealt
    with; from which of the group's epochs on the member has the partition.
    """

    topic: str
    topic_id: str
    partition: int
    epoch: int
    first_offset: int
    next_offset: int


class OwnPositions(Protocol):
    """Positions that an application keeps beside its results."""

    def claim(self, claim: Claim) -> int | None:
        """A partition is the member's from now on: where to go on; None: it has no position. Raises
        PositionLost if somebody has it who got it later.
        """


class ReadPartitions(Protocol):
    """What an engine reads, as far as it is shared."""

    @property
    def keeper(self) -> Keeper:
        """What keeps copies."""

    def hold_back(self, name: InputName) -> bool:
        """Hand out no more of a partition; whether all that was handed out is dealt with."""

    def commit_one(self, name: InputName) -> None:
        """Note what is dealt with of a partition."""

    def let_go(self, name: InputName) -> None:
        """Read a partition no more."""

    def allow_anew(self, name: InputName) -> None:
        """Its log was restarted. Raises LogReset, if there is no rule for it."""

    def note_new(self, names: Iterable[str | InputName]) -> None:
        """Read topics or partitions from their start: they are newer than the subscriber."""

    def rescan_soon(self) -> None:
        """There is more than was seen."""


class Sharing:
    """Of one subscriber. Implements engine.PositionKeeper."""

    def __init__(
        self,
        membership: GroupMembership,
        own: OwnPositions | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.membership = membership
        self.speaker: Speaker | None = None
        """None: it has not joined yet."""
        self._own = own
        self._now = now
        self._held: dict[InputName, Claim] = {}
        self._starts: dict[InputName, int] = {}
        self._logs: dict[InputName, Claim] = {}
        """What was read last under each name."""
        self._version = -1

    def join(self, config: ClientConfig, on_change: Callable[[], None]) -> None:
        """Be a member; `on_change` is called in another thread. Raises GroupRefused."""
        self.speaker = Speaker(config, self.membership, on_change)
        self.speaker.start()

    def follow_topics(self, topics: tuple[str, ...]) -> None:
        """Have these shared from now on. In any thread."""
        self.membership.follow_topics(topics)
        if self.speaker is not None:
            self.speaker.say_soon()

    # --- positions, as the engine knows them -----------------------------------------------------

    def get(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Where to go on; None: nothing is committed."""
        claim = self._held.get((topic, partition))
        if claim is None or claim.topic_id != topic_id:
            return None
        offset = self._starts.get(claim.name, -1)
        return None if offset < 0 else offset

    def put(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        """Note a position."""
        claim = self._held.get((topic, partition))
        if claim is not None and claim.topic_id == topic_id:
            self.membership.commit(claim, offset)

    def save(self, *, durable: bool) -> None:
        """Have what was noted committed; `durable` also waits for it. Raises NotCommitted."""
        if self.speaker is None:
            return
        if not durable:
            self.speaker.say_soon()
        elif not self.speaker.say_all(COMMIT_S):
            group = self.membership.options.group
            raise NotCommitted(f"no coordinator has confirmed the positions of group {group!r}")

    # --- partitions ------------------------------------------------------------------------------

    def holds(self, name: InputName) -> bool:
        """Whether a partition may be read."""
        return name in self._held

    @property
    def is_due(self) -> bool:
        """Whether there is something to heed."""
        return self._version != self.membership.version or self._problem is not None

    @property
    def _problem(self) -> Exception | None:
        return None if self.speaker is None else self.speaker.problem

    def heed(self, engine: ReadPartitions, *, commits: bool) -> bool:
        """Do what the coordinator has said since; whether everything is done. `commits`: positions
        are committed without being asked for. Raises GroupRefused.
        """
        now = self.membership.polled_at = self._now()
        self.membership.expire(now)
        if self._problem is not None:
            raise self._problem
        if not self.is_due:
            return True
        version, before = self.membership.version, dict(self._held)
        claims, leaving = self.membership.look()
        tended = [
            self._tend(engine, *each, claims, leaving, commits=commits) for each in before.items()
        ]
        self._take_up(engine, [each for name, each in claims.items() if name not in self._held])
        if before != self._held:
            held = self._held.items()
            engine.keeper.share({n: Share(c.topic_id, self._starts[n]) for n, c in held})
            engine.rescan_soon()
        if not all(tended):
            return False
        self._version = version
        return True

    def _tend(
        self,
        engine: ReadPartitions,
        name: InputName,
        claim: Claim,
        claims: Mapping[InputName, Claim],
        leaving: Mapping[InputName, Claim],
        *,
        commits: bool,
    ) -> bool:
        """Whether nothing is left to be done with a partition that it had."""
        if claims.get(name) is claim:
            return True
        if leaving.get(name) is not claim:  # it is lost
            self._let_go(engine, name)
            return True
        if not engine.hold_back(name):
            return False
        if commits:
            engine.commit_one(name)
        self.membership.give_up(claim)
        self._let_go(engine, name)
        if self.speaker is not None:
            self.speaker.say_soon()
        return True

    def _let_go(self, engine: ReadPartitions, name: InputName) -> None:
        engine.let_go(name)
        del self._held[name], self._starts[name]

    def _take_up(self, engine: ReadPartitions, claims: Iterable[Claim]) -> None:
        for claim in claims:
            before = self._logs.get(claim.name, claim)
            if before.topic_uuid != claim.topic_uuid:
                engine.note_new((claim.topic,))  # it was deleted, and created again
            elif before.topic_id != claim.topic_id:
                engine.allow_anew(claim.name)  # its position was one of another log
            self._logs[claim.name] = claim
            if claim.is_new:
                engine.note_new((claim.name,))
            try:
                start = self._start_of(claim)
            except PositionLost as lost:
                log.warning("%s-%d is not taken up: %s", *claim.name, lost)
                self.membership.lose()
                return
            self._held[claim.name], self._starts[claim.name] = claim, start

    def _start_of(self, claim: Claim) -> int:
        """Where a partition is gone on with; -1: nobody knows. Raises PositionLost."""
        if self._own is None:
            return claim.committed
        own = self._own.claim(claim)
        return -1 if own is None else own

    @property
    def assignment(self) -> list[InputName]:
        """The partitions that it has now. May be asked from any thread."""
        return sorted(self._held)

    def in_hand(self, undone: Sequence[tuple[InputName, int, int]]) -> list[InHand]:
        """What was handed out and is not dealt with, of what is the member's still."""
        found = []
        for name, first, behind in undone:
            claim = self._held.get(name)
            if claim is not None:
                place = claim.topic, claim.topic_id, claim.partition
                found.append(InHand(*place, claim.epoch, first, behind))
        return found

    def close(self) -> None:
        """Leave the group."""
        if self.speaker is not None:
            self.speaker.close()

"""What a member of a group has, as far as its coordinator and its application have said.

The application's thread takes partitions up and gives them up; another thread speaks with the
coordinator. Neither waits for the other: each says here what it has done. Times are given.

Invariant (212): a partition is said to be given up only after the application was done with what it
was handed, and with the position behind that in the same heartbeat or an earlier one.
Also (214): a member that its coordinator has not heard of for a session's time has nothing, whether
or not it was told so; what it held then is never committed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import UNSET

from samelog.admin.group_answers import AssignedPartition, GroupBeaten
from samelog.admin.group_requests import BeatGroup, Position

JOIN = 0


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A partition that a member was given, from which of the group's epochs on, and where it goes
    on; -1: nothing is committed.
    """

    number: int
    topic: str
    topic_id: str
    partition: int
    epoch: int
    committed: int
    topic_uuid: str = ""
    """The topic's own id, which stays when a hard reset gives it another log."""
    is_new: bool = False
    """The partition was created after the group began, and nothing of it is committed."""

    @property
    def name(self) -> tuple[str, int]:
        """(topic, partition)."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """What a member says of itself."""

    group: str
    topics: tuple[str, ...]
    host: str
    rebalance_s: float = 300.0


@dataclass(slots=True)
class MemberLife:
    """From one joining to the next."""

    member: str
    epoch: int = JOIN
    valid_until: float | None = None
    """None: it has not joined yet."""
    told: frozenset[int] | None = None
    """What it owns, as the coordinator knows it."""
    claims: dict[int, Claim] = field(default_factory=dict)
    """What it may hand out."""
    leaving: dict[int, Claim] = field(default_factory=dict)
    """What it is to give up, and has not."""
    commits: dict[int, int] = field(default_factory=dict)
    """Positions that are not known to be committed."""

    @property
    def owned(self) -> frozenset[int]:
        """What it has not given up."""
        return frozenset((*self.claims, *self.leaving))


class GroupMembership:
    """Of one subscriber. Used by any thread."""

    def __init__(
        self, options: MemberOptions, new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    ) -> None:
        self.options = options
        self.version = 0
        """Rises whenever there is something for the application's thread to heed."""
        self.heartbeat_s = 0.5
        self.polled_at: float | None = None
        self._lock = threading.Lock()
        self._new_id = new_id
        self._life = MemberLife(new_id())
        self._left: list[tuple[str, int]] = []
        """Members (with their epochs) that were given up, and whom nobody has told of yet."""

    # --- for the thread that speaks ---------------------------------------------------------------

    def request(self, now: float, *, leaves: bool = False) -> BeatGroup:
        """What is to be said now."""
        with self._lock:
            self._expire(now)
            life, options = self._life, self.options
            if self._left:
                member, epoch = self._left[0]
                return BeatGroup(options.group, member, epoch, options.topics, leaves=True)
            is_news = life.owned != life.told or life.epoch == JOIN
            polled = self.polled_at
            return BeatGroup(
                options.group,
                life.member,
                life.epoch,
                options.topics,
                options.host,
                tuple(sorted(life.owned)) if is_news else UNSET,
                tuple(Position(*each) for each in life.commits.items()),
                leaves,
                max(1000, round(options.rebalance_s * 1000)),
                -1 if polled is None else max(0, round((now - polled) * 1000)),
            )

    def answered(self, asked: BeatGroup, answer: GroupBeaten, sent_at: float) -> None:
        """The coordinator has answered what was sent at `sent_at`."""
        with self._lock:
            self._left = [each for each in self._left if each[0] != asked.member]
            if asked.member != self._life.member:
                return  # it was lost meanwhile
            self.heartbeat_s = answer.heartbeat_ms / 1000
            if answer.lost:
                self._lose()
                return
            self._told(self._life, asked)
            self._life.epoch = answer.epoch
            self._life.valid_until = sent_at + answer.session_ms / 1000
            self._withheld(self._life, answer.not_committed)
            if answer.assigned is not None:
                self._assigned(self._life, answer.assigned)

    def _told(self, life: MemberLife, asked: BeatGroup) -> None:
        """The coordinator knows what was said."""
        if asked.owned is not UNSET:
            life.told = frozenset(asked.owned)
        for each in asked.commits:
            if life.commits.get(each.partition) == each.offset:
                del life.commits[each.partition]

    def _withheld(self, life: MemberLife, not_committed: Sequence[int]) -> None:
        """These partitions are not the member's."""
        for number in not_committed:
            if life.claims.pop(number, None) or life.leaving.pop(number, None):
                self.version += 1

    def _assigned(self, life: MemberLife, assigned: Sequence[AssignedPartition]) -> None:
        given = {each.number: each for each in assigned}
        for number in [number for number in life.claims if number not in given]:
            life.leaving[number] = life.claims.pop(number)
            self.version += 1
        for number, each in given.items():
            if number not in life.claims and number not in life.leaving:
                place = each.topic, each.topic_id, each.partition
                known = each.committed, each.topic_uuid, each.is_new
                life.claims[number] = Claim(number, *place, life.epoch, *known)
                self.version += 1

    def expire(self, now: float) -> None:
        """If nothing was heard for a session's time, it is no member any more."""
        with self._lock:
            self._expire(now)

    def _expire(self, now: float) -> None:
        if self._life.valid_until is not None and now >= self._life.valid_until:
            self._lose()

    def lose(self) -> None:
        """Be no member any more, and join again as another one."""
        with self._lock:
            if self._life.valid_until is not None:
                self._left.append((self._life.member, self._life.epoch))
            self._lose()

    def _lose(self) -> None:
        self._life = MemberLife(self._new_id())
        self.version += 1

    def follow_topics(self, topics: tuple[str, ...]) -> None:
        """Take part in these from the next heartbeat on."""
        with self._lock:
            self.options = replace(self.options, topics=topics)

    # --- for the application's thread -------------------------------------------------------------

    def look(self) -> tuple[Mapping[tuple[str, int], Claim], Mapping[tuple[str, int], Claim]]:
        """What may be handed out, and what is to be given up."""
        with self._lock:
            life = self._life
            return (
                {claim.name: claim for claim in life.claims.values()},
                {claim.name: claim for claim in life.leaving.values()},
            )

    def commit(self, claim: Claim, offset: int) -> bool:
        """Have a position committed with the next heartbeat; whether it is still the member's."""
        with self._lock:
            life = self._life
            if claim not in (life.claims.get(claim.number), life.leaving.get(claim.number)):
                return False
            life.commits[claim.number] = offset
            return True

    def give_up(self, claim: Claim) -> None:
        """The application is done with a partition that it was to give up."""
        with self._lock:
            if self._life.leaving.get(claim.number) is claim:
                del self._life.leaving[claim.number]

    @property
    def has_said_all(self) -> bool:
        """Whether the coordinator knows everything that was done here."""
        with self._lock:
            life = self._life
            return not life.commits and life.told == life.owned

    @property
    def is_member(self) -> bool:
        """Whether it is one, as far as is known."""
        with self._lock:
            return self._life.valid_until is not None

    @property
    def epoch(self) -> int:
        """The group's, as the member knows it."""
        with self._lock:
            return self._life.epoch

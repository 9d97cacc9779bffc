"""A small world of samelog's own subscribers around one group coordinator: chance decides who
comes, leaves, dies, stands still for longer than its session, whose answers are lost, and when the
leadership moves.

What members decide with is the product's (GroupMembership, Sharing, PositionTable); the logs are
numbers, and so are records. Everything is drawn from one seed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from samelog.admin.group_requests import BeatGroup
from samelog.config.tables.kafka import GroupLimits
from samelog.format.steps import finished
from samelog.kafka.groups.coordinator import GroupCoordinator
from samelog.kafka.groups.desk import as_answer, as_heartbeat
from samelog.kafka.groups.requests import Beaten
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.subscriber.engine import Engine
from samelog.subscriber.errors import PositionLost
from samelog.subscriber.groups.membership import GroupMembership, MemberOptions
from samelog.subscriber.groups.position_table import PositionTable
from samelog.subscriber.groups.sharing import Sharing
from tests.kafka.groups.world import GROUP, LOST, PARTITIONS, World

SESSION_S, REBALANCE_S = 6.0, 30.0
LIMITS = GroupLimits(
    initial_rebalance_delay_ms=0,
    consumer_session_timeout_ms=int(SESSION_S * 1000),
    consumer_heartbeat_interval_ms=1000,
)
Name = tuple[str, int]


@dataclass(slots=True)
class Place:
    """Where a member is in a partition."""

    topic_id: str
    position: int
    done: int


@dataclass(slots=True)
class Places:
    """What Sharing sees of an engine, and of its keeper."""

    sharing: Sharing
    cursors: dict[Name, Place] = field(default_factory=dict)
    held_back: set[Name] = field(default_factory=set)

    @property
    def keeper(self) -> Places:
        return self

    def share(self, held: Any) -> None:
        for name, share in held.items():
            if name not in self.cursors:
                start = max(0, share.offset)
                self.cursors[name] = Place(share.topic_id, start, start)

    def rescan_soon(self) -> None:
        pass

    def allow_anew(self, name: Name) -> None:
        pass

    def hold_back(self, name: Name) -> bool:
        self.held_back.add(name)
        return Engine.hold_back(cast(Any, self), name)

    @property
    def _turn(self) -> list[Place]:
        return []

    def commit_one(self, name: Name) -> None:
        place = self.cursors.get(name)
        if place is not None:
            self.sharing.put(*name[:1], place.topic_id, name[1], place.done)

    def let_go(self, name: Name) -> None:
        self.held_back.discard(name)
        self.cursors.pop(name, None)

    def settle(self) -> None:
        for place in self.cursors.values():
            place.done = place.position

    def undone(self) -> list[tuple[Name, int, int]]:
        return [(n, p.done, p.position) for n, p in self.cursors.items() if p.done < p.position]


class Member:
    """A subscriber: its coordinator's words, and its application."""

    def __init__(self, around: NativeWorld, name: str) -> None:
        self.world, self.name = around, name
        options = MemberOptions(GROUP, ("t",), name, REBALANCE_S)
        self.membership = GroupMembership(options, lambda: f"{name}-{next(around.numbers)}")
        self.sharing = Sharing(self.membership, around.table, lambda: around.now)
        self.places = Places(self.sharing)
        self.alive = True
        self.leaving = False
        self.still_until = 0.0
        self._speaks = False
        self._handles = False

    @property
    def is_still(self) -> bool:
        """Whether its process is stopped."""
        return self.world.now < self.still_until

    def later(self, delay_s: float, action: Any) -> None:
        """Do something, if it lives then, and once it goes on."""

        def act() -> None:
            if self.alive and self.is_still:
                self.world.after(self.still_until - self.world.now, act)
            elif self.alive:
                action()

        self.world.after(delay_s, act)

    # --- the thread that speaks -------------------------------------------------------------------

    def speak(self) -> None:
        """A heartbeat, again and again."""
        self.later(min(self.membership.heartbeat_s, 1.0), self.speak)
        if not self._speaks:
            self.say(leaves=False)

    def say(self, *, leaves: bool) -> None:
        self._speaks = True
        asked, sent_at = self.membership.request(self.world.now, leaves=leaves), self.world.now

        def answered(answer: Beaten | str) -> None:
            self._speaks = False
            if self.alive and self.is_still:
                self.world.after(self.still_until - self.world.now, lambda: answered(answer))
                return
            if self.alive and not isinstance(answer, str):
                self.told(asked, answer, sent_at)
            if self.alive and leaves:
                self.alive = False

        who = f"samelog://user/{self.name}"
        beat = as_heartbeat(asked, who, self.world.wall_ms, asked.commits)
        self.world.ask(lambda c, w: c.beat(beat, w), answered)

    def told(self, asked: BeatGroup, answer: Beaten, sent_at: float) -> None:
        try:
            said = finished(as_answer(self.world.machine.state, LIMITS, GROUP, answer))
        except ChangeRefused as refused:
            raise AssertionError(f"{self.name} is told {refused}") from refused
        self.membership.answered(asked, said, sent_at)
        self.membership.expire(self.world.now)

    # --- the application --------------------------------------------------------------------------

    def handle(self) -> None:
        """Take some records, deal with them, ask for more."""
        self.places.settle()
        self.commit()
        self.sharing.heed(cast(Any, self.places), commits=True)
        if self.leaving:
            self.say(leaves=True)
            return
        names = [n for n in self.places.cursors if n not in self.places.held_back]
        names = [n for n in names if self.places.cursors[n].position < self.world.ends[n[1]]]
        if not names:
            self.later(0.2, self.handle)
            return
        name = self.world.chance.choice(sorted(names))
        place = self.places.cursors[name]
        count = min(self.world.chance.randint(1, 20), self.world.ends[name[1]] - place.position)
        self.world.handed_out(self, name)
        place.position += count
        self.later(self.world.chance.uniform(0.01, 0.8), lambda: self.dealt(name))

    def dealt(self, name: Name) -> None:
        """The handler is through."""
        place = self.places.cursors.get(name)
        if place is None:
            raise AssertionError("a partition is let go of while its records are dealt with")
        offsets = range(place.done, place.position)
        if self.world.deal(name[1], offsets, self.sharing.in_hand(self.places.undone())):
            self.handle()
            return
        place.position = place.done
        self.membership.lose()
        self.handle()

    def commit(self) -> None:
        for name in self.places.cursors:
            self.places.commit_one(name)


class NativeWorld(World):
    """Everything around the coordinator."""

    def __init__(self, seed: int, *, own: bool = False) -> None:
        self.table: PositionTable | None = None
        self.results: sqlite3.Connection = sqlite3.connect(":memory:")
        if own:
            self.results.execute("CREATE TABLE results (part INTEGER, at INTEGER)")
            self.table = PositionTable(self.results, GROUP)
        self.ends = [0] * PARTITIONS
        self.dealt: Counter[tuple[int, int]] = Counter()
        self.members: list[Member] = []
        self.handed = 0
        super().__init__(seed)
        self._grow()

    def _elect(self) -> None:
        self.coordinator = GroupCoordinator(LIMITS, self.machine.state, self.now, self.wall_ms)
        self.reigns = object()
        self._tick(self.reigns)

    def _grow(self) -> None:
        self.ends[self.chance.randrange(PARTITIONS)] += self.chance.randint(1, 4)
        if self.faults:
            self.after(0.1, self._grow)

    def deal(self, partition: int, offsets: range, in_hand: Any) -> bool:
        """A handler's results, in a transaction with positions if there is a database."""
        if self.table is None:
            self.dealt.update((partition, offset) for offset in offsets)
            return True
        try:
            with self.results:
                rows = [(partition, offset) for offset in offsets]
                self.results.executemany("INSERT INTO results VALUES (?, ?)", rows)
                self.table.advance(in_hand)
        except PositionLost:
            return False
        self.dealt.update((partition, offset) for offset in offsets)
        return True

    def handed_out(self, member: Member, name: Name) -> None:
        """Nobody else has it, whether or not somebody has noticed that it has it no more."""
        self.handed += 1
        for other in self.live_members():
            if other is not member and not other.is_still:
                other.membership.expire(self.now)
                claims, leaving = other.membership.look()
                other_has = name in claims or name in leaving
                assert not other_has, f"{name} is {member.name}'s and {other.name}'s"

    def live_members(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def join(self) -> Member:
        """One more subscriber."""
        member = Member(self, f"m{len(self.members)}")
        self.members.append(member)
        self.after(self._delay(), member.speak)
        self.after(self._delay(), member.handle)
        return member

    def disturb(self) -> None:
        """One random thing."""
        chance, live = self.chance, self.live_members()
        kinds = ["add", "add", "leave", "crash", "still", "depose", "nothing"]
        kind = chance.choice(kinds)
        if kind == "add" and len(live) < 5:
            self.join()
        elif kind == "leave" and len(live) > 1:
            chance.choice(live).leaving = True
        elif kind == "crash" and len(live) > 1:
            chance.choice(live).alive = False
        elif kind == "still" and live:
            chance.choice(live).still_until = self.now + chance.uniform(0.5, 3 * SESSION_S)
        elif kind == "depose":
            self.depose()
        self.after(chance.uniform(0.2, 6.0), lambda: self.disturb() if self.faults else None)

    def is_done(self) -> bool:
        """Everything was dealt with, and committed."""
        group = self.machine.state.groups.by_id.get(GROUP)
        return group is not None and all(
            (known := group.offsets.get(self.partition_number(index))) is not None
            and known.offset == end
            for index, end in enumerate(self.ends)
        )


def life(seed: int, *, own: bool = False, disturbed: bool = True) -> NativeWorld:
    """A random life, with its promises checked."""
    around = NativeWorld(seed, own=own)
    around.faults = disturbed
    for _ in range(2):
        around.join()
    if disturbed:
        around.disturb()
        around.run(90)
    else:
        for number in range(60):
            around.after(number, lambda: around.ends.__setitem__(0, around.ends[0] + 5))
        for number in range(3):
            around.after(10.0 * number + 5, lambda: add_one(around))
            around.after(12.0 * number + 9, lambda: leave_one(around))
        around.run(60)
    around.faults = False
    for member in around.live_members():
        member.still_until = min(member.still_until, around.now)
    if not [each for each in around.live_members() if not each.leaving]:
        around.join()
    assert around.run(4 * SESSION_S + 60, around.is_done), f"seed {seed}: not all is dealt with"
    wanted = {(part, offset) for part, end in enumerate(around.ends) for offset in range(end)}
    assert set(around.dealt) == wanted, f"seed {seed}: {wanted ^ set(around.dealt)}"
    assert around.handed
    if own or not disturbed:
        twice = [place for place, count in around.dealt.items() if count > 1]
        assert not twice, f"seed {seed}: {twice} were dealt with twice"
    if own:
        rows = around.results.execute("SELECT part, at FROM results").fetchall()
        assert len(rows) == len(wanted), f"seed {seed}: {len(rows)} results of {len(wanted)}"
    return around


def add_one(around: NativeWorld) -> None:
    around.join()


def leave_one(around: NativeWorld) -> None:
    live = [member for member in around.live_members() if not member.leaving]
    if len(live) > 1:
        live[0].leaving = True


__all__ = ["LOST", "NativeWorld", "life"]

"""When a subscriber has something to hand out: it waits for that, stores positions in passing,
pauses and ends.

Invariant: nobody waits for what is there already, and whoever waits notices `close` and `resume`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from samelog.format.arguments import check_number
from samelog.format.errors import LogFormatError
from samelog.replicator.client_errors import SubscriberError
from samelog.subscriber.cursor import CHUNK_BYTES, Cursor
from samelog.subscriber.errors import SubscriberClosed
from samelog.subscriber.setup import Setup, SubscriberKeywords, prepare

if TYPE_CHECKING:
    from samelog.subscriber.groups.sharing import Sharing

FOREVER = float("inf")


@dataclass(slots=True)
class TakeLimits:
    """How long to wait for the first that comes, and for more after that."""

    deadline: float | None
    limit_bytes: int
    """Of what is read at a time."""
    throttle_s: float = 0.0
    more_until: float | None = None


class Pacing:
    """The part of a subscriber that waits."""

    def __init__(
        self, topics: str | Iterable[str] | None = None, **options: Unpack[SubscriberKeywords]
    ) -> None:
        """Open the copies, and start keeping them."""
        self._setup: Setup = prepare(topics, options)
        self._engine = self._setup.engine
        self._replay = self._setup.replay
        self._commit_interval_s = check_number(
            "commit_interval_s", options.get("commit_interval_s", 1.0), 0, FOREVER
        )
        sharing = self._sharing = self._engine.sharing
        self._commits = options.get("auto_commit", True) and self.has_positions
        now = time.monotonic()
        self._ticks = self._commits or sharing is not None
        self._next_commit = now + self._commit_interval_s if self._ticks else FOREVER
        self._using = threading.Lock()
        """Held while the engine is used; not while the application has a record."""
        self._heeds = True
        """Nothing is taken that was not handed out: the group may take partitions away."""
        self._is_closed = False
        self._closed = threading.Event()
        self._is_paused = False
        self._choose_next()
        self._attention = False
        """Closed or paused, or the group says something: look before handing out another record."""
        if sharing is not None:
            self._join(sharing)

    def _join(self, sharing: Sharing) -> None:
        """Be a member of the group. Raises GroupRefused."""
        client, engine = self._setup.client, self._engine
        if client is None:
            raise ValueError("the member of a group needs a config")
        try:
            sharing.join(client, self._notice)
        except BaseException:
            engine.stop_copying()
            engine.close()
            raise

    def _notice(self) -> None:
        """The group says something. In any thread."""
        self._attention = True
        self._engine.waiter.wake()

    # --- waiting -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """The application asks for more: what it was handed is dealt with."""
        with self._using:
            if self._is_closed:
                raise SubscriberClosed("the subscriber is closed")
            self._engine.settle()
            self._commit_if_due()

    def _dealt_with(self) -> None:
        """All that was handed out is, whether or not the application asks for more."""
        with self._using:
            if not self._is_closed:
                self._engine.settle()

    def _ready_after(self, taken: Sequence[object], limits: TakeLimits) -> Cursor | None:
        """A partition with more; once something was taken, without an error: the next call meets it
        again.
        """
        if not taken:
            return self._ready(limits.deadline, limits.limit_bytes)
        if limits.more_until is None:
            limits.more_until = time.monotonic() + limits.throttle_s
        try:
            return self._ready(limits.more_until, limits.limit_bytes, has_taken=True)
        except (SubscriberError, LogFormatError):
            return None

    def _ready(
        self, deadline: float | None, limit_bytes: int, *, has_taken: bool = False
    ) -> Cursor | None:
        """A partition with something to hand out; None: not in time, or never more. `has_taken`:
        something was taken, and not handed out yet.
        """
        engine, self._heeds = self._engine, not has_taken
        with self._using:
            while not self._is_closed:
                if has_taken and self._is_due_in_group:
                    return None  # what was taken is dealt with first
                cursor = self._next_filled(limit_bytes)
                if cursor is not None:
                    return cursor
                if not engine.choice.follow and self._is_over:
                    return None
                left_s = FOREVER if deadline is None else deadline - time.monotonic()
                if left_s > 0:
                    engine.waiter.wait(min(self._wait_s(), left_s))
                elif not engine.rescan_if_due():
                    return None
        return None

    def _most(self, count: int) -> int:
        """How many of its records may be handed out, of so many."""
        return count if self._replay is None else min(count, self._replay.most)

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is ever handed out."""
        return self._engine.is_finished and not self._is_paused

    def _choose_next(self) -> None:
        """Who says what is handed out next: mostly the engine, without a call in between."""
        is_plain = self._sharing is None and self._replay is None and not self._is_paused
        self._next_filled = self._engine.next_filled if is_plain else self._filled

    def _filled(self, limit_bytes: int) -> Cursor | None:
        """As Engine.next_filled, in a group or a replay, or paused: the group is heeded before, and
        what is handed out is due.
        """
        if self._sharing is not None and self._heeds:
            self._heed(self._sharing)
        if self._is_paused:
            return None
        if self._replay is None:
            return self._engine.next_filled(limit_bytes)
        return self._replay.next(self._engine, min(limit_bytes, CHUNK_BYTES))

    @property
    def _is_due_in_group(self) -> bool:
        return self._sharing is not None and self._sharing.is_due

    def _heed(self, sharing: Sharing) -> None:
        """Take up and let go of partitions, as the group says; nothing that was taken is left to be
        handed out. Raises GroupRefused.
        """
        is_done = sharing.heed(self._engine, commits=self._commits)
        self._attention = self._is_closed or self._is_paused or not is_done

    def _wait_s(self) -> float:
        """Do what is due; how long to wait for the engine's waiter before reading again."""
        engine = self._engine
        if time.monotonic() >= self._next_commit:
            self._commit_if_due()
        if engine.waiter.watches and engine.watch():
            return 0.0
        is_due = engine.waiter.names_changed or time.monotonic() >= engine.next_rescan
        if is_due and engine.rescan_if_due():
            return 0.0
        left_s = max(0.0, min(engine.next_rescan, self._next_commit) - time.monotonic())
        return left_s if self._replay is None else min(left_s, self._replay.wait_s)

    def prepare_wait(self) -> float:
        """For event loops: how many seconds to wait for `fileno` to be readable, then try again."""
        with self._using:
            return 0.0 if self._is_closed else self._wait_s()

    def fileno(self) -> int:
        """For event loops: readable when there may be more; then call `take_events`."""
        return self._engine.waiter.fileno()

    def take_events(self) -> None:
        """For event loops: take note of what made `fileno` readable."""
        with self._using:
            if not self._is_closed:
                self._engine.waiter.wait(0.0)

    def _tend(self) -> None:
        with self._using:
            if not self._is_closed:
                self._commit_if_due()

    def _commit_if_due(self) -> None:
        now = time.monotonic()
        if now < self._next_commit:
            return
        if self._commits:
            self._engine.commit(durable=False)
        self._next_commit = time.monotonic() + self._commit_interval_s
        if self._sharing is not None:
            self._sharing.membership.expire(now)
            self._attention |= self._sharing.is_due

    # --- control -------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hand out nothing until `resume`; the local files keep growing."""
        self._is_paused = self._attention = True
        self._choose_next()

    def resume(self) -> None:
        """Hand out records again."""
        self._is_paused = False
        self._choose_next()
        self._attention = self._is_closed
        self._engine.waiter.wake()

    @property
    def has_positions(self) -> bool:
        """Whether its positions are stored anywhere: it has a name, or is in a group."""
        return self._setup.name is not None or self._sharing is not None

    @property
    def is_paused(self) -> bool:
        """Whether `pause` is in force."""
        return self._is_paused

    @property
    def caught_up(self) -> bool:
        """Whether the application was handed everything there is: what comes now is live."""
        return self._engine.is_at_end

    @property
    def is_over(self) -> bool:
        """Whether nothing will be handed out again: closed, or not following and at the end."""
        return self._is_closed or self._engine.is_finished

    def stop_soon(self) -> None:
        """Hand out nothing more, and end what waits; `close` is still to be called."""
        self._is_closed = self._attention = True
        self._closed.set()
        self._engine.waiter.wake()


def deadline_after(timeout: float | None) -> float | None:
    """When a timeout is over, in monotonic seconds."""
    return None if timeout is None else time.monotonic() + timeout

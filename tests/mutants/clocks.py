"""Planted bugs in expiry: the clock that counts, and the time of the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import PropertyMock, patch

from samelog.sequencer.cluster.agreed_clock import AgreedClock
from samelog.sequencer.state.tables.keys import KeyedPartition


@contextmanager
def believe_the_own_clock() -> Iterator[None]:
    """The leader uses its own wall clock and ignores those of others."""
    with patch.object(AgreedClock, "wall_ms", lambda self: self.host.wall_ms()):
        yield


@contextmanager
def expire_before_clocks_are_known() -> Iterator[None]:
    """A member that knows no other clock takes its own for the majority's."""
    with patch.object(AgreedClock, "is_agreed", PropertyMock(return_value=True)):
        yield


@contextmanager
def count_any_clock() -> Iterator[None]:
    """Clocks of learners count, too."""
    original = AgreedClock.heard

    def heard(self: AgreedClock, member: int, wall_ms: int) -> None:
        original(self, member, wall_ms)
        known = sorted(self._ahead.values(), reverse=True)
        needed = len(self._voters()) // 2 + 1
        self._agreed = known[needed - 1] if len(known) >= needed else None

    with patch.object(AgreedClock, "heard", heard):
        yield


@contextmanager
def stand_still_between_reports() -> Iterator[None]:
    """The time is what a majority said last, however long ago that was."""
    original = AgreedClock.heard

    def heard(self: AgreedClock, member: int, wall_ms: int) -> None:
        original(self, member, wall_ms)
        self.said = None if self._agreed is None else self.wall_ms()  # type: ignore[attr-defined]

    def wall_ms(self: AgreedClock) -> int:
        said = getattr(self, "said", None)
        return int(before(self) if said is None else said)

    before = AgreedClock.wall_ms
    with patch.object(AgreedClock, "heard", heard), patch.object(AgreedClock, "wall_ms", wall_ms):
        yield


@contextmanager
def judge_keys_by_the_applied_floor() -> Iterator[None]:
    """A key expires only once something else was merged into its partition."""

    def floor_at(
        self: KeyedPartition, now_ms: int, next_offset: int, settings: Mapping[str, str]
    ) -> int:
        return self.floor

    with patch.object(KeyedPartition, "floor_at", floor_at):
        yield


@contextmanager
def expire_what_is_proposed() -> Iterator[None]:
    """Records that are proposed and not applied are as old as the newest that is."""
    original = KeyedPartition.floor_at

    def floor_at(
        self: KeyedPartition, now_ms: int, next_offset: int, settings: Mapping[str, str]
    ) -> int:
        return original(self, now_ms, next_offset + 1_000, settings)

    with patch.object(KeyedPartition, "floor_at", floor_at):
        yield


_IN = "tests/sequencer/test_agreed_clock.py::test_"
_KEYS = "tests/keys/test_key_filter.py::test_"

CLOCKS = (
    ("operations.5", believe_the_own_clock, _IN + "the_leaders_wrong_clock_expires_nothing"),
    (
        "operations.5",
        expire_before_clocks_are_known,
        _IN + "the_time_is_one_that_a_majority_has_reached",
    ),
    ("operations.5", count_any_clock, _IN + "only_voters_clocks_count"),
    (
        "operations.5",
        stand_still_between_reports,
        _IN + "the_time_is_one_that_a_majority_has_reached",
    ),
    ("keys.10", judge_keys_by_the_applied_floor, _KEYS + "a_key_expires_on_a_quiet_topic"),
    (
        "keys.10",
        expire_what_is_proposed,
        _KEYS + "what_is_proposed_and_not_committed_counts_whatever_the_horizon",
    ),
)
"""Rule, bug, and the test that finds it."""

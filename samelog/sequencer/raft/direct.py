"""Which inputs need no reports, because their publishers bring bytes to a majority themselves.

The leader plans such an input as soon as it has received bytes; followers take the instruction only
with the bytes (docs/raft.md, "Entries and their bytes"). So nothing is lost where the leader is
wrong about an input: the others only have to fetch its bytes first, and all that is proposed behind
waits meanwhile. Each time that happens the input goes back to reports, for longer and longer.

Invariant: an input is planned without reports only after a majority has reported bytes of it that
were not planned yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from samelog.format.positions import SessionPosition
from samelog.sequencer.raft.views import NOWHERE
from samelog.sequencer.state.instructions import Range

LEAST_LATE_S, MOST_LATE_S = 0.05, 1.0
LATE_ROUNDS = 8
"""A voter that lacks named bytes for so many median rounds, within these bounds, is late."""
FORGIVEN_S = 60.0


class _Named(NamedTuple):
    """Up to where the leader named an input, and when."""

    place: SessionPosition
    at: float


class _Misses(NamedTuple):
    """How often bytes came too late lately, and until when reports are waited for."""

    times: int
    until: float


class DirectInputs:
    """The leader's: those that are planned when received. Times are in seconds of one clock."""

    def __init__(self, rounds_s: Sequence[float] = ()) -> None:
        """`rounds_s`: how long the leader's newest rounds of syncs took. For how long followers
        held entries back is no part of it: a publisher that does not reach them would excuse
        itself.
        """
        self._rounds_s = rounds_s
        self.open: dict[int, _Named] = {}
        """Those inputs, and up to where they are planned."""
        self._misses: dict[int, _Misses] = {}

    def clear(self) -> None:
        """Another leader: nothing is known of any input."""
        self.open.clear()
        self._misses.clear()

    def shown(self, number: int, now: float) -> None:
        """A majority has reported bytes of an input that are not planned."""
        missed = self._misses.get(number)
        if number not in self.open and (missed is None or now >= missed.until):
            self.open[number] = _Named(NOWHERE, now)

    @property
    def late_s(self) -> float:
        """For how long a voter may lack what was named: rounds of a busy node take longer."""
        usual_s = median(self._rounds_s) if self._rounds_s else 0.0
        return min(max(LEAST_LATE_S, LATE_ROUNDS * usual_s), MOST_LATE_S)

    def named(self, number: int, place: SessionPosition, now: float) -> None:
        """An input that needs no reports is planned up to there."""
        self.open[number] = _Named(place, now)

    def told(
        self, number: int, place: SessionPosition, committed: SessionPosition, now: float
    ) -> None:
        """A voter says up to where it has an input. If that is less than what was named a while ago
        and is not committed yet, the publisher does not reach it.
        """
        known = self.open.get(number)
        if known is None or now - known.at < LEAST_LATE_S:
            return
        if place < known.place and committed < known.place and now - known.at >= self.late_s:
            self._missed(number, now)

    def _missed(self, number: int, now: float) -> None:
        del self.open[number]
        before = self._misses.get(number, _Misses(0, now))
        times = 1 if now > before.until + FORGIVEN_S else before.times + 1
        self._misses[number] = _Misses(times, now + min(FORGIVEN_S, 2.0 ** min(times, 8)))

    def forget(self, numbers: Iterable[int]) -> None:
        """These inputs are gone."""
        for number in numbers:
            self.open.pop(number, None)
            self._misses.pop(number, None)


@dataclass(slots=True)
class QuietInputs:
    """A follower's: those that the leader names before it is told of them, so that reports of them
    can wait for what else there is to say.
    """

    numbers: set[int] = field(default_factory=set)
    _named: dict[int, SessionPosition] = field(default_factory=dict)
    _told: dict[int, SessionPosition] = field(default_factory=dict)
    _unnamed: set[int] = field(default_factory=set)
    """What was there at the last look, and not named."""
    _moved: set[int] = field(default_factory=set)
    """Inputs of which more was named, or is there, since the last look, or that were not named."""

    def clear(self) -> None:
        """Another leader, which may wait for reports."""
        self.numbers.clear()
        self._told.clear()
        self._unnamed.clear()
        self._moved.clear()

    def named(self, parts: Iterable[Range]) -> None:
        """The leader names these ranges, all of which are here."""
        for part in parts:
            place = self._named[part.input] = SessionPosition(part.run, part.roll, part.stop)
            if self._told.get(part.input, NOWHERE) < place:
                self.numbers.add(part.input)
                self._moved.add(part.input)

    def stated(self, numbers: Iterable[int]) -> None:
        """This node has more of these inputs, which are quiet."""
        self._moved.update(numbers)

    def told(self, places: Mapping[int, SessionPosition]) -> None:
        """The leader was told of these positions."""
        self._told.update(places)

    def look(self, places: Mapping[int, SessionPosition]) -> set[int]:
        """This node is so far with inputs: those that the leader named neither by the last look nor
        by this one, which need reports again. Only those that have moved are looked up.
        """
        moved = self._moved & self.numbers
        unnamed = {n for n in moved if places.get(n, NOWHERE) > self._named.get(n, NOWHERE)}
        loud = unnamed & self._unnamed
        self.numbers -= loud
        self._unnamed, self._moved = unnamed, unnamed - loud
        return loud

    def forget(self, numbers: Iterable[int]) -> None:
        """These inputs are gone."""
        for number in numbers:
            self.numbers.discard(number)
            self._moved.discard(number)
            self._named.pop(number, None)
            self._told.pop(number, None)

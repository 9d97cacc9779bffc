"""What a publisher knows of its session's progress in the cluster, from all nodes together.

Each node tells what it knows; the highest counts, because a position that one node has seen reached
stays reached. A run is the publisher's own number of it.

Invariant: no position ever goes back; a place counts as merged only if a node said so of that very
run or, of a closed run, of all of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName, RollByte, RunEnds
from samelog.wire.push.effects import ProgressTold
from samelog.wire.push.layout import Layout

NOWHERE = SessionPosition(-1, 0, 0)
START: RollByte = (0, 0)
"""Of a run: it says nothing of the runs before it."""


class InputProgress(msgspec.Struct, frozen=True):
    """How far an input has come; `NOWHERE` before the first byte.

    `durable` is on one node, `acknowledged` committed on a majority, `merged` in the merged log and
    durable on a majority.
    """

    durable: SessionPosition = NOWHERE
    acknowledged: SessionPosition = NOWHERE
    merged: SessionPosition = NOWHERE


NOTHING_REACHED = InputProgress()


@dataclass(frozen=True, slots=True)
class LostRange:
    """Bytes of a closed run that never reached the merged log; they are kept.

    `stop` is as far as the files have been looked at.
    """

    run: int
    name: InputName
    start: RollByte
    stop: RollByte
    reason: str = ""
    """Why they are damaged; empty: the cluster closed the run before it had them."""
    kept: str | None = None
    """The file that has a copy of damaged bytes."""
    stage: str | None = None
    """The stage that the run belongs to, so that nothing of the run is published."""


class ToldTopics(NamedTuple):
    """What nodes said of topics."""

    counts: Mapping[str, int]
    """How many partitions they have, by the node that knows of most; 0: no node can say."""
    checked: frozenset[str]
    """Those whose records are to be checked before they are published, by the newest answer."""


class SessionProgress:
    """The positions of one session."""

    def __init__(self) -> None:
        self.inputs: dict[InputName, InputProgress] = {}
        self.lost: list[LostRange] = []
        self.damaged: list[LostRange] = []
        """Lost because damaged in the files; a position that reaches a range's start passes it."""
        self.topics = ToldTopics({}, frozenset())
        self.wanted_topics: dict[str, int] = {}
        """Topics to be learnt, and with how many partitions each is created if it is not there."""
        self._merged: dict[tuple[int, InputName], RollByte] = {}
        self.ends: dict[int, RunEnds] = {}
        """Where the closed runs end."""
        self.unfinished: dict[int, RunEnds] = {}
        """Damaged runs whose present part the cluster has closed, and where."""
        self._gone: set[tuple[int, InputName]] = set()
        self._invalid: set[tuple[int, InputName]] = set()
        self.moved: dict[InputName, InputProgress] = {}
        """Positions that have moved since the owner emptied this."""
        self.merged_more: dict[InputName, None] = {}
        """Inputs of which more was merged since then, likewise."""

    def reached(self, run: int, name: InputName, places: ProgressTold) -> bool:
        """A node says durable, acknowledged, merged of a run; whether that is news."""
        before = self.inputs.get(name, NOTHING_REACHED)
        if self.damaged:
            durable, acknowledged, merged = (self._passed(run, name, place) for place in places)
            places = durable, acknowledged, merged
        merged, later = places[2], []
        known_before = before.durable, before.acknowledged, before.merged
        for position, place in zip(known_before, places, strict=True):
            moves = place > START and (run, *place) > position
            later.append(SessionPosition(run, *place) if moves else position)
        after = InputProgress(*later)
        known = self._merged.get((run, name), (0, 0))
        if merged > known:
            self._merged[run, name] = merged
            self.merged_more[name] = None
        if after != before:
            self.moved[name] = after
        self.inputs[name] = after
        return after != before or merged > known

    def topic_told(self, topic: str, partitions: int, *, is_checked: bool = False) -> bool:
        """A node says how many partitions a topic has (0: it cannot say), and whether what is
        published to it is to be checked; whether that is news.
        """
        counts, checked = self.topics
        is_other = partitions > 0 and is_checked != (topic in checked)
        is_news = partitions > counts.get(topic, -1)
        if is_news or is_other:
            counts = {**counts, topic: partitions} if is_news else counts
            self.topics = ToldTopics(counts, checked ^ {topic} if is_other else checked)
        return is_news or is_other

    def reached_as(
        self, run: int, name: InputName, places: ProgressTold, layout: Layout | None
    ) -> bool:
        """As `reached`, of places that a layout counts."""
        if layout is None:
            return self.reached(run, name, places)
        told = [self.reached(own, name, inside) for own, inside in layout.by_run(places)]
        return any(told)

    def close_run(
        self,
        run: int,
        ends: RunEnds,
        layouts: Mapping[InputName, Layout | None],
        parts: Container[InputName] = (),
    ) -> bool:
        """The cluster has closed a run, so all of it is committed, but of the inputs in `parts`;
        whether that is news. The ends are kept as `layouts` count them.
        """
        if run in self.ends:
            return False
        self.ends[run] = ends
        self.close_part(run, ends, layouts, parts)
        return True

    def close_part(
        self,
        run: int,
        ends: RunEnds,
        layouts: Mapping[InputName, Layout | None],
        parts: Container[InputName] = (),
    ) -> None:
        """The cluster has closed a part of a run: all of it is committed, except for `parts`."""
        for name, end in ends.items():
            if name in parts:
                continue
            self.reached_as(run, name, ((0, 0), end, (0, 0)), layouts.get(name))

    def merged_as(self, run: int, name: InputName, layout: Layout | None) -> RollByte:
        """Up to where a run is merged and durable on a majority, as a layout counts."""
        if layout is None:
            return self._merged.get((run, name), (0, 0))
        for own in (run, *reversed(layout.ends())):
            place = self.merged(own, name)
            if place > (0, 0):
                return layout.wire(SessionPosition(own, *place))
        return 0, 0

    def find(self, name: InputName) -> None:
        """What was lost of an input is held: its topic was deleted before."""
        self.lost = [lost for lost in self.lost if lost.name != name]

    def skip(self, name: InputName, begin: SessionPosition) -> None:
        """Nothing below a position will be shipped any more: it was, or is given up."""
        self.reached(begin.run, name, (begin[1:], begin[1:], begin[1:]))
        self.lost = [lost for lost in self.lost if lost.name != name or lost.run >= begin.run]

    def let_go(self, run: int, name: InputName) -> bool:
        """The topic of an input is gone, for this run; whether that is news."""
        if (run, name) in self._gone:
            return False
        self._gone.add((run, name))
        return True

    def _passed(self, run: int, name: InputName, place: RollByte) -> RollByte:
        for each in self.damaged:
            is_same = place > START and (each.run, each.name) == (run, name)
            if is_same and each.start <= place < each.stop:
                place = each.stop
        return place

    def note_damage(self, damaged: Iterable[LostRange]) -> None:
        """All ranges whose records are lost because they were damaged."""
        new = [each for each in damaged if each not in self.damaged]
        self.damaged += new
        for each in new:
            merged = self.merged(each.run, each.name)
            if each.start <= merged < each.stop:
                self.reached(each.run, each.name, (START, each.stop, each.stop))

    def note_invalid(self, run: int, name: InputName) -> None:
        """A node found bytes of an input invalid, as any node does."""
        self._invalid.add((run, name))

    def lose(self, lost: LostRange) -> None:
        """A closed run ends before the bytes there are."""
        self.lost.append(lost)

    def forget_end(self, run: int, name: InputName) -> None:
        """The topic that an input had at the end of a closed run is gone: that end is a position of
        its own, which the next topic does not have.
        """
        if run in self.ends:
            self.ends[run] = {each: end for each, end in self.ends[run].items() if each != name}

    def forget_run(self, run: int, carried: Container[tuple[int, InputName]] = ()) -> None:
        """The files of a finished run were removed. `carried`: (run, input) of bytes that count for
        a later run, too.
        """
        self._merged = {
            key: place for key, place in self._merged.items() if key[0] != run or key in carried
        }
        self._gone = {key for key in self._gone if key[0] != run}
        self._invalid = {key for key in self._invalid if key[0] != run}

    # --- questions ----------------------------------------------------------------------------

    def merged(self, run: int, name: InputName) -> RollByte:
        """Up to where a run is merged and durable on a majority."""
        return self._merged.get((run, name), (0, 0))

    def is_gone(self, run: int, name: InputName) -> bool:
        """Whether the topic of an input is gone, for this run."""
        return (run, name) in self._gone

    def is_invalid(self, run: int, name: InputName) -> bool:
        """Whether a node found bytes of an input invalid."""
        return (run, name) in self._invalid

    def is_lost(self, run: int, name: InputName) -> bool:
        """Whether a part of a closed run is kept because it was never merged."""
        return any((lost.run, lost.name) == (run, name) for lost in self.lost)

    def gone(self) -> Mapping[InputName, int]:
        """Inputs whose topic is gone, and the newest run it is gone for."""
        return {name: run for run, name in sorted(self._gone)}

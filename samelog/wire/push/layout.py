"""Positions of a run in the topic that it is shipped to, where they differ from those in its files.

A partition's bytes belong to a topic id. If the topic is deleted within a run, the topic that
follows it begins with a later byte of that run, which is its position (0, 0). Bytes of earlier runs
that were held meanwhile come first: they are *carried* by the run. A *wire* position counts from
where the topic begins; a *local* position names a run and its files.

Invariant: a layout never changes; wire positions are in the order of local ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from samelog.format.directory_files import CarriedFile, RunByte, ShippingFile
from samelog.format.file_names import RunNames
from samelog.format.positions import SessionPosition

WirePlace = tuple[int, int]
"""(roll, byte)."""
_Places = tuple[WirePlace, WirePlace, WirePlace]


@dataclass(frozen=True, slots=True)
class Layout:
    """One run of one input."""

    begin: RunByte
    carried: tuple[CarriedFile, ...] = ()

    def source(self, roll: int) -> tuple[int, int, int]:
        """(run, roll, first byte) of the file that is shipped as `roll`."""
        run, own, byte = self.begin
        if roll < len(self.carried):
            known = self.carried[roll]
            return known.run, known.roll, known.start
        behind = roll - len(self.carried)
        return run, own + behind, 0 if behind else byte

    def local(self, place: WirePlace) -> SessionPosition:
        """The local position of a wire position."""
        run, roll, base = self.source(place[0])
        return SessionPosition(run, roll, base + place[1])

    def wire(self, position: SessionPosition) -> WirePlace:
        """The wire position of a local position; (0, 0) for one before the topic's bytes."""
        for number, known in enumerate(self.carried):
            if position[:2] == (known.run, known.roll):
                return number, max(0, min(position.byte, known.stop) - known.start)
        run, roll, base = self.begin
        if position.run < run:
            return sum((each.run, each.roll) < position[:2] for each in self.carried), 0
        behind = position.roll - roll
        if position[1:] <= (roll, base):
            return len(self.carried), 0
        return len(self.carried) + behind, position.byte - (0 if behind else base)

    def by_run(
        self, places: tuple[WirePlace, WirePlace, WirePlace]
    ) -> Iterator[tuple[int, _Places]]:
        """Yield the positions for each run with bytes in this input, oldest first: up to its end
        where a later run's bytes are reached; (0, 0) where none of its bytes are.
        """
        reached = [self.local(place) if place > (0, 0) else None for place in places]
        for run, end in (*self.ends().items(), (self.begin[0], (0, 0))):
            first, second, third = (_within(run, end, position) for position in reached)
            yield run, (first, second, third)

    def ends(self) -> dict[int, WirePlace]:
        """Where what is carried of earlier runs ends, oldest run first."""
        return {each.run: (each.roll, each.stop) for each in self.carried}

    def names(self, known: Mapping[int, RunNames]) -> RunNames:
        """What the names of files say, by wire positions."""
        found, count = RunNames(), len(self.carried)
        for number, each in enumerate(self.carried):
            if each.run in known and each.roll in known[each.run].data:
                found.data.add(number)
                found.sealed[number] = each.stop - each.start
        run, first, byte = self.begin
        own = known.get(run, RunNames())
        found.data.update(count + roll - first for roll in own.data if roll >= first)
        for roll, length in own.sealed.items():
            if (roll, length) >= (first, byte):
                at, size = self.wire(SessionPosition(run, roll, length))
                found.sealed[at] = size
        starts = [SessionPosition(run, *start) for start in own.starts if start > (first, byte)]
        found.starts.extend(map(self.wire, starts))
        return found


def layout_of(shipping: ShippingFile, run: int) -> Layout | None:
    """The layout of a run; None: wire positions are those in its files."""
    is_plain = shipping.begin[0] != run or (shipping.begin[1:] == (0, 0) and not shipping.carried)
    return None if is_plain else Layout(shipping.begin, shipping.carried)


def part_layout(shipping: ShippingFile, run: int, start: RunByte | None) -> Layout | None:
    """The layout of the part of a run that begins at a local position; None: at its first byte."""
    whole = layout_of(shipping, run)
    if start is None:
        return whole
    begin, carried = ((run, 0, 0), ()) if whole is None else (whole.begin, whole.carried)
    if start[0] == run:
        return whole if start < begin else Layout(start)
    later = [each for each in carried if (each.run, each.roll) >= start[:2]]
    if later and (later[0].run, later[0].roll) == start[:2]:
        later[0] = replace(later[0], start=max(later[0].start, start[2]))
    return Layout(begin, tuple(later))


def _within(run: int, end: WirePlace, position: SessionPosition | None) -> WirePlace:
    if position is None or position.run < run:
        return 0, 0
    return position[1:] if position.run == run else end

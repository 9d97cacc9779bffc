"""Staged records, cut into ranges of whole batches.

Invariant: ranges of one input follow each other, from where it is merged to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, told_size
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.session_bytes import SessionBytes
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.tables.sessions import Input

RANGE_BYTES = 1 << 20
RANGES_MAX = 100_000
"""In one batch, which is one Raft entry."""


class StagedInput(NamedTuple):
    """One input of a staged run, and where it ends."""

    entry: Input
    end: SessionPosition


class UnitChecks(Protocol):
    """What is staged, and whether it may be published."""

    sessions: SessionStore

    async def why_unfit(self, ranges: Mapping[int, Sequence[Range]]) -> str:
        """The first record that keeps a unit from being published. Raises CannotCheck."""


def ranges_of(staged: StagedInput, source: SessionBytes) -> Iterator[Range]:
    """Whole batches of at most RANGE_BYTES (or one larger one) each. Raises LogFormatError."""
    number, place, end = staged.entry.number, staged.entry.place, staged.end
    while place < end:
        stop = end.byte if place.roll == end.roll else source.sealed_length(number, place)
        if stop is None:
            raise LogFormatError(f"session {staged.entry.session!r} has no end of file {place}")
        if place.byte >= stop:
            place = SessionPosition(place.run, place.roll + 1, 0)
            continue
        part = _range_at(number, place, stop, source)
        yield part
        place = SessionPosition(place.run, place.roll, part.stop)


def _range_at(number: int, place: SessionPosition, stop: int, source: SessionBytes) -> Range:
    data = source.read(number, place, min(stop, place.byte + RANGE_BYTES))
    scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.end == 0:
        size = told_size(source.read(number, place, place.byte + LENGTH_PREFIX_BYTES))
        data = source.read(number, place, min(stop, place.byte + size))
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
    if scan.end == 0 or scan.has_producer:
        why = scan.error or ("it has a producer id" if scan.has_producer else "it is not whole")
        raise LogFormatError(f"the batch at {place} of a staged run cannot be merged: {why}")
    start, behind = place.byte, place.byte + scan.end
    return Range(number, place.run, place.roll, start, behind, scan.records, scan.end, scan.digest)

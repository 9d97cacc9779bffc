"""Records that a cluster has refused because they do not fit their topic's schema: told to who
published them, until that has kept them (docs/typed.md, T6).

Invariant: what is told of a batch is told before, on the same connection, anything acknowledges it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from samelog.format.numbers import Unsigned32
from samelog.wire.bounds import Handle, Message, Place63, ShortText, Text

TOLD_WEIGHT = 64
"""What a record takes that is told of in words, in numbers."""


class ToldMisfit(NamedTuple):
    """One record, by its number in its batch: the column (empty: the value as a whole), what was
    expected, and the beginning of what was found.
    """

    record: Place63
    column: ShortText
    expected: ShortText
    found: Text


def why_unfit(told: ToldMisfit) -> str:
    """In words."""
    where = f"column {told.column!r}: " if told.column else ""
    return f"{where}not {told.expected}: {told.found}"


class RefusedBatch(NamedTuple):
    """The batch of an input that begins at byte `start` of a roll of a run, by the cluster's
    numbers. `runs`: which of its records were not refused (format.batch.leave_out); `told`: why the
    first ones were.
    """

    input: Unsigned32
    run: Unsigned32
    roll: Place63
    start: Place63
    size: Place63
    runs: tuple[Place63, ...]
    told: tuple[ToldMisfit, ...]

    @property
    def place(self) -> tuple[int, int, int]:
        """Run, roll and byte."""
        return self.run, self.roll, self.start

    @property
    def weight(self) -> int:
        """How much it takes to say it, in numbers."""
        return len(self.runs) + TOLD_WEIGHT * len(self.told)


class RecordsRefused(Message, frozen=True, tag=18):
    """To a publisher: these records of an input will never be merged."""

    handle: Handle
    batch: RefusedBatch


class RefusalsKept(Message, frozen=True, tag=19):
    """Of a publisher: it has kept, durably, what was refused of batches up to (roll, start)."""

    handle: Handle
    roll: Place63
    start: Place63


RefusalMessage: TypeAlias = RecordsRefused | RefusalsKept

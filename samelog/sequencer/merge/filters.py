"""Records that the leader leaves out of what it is about to merge, whatever the reason.

Each reason is a filter: what it has a say in, and which records of a batch stay. The instruction
names the records (`MergeExtras.left_out`), so only the leader needs filters, and what they know.

Invariant: a filter is asked in the order in which records are merged, once for each batch that is
planned, and what it says is planned, unless it is told otherwise at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from samelog.format.batch import HELD_BATCH_BYTES, leave_out
from samelog.format.errors import DecompressionError, LogFormatError
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.state.instructions import Verdict
from samelog.sequencer.state.tables.sessions import Input

Judged = tuple[Verdict, int, tuple[int, int]]
"""A verdict, its detail, and (records, bytes) that come out."""


class CannotJudge(LogFormatError):
    """A filter does not know what it has to, which says nothing of the batch: it comes again."""


class InputWaits(CannotJudge):
    """It is only this input that has to wait."""


class GivenBatch(NamedTuple):
    """A batch of an input that is about to be planned, and where it begins."""

    entry: Input
    roll: int
    start: int
    data: bytes
    producer_id: int = -1


class MergeFilter(Protocol):
    """Says which records of what is about to be merged are left out."""

    def concerns(self, partition: int) -> bool:
        """Whether it has a say in this partition."""

    def is_ready(self, partition: int, next_offset: int) -> bool:
        """Whether it can judge what comes next in a partition; else nothing of it is planned."""

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        """It will be asked for these batches of an input, if nothing comes between."""

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int] | None:
        """Which records of one batch stay, of those that do by `runs` (`format.batch.leave_out`);
        the first gets the draft's next offset. None: the batch as a whole is refused, as if it had
        never come. Raises LogFormatError, CannotJudge, and then counts as not asked.
        """

    def look_behind(self, partition: int, batches: bytes) -> bool:
        """These follow a batch that it could not judge: find out what they take, too, if that is
        of use. Whether it has room for more of the partition.
        """

    def take_back(self) -> None:
        """What it said last is not planned, after all."""

    def reset(self) -> None:
        """What was planned and is not applied may be lost."""


def filtered(
    filters: Sequence[MergeFilter], judged: Judged, draft: Draft, given: GivenBatch
) -> tuple[Judged, list[int]]:
    """The verdict about a batch of which filters leave out records, with the runs of those that
    stay; the same, and no runs, if they leave out none. Raises LogFormatError, CannotJudge.
    """
    verdict, detail, (records, _) = judged
    if verdict not in (Verdict.TAKE, Verdict.SLICE):
        return judged, []
    before: Sequence[int] = [0, detail] if verdict is Verdict.SLICE else []
    asked: list[MergeFilter] = []
    try:
        runs = _asked(filters, draft, given, before, asked)
        if runs is None:
            return (Verdict.REFUSED, len(draft.left.refused) - 1, (0, 0)), []
        if runs == before:
            return judged, []
        output = _left_of(given.data, runs)
    except LogFormatError:
        for each in asked:
            each.take_back()
        raise
    left = records + sum(before[1::2]) - sum(runs[1::2])
    return (Verdict.LEAVE_OUT, -1, (left, len(output))), [*runs]


def _asked(
    filters: Sequence[MergeFilter],
    draft: Draft,
    given: GivenBatch,
    runs: Sequence[int],
    asked: list[MergeFilter],
) -> Sequence[int] | None:
    """What stays by all filters; `asked` gets those that have answered."""
    for each in filters:
        staying = each.staying(draft, given, runs)
        asked.append(each)
        if staying is None:
            return None
        runs = staying
    return runs


def _left_of(batch: bytes, runs: Sequence[int]) -> bytearray:
    output = leave_out(batch, runs)
    if len(output) > HELD_BATCH_BYTES:
        raise DecompressionError(f"what stays of a batch unpacks to {len(output)} bytes")
    return output


def flags_of(runs: Sequence[int], records: int) -> Iterator[bool]:
    """Record by record, what runs say."""
    done = 0
    for place, length in enumerate(runs):
        yield from (place % 2 == 0 for _ in range(length))
        done += length
    yield from (True for _ in range(records - done))


def look_ahead(
    filters: Sequence[MergeFilter],
    draft: Draft,
    entry: Input,
    data: bytes,
    headers: Sequence[tuple[int, ...]],
) -> None:
    """Filters will be asked for these batches of an input."""
    batches = [data[header[0] : header[0] + header[1]] for header in headers]
    for each in filters:
        each.look_ahead(draft, entry, batches)


def look_behind(filters: Sequence[MergeFilter], draft: Draft, behind: bytes) -> None:
    """What follows a batch that cannot be judged yet comes with it, if filters have room."""
    room = [each.look_behind(draft.partition, behind) for each in filters]
    if not all(room):
        draft.most_bytes = 0

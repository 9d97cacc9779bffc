"""Planted bugs in what is left out of ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.merge import drafts, merger


@contextmanager
def merge_what_is_left_out() -> Iterator[None]:
    """A range is merged whole, whatever the instruction leaves out of it."""
    with patch.object(merger, "leave_out", lambda data, runs: data):
        yield


@contextmanager
def leave_out_by_place_in_batch() -> Iterator[None]:
    """When ranges are joined, what is left out of the second is counted from its own beginning."""

    def joined(before: Sequence[int], records: int, behind: Sequence[int]) -> list[int]:
        return [*(behind or before)]

    with patch.object(drafts, "joined", joined):
        yield


_MERGER, _PLANNER = "tests/sequencer/test_merger.py::", "tests/sequencer/test_planner.py::"
LEAVING = (
    (
        "merge.12",
        merge_what_is_left_out,
        _MERGER + "test_what_is_named_is_left_out_of_a_range_of_batches",
    ),
    (
        "merge.12",
        leave_out_by_place_in_batch,
        _PLANNER + "test_filters_leave_records_out_and_the_instruction_names_them",
    ),
)

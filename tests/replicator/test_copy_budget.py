"""Which segments of copies go so that they keep within a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shiplog.replicator.copy_budget import CopySegment, starts_within

A, B = ("a", 0), ("b", 0)
SIZES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), max_size=8)


def of(copy: tuple[str, int], *facts: tuple[int, int]) -> list[CopySegment]:
    """Segments of 10 records each, given as (when written, size); the last one grows."""
    ends = [10 * (number + 1) for number in range(len(facts) - 1)]
    following = [*ends, None] if facts else []
    return [
        CopySegment(modified, copy, end, size)
        for (modified, size), end in zip(facts, following, strict=True)
    ]


def test_the_oldest_go_first_whoever_has_them() -> None:
    copies = of(A, (1, 100), (5, 100), (9, 100)), of(B, (3, 100), (7, 100))
    assert starts_within(500, copies) == {}
    assert starts_within(499, copies) == {A: 10}
    assert starts_within(400, copies) == {A: 10}
    assert starts_within(300, copies) == {A: 10, B: 10}
    assert starts_within(200, copies) == {A: 20, B: 10}
    assert starts_within(1, copies) == {A: 20, B: 10}, "what grows stays"


@given(first=SIZES, second=SIZES, budget=st.integers(1, 900))
def test_no_more_goes_than_must(
    first: list[tuple[int, int]], second: list[tuple[int, int]], budget: int
) -> None:
    copies = of(A, *first), of(B, *second)
    starts = starts_within(budget, copies)
    gone = [
        segment
        for segments in copies
        for segment in segments
        if segment.following is not None and segment.following <= starts.get(segment.copy, 0)
    ]
    total = sum(segment.size for segments in copies for segment in segments)
    left = total - sum(segment.size for segment in gone)
    can_go = [each for segments in copies for each in segments[:-1]]
    assert left <= budget or len(gone) == len(can_go)
    if gone:
        assert left + max(segment.size for segment in gone) > budget

"""Which segments of copies go so that they keep within a budget."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from samelog.replicator.pull.copy_budget import CopySegment, segments_of_all, starts_within
from samelog.store.disk.files import OsFileSystem, StrPath

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


class Counting(OsFileSystem):
    """One that counts whose sizes are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def size(self, path: StrPath) -> int:
        """As it is."""
        self.asked += 1
        return super().size(path)


def test_what_was_emptied_long_ago_is_not_looked_at_again(tmp_path: Path) -> None:
    for base, size in enumerate([0] * 50 + [7, 8, 0]):
        (tmp_path / f"{base:020d}.log").write_bytes(bytes(size))
    fs = Counting()
    [found] = segments_of_all(fs, {A: str(tmp_path)})
    assert [(each.size, each.following) for each in found] == [(7, 51), (8, 52)]
    assert fs.asked == 4


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

"""Dedup numbers: what headers carry of them, and that the cluster can always tell them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import Publisher
from samelog.format import _kernels as kernels
from samelog.format.dedup import DEDUP_SEQUENCES, dedup_producer_id
from samelog.publisher import InvalidId
from tests.examples import at_most
from tests.publisher import reading

GAPS = st.one_of(
    st.just(1),
    st.integers(1, 5),
    st.integers(DEDUP_SEQUENCES - 2, DEDUP_SEQUENCES + 2),
    st.integers(1, 1 << 40),
)


def unwrapped(session: Path, partition: int = 0) -> list[int]:
    """The numbers of all records, as the cluster tells them: by the headers of each run alone."""
    numbers: list[int] = []
    for run in reading.runs(session):
        previous = run.dedup_base
        if previous is None:
            raise AssertionError("a run without a base")
        data = reading.raw(session, partition=partition, run=run.run)
        for header in kernels.batch_headers(data, 0, len(data)):
            assert (header[6], header[7]) == (dedup_producer_id("feed"), 0)
            first = previous + (header[8] - previous) % DEDUP_SEQUENCES
            numbers.extend(range(first, first + header[2]))
            previous = numbers[-1]
    return numbers


def test_the_producer_id_follows_from_the_dedup_id() -> None:
    assert dedup_producer_id("feed") == dedup_producer_id("feed") != dedup_producer_id("food")
    assert 0 <= dedup_producer_id("é") < 1 << 63


@settings(max_examples=at_most(40))
@given(
    first=st.integers(0, 1 << 62),
    gaps=st.lists(GAPS, max_size=12),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    partitions=st.integers(1, 3),
    linger_ms=st.sampled_from([0, 60_000]),
)
def test_every_number_can_be_told_from_the_headers(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    first: int,
    gaps: list[int],
    pieces: list[int],
    partitions: int,
    linger_ms: float,
) -> None:
    root = tmp_path_factory.mktemp("ids")
    numbers = [first]
    for gap in gaps:
        numbers.append(numbers[-1] + gap)
    with Publisher(
        "t",
        session="s",
        directory=root,
        dedup_id="feed",
        partitions=partitions,
        linger_ms=linger_ms,
    ) as publisher:
        at, turn = 0, 0
        while at < len(numbers):
            part = numbers[at : at + pieces[turn % len(pieces)]]
            keys = [b"%d" % number for number in part]
            if len(part) == 1:
                publisher.append(keys[0], key=keys[0], id=part[0])
            else:
                publisher.append_many(keys, keys=keys, ids=part)
            at, turn = at + len(part), turn + 1
    told: list[int] = []
    for partition in range(partitions):
        if (root / "s" / f"t-{partition}").exists():
            own = unwrapped(root / "s", partition)
            assert [b"%d" % number for number in own] == reading.values(root / "s", "t", partition)
            told += own
    assert sorted(told) == numbers


def test_a_batch_is_broken_at_a_gap(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, dedup_id="feed") as publisher:
        publisher.append_many([b"a", b"b", b"c", b"d"], ids=[5, 6, 9, 10])
        publisher.append_many([b"e", b"f"], first_id=11)
    assert reading.batch_sizes(tmp_path / "s") == [2, 2, 2]
    assert unwrapped(tmp_path / "s") == [5, 6, 9, 10, 11, 12]
    assert reading.runs(tmp_path / "s")[0].dedup_id == "feed"


def test_a_number_too_far_ahead_begins_a_run(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, dedup_id="feed") as publisher:
        publisher.append(b"a", id=7)
        publisher.append(b"b", id=7 + DEDUP_SEQUENCES)
    first, second = reading.runs(tmp_path / "s")
    assert (first.dedup_base, second.dedup_base) == (7, 7 + DEDUP_SEQUENCES)
    assert first.end is not None
    assert unwrapped(tmp_path / "s") == [7, 7 + DEDUP_SEQUENCES]


def test_numbers_must_rise_and_be_there(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, dedup_id="feed") as publisher:
        publisher.append(b"a", id=5)
        with pytest.raises(InvalidId, match="id 5 does not rise: the one before it is 5"):
            publisher.append(b"b", id=5)
        with pytest.raises(InvalidId, match="does not rise"):
            publisher.append_many([b"b", b"c"], ids=[7, 6])
        with pytest.raises(InvalidId, match="every record needs an id"):
            publisher.append(b"b")
        with pytest.raises(InvalidId, match="2 values have 1 ids"):
            publisher.append_many([b"b", b"c"], ids=[6])
        with pytest.raises(InvalidId, match="either ids or first_id"):
            publisher.append_many([b"b"], ids=[6], first_id=6)
        with pytest.raises(InvalidId, match="not an id"):
            publisher.append(b"b", id=1 << 63)
        publisher.append(b"b", id=6)
    assert unwrapped(tmp_path / "s") == [5, 6]


def test_numbers_mean_nothing_without_a_dedup_id(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        with pytest.raises(InvalidId, match="give one to the publisher"):
            publisher.append(b"a", id=1)
        with pytest.raises(InvalidId, match="give one to the publisher"):
            publisher.append_many([b"a"], first_id=1)

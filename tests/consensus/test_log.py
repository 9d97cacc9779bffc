"""The log against a plain dictionary, and its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.consensus import Entry, InvariantError
from samelog.consensus.log import RaftLog
from samelog.consensus.types import ENTRY_OVERHEAD_BYTES


def make(base: int, *terms: int) -> RaftLog:
    entries = [Entry(index, term, b"x" * index) for index, term in enumerate(terms, base + 1)]
    return RaftLog(base, terms[0] if terms and base else 0, entries)


@given(
    st.integers(0, 3),
    st.lists(st.integers(1, 6), max_size=12).map(sorted),
    st.integers(0, 16),
    st.integers(0, 7),
)
def test_newest_up_to_term(base: int, terms: list[int], index: int, term: int) -> None:
    log = make(base, *terms)
    naive = base
    for number, each in enumerate(terms, base + 1):
        if number <= index and each <= term:
            naive = number
    assert log.newest_up_to_term(index, term) == (naive, log.term_at(naive))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=10), st.integers(1, 300))
def test_entries_up_to_bytes(sizes: list[int], limit: int) -> None:
    entries = [Entry(index, 1, bytes(size)) for index, size in enumerate(sizes, 1)]
    log = RaftLog(0, 0, entries)
    for start in range(1, len(sizes) + 1):
        taken = log.entries_up_to_bytes(start, limit)
        assert list(taken) == entries[start - 1 : start - 1 + len(taken)]
        costs = [len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in entries[start - 1 :]]
        assert len(taken) == 1 or sum(costs[: len(taken)]) <= limit
        assert len(taken) == len(costs) or sum(costs[: len(taken) + 1]) > limit


def test_terms_are_known_from_the_base_to_the_end() -> None:
    log = make(4, 2, 2, 3)
    assert [log.term_at(index) for index in range(3, 9)] == [None, 2, 2, 2, 3, None]
    assert log.matches(7, 3)
    assert not log.matches(8, 3)


def test_cutting_both_ends() -> None:
    log = make(0, 1, 1, 2, 2, 3)
    log.cut_from(5)
    log.compact(2)
    assert (log.base_index, log.base_term, log.last_index, log.last_term) == (2, 1, 4, 2)
    assert [entry.index for entry in log.entries(3, 5)] == [3, 4]
    with pytest.raises(InvariantError):
        log.compact(1)
    with pytest.raises(InvariantError):
        log.compact(5)
    log.reset(9, 7)
    assert (log.base_index, log.last_index, log.last_term) == (9, 9, 7)


@pytest.mark.parametrize("entry", [Entry(2, 3, b""), Entry(4, 3, b""), Entry(3, 1, b"")])
def test_entries_that_do_not_follow_are_refused(entry: Entry) -> None:
    log = make(0, 1, 2)
    with pytest.raises(InvariantError):
        log.append([entry])


def test_first_conflict() -> None:
    log = make(0, 1, 1, 2)
    assert log.first_conflict([Entry(2, 1, b""), Entry(3, 2, b"")]) is None
    assert log.first_conflict([Entry(2, 1, b""), Entry(3, 3, b"")]) == 3
    assert log.first_conflict([Entry(3, 2, b""), Entry(4, 3, b"")]) == 4

"""A log of the first version is carried over as what it added up to."""

from __future__ import annotations

import pytest

from samelog.consensus import CorruptRecord, Entry, HardState
from samelog.consensus.wal import Base, SnapshotMark, WalRecord
from samelog.consensus.wal.first_version import carried_over


def test_the_newest_of_everything_is_carried_over() -> None:
    records: list[WalRecord] = [
        HardState(1, 0, 0),
        Entry(1, 1, b"a"),
        Entry(2, 1, b"b"),
        Entry(3, 1, b"c"),
        HardState(2, None, 1),
        Entry(2, 2, b"x"),
    ]
    expected = [Base(0), Entry(1, 1, b"a"), Entry(2, 2, b"x"), HardState(2, None, 1)]
    assert carried_over(records) == expected


@pytest.mark.parametrize(
    ("mark", "base", "kept"),
    [
        (SnapshotMark(2, 1), 0, [1, 2, 3]),
        (SnapshotMark(3, 1), 0, [1, 2, 3]),
        (SnapshotMark(2, 2), 2, []),
        (SnapshotMark(9, 2), 9, []),
        (SnapshotMark(0, 0), 0, [1, 2, 3]),
    ],
)
def test_snapshots_say_where_the_log_begins(mark: SnapshotMark, base: int, kept: list[int]) -> None:
    entries = [Entry(index, 1, b"") for index in (1, 2, 3)]
    rest = [entry for entry in entries if entry.index in kept]
    assert carried_over([*entries, mark]) == [Base(base), *rest, mark, HardState(0, None, 0)]


def test_the_log_goes_on_behind_an_installed_snapshot() -> None:
    mark, last = SnapshotMark(9, 2), Entry(10, 2, b"")
    records = carried_over([Entry(1, 1, b""), mark, last])
    assert records == [Base(9), last, mark, HardState(0, None, 0)]


def test_the_log_begins_where_removed_files_ended() -> None:
    """A node's own snapshot is older than its newest entry, which may be in an earlier file."""
    mark, entry, state = SnapshotMark(9, 2), Entry(12, 2, b""), HardState(2, 0, 9)
    assert carried_over([state, mark, entry]) == [Base(11), entry, mark, state]


@pytest.mark.parametrize(
    "records",
    [
        [Entry(1, 1, b""), Entry(3, 1, b"")],
        [Entry(1, 1, b""), SnapshotMark(9, 2), Entry(11, 2, b"")],
    ],
)
def test_gaps_are_refused(records: list[WalRecord]) -> None:
    with pytest.raises(CorruptRecord, match="missing"):
        carried_over(records)

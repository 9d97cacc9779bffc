"""The checker sees what it is there for: each kind of harm, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.checker import Promise, RecordCheck, judge, promises_of
from tests.chaos.notes import Kind, NoteBook, longest_gap_ms
from tests.chaos.record import Author, Writer

ONE, TWO = Author("a", 1), Author("a", 2)


def values(author: Author, count: int) -> list[bytes]:
    writer = Writer(author)
    return [writer.take(b"padding %d" % number) for number in range(count)]


def found(merged: list[bytes], *promises: Promise) -> dict[str, int]:
    check = RecordCheck()
    check.take(merged)
    findings = judge(check, promises)
    kinds = ("lost", "unmerged", "holes", "doubled", "reordered", "foreign")
    counts = {kind: int(getattr(findings, kind)) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


def test_whole_lives_in_any_mixture_are_clean() -> None:
    ours, theirs = values(ONE, 5), values(Author("b", 1), 3)
    mixed = [ours[0], theirs[0], theirs[1], *ours[1:], theirs[2], *values(TWO, 2)]
    promises = (Promise(ONE, 5, 5), Promise(Author("b", 1), 3, 1), Promise(TWO, 2, 0))
    assert found(mixed, *promises) == {}


def test_what_was_acknowledged_and_is_missing_is_lost() -> None:
    assert found(values(ONE, 5)[:3], Promise(ONE, 5, 4)) == {"lost": 1, "unmerged": 1}


def test_a_disk_that_lost_its_newest_files_owes_only_what_was_acknowledged() -> None:
    assert found(values(ONE, 5)[:4], Promise(ONE, 5, 4, keeps_files=False)) == {}


def test_what_was_never_noted_may_be_there_but_without_holes() -> None:
    merged = values(ONE, 9)
    assert found(merged, Promise(ONE, 5, 4)) == {}
    assert found(merged[:6] + merged[8:], Promise(ONE, 5, 4)) == {"holes": 2}


def test_a_hole_below_what_was_acknowledged_is_a_loss() -> None:
    merged = values(ONE, 5)
    assert found(merged[:2] + merged[3:], Promise(ONE, 5, 5)) == {"lost": 1}


def test_doubles_and_wrong_order_are_told_apart() -> None:
    merged = values(ONE, 5)
    assert found([*merged, merged[2]], Promise(ONE, 5, 5)) == {"doubled": 1}
    swapped = [merged[0], merged[2], merged[1], *merged[3:]]
    assert found(swapped, Promise(ONE, 5, 5)) == {"reordered": 1}


def test_an_older_life_behind_a_newer_one_is_wrong_order() -> None:
    older, newer = values(ONE, 2), values(TWO, 1)
    promises = (Promise(ONE, 2, 2), Promise(TWO, 1, 1))
    assert found([older[0], *newer, older[1]], *promises) == {"reordered": 1}


@pytest.mark.parametrize(
    "forged",
    [b"", b"no record at all", b"a 1 2 0000000000000000 padding 2", b"a one 2 0 x"],
)
def test_what_nobody_wrote_is_foreign(forged: bytes) -> None:
    merged = values(ONE, 5)
    merged[2] = forged
    assert found(merged, Promise(ONE, 5, 0))["foreign"] >= 1


def test_a_changed_byte_breaks_the_chain() -> None:
    merged = values(ONE, 3)
    merged[1] = merged[1].replace(b"padding", b"Padding")
    assert found(merged, Promise(ONE, 3, 3)) == {"foreign": 1}


def test_notes_of_a_killed_process_count_up_to_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    book = NoteBook(str(path))
    book.write(Kind.APPENDED, 10)
    book.write(Kind.ACKNOWLEDGED, 7)
    with path.open("ab") as file:
        file.write(b"K 9")
    assert promises_of({ONE: path}, frozenset()) == [Promise(ONE, 10, 7)]
    assert promises_of({ONE: path}, frozenset({"a"})) == [Promise(ONE, 10, 7, keeps_files=False)]


def test_the_longest_gap_counts_the_ends_of_the_interval() -> None:
    assert longest_gap_ms([], 1.0, 3.0) == 2000
    assert longest_gap_ms([0.5, 1.5, 2.5, 9.0], 1.0, 3.0) == 1000

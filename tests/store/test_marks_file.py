"""The marks of all session logs of a node, in one file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from samelog.format.marks import InputMark, RunMark
from samelog.store.session import marks_file
from samelog.store.session.marks_file import MarksFile
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process, ProcessDied
from tests.store.storage import FS, write_marks


def mark(number: int, byte: int) -> InputMark:
    """A mark of run 0 of an input."""
    return InputMark(number, f"s{number}", [RunMark(0, 0, byte, 0)])


def opened(path: Path, *, lost_power: bool = True) -> MarksFile:
    return MarksFile(FS, str(path), lost_power=lost_power)


def byte_of(marks: MarksFile, number: int) -> int | None:
    """How far an input is marked; None: no mark can be trusted."""
    runs = marks.of(number, f"s{number}")
    return None if runs is None else runs[0].byte if runs else 0


def test_the_last_mark_of_an_input_counts_and_is_of_this_input_only(tmp_path: Path) -> None:
    marks = opened(tmp_path)
    write_marks(marks, [mark(1, 10), mark(2, 20)])
    write_marks(marks, [mark(1, 30)])
    again = opened(tmp_path)
    assert [byte_of(again, number) for number in (1, 2, 3)] == [30, 20, 0]
    assert again.of(1, "another") == ()


def test_a_missing_file_means_that_marks_may_be_lost_unless_nothing_was_there(
    tmp_path: Path,
) -> None:
    assert opened(tmp_path).is_complete
    (tmp_path / "session").mkdir()
    marks = opened(tmp_path)
    assert not marks.is_complete
    assert byte_of(marks, 1) is None
    write_marks(marks, [mark(2, 5)])
    again = opened(tmp_path)
    assert (byte_of(again, 1), byte_of(again, 2)) == (None, 5)


@pytest.mark.parametrize("lost_power", [False, True])
def test_a_torn_record_says_nothing_and_is_damage_unless_the_power_was_lost(
    tmp_path: Path, lost_power: bool
) -> None:
    marks, file = opened(tmp_path), tmp_path / ".marks"
    write_marks(marks, [mark(1, 10)])
    size = file.stat().st_size
    write_marks(marks, [mark(1, 20), mark(2, 20)])
    whole = file.read_bytes()
    for end in range(size + 1, len(whole)):
        file.write_bytes(whole[:end])
        again = opened(tmp_path, lost_power=lost_power)
        assert byte_of(again, 1) == 10
        assert byte_of(again, 2) == (0 if lost_power else None)
        write_marks(again, [mark(3, 30)])
        later = opened(tmp_path, lost_power=lost_power)
        assert [byte_of(later, number) for number in (1, 3)] == [10, 30]
        assert byte_of(later, 2) == (0 if lost_power else None)


def test_a_damaged_record_before_others_is_no_torn_tail(tmp_path: Path) -> None:
    marks, file = opened(tmp_path), tmp_path / ".marks"
    write_marks(marks, [mark(1, 10)])
    write_marks(marks, [mark(1, 20), mark(2, 20)])
    size = file.stat().st_size
    write_marks(marks, [mark(3, 30)])
    whole = file.read_bytes()
    for at in range(size - 1):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1
        file.write_bytes(spoilt)
        again = opened(tmp_path)
        assert not again.is_complete
        assert byte_of(again, 3) == 30
        assert byte_of(again, 1) in (10, 20, None), "an older mark, or none"
        assert byte_of(again, 4) is None


def test_a_file_that_has_grown_is_replaced_by_what_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_file, "REPLACED_FROM_BYTES", 400)
    monkeypatch.setattr(marks_file, "RECORD_INPUTS", 2)
    marks, file, sizes = opened(tmp_path), tmp_path / ".marks", []
    for step in range(60):
        changed = [mark(step % 5, step)]
        for files in marks.write(changed, lambda number: number != 3):
            for each in files:
                each.datasync()
        sizes.append(file.stat().st_size)
    assert max(sizes) < 2500
    again = opened(tmp_path)
    assert [byte_of(again, number) for number in (0, 1, 2, 4)] == [55, 56, 57, 59]


def test_a_loss_of_power_leaves_what_was_synced_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_file, "REPLACED_FROM_BYTES", 300)
    for effects in range(1, 40):
        for seed in range(6):
            disk, process = Disk(f"marks {effects} {seed}"), Process("n", "n")
            fs = cast(Any, SimFileSystem(disk, process))
            fs.make_directory("/s")
            synced = 0
            process.fuse = effects
            with suppress(ProcessDied):
                marks = MarksFile(fs, "/s", lost_power=True)
                for step in range(1, 9):
                    write_marks(marks, [mark(1, step)])
                    synced = step
            process.is_alive = False
            disk.lose_power()
            again = MarksFile(
                cast(Any, SimFileSystem(disk, Process("n", "n"))), "/s", lost_power=True
            )
            assert again.is_complete
            assert (byte_of(again, 1) or 0) >= synced


def test_what_failed_for_want_of_room_is_written_with_the_next(tmp_path: Path) -> None:
    marks = opened(tmp_path)
    write_marks(marks, [mark(1, 10)])
    next(iter(marks.write([mark(2, 20)], lambda number: True))).clear()  # given up before its sync
    write_marks(marks, [mark(3, 30)])
    again = opened(tmp_path)
    assert [byte_of(again, number) for number in (1, 2, 3)] == [10, 20, 30]

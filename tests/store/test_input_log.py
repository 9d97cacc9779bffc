"""An input log: what it refuses, and what it finds damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.errors import CorruptLog, NotContiguous, OtherTopic, UnsupportedFormat
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.disk.os_file import OsFile
from samelog.store.session.log import InputLog, prepare_input
from samelog.store.session.run import InputFile
from tests.store.full_disk import small_disk
from tests.store.storage import FS, TOPIC_ID, batch, open_below, open_input, save_marks, sync_input

ONE, TWO, THREE = batch(1), batch(2, records=3), batch(3, size=500)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log is."""
    return tmp_path / "flights-0"


def write(path: Path, *files: list[bytes], sync: bool = True) -> InputLog:
    """Run 0 with these files, all sealed but the last."""
    log = open_input(path)
    for roll, several in enumerate(files):
        for data in several:
            log.append(0, roll, log.end(0)[1], data)
        if roll + 1 < len(files):
            log.seal(0, roll, log.end(0)[1])
    if sync:
        sync_input(log, 0)
        save_marks(log)
    return log


def test_a_log_rests_only_when_all_is_synced_and_in_place_and_goes_on(path: Path) -> None:
    log = write(path, [ONE], [TWO], sync=False)
    assert not log.rest()
    files = log.take_dirty()
    assert not log.rest(), "a sync is under way"
    for file in files:
        file.datasync()
    log.synced(ends={0: log.end(0)})
    away = path.with_name("away")
    os.rename(path / "log.0.1", away)
    assert not log.rest(), "the bytes are in the open file alone"
    os.rename(away, path / "log.0.1")
    assert open_below(log.path)
    assert log.rest()
    assert open_below(log.path) == []
    log.append(0, 1, len(TWO), THREE)
    assert not log.rest()
    assert log.read(0, 1, 0, 1 << 20) == TWO + THREE
    log.close()


# --- refusing ------------------------------------------------------------------------------------


def test_only_the_end_of_a_run_can_be_appended_to(path: Path) -> None:
    log = write(path, [ONE], [TWO])
    for place in ((0, len(ONE)), (1, 0), (1, len(TWO) + 1), (2, 0)):
        with pytest.raises(NotContiguous, match=f"ends at 1:{len(TWO)}"):
            log.append(0, *place, ONE)
        with pytest.raises(NotContiguous):
            log.seal(0, *place)
    for place in ((0, 1), (1, 0)):
        with pytest.raises(NotContiguous, match="ends at 0:0"):
            log.append(7, *place, ONE)
    with pytest.raises(NotContiguous):
        log.start_at(0, 1, len(TWO) - 1)
    assert log.runs() == [0]
    log.append(0, *log.end(0), b"")
    log.close()


def test_another_topic_is_refused(path: Path) -> None:
    write(path, [ONE]).close()
    with pytest.raises(OtherTopic, match=f"belongs to topic id {TOPIC_ID}, not to other") as other:
        InputLog.open(FS, path, topic_id="other")
    assert other.value.path == str(path)
    FS.remove_tree(path)
    again = InputLog.open(FS, path, topic_id="other")
    assert again.end(0) == (0, 0)
    again.close()


def test_a_publisher_learns_the_topic_id_later(path: Path) -> None:
    log = InputLog.open(FS, path)
    log.append(0, 0, 0, ONE)
    assert log.topic_id is None
    log.bind_topic(TOPIC_ID)
    log.bind_topic(TOPIC_ID)
    with pytest.raises(OtherTopic):
        log.bind_topic("other")
    log.close()
    again = InputLog.open(FS, path)
    assert again.topic_id == TOPIC_ID
    again.close()


def test_a_newer_format_is_left_alone(path: Path) -> None:
    write(path, [ONE]).close()
    (path / "topic.json").write_text('{"format_version": 9}')
    before = sorted(os.listdir(path))
    with pytest.raises(UnsupportedFormat, match="format version 9"):
        open_input(path)
    assert sorted(os.listdir(path)) == before


@pytest.mark.parametrize("name", ["log.0.0", "topic.json", "log.0.1"])
def test_planted_things_are_not_followed(path: Path, name: str) -> None:
    write(path, [ONE], [TWO], sync=False).close()
    (path / name).rename(path.parent / "outside")
    before = (path.parent / "outside").read_bytes()
    (path / name).symlink_to(path.parent / "outside")
    with pytest.raises(CorruptLog, match=name.replace(".", r"\.")):
        open_input(path)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(CorruptLog, match=name.replace(".", r"\.")):
        open_input(path)
    assert (path.parent / "outside").read_bytes() == before


def test_a_linked_directory_is_refused(path: Path, tmp_path: Path) -> None:
    write(path, [ONE]).close()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(CorruptLog, match="link"):
        open_input(tmp_path / "link")


# --- durability ----------------------------------------------------------------------------------


def test_marks_never_lead(path: Path) -> None:
    log = write(path, [ONE, TWO])
    assert log.durable(0) == (0, len(ONE + TWO))
    log.synced(ends={0: (0, 1 << 30)})  # of a log that was longer once
    log.synced(ends={0: (0, len(ONE))})
    log.synced(ends={5: (0, 3)})
    assert log.durable(0) == (0, len(ONE + TWO))
    assert log.durable(5) == (0, 0)
    log.close()


def test_what_survived_a_crash_above_the_mark_is_synced_first(path: Path) -> None:
    log = write(path, [ONE])
    log.append(0, 0, len(ONE), TWO)
    log.seal(0, 0, len(ONE + TWO))
    log.append(0, 1, 0, THREE)
    log.close()
    log = open_input(path)
    assert (log.end(0), log.durable(0)) == ((1, len(THREE)), (0, len(ONE)))
    assert log.dirty()
    taken = log.take_dirty()
    names = [os.path.basename(file.path) for file in taken]
    assert {"log.0.0", "log.0.1", "flights-0"} <= set(names)
    log.append(0, 1, len(THREE), ONE)
    for file in taken:
        file.size()  # raises if it were closed, and its sync would do nothing
    log.settle()
    save_marks(log)
    log.close()
    log = open_input(path)
    assert not log.dirty()
    log.close()


def append_until_full(log: InputLog, data: bytes) -> int:
    """Append copies of `data` until the disk is full; how many there was room for."""
    for count in range(1000):
        try:
            log.append(0, *log.end(0), data)
        except NoSpace:
            return count
    raise AssertionError("the disk never filled up")


def test_a_full_disk_loses_nothing_that_counted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        log = open_input(disk / "flights-0")
        data = batch(9, size=30_000)
        count = append_until_full(log, data)
        assert log.end(0) == (0, count * len(data))
        assert log.read(0, 0, 0, 1 << 30) == data * count
        log.close()
        log = open_input(disk / "flights-0")
        assert log.end(0) == (0, count * len(data))
        assert log.damaged == []
        log.release_run(0)
        log.append(1, 0, 0, data)  # there is room again
        log.close()


def test_settling_makes_later_openings_cheap(path: Path) -> None:
    write(path, [ONE], [TWO, THREE], sync=False).close()
    log = open_input(path)
    log.settle()
    assert log.durable(0) == log.end(0) == (1, len(TWO + THREE))
    save_marks(log)
    log.close()
    log = open_input(path)
    assert (log.durable(0), log.dirty()) == ((1, len(TWO + THREE)), False)
    log.close()


def test_a_prepared_directory_has_marks(path: Path) -> None:
    prepare_input(FS, path)
    marks = (path / "marks").read_bytes()
    (path / "log.0.0").write_bytes(ONE + b"torn")
    prepare_input(FS, path)
    assert (path / "marks").read_bytes() == marks
    (path / "marks").unlink()
    prepare_input(FS, path)
    assert not (path / "marks").exists()  # lost marks stay lost: they must not vouch for less


# --- damage --------------------------------------------------------------------------------------


def reopened(path: Path, *, position: int) -> InputLog:
    """The log, opened again, which was found damaged at a byte of a file."""
    log = open_input(path)
    assert log.damaged[-1].position == position
    return log


def test_a_bad_batch_below_the_mark_is_set_aside(path: Path) -> None:
    write(path, [ONE, TWO, THREE]).close()
    file = path / "log.0.0"
    spoilt = bytearray(file.read_bytes())
    spoilt[len(ONE + TWO) + 100] ^= 1
    file.write_bytes(spoilt)
    log = reopened(path, position=len(ONE + TWO))
    assert "CRC" in str(log.damaged[0])
    assert (path / "log.0.0.quarantined-1").read_bytes() == spoilt
    assert (log.end(0), log.durable(0)) == ((0, len(ONE + TWO)),) * 2
    assert log.read(0, 0, 0, 9999) == ONE + TWO
    assert log.last_batch(0) == (len(ONE), kernels.scan(TWO).last_crc)
    log.append(0, 0, len(ONE + TWO), THREE)
    log.close()
    log = open_input(path)
    assert (log.damaged, log.end(0)) == ([], (0, len(ONE + TWO + THREE)))
    log.close()


@pytest.mark.parametrize("byte", [11, 19, 100], ids=["length", "CRC", "content"])
def test_bytes_that_were_damaged_since_they_were_written_are_compared_with_nobodys(
    path: Path, byte: int
) -> None:
    log = write(path, [ONE, TWO])
    file = path / "log.0.0"
    spoilt = bytearray(file.read_bytes())
    spoilt[len(ONE) + byte] ^= 1
    file.write_bytes(spoilt)
    assert (log.end(0), log.last_batch(0)) == ((0, len(ONE + TWO)), None)
    log.close()


def test_a_file_shorter_than_its_mark_is_damage(path: Path) -> None:
    write(path, [ONE, TWO]).close()
    os.truncate(path / "log.0.0", len(ONE) + 5)
    log = reopened(path, position=len(ONE))
    assert log.end(0) == (0, len(ONE))
    assert (path / "log.0.0.quarantined-1").read_bytes() == ONE + TWO[:5]
    log.close()


@pytest.mark.parametrize("how", ["missing", "shorter", "longer", "unsealed"])
def test_a_damaged_sealed_file_takes_its_successors_with_it(path: Path, how: str) -> None:
    write(path, [ONE], [TWO, ONE], [THREE]).close()
    middle = path / "log.0.1"
    match how:
        case "missing":
            middle.unlink()
        case "shorter":
            os.truncate(middle, len(TWO) + 3)
        case "longer":
            middle.write_bytes(TWO + ONE + ONE)
        case "unsealed":
            (path / f"log.0.1.sealed-{len(TWO + ONE)}").unlink()
    log = open_input(path)
    kept = {"missing": b"", "shorter": TWO, "longer": TWO + ONE + ONE, "unsealed": TWO + ONE}[how]
    assert log.end(0) == (1, len(kept))
    assert log.files()[0] == InputFile(0, 0, len(ONE), sealed=True)
    assert log.read(0, 1, 0, 9999) == kept
    assert (path / "log.0.2.quarantined-1").read_bytes() == THREE
    assert {os.path.basename(error.path) for error in log.damaged} == {"log.0.1", "log.0.2"}
    log.close()
    log = open_input(path)
    assert log.damaged == []
    log.close()


@pytest.mark.parametrize("byte", [8, 19, 100], ids=["length", "CRC", "content"])
def test_a_bad_batch_above_the_mark_is_set_aside_if_an_intact_one_follows(
    path: Path, byte: int
) -> None:
    write(path, [ONE, TWO, THREE], sync=False).close()
    file = path / "log.0.0"
    spoilt = bytearray(file.read_bytes())
    spoilt[len(ONE) + byte] ^= 1
    file.write_bytes(spoilt)
    log = reopened(path, position=len(ONE))
    assert (log.end(0), log.lost_durable) == ((0, len(ONE)), False)
    assert (path / f"log.0.0.from-{len(ONE)}.quarantined-1").read_bytes() == spoilt[len(ONE) :]
    log.append(0, 0, len(ONE), TWO + THREE)
    log.close()
    log = open_input(path)
    assert (log.damaged, log.read(0, 0, 0, 9999)) == ([], ONE + TWO + THREE)
    log.close()


def test_a_bad_last_batch_above_the_mark_is_a_torn_tail(path: Path) -> None:
    write(path, [ONE, TWO], sync=False).close()
    file = path / "log.0.0"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff" + bytes(100))
    log = open_input(path)
    assert (log.damaged, log.end(0), file.stat().st_size) == ([], (0, len(ONE)), len(ONE))
    assert not [*path.glob("*quarantined*")]
    log.close()


def test_files_behind_a_bad_one_above_the_mark_are_set_aside(path: Path) -> None:
    write(path, [ONE], [TWO, ONE], [THREE], sync=False).close()
    os.truncate(path / "log.0.1", len(TWO) + 3)
    log = open_input(path)
    assert [error.position for error in log.damaged] == [len(TWO), 0]
    assert (log.end(0), log.lost_durable) == ((1, len(TWO)), False)
    assert (path / f"log.0.1.from-{len(TWO)}.quarantined-1").read_bytes() == ONE[:3]
    assert (path / "log.0.2.quarantined-1").read_bytes() == THREE
    log.close()


def test_a_sealed_file_above_the_mark_is_cut_to_its_length(path: Path) -> None:
    write(path, [ONE], [TWO], sync=False).close()
    (path / "log.0.0").write_bytes(ONE + THREE)
    log = open_input(path)
    assert (log.damaged, log.sealed_length(0, 0), log.end(0)) == ([], len(ONE), (1, len(TWO)))
    assert (path / "log.0.0").read_bytes() == ONE
    log.close()


def test_set_aside_files_get_new_names(path: Path) -> None:
    for number in (1, 2, 3):
        log = open_input(path)
        log.append(0, 0, 0, ONE)
        sync_input(log, 0)
        save_marks(log)
        log.close()
        os.truncate(path / "log.0.0", number)
        log = open_input(path)
        assert log.end(0) == (0, 0)
        log.close()
        assert (path / f"log.0.0.quarantined-{number}").read_bytes() == ONE[:number]


def test_leftovers_of_a_release_are_removed(path: Path) -> None:
    log = write(path, [ONE], [TWO], [])
    log.close()
    (path / "log.0.0").unlink()  # a crash came before its marker was removed
    log = open_input(path)
    assert log.damaged == []
    assert (log.start(0), log.end(0)) == ((1, 0), (2, 0))
    assert not list(path.glob("log.0.0*"))
    log.release_run(0)
    log.close()
    assert os.listdir(path) == ["topic.json"]
    assert open_input(path).runs() == []


@pytest.mark.parametrize("lost", ["log.0.0.sealed", "log.0.1"])
def test_a_seal_that_fails_for_want_of_room_did_not_happen(
    path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    really_open = OsFileSystem.open
    left = [lost]

    def open_or_fail(fs: OsFileSystem, name: StrPath, **options: bool) -> OsFile:
        if left and Path(name).name.startswith(left[0]):
            left.clear()
            raise NoSpace(str(name), "open", errno.ENOSPC)
        return really_open(fs, name, **options)

    log = write(path, [ONE])
    monkeypatch.setattr(OsFileSystem, "open", open_or_fail)
    with pytest.raises(NoSpace):
        log.seal(0, 0, len(ONE))
    assert log.end(0) == (0, len(ONE))
    log.seal(0, 0, len(ONE))
    log.append(0, 1, 0, TWO)
    log.settle()
    log.close()
    again = open_input(path)
    assert (again.end(0), again.damaged) == ((1, len(TWO)), [])
    assert again.read(0, 0, 0, 999) + again.read(0, 1, 0, 999) == ONE + TWO
    again.close()


def test_a_run_may_end_with_a_sealed_file(path: Path) -> None:
    log = write(path, [ONE], sync=False)
    log.seal(0, 0, len(ONE))
    log.close()
    (path / "log.0.1").unlink()  # a crash came before it was made, or nobody made it
    log = open_input(path)
    assert log.end(0) == (1, 0)
    assert log.sealed_length(0, 0) == len(ONE)
    assert log.last_batch(0) == (0, kernels.scan(ONE).last_crc)
    with pytest.raises(NotContiguous):
        log.append(0, 0, len(ONE), ONE)
    with pytest.raises(NotContiguous):
        log.seal(0, 0, len(ONE))
    log.release(0, 0)
    assert log.end(0) == (1, 0)
    log.close()
    log = open_input(path)
    assert (log.end(0), log.damaged) == ((1, 0), [])
    log.append(0, 1, 0, TWO)
    assert log.end(0) == (1, len(TWO))
    log.close()


@pytest.mark.parametrize("start", [0, 100])
def test_the_name_of_a_file_without_bytes_is_synced_after_a_restart(
    tmp_path: Path, start: int
) -> None:
    """It may have been made just before: what is written to it later must not lose it."""
    log = InputLog.open(OsFileSystem(), tmp_path / "in", topic_id="t")
    log.start_at(0, 0, start)
    save_marks(log)
    log.close()
    log = InputLog.open(OsFileSystem(), tmp_path / "in", topic_id="t")
    log.append(0, 0, start, ONE)
    assert str(tmp_path / "in") in {str(file.path) for file in log.take_dirty()}
    log.close()

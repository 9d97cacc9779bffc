"""`samelog verify`: whole and equal copies pass, everything else is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from samelog.cli.commands.verify import command
from samelog.format import _kernels as kernels
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog

SEGMENTS = 3


def write(path: Path, *, segments: int = SEGMENTS, value: bytes = b"v") -> Path:
    """A merged log of some segments below `path`."""
    path.mkdir(exist_ok=True)
    log = MergedLog.open(
        OsFileSystem(), str(path / "t-0"), topic="t", topic_id="a" * 32, partition=0
    )
    for number in range(segments):
        for _ in range(20):
            data = kernels.build_batches(
                [value * 300] * 10,
                timestamps=number,
                batch_bytes=1 << 16,
                max_record_bytes=1 << 20,
            )
            log.append(bytearray(data), base_offset=log.next_offset, leader_epoch=1)
        if number < segments - 1:
            log.roll()
    log.take_dirty()
    log.close()
    return path


def verify(*paths: Path) -> tuple[int, str]:
    ended = CliRunner().invoke(command, [str(path) for path in paths])
    return ended.exit_code, ended.output


def test_equal_copies_pass(tmp_path: Path) -> None:
    code, output = verify(write(tmp_path / "a"), write(tmp_path / "b"))
    assert (code, output.count("whole")) == (0, 2)


def test_a_shorter_copy_passes(tmp_path: Path) -> None:
    assert verify(write(tmp_path / "a"), write(tmp_path / "b", segments=1))[0] == 0


def test_other_bytes_are_named(tmp_path: Path) -> None:
    code, output = verify(write(tmp_path / "a"), write(tmp_path / "b", value=b"w"))
    assert code == 1
    assert "differ at segment 0, byte" in output


def test_a_copy_that_goes_on_where_another_one_has_rolled_is_named(tmp_path: Path) -> None:
    log = write(tmp_path / "b", segments=1) / "t-0"
    file = log / f"{0:020d}.log"
    with file.open("ab") as more:
        batch = kernels.build_batches([b"x"], timestamps=1, batch_bytes=99, max_record_bytes=99)
        data = bytearray(batch)
        data[:8] = (200).to_bytes(8, "big")
        more.write(data)
    code, output = verify(write(tmp_path / "a"), tmp_path / "b")
    assert code == 1
    assert "one copy ends there, the other goes on" in output


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_damage_is_named(tmp_path: Path, suffix: str) -> None:
    place = write(tmp_path / "a")
    file = place / "t-0" / f"{0:020d}.{suffix}"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code, output = verify(place)
    assert code == 1
    assert "segment 0" in output


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    place = write(tmp_path / "a")
    (place / "t-0" / f"{200:020d}.log").unlink()
    code, output = verify(place)
    assert code == 1
    assert "segment 400 follows offset 200" in output


def test_nothing_to_verify_is_no_success(tmp_path: Path) -> None:
    code, output = verify(tmp_path)
    assert code == 1
    assert "no merged logs" in output

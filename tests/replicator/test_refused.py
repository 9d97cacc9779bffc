"""What a publisher keeps of what the cluster refused: each record once, whole, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.replicator.push.refused import RefusedRecords
from samelog.store.disk.files import OsFileSystem
from samelog.wire.refusals import RefusedBatch, ToldMisfit
from tests.kafka.batches import batch

NAME = ("t", 0)
DATA = batch(b"good", b"bad", b"good", b"worse")
TOLD = (ToldMisfit(1, "a", "int32", "bad"),)


def refused(start: int, *, run: int = 0) -> RefusedBatch:
    return RefusedBatch(7, run, 0, start, len(DATA), (1, 1, 1, 1), TOLD)


def lines(path: Path) -> list[str]:
    return (path / "refused").read_text().splitlines()


def test_what_is_refused_is_kept_once_whoever_tells_it(tmp_path: Path) -> None:
    kept = RefusedRecords(OsFileSystem(), str(tmp_path))
    found = kept.keep(3, NAME, refused(0), DATA)
    assert [(each.record, each.column, each.value) for each in found] == [
        (1, "a", b"bad"),
        (3, "", b"worse"),
    ]
    assert kept.keep(3, NAME, refused(0), DATA) == []
    again = RefusedRecords(OsFileSystem(), str(tmp_path))  # of a new process
    assert again.keep(3, NAME, refused(0), DATA) == []
    assert len(again.keep(2, NAME, refused(0), DATA)) == 2, "of another run"
    assert len(again.keep(3, NAME, refused(50), DATA)) == 2
    assert len(lines(tmp_path)) == 6


@pytest.mark.parametrize("cut", [-1, -5, 10, -150])
def test_a_batch_that_was_begun_is_written_again(tmp_path: Path, cut: int) -> None:
    RefusedRecords(OsFileSystem(), str(tmp_path)).keep(0, NAME, refused(0), DATA)
    whole = (tmp_path / "refused").read_bytes()
    (tmp_path / "refused").write_bytes(whole[:cut])
    kept = RefusedRecords(OsFileSystem(), str(tmp_path))
    assert len(kept.keep(0, NAME, refused(0), DATA)) == 2
    assert (tmp_path / "refused").read_bytes() == whole


def test_a_file_that_was_taken_away_begins_anew(tmp_path: Path) -> None:
    kept = RefusedRecords(OsFileSystem(), str(tmp_path))
    kept.keep(0, NAME, refused(0), DATA)
    (tmp_path / "refused").unlink()
    assert len(kept.keep(0, NAME, refused(50), DATA)) == 2
    assert len(lines(tmp_path)) == 2


def test_a_damaged_file_is_set_aside_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise no node that tells what it refused could be shipped to."""
    RefusedRecords(OsFileSystem(), str(tmp_path)).keep(0, NAME, refused(0), DATA)
    damaged = (tmp_path / "refused").read_bytes().replace(b"{", b"[", 1)
    (tmp_path / "refused").write_bytes(damaged)
    kept = RefusedRecords(OsFileSystem(), str(tmp_path))
    assert len(kept.keep(0, NAME, refused(50), DATA)) == 2
    assert kept.keep(0, NAME, refused(50), DATA) == []
    assert (tmp_path / "refused.quarantined-1").read_bytes() == damaged
    assert len(lines(tmp_path)) == 2
    assert "it is now" in caplog.text


def test_what_is_not_here_any_more_is_named(tmp_path: Path) -> None:
    found = RefusedRecords(OsFileSystem(), str(tmp_path)).keep(0, NAME, refused(0), None)
    assert [(each.record, each.is_lost, each.value) for each in found] == [
        (1, True, None),
        (3, True, None),
    ]

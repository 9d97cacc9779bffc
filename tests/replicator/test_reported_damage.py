"""Losses by damage are reported by every process that ships the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samelog.format.directory_files import RunFile
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import SessionDirectory
from tests.replicator.fake_nodes import world
from tests.replicator.session_files import SessionFiles
from tests.replicator.test_push_damage import SIZE, flip, write
from tests.runtime.peers import in_loop, until


def test_a_loss_is_told_until_its_copy_is_removed(tmp_path: Path) -> None:
    """By a process that opens the session after the run is released, too; the second range has no
    bytes left, and its copy is empty.
    """

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 60), 10)
        files.end()
        flip(files.file(0), 3 * SIZE + 30)
        files.file(2).unlink()
        files.begin()
        write(files, range(60, 70), 10)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: not (files.path / "run.0.json").exists())
            await client.stop()
            client = made.push(files.path)
            first, second = client.status.damaged
            assert (first.run, first.start, second.start) == (0, (0, 3 * SIZE), (2, 0))
            [told] = client.beside.recreation.told() or ()
            assert told.damaged_ranges == 2
            sizes = [files.fs.size(each.kept or "") for each in (first, second)]
            assert sizes == [SIZE, 0]
            files.fs.unlink(second.kept or "")
            await until(lambda: client.status.damaged == (first,))
            files.fs.unlink(first.kept or "")
            await until(lambda: not client.status.damaged)
            assert client.beside.recreation.told() in ((), None)

    in_loop(main)


def test_a_damaged_record_of_a_run_is_readable_until_both_its_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy was removed first, and a reader in between took both files for lost."""
    files = SessionFiles(tmp_path / "s")
    seen: list[RunFile | None] = []
    unlink = OsFileSystem.unlink

    def unlink_and_read(self: OsFileSystem, path: str, **options: Any) -> None:
        unlink(self, path, **options)
        if path.endswith(".0.json"):
            seen.append(SessionDirectory.open(self, files.path).run(0))

    async def main() -> None:
        files.begin()
        write(files, range(10, 20), 10)
        files.end()
        files.fs.write_atomically(str(files.path / "run.0.json"), bytes(100))
        files.begin()
        write(files, range(20, 30), 10)
        async with world(tmp_path) as made:
            made.push(files.path)
            await until(lambda: len(seen) == 2)

    monkeypatch.setattr(OsFileSystem, "unlink", unlink_and_read)
    in_loop(main)
    assert [each is None for each in seen] == [False, True]

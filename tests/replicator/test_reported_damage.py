"""Losses by damage are reported by every process that ships the session."""

from __future__ import annotations

from pathlib import Path

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
